//! As much of an HTTP/1.1 client as the load generator needs: where a response ends.

/// The length of the first response in `bytes`, head and body, once all of it is there.
///
/// # Errors
/// If it is not a successful response with a `content-length`, which is all that our server sends.
pub fn complete(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes[..head]);
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(format!("the server answered \"{status}\""));
    }
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .ok_or("the server sent no content-length")?;
    let end = head + 4 + length;
    Ok((bytes.len() >= end).then_some(end))
}

#[cfg(test)]
mod tests {
    use super::complete;

    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\ndate: x\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn ends_with_its_body() {
        for part in 0..WHOLE.len() {
            assert_eq!(complete(&WHOLE[..part]), Ok(None), "{part}");
        }
        assert_eq!(complete(WHOLE), Ok(Some(WHOLE.len())));
        let two = [WHOLE, WHOLE].concat();
        assert_eq!(complete(&two), Ok(Some(WHOLE.len())));
    }

    #[test]
    fn errors_are_told() {
        assert!(
            complete(b"HTTP/1.1 500 Oh\r\n\r\n")
                .unwrap_err()
                .contains("500")
        );
        assert!(complete(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
