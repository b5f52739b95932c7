//! Standard output.

use std::fmt::Display;
use std::io::Write as _;

/// Prints a line. Nobody may be reading any more (`| head`): that is no failure of ours.
pub(super) fn say(line: impl Display) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
