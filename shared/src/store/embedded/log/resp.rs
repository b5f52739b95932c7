//! Writing commands as Redis writes them to its append-only file.

use std::io::Write as _;

use bytes::Bytes;

/// Appends `commands` so that they are replayed together or not at all.
pub(super) fn push_group(out: &mut Vec<u8>, commands: &[Vec<Bytes>]) {
    match commands {
        [] => {}
        [command] => push_command(out, command),
        commands => {
            push_command(out, &["MULTI"]);
            for command in commands {
                push_command(out, command);
            }
            push_command(out, &["EXEC"]);
        }
    }
}

/// Appends one command: its name and arguments, any bytes.
pub(super) fn push_command(out: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    push_head(out, words.len());
    for word in words {
        push_word(out, word.as_ref());
    }
}

/// Appends the head of a command of `words` words, which follow by [`push_word`].
pub(super) fn push_head(out: &mut Vec<u8>, words: usize) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "*{words}\r\n");
}

/// Appends one word of a command.
pub(super) fn push_word(out: &mut Vec<u8>, word: &[u8]) {
    let _ = write!(out, "${}\r\n", word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}
