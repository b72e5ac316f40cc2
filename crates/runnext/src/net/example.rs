//! What differs between the types in the examples of methods that macros make: lines and expressions, by what they are for and the
//! type.
//!
//! - `import`: the types
//! - `io`, `io read`, `io write`: what the calls below need, and `ErrorKind`
//! - `make`: how one is made, as `socket`
//! - `pair`: the same, with the end that it is connected to, as `other`
//! - `std`: the standard library's type
//! - `adopt`: how one is made of the standard library's, `std`, with a time-out
//! - `read`, `write`: a call that waits for something to come, and one that sends 5 bytes
//! - `fill`: a time-out of a call that sends

macro_rules! example {
    (import TcpStream) => { "use runnext::net::{TcpListener, TcpStream};" };
    (import $name:ident) => { concat!("use runnext::net::", stringify!($name), ";") };

    (io read TcpStream) => { "use std::io::{ErrorKind, Read};" };
    (io read UnixStream) => { "use std::io::{ErrorKind, Read};" };
    (io write TcpStream) => { "use std::io::{ErrorKind, Write};" };
    (io write UnixStream) => { "use std::io::{ErrorKind, Write};" };
    (io TcpStream) => { "use std::io::{ErrorKind, Read, Write};" };
    (io UnixStream) => { "use std::io::{ErrorKind, Read, Write};" };
    (io $($other:ident)+) => { "use std::io::ErrorKind;" };

    (make TcpStream) => {
        r#"    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpStream::connect(listener.local_addr()?)?;"#
    };
    (make UnixStream) => { "    let (socket, _other) = UnixStream::pair()?;" };
    (make UnixDatagram) => { "    let (socket, _other) = UnixDatagram::pair()?;" };
    (make UdpSocket) => { r#"    let socket = UdpSocket::bind("127.0.0.1:0")?;"# };
    (make TcpListener) => { r#"    let socket = TcpListener::bind("127.0.0.1:0")?;"# };
    (make UnixListener) => {
        r#"    let socket = UnixListener::bind("")?; // under a name that the system finds"#
    };

    (pair TcpStream) => {
        r#"    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;"#
    };
    (pair UnixStream) => { "    let (socket, other) = UnixStream::pair()?;" };

    (std TcpStream) => { "std::net::TcpStream" };
    (std TcpListener) => { "std::net::TcpListener" };
    (std UdpSocket) => { "std::net::UdpSocket" };
    (std $name:ident) => { concat!("std::os::unix::net::", stringify!($name)) };

    (adopt TcpStream) => {
        r#"    let listener = TcpListener::bind("127.0.0.1:0")?;
    let std = std::net::TcpStream::connect(listener.local_addr()?)?;
    std.set_read_timeout(Some(Duration::from_millis(2)))?;
    let socket = TcpStream::from_std(std)?;"#
    };
    (adopt TcpListener) => {
        r#"    let std = std::net::TcpListener::bind("127.0.0.1:0")?;
    let socket = TcpListener::from_std(std)?;
    socket.set_read_timeout(Some(Duration::from_millis(2)))?; // the standard library's has none"#
    };
    (adopt UdpSocket) => {
        r#"    let std = std::net::UdpSocket::bind("127.0.0.1:0")?;
    std.set_read_timeout(Some(Duration::from_millis(2)))?;
    let socket = UdpSocket::from_std(std)?;"#
    };
    (adopt UnixListener) => {
        r#"    let std = std::os::unix::net::UnixListener::bind("")?; // under a name that the system finds
    let socket = UnixListener::from_std(std)?;
    socket.set_read_timeout(Some(Duration::from_millis(2)))?; // the standard library's has none"#
    };
    (adopt $name:ident) => {
        concat!(
            "    let (std, _other) = std::os::unix::net::", stringify!($name), "::pair()?;\n",
            "    std.set_read_timeout(Some(Duration::from_millis(2)))?;\n",
            "    let socket = ", stringify!($name), "::from_std(std)?;",
        )
    };

    (read TcpListener) => { "socket.accept()" };
    (read UnixListener) => { "socket.accept()" };
    (read TcpStream) => { "(&socket).read(&mut [0; 8])" };
    (read UnixStream) => { "(&socket).read(&mut [0; 8])" };
    (read $name:ident) => { "socket.recv(&mut [0; 8])" };

    (write TcpStream) => { r#"(&socket).write(b"hello")"# };
    (write UnixStream) => { r#"(&socket).write(b"hello")"# };
    (write UdpSocket) => { r#"socket.send_to(b"hello", socket.local_addr()?)"# };
    (write UnixDatagram) => { r#"socket.send(b"hello")"# };

    (fill UdpSocket) => {
        r#"    socket.set_write_timeout(Some(Duration::from_secs(5)))?;
    assert_eq!(socket.send_to(b"there is room", socket.local_addr()?)?, 13);
    let zero = socket.set_write_timeout(Some(Duration::ZERO));
    assert_eq!(zero.unwrap_err().kind(), ErrorKind::InvalidInput);"#
    };
    (fill UnixDatagram) => {
        r#"    socket.set_write_timeout(Some(Duration::from_millis(2)))?;
    let mut sent = std::iter::repeat_with(|| socket.send(b"hello"));
    let error = sent.find_map(Result::err).unwrap(); // nobody receives, so the queue fills up
    assert_eq!(error.kind(), ErrorKind::TimedOut);"#
    };
    (fill $name:ident) => {
        r#"    socket.set_write_timeout(Some(Duration::from_millis(2)))?;
    let error = std::io::copy(&mut std::io::repeat(0), &mut &socket).unwrap_err(); // nobody reads
    assert_eq!(error.kind(), ErrorKind::TimedOut);"#
    };
}
pub(super) use example;
