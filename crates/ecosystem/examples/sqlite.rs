//! SQLite, a library in C that blocks, in goroutines: `cargo run -p ecosystem --example sqlite`.

use std::time::Duration;

use runnext::{blocking, scope};
use rusqlite::{Connection, Result};

/// A connection of its own for each goroutine: SQLite's locks sort them out.
fn open(path: &std::path::Path) -> Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(10))?;
    Ok(db)
}

#[runnext::main]
fn main() -> Result<()> {
    let path = std::env::temp_dir().join(format!("runnext-example-{}.db", std::process::id()));
    open(&path)?.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE visit (who INTEGER);")?;
    scope(|s| {
        let writers: Vec<_> = (0..8)
            .map(|who| {
                let path = &path;
                s.go(move || -> Result<()> {
                    let db = open(path)?;
                    for _ in 0..10 {
                        // May wait for another writer, or the disk: others run meanwhile.
                        blocking(|| db.execute("INSERT INTO visit VALUES (?1)", [who]))?;
                    }
                    Ok(())
                })
            })
            .collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().expect("no panic"))
    })?;
    let db = open(&path)?;
    let visits: u32 = db.query_row("SELECT count(*) FROM visit", [], |row| row.get(0))?;
    println!("{visits} visits by 8 goroutines");
    drop(db);
    let _ = std::fs::remove_file(path);
    Ok(())
}
