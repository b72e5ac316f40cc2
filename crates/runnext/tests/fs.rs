//! Files: the standard library's functions, from goroutines and plain threads, without holding up others.

mod common;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use common::{built, child, runtime, until};
use runnext::{Runtime, fs, go};

/// A directory of its own for each test, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "runnext-fs-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, SeqCst)
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn whole_files() {
    let place = Place::new();
    let (a, b, c) = (place.at("a"), place.at("b"), place.at("c"));
    fs::write(&a, "contents").unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"contents");
    assert_eq!(fs::read_to_string(&a).unwrap(), "contents");
    assert_eq!(fs::copy(&a, &b).unwrap(), 8);
    fs::rename(&b, &c).unwrap();
    assert!(!fs::exists(&b).unwrap() && fs::exists(&c).unwrap());
    fs::hard_link(&a, &b).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 2);
    fs::remove_file(&b).unwrap();
    fs::symlink(&a, &b).unwrap();
    assert_eq!(fs::read_link(&b).unwrap(), a);
    assert!(fs::symlink_metadata(&b).unwrap().file_type().is_symlink());
    assert!(fs::metadata(&b).unwrap().is_file());
    assert_eq!(fs::canonicalize(&b).unwrap(), fs::canonicalize(&a).unwrap());
    fs::set_permissions(&a, fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(
        fs::metadata(&a).unwrap().permissions().mode() & 0o777,
        0o400
    );
}

#[test]
fn whole_files_anywhere() {
    whole_files();
    runtime(1).run(whole_files);
}

#[runnext::test]
fn directories() {
    let place = Place::new();
    fs::create_dir_all(place.at("x/y/z")).unwrap();
    assert_eq!(
        fs::create_dir(place.at("x")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(place.at("x/w"))
        .unwrap();
    fs::write(place.at("x/f"), "").unwrap();
    let mut names: Vec<_> = fs::read_dir(place.at("x"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert_eq!(entry.path(), place.at("x").join(entry.file_name()));
            let kind = entry.file_type().unwrap();
            assert_eq!(kind, entry.metadata().unwrap().file_type());
            assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
            (entry.file_name().into_string().unwrap(), kind.is_dir())
        })
        .collect();
    names.sort();
    let expected = [("f", false), ("w", true), ("y", true)].map(|(n, d)| (n.to_string(), d));
    assert_eq!(names, expected);
    assert!(fs::remove_dir(place.at("x")).is_err(), "not empty");
    fs::remove_dir(place.at("x/w")).unwrap();
    fs::remove_dir_all(place.at("x")).unwrap();
    assert!(!fs::exists(place.at("x")).unwrap());
}

#[runnext::test]
fn open_files() {
    let place = Place::new();
    let path = place.at("f");
    assert_eq!(
        fs::File::open(&path).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let mut file = fs::File::create_new(&path).unwrap();
    assert_eq!(
        fs::File::create_new(&path).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    let n = file
        .write_vectored(&[IoSlice::new(b"01234"), IoSlice::new(b"56789")])
        .unwrap();
    assert_eq!(n, 10);
    assert_eq!(file.seek(SeekFrom::Start(3)).unwrap(), 3);
    let (mut x, mut y) = ([0; 2], [0; 3]);
    let n = file
        .read_vectored(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)])
        .unwrap();
    assert_eq!((n, &x, &y), (5, b"34", b"567"));
    let mut rest = String::new();
    (&file).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "89");
    let mut two = [0; 2];
    file.read_exact_at(&mut two, 8).unwrap();
    assert_eq!(&two, b"89");
    file.write_all_at(b"AB", 0).unwrap();
    assert_eq!(file.stream_position().unwrap(), 10);
    file.set_len(4).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4);
    assert_eq!(fs::read(&path).unwrap(), b"AB23");
    let mut clone = file.try_clone().unwrap();
    clone.rewind().unwrap();
    assert_eq!(file.stream_position().unwrap(), 0, "one position");
    let mut all = Vec::new();
    clone.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"AB23");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    file.set_modified(long_ago).unwrap();
    assert_eq!(file.metadata().unwrap().modified().unwrap(), long_ago);
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .unwrap();
    let fd = OwnedFd::from(file);
    let back = fs::File::from(fd);
    assert!(back.as_raw_fd() >= 0 && format!("{back:?}").contains("File"));
    let std_file = back.into_std();
    assert_eq!(fs::File::from_std(std_file).metadata().unwrap().len(), 4);
}

#[runnext::test]
fn options() {
    let place = Place::new();
    let path = place.at("f");
    let open = |o: &mut fs::OpenOptions| o.open(&path);
    assert!(open(fs::OpenOptions::new().write(true)).is_err());
    let mut file = open(fs::File::options().append(true).create(true).mode(0o600)).unwrap();
    file.write_all(b"one").unwrap();
    file.rewind().unwrap();
    file.write_all(b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"onetwo");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    drop(open(fs::OpenOptions::new().write(true).truncate(true)).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let exists = open(fs::OpenOptions::new().write(true).create_new(true)).unwrap_err();
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
    let e = open(
        fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY),
    )
    .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotADirectory);
}

/// A read that waits (a FIFO whose other end says nothing) does not hold up the only P.
#[runnext::test(procs = 1)]
fn a_slow_file_holds_up_nobody() {
    let place = Place::new();
    let path = place.at("fifo");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    static READ: AtomicBool = AtomicBool::new(false);
    let reader = {
        let path = path.clone();
        go(move || {
            let text = fs::read_to_string(path).unwrap();
            READ.store(true, SeqCst);
            text
        })
    };
    let mut turns = 0;
    let mut writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
    while turns < 1000 {
        runnext::yield_now();
        turns += 1;
    }
    assert!(!READ.load(SeqCst));
    writer.write_all(b"at last").unwrap();
    drop(writer);
    assert_eq!(reader.join().unwrap(), "at last");
}

/// By the traits alone, as code does that is written for both.
#[runnext::test(procs = 2)]
fn stds_unix_traits_are_there() {
    use std::os::unix::fs::{DirBuilderExt, DirEntryExt, OpenOptionsExt};
    fn private<T: OpenOptionsExt>(options: &mut T) -> &mut T {
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW)
    }
    fn own<T: DirBuilderExt>(builder: &mut T) -> &mut T {
        builder.mode(0o700)
    }
    fn number<T: DirEntryExt>(entry: &T) -> u64 {
        entry.ino()
    }
    let place = Place::new();
    let (folder, path) = (place.at("d"), place.at("d/f"));
    own(&mut fs::DirBuilder::new()).create(&folder).unwrap();
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let mut options = fs::File::options();
    let file = private(options.write(true).create_new(true))
        .open(&path)
        .unwrap();
    assert_eq!(mode(&path), 0o600);
    assert!(!file.is_terminal());
    std::os::unix::fs::symlink(&path, place.at("link")).unwrap();
    let refused = private(fs::File::options().read(true)).open(place.at("link"));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ELOOP));
    let entry = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    assert_eq!(number(&entry), file.metadata().unwrap().ino());
}

/// Who waits for the lock of a file keeps its thread, and not its processor.
#[test]
fn a_file_that_is_locked_holds_up_nobody() {
    let place = Place::new();
    let (one, two) = (
        fs::File::create(place.at("lock")).unwrap(),
        fs::File::open(place.at("lock")).unwrap(),
    );
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        one.lock().unwrap();
        let got = Arc::new(AtomicBool::new(false));
        let waiter = {
            let got = Arc::clone(&got);
            go(move || {
                two.lock().unwrap();
                got.store(true, SeqCst);
            })
        };
        until(|| runnext::stats::read().num_sys_calls == 1); // it is in there, and we go on
        assert!(!got.load(SeqCst));
        one.unlock().unwrap();
        waiter.join().unwrap();
        assert!(got.load(SeqCst));
        let late = one.try_lock_shared();
        assert!(late.is_ok()); // the other handle went with its goroutine
    });
}

/// The standard library's function calls itself for each level: a goroutine's stack was used up by 1,400 of them.
#[test]
fn a_deep_tree_is_removed() {
    const DEEP: usize = 1_600;
    child(&[], || {
        let mut most = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: valid arguments.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut most);
            most.rlim_cur = most.rlim_max; // it has a descriptor open for each level
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most);
        }
        let levels = DEEP.min(most.rlim_max as usize - 100);
        runtime(1).run(|| {
            let place = Place::new();
            fs::create_dir_all(place.at(&"d/".repeat(levels))).unwrap();
            fs::remove_dir_all(place.at("d")).unwrap();
            assert!(!fs::exists(place.at("d")).unwrap());
            let missing = fs::remove_dir_all(place.at("d")).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
        });
    })
    .passed();
}
