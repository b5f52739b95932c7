//! Standard output.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::process;

/// Prints a line. Nobody may be reading any more (`| head`): that is no failure of ours. A full
/// disk is one: what was asked for is not there, so the command ends with exit code 1.
pub(super) fn say(line: impl Display) {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            drop(writeln!(
                std::io::stderr(),
                "error: write to standard output: {error}"
            ));
            process::exit(1);
        }
        _ => {}
    }
}
