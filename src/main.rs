//! The `hookstash` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hookstash::cli::main()
}
