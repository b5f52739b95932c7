//! Reading a log group by group, and telling an end that was torn off from damage.

use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;

/// Longest word and most words of a command, as in Redis.
const WORD_BYTES_MAX: usize = 512 * 1024 * 1024;
const WORDS_MAX: usize = 1024 * 1024;
/// Digits of a length.
const DIGITS_MAX: usize = 10;
/// Bytes read from the file at once.
const BUFFER_BYTES: usize = 256 * 1024;
/// Bytes set aside for a word before any of it was read.
const WORD_BYTES_FIRST: usize = 64 * 1024;

/// What comes next in a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Commands that belong together.
    Group(Vec<Vec<Bytes>>),
    /// The log ends here.
    End,
    /// The log ends in the middle of a group.
    Torn,
    /// What stands at `at` cannot stand in a log.
    Damaged { at: u64, what: &'static str },
}

/// Why there is no command.
enum Flaw {
    Torn,
    Damaged(u64, &'static str),
    Read(io::Error),
}

impl From<io::Error> for Flaw {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Reads a log from its first byte.
pub(super) struct LogReader<R> {
    source: BufReader<R>,
    offset: u64,
}

impl<R: Read> LogReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: BufReader::with_capacity(BUFFER_BYTES, source),
            offset: 0,
        }
    }

    /// How many bytes have been read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next group. After anything else than a group there is nothing more to read.
    pub(super) fn next_group(&mut self) -> io::Result<Next> {
        match self.group() {
            Ok(Some(commands)) => Ok(Next::Group(commands)),
            Ok(None) => Ok(Next::End),
            Err(Flaw::Torn) => Ok(Next::Torn),
            Err(Flaw::Damaged(at, what)) => Ok(Next::Damaged { at, what }),
            Err(Flaw::Read(error)) => Err(error),
        }
    }

    fn group(&mut self) -> Result<Option<Vec<Vec<Bytes>>>, Flaw> {
        let mut at = self.offset;
        let Some(first) = self.command()? else {
            return Ok(None);
        };
        if is(&first, b"EXEC") {
            return Err(Flaw::Damaged(at, "EXEC without MULTI"));
        }
        if !is(&first, b"MULTI") {
            return Ok(Some(vec![first]));
        }
        let mut commands = Vec::new();
        loop {
            at = self.offset;
            let command = self.command()?.ok_or(Flaw::Torn)?;
            if is(&command, b"EXEC") {
                return Ok(Some(commands));
            }
            if is(&command, b"MULTI") {
                return Err(Flaw::Damaged(at, "MULTI within MULTI"));
            }
            commands.push(command);
        }
    }

    /// The next command; `None` at the end of the log.
    fn command(&mut self) -> Result<Option<Vec<Bytes>>, Flaw> {
        if self.source.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let at = self.offset;
        let count = self.length(b'*', WORDS_MAX)?;
        if count == 0 {
            return Err(Flaw::Damaged(at, "a command without words"));
        }
        let mut words = Vec::with_capacity(count.min(16));
        for _ in 0..count {
            let len = self.length(b'$', WORD_BYTES_MAX)?;
            words.push(self.word(len)?);
            self.expect(b'\r')?;
            self.expect(b'\n')?;
        }
        Ok(Some(words))
    }

    /// A line of `mark` and a number.
    fn length(&mut self, mark: u8, max: usize) -> Result<usize, Flaw> {
        self.expect(mark)?;
        let at = self.offset;
        let mut length = 0;
        for digits in 0..=DIGITS_MAX {
            match self.byte()? {
                digit @ b'0'..=b'9' if digits < DIGITS_MAX => {
                    length = length * 10 + usize::from(digit - b'0');
                }
                b'\r' if digits > 0 => {
                    self.expect(b'\n')?;
                    if length > max {
                        return Err(Flaw::Damaged(at, "a length that no command has"));
                    }
                    return Ok(length);
                }
                _ => break,
            }
        }
        Err(Flaw::Damaged(self.offset - 1, "no length"))
    }

    fn word(&mut self, len: usize) -> Result<Bytes, Flaw> {
        let ready = self.source.buffer().get(..len);
        if let Some(word) = ready.map(Bytes::copy_from_slice) {
            self.source.consume(len);
            self.offset += len as u64;
            return Ok(word);
        }
        let mut word = Vec::with_capacity(len.min(WORD_BYTES_FIRST));
        let read = (&mut self.source).take(len as u64).read_to_end(&mut word)?;
        self.offset += read as u64;
        if read < len {
            return Err(Flaw::Torn);
        }
        Ok(Bytes::from(word))
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Flaw> {
        let at = self.offset;
        match self.byte()? {
            byte if byte == wanted => Ok(()),
            _ => Err(Flaw::Damaged(at, "not the form of a command")),
        }
    }

    fn byte(&mut self) -> Result<u8, Flaw> {
        let byte = *self.source.fill_buf()?.first().ok_or(Flaw::Torn)?;
        self.source.consume(1);
        self.offset += 1;
        Ok(byte)
    }
}

fn is(command: &[Bytes], name: &[u8]) -> bool {
    matches!(command, [word] if word.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Next> {
        let mut reader = LogReader::new(text);
        let mut found = Vec::new();
        loop {
            let next = reader.next_group().unwrap();
            let is_group = matches!(next, Next::Group(_));
            found.push(next);
            if !is_group {
                return found;
            }
        }
    }

    #[test]
    fn what_cannot_stand_in_a_log_is_damage_and_is_found_where_it_stands() {
        let ping = b"*1\r\n$4\r\nPING\r\n";
        for (text, at) in [
            (&b"PING\r\n"[..], 0),
            (b"*x\r\n", 1),
            (b"*1\n", 2),
            (b"*1\r$4", 3),
            (b"*0\r\n", 0),
            (b"*1\r\n$5\r\nPING\r\n", 13),
            (b"*1\r\n$3\r\nPING\r\n", 11),
            (b"*1\r\n$600000000\r\n", 5),
            (b"*2000000\r\n", 1),
            (b"*99999999999\r\n", 11),
            (b"*1\r\n$4\r\nEXEC\r\n", 0),
            (b"*1\r\n$5\r\nMULTI\r\n*1\r\n$5\r\nMULTI\r\n", 15),
        ] {
            let last = all(&[ping, text].concat()).pop();
            let at = at + ping.len() as u64;
            let shown = String::from_utf8_lossy(text);
            assert!(
                matches!(last, Some(Next::Damaged { at: found, .. }) if found == at),
                "{shown:?}: {last:?}"
            );
        }
    }

    #[test]
    fn a_group_without_its_end_is_torn_wherever_it_ends() {
        let mut text = Vec::new();
        super::super::resp::push_command(&mut text, &["SET", "k", "v"]);
        let whole = text.len();
        let group = [vec![Bytes::from("DEL"), "k".into()], vec!["PING".into()]];
        super::super::resp::push_group(&mut text, &group);
        for end in whole..=text.len() {
            let want = match end {
                end if end == whole => Next::End,
                end if end == text.len() => Next::Group(group.to_vec()),
                _ => Next::Torn,
            };
            assert_eq!(all(&text[..end])[1], want, "{end}");
        }
    }
}
