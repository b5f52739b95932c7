//! Bodies from the command line: a text, a file or standard input.

use std::io::Read as _;

use bytes::Bytes;

use super::failure::Failure;

/// Most bytes that are read; more than any server takes.
const BYTES_MAX: u64 = 128 * 1024 * 1024;

/// What `data` stands for: `@FILE` and `-` (or `@-`) are read, anything else is the body itself.
pub(super) fn body(data: &str) -> Result<Bytes, Failure> {
    match data.strip_prefix('@') {
        _ if data == "-" || data == "@-" => stdin(),
        Some(path) => {
            let opened = std::fs::File::open(path);
            let file = opened.map_err(|error| unreadable(path, &error))?;
            all(file, path)
        }
        None => Ok(Bytes::copy_from_slice(data.as_bytes())),
    }
}

/// Standard input to its end.
pub(super) fn stdin() -> Result<Bytes, Failure> {
    all(std::io::stdin().lock(), "standard input")
}

fn all(source: impl std::io::Read, name: &str) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    let read = source.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) if u64::try_from(bytes.len()).is_ok_and(|len| len <= BYTES_MAX) => Ok(bytes.into()),
        Ok(_) => Err(Failure::usage(format!("{name} is larger than any message"))),
        Err(error) => Err(unreadable(name, &error)),
    }
}

fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("read {name}")).because(error)
}

/// `Name: value` of a `-H` flag.
pub(super) fn header(text: &str) -> Result<(http::HeaderName, http::HeaderValue), Failure> {
    let wrong = || {
        Failure::usage("a header is not of the form 'Name: value'")
            .advise("Write for example -H 'X-Agent-Step: 7'.")
    };
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = http::HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
    let value = http::HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_a_text_or_a_file() {
        assert_eq!(body("{\"a\":1}").unwrap(), "{\"a\":1}");
        assert_eq!(body("").unwrap(), "");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("body");
        std::fs::write(&path, b"\xff\n").unwrap();
        assert_eq!(
            body(&format!("@{}", path.display())).unwrap(),
            &b"\xff\n"[..]
        );
        assert!(body("@/does/not/exist").is_err());
    }

    #[test]
    fn headers_have_a_name_and_a_value() {
        let (name, value) = header("X-A:  b: c ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-a", "b: c"));
        for wrong in ["", "x", ": v", "a b: c", "x: \u{1}"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }
}
