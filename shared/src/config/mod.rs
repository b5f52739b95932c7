//! Configuration: one table of settings, from which parsing, `--help` and the documentation come.
//!
//! A value comes from the command line, else from `HOOKSTASH_X`, else from the usual name. Anything
//! that cannot be right stops the start and names the setting; no message repeats a value.

mod document;
mod error;
mod reader;
mod secret;
mod settings;
mod size;
mod table;
mod unknown;

pub use document::{help, markdown};
pub use error::ConfigError;
pub use reader::Overrides;
pub use settings::{LogFormat, Settings};
pub use table::{Kind, SETTINGS, Setting, names};
