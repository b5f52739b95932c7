//! A Lua script: its name, its text and the digest Redis knows it by.

use std::fmt;
use std::sync::LazyLock;

/// One transition. Built once from its parts and kept for the life of the process.
pub struct Script {
    name: &'static str,
    parts: &'static [&'static str],
    built: LazyLock<Built, Box<dyn FnOnce() -> Built + Send>>,
}

struct Built {
    source: String,
    sha1: String,
}

impl Script {
    /// The script `name`, whose text is `parts` joined in order (shared prelude first).
    pub fn new(name: &'static str, parts: &'static [&'static str]) -> Self {
        let build = move || {
            use sha1::{Digest, Sha1};
            let source = parts.join("\n");
            let digest = Sha1::digest(source.as_bytes());
            let sha1 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            Built { source, sha1 }
        };
        Self {
            name,
            parts,
            built: LazyLock::new(Box::new(build)),
        }
    }

    /// The name used in logs: the file name without its ending.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole text.
    pub fn source(&self) -> &str {
        &self.built.source
    }

    /// SHA-1 of the text in lower-case hexadecimal, the name `EVALSHA` takes.
    pub fn sha1(&self) -> &str {
        &self.built.sha1
    }

    /// The files the text was joined from.
    pub fn parts(&self) -> &'static [&'static str] {
        self.parts
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}
