//! A Lua script: its name, its text and the digest Redis knows it by.

use std::fmt;

use sha1::{Digest, Sha1};

/// One transition. Built once and kept for the life of the process.
pub struct Script {
    name: &'static str,
    source: String,
    sha1: String,
}

impl Script {
    /// The script `name`, whose text is `parts` joined in order (shared prelude first).
    pub fn new(name: &'static str, parts: &[&str]) -> Self {
        let source = parts.join("\n");
        let digest = Sha1::digest(source.as_bytes());
        let sha1 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
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
