//! The other end of the network scenarios: a load generator in a process of its own, the same for every runtime.
//!
//! A rival starts its server and then this program, with its own arguments and `addr=…`; this program drives the server, watches
//! its CPU time and memory from outside, and prints the rival's JSON line. One thread and one epoll instance, so that it costs the
//! same beside every runtime.
//!
//! | scenario    | what it does                                                                                        |
//! |-------------|-----------------------------------------------------------------------------------------------------|
//! | echo        | `conns` connections, each sends `size` bytes and waits for them to come back, for `seconds`          |
//! | connections | opens `n`, one byte there and back on each, then looks at the server's memory                       |
//! | storm       | `n` connections opened, used for one echo and closed, `width` at a time                             |
//! | tailtcp     | the mixed load of `tail`, over TCP: light requests at Poisson times, heavy clients in a closed loop   |

mod conn;
mod echo;
mod server;
mod tail;

use harness::{Args, unsupported};

fn main() {
    let args = Args::from_env();
    match args.scenario.as_str() {
        "echo" => echo::echo(&args),
        "connections" => echo::connections(&args),
        "storm" => echo::storm(&args),
        "tailtcp" => tail::tail(&args),
        other => unsupported(other),
    }
}
