//! Deferred completions: an empty placeholder that one result fills, once.

use bytes::Bytes;

use super::args::{Args, Reader, command, text, unexpected};
use super::host::{HostError, Reply};
use super::{Store, scripts};
use crate::message::{Shard, Shards, shard_of_operation};

/// Which placeholder: that of one tool message of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CompletionKey {
    shard: Shard,
    name: String,
}

impl CompletionKey {
    /// The placeholder of `tool_message` in `operation`, in a store with `shards`.
    pub fn new(operation: &str, tool_message: &str, shards: Shards) -> Self {
        Self {
            shard: shard_of_operation(operation, shards),
            name: format!("{}:{}", escape(operation), escape(tool_message)),
        }
    }
}

/// A colon separates the parts of the key, so none may have one of its own.
fn escape(id: &str) -> String {
    id.replace('%', "%25").replace(':', "%3A")
}

/// The id in an escaped one.
fn unescape(escaped: &str) -> String {
    escaped.replace("%3A", ":").replace("%25", "%")
}

/// A placeholder as it is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// What whoever opened it put there for whoever completes it.
    pub context: Bytes,
    /// The final result; `None` while it is empty.
    pub result: Option<Bytes>,
}

/// The answer to a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// This result is the final one.
    Won,
    /// Another result came first: this is it.
    Lost(Bytes),
    /// No placeholder is open: it never was, or its retention is over. Nothing was applied.
    Unknown,
}

/// The answer to an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It is open, or has its result.
    Open,
    /// Its operation was stopped: nothing was opened.
    Stopped,
}

/// The answer to a withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// No placeholder is left.
    Gone,
    /// It has its result, and keeps it.
    Final,
}

impl Store {
    /// Opens a placeholder with what its completion will need to know. Safe to repeat; an open or
    /// completed one is left as it is, with its first context, and none is opened beside a result
    /// that is still there, nor any of an operation that was stopped.
    pub async fn open_completion(
        &self,
        key: &CompletionKey,
        context: Bytes,
    ) -> Result<Opening, HostError> {
        let args = Args::new().text(&key.name).bytes(context);
        let reply = self
            .run_script(key.shard, &scripts::OPEN_COMPLETION, args)
            .await?;
        opening(&reply)
    }

    /// No placeholder of `operation` is opened any more, by any process. Those that are open stay:
    /// from now on [`open_completions`](Self::open_completions) names all that there will ever be.
    /// Safe to repeat; forgotten as long after the last time as a result is kept.
    pub async fn stop_completions(&self, operation: &str) -> Result<(), HostError> {
        let shard = shard_of_operation(operation, self.shards);
        let key = self.keys.stopped(shard, &escape(operation));
        let ms = self.retention.completion_ms.to_string();
        self.run_one(command([b"SET", &key, b"1", b"PX", ms.as_bytes()]))
            .await
            .map(drop)
    }

    /// Whether [`stop_completions`](Self::stop_completions) was called for `operation`.
    pub async fn are_completions_stopped(&self, operation: &str) -> Result<bool, HostError> {
        let shard = shard_of_operation(operation, self.shards);
        let key = self.keys.stopped(shard, &escape(operation));
        match self.run_one(command([b"EXISTS", &key])).await? {
            Reply::Int(count) => Ok(count > 0),
            other => Err(unexpected("stopped operation", &other)),
        }
    }

    /// Tool messages of `operation` whose placeholders are open, or were closed and not withdrawn:
    /// the first of them, longest open first, and empty when none is. Whoever withdraws or
    /// completes these gets the next.
    pub async fn open_completions(&self, operation: &str) -> Result<Vec<String>, HostError> {
        const LAST: &[u8] = b"63";
        let shard = shard_of_operation(operation, self.shards);
        let key = self.keys.open_completions(shard, &escape(operation));
        let reply = self.run_one(command([b"ZRANGE", &key, b"0", LAST])).await?;
        let mut reader = Reader::new(reply, "open placeholders")?;
        let mut messages = Vec::new();
        while reader.len() > 0 {
            messages.push(unescape(&reader.text()?));
        }
        Ok(messages)
    }

    /// The placeholder; `None` when none is open or its retention is over.
    pub async fn placeholder(&self, key: &CompletionKey) -> Result<Option<Placeholder>, HostError> {
        let open = self.keys.completion(key.shard, &key.name);
        let result = self.keys.completion_result(key.shard, &key.name);
        let reply = self.run_one(command([b"MGET", &open, &result])).await?;
        let mut reader = Reader::new(reply, "placeholder")?;
        Ok(match (reader.next()?, reader.next()?) {
            (Reply::Bytes(context), Reply::Bytes(result)) => Some(Placeholder {
                context,
                result: Some(result),
            }),
            (Reply::Bytes(context), _) => Some(Placeholder {
                context,
                result: None,
            }),
            _ => None,
        })
    }

    /// Fills a placeholder, if it is still empty. Of any number of callers one wins, and every
    /// other gets the winner's result. A repeat of the winner reads its own result back.
    pub async fn complete(
        &self,
        key: &CompletionKey,
        result: Bytes,
    ) -> Result<Completion, HostError> {
        let args = Args::new()
            .text(&key.name)
            .bytes(result)
            .number(self.retention.completion_ms);
        let reply = self
            .run_script(key.shard, &scripts::COMPLETE_COMPLETION, args)
            .await?;
        completion(reply)
    }

    /// Takes back a placeholder that nothing will complete. One that has its result keeps it.
    /// Safe to repeat.
    pub async fn withdraw_completion(&self, key: &CompletionKey) -> Result<Withdrawn, HostError> {
        self.withdraw(key, "").await
    }

    /// The same, but [`open_completions`](Self::open_completions) names it until it is withdrawn:
    /// whoever has more to do about it finds it again after a failure.
    pub async fn close_completion(&self, key: &CompletionKey) -> Result<Withdrawn, HostError> {
        self.withdraw(key, "keep").await
    }

    async fn withdraw(&self, key: &CompletionKey, kept: &str) -> Result<Withdrawn, HostError> {
        let args = Args::new().text(&key.name).text(kept);
        let reply = self
            .run_script(key.shard, &scripts::WITHDRAW_COMPLETION, args)
            .await?;
        withdrawn(&reply)
    }
}

/// # Errors
/// It is no answer of the script: whoever took it for "open" would start what nobody waits for.
fn opening(reply: &Reply) -> Result<Opening, HostError> {
    match text(reply).as_deref() {
        Some("opened" | "open") => Ok(Opening::Open),
        Some("stopped") => Ok(Opening::Stopped),
        _ => Err(unexpected("open", reply)),
    }
}

/// # Errors
/// It is no answer of the script: whoever took it for "unknown" would lose a result.
fn completion(reply: Reply) -> Result<Completion, HostError> {
    let mut reader = Reader::new(reply, "complete")?;
    let word = reader.text()?;
    match (word.as_str(), reader.next()) {
        ("won", _) => Ok(Completion::Won),
        ("lost", Ok(Reply::Bytes(first))) => Ok(Completion::Lost(first)),
        ("unknown", _) => Ok(Completion::Unknown),
        (_, Ok(other)) => Err(unexpected("complete", &other)),
        (_, Err(error)) => Err(error),
    }
}

/// # Errors
/// It is no answer of the script: whoever took it for "gone" would publish beside a placeholder.
fn withdrawn(reply: &Reply) -> Result<Withdrawn, HostError> {
    match text(reply).as_deref() {
        Some("final") => Ok(Withdrawn::Final),
        Some("gone") => Ok(Withdrawn::Gone),
        _ => Err(unexpected("withdraw", reply)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_placeholders_share_a_name() {
        let pairs = [
            ("a:b", "c"),
            ("a", "b:c"),
            ("a%3Ab", "c"),
            ("a%", ":b:c"),
            ("a", "b:final"),
        ];
        let names = pairs
            .map(|(operation, message)| CompletionKey::new(operation, message, Shards::ONE).name);
        for (index, name) in names.iter().enumerate() {
            assert_eq!(names.iter().position(|other| other == name), Some(index));
        }
    }

    #[test]
    fn an_answer_that_no_script_gives_is_an_error() {
        let status = |word: &str| Reply::Status(word.to_owned());
        assert_eq!(withdrawn(&status("gone")), Ok(Withdrawn::Gone));
        assert_eq!(withdrawn(&status("final")), Ok(Withdrawn::Final));
        for wrong in [
            Reply::Nil,
            status("OK"),
            Reply::Int(0),
            Reply::Array(vec![]),
        ] {
            assert!(withdrawn(&wrong).is_err(), "{wrong:?}");
            assert!(completion(wrong).is_err());
        }
        let answer = |items: Vec<Reply>| completion(Reply::Array(items));
        assert_eq!(answer(vec![status("unknown")]), Ok(Completion::Unknown));
        assert!(answer(vec![status("lost")]).is_err());
        assert!(answer(vec![status("lost"), Reply::Nil]).is_err());
        assert!(answer(vec![status("gone"), Reply::Nil]).is_err());
    }

    #[test]
    fn the_placeholders_of_one_operation_lie_in_one_shard() {
        let shards = Shards::new(16).unwrap();
        let first = CompletionKey::new("op", "1", shards).shard;
        assert!((2..50).all(|message| {
            CompletionKey::new("op", &message.to_string(), shards).shard == first
        }));
    }
}
