//! A Lua script: its name, its text and the digest Redis knows it by.

use std::fmt::{self, Write};

use sha1::{Digest, Sha1};

/// One transition. Built once and kept for the life of the process.
pub struct Script {
    name: &'static str,
    source: String,
    sha1: String,
}

impl Script {
    /// The script `name`, whose text is `parts` in order (shared prelude first), each of which sees
    /// the names of those before it.
    ///
    /// Each is a function within the one before it, which costs less than one long function: a
    /// script makes all its functions anew at every call, and finds a name of its own function by
    /// walking through them, but a name from outside at once.
    pub fn new(name: &'static str, parts: &[&str]) -> Self {
        let mut source = parts.join("\nreturn (function()\n");
        for _ in 1..parts.len() {
            source.push_str("\nend)()");
        }
        let digest = Sha1::digest(source.as_bytes());
        let mut sha1 = String::with_capacity(2 * digest.len());
        for byte in &digest {
            // Writing to a string cannot fail.
            let _ = write!(sha1, "{byte:02x}");
        }
        Self { name, source, sha1 }
    }

    /// The name used in logs: the file name without its ending.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// SHA-1 of the text in lower-case hexadecimal, the name `EVALSHA` takes.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}
