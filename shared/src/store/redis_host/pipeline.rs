//! Items to commands, answers to results.
//!
//! Order is kept although scripts are named by their digest: a digest that Redis does not know
//! must not let later items overtake its item. So only the last item of a pipeline, or a script
//! whose source this pipeline has sent already, goes as `EVALSHA`; every other script goes as
//! `EVAL`. An item refused as unknown is sent again with its source, alone.

use std::collections::HashSet;

use redis::{Cmd, Pipeline, RedisResult, Value};

use super::connect::Live;
use super::errors::{classify, is_unknown_script, is_wrong_server, lost};
use super::link::Link;
use crate::store::host::{HostError, Reply, Step, StepResult};

/// What came of a pipeline.
pub(super) struct Outcome {
    /// One result for each step.
    pub(super) results: Vec<StepResult>,
    /// Whether the server turned out to be gone, demoted or not the owner of the keys.
    pub(super) wrong_server: bool,
}

/// Runs `steps` in order on the connection of `link`.
pub(super) async fn run(link: &Link, steps: &[Step]) -> Outcome {
    run_ending(link, steps, false).await
}

/// Like [`run`]. The last step says something about all others, so it is sent once more behind one
/// that had to be sent again.
pub(super) async fn run_closing(link: &Link, steps: &[Step]) -> Outcome {
    run_ending(link, steps, true).await
}

async fn run_ending(link: &Link, steps: &[Step], is_closing: bool) -> Outcome {
    let live = match link.get().await {
        Ok(live) => live,
        Err(error) => {
            return Outcome {
                results: steps.iter().map(|_| Err(error.clone().into())).collect(),
                wrong_server: true,
            };
        }
    };
    let mut answers = send(&live, encode_all(steps)).await;
    let is_resent = resend_unknown(&live, steps, &mut answers).await;
    if is_resent && is_closing {
        let last = steps.last().map(|step| encode(step, true));
        answers.truncate(steps.len().saturating_sub(1));
        answers.extend(send(&live, last.into_iter().collect()).await);
    }
    let wrong_server = answers.iter().any(Answer::is_wrong_server);
    if wrong_server {
        link.forget(&live).await;
    }
    Outcome {
        results: answers.into_iter().map(Answer::into_result).collect(),
        wrong_server,
    }
}

/// The answer to one item, as it came.
enum Answer {
    Value(Value),
    Lost(HostError),
    /// The item has no command name and was not sent.
    Empty,
}

impl Answer {
    fn is_wrong_server(&self) -> bool {
        match self {
            Self::Value(Value::ServerError(error)) => is_wrong_server(error),
            Self::Value(_) | Self::Empty => false,
            Self::Lost(_) => true,
        }
    }

    fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Value(Value::ServerError(error)) if is_unknown_script(error))
    }

    fn into_result(self) -> StepResult {
        match self {
            Self::Value(value) => reply(value),
            Self::Lost(error) => Err(error),
            Self::Empty => Err(HostError::Fault("a command has no name".to_owned())),
        }
    }
}

async fn send(live: &Live, commands: Vec<Option<Cmd>>) -> Vec<Answer> {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    let sent: Vec<bool> = commands.iter().map(Option::is_some).collect();
    for command in commands.into_iter().flatten() {
        pipeline.add_command(command);
    }
    let count = pipeline.len();
    let answers = if count == 0 {
        Ok(Vec::new())
    } else {
        let mut connection = live.connection.clone();
        connection.send_packed_commands(&pipeline, 0, count).await
    };
    assign(&sent, answers)
}

fn assign(sent: &[bool], answers: RedisResult<Vec<Value>>) -> Vec<Answer> {
    let (values, loss) = match answers {
        Ok(values) => (values, HostError::Lost("an answer is missing".to_owned())),
        Err(error) => (Vec::new(), lost(&error)),
    };
    let mut values = values.into_iter();
    let mut next = || {
        let value = values.next();
        value.map_or_else(|| Answer::Lost(loss.clone()), Answer::Value)
    };
    sent.iter()
        .map(|&sent| if sent { next() } else { Answer::Empty })
        .collect()
}

/// Whether there were any.
async fn resend_unknown(live: &Live, steps: &[Step], answers: &mut [Answer]) -> bool {
    let unknown: Vec<usize> = (0..answers.len())
        .filter(|&index| answers.get(index).is_some_and(Answer::is_unknown_script))
        .collect();
    if unknown.is_empty() {
        return false;
    }
    let commands = unknown
        .iter()
        .filter_map(|&index| steps.get(index))
        .map(|step| encode(step, true))
        .collect();
    let again = send(live, commands).await;
    for (index, answer) in unknown.into_iter().zip(again) {
        if let Some(slot) = answers.get_mut(index) {
            *slot = answer;
        }
    }
    true
}

fn encode_all(steps: &[Step]) -> Vec<Option<Cmd>> {
    let mut sources_sent = HashSet::new();
    let last = steps.len().saturating_sub(1);
    let mut commands = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let with_source = match step {
            Step::Command(_) => false,
            Step::Script { script, .. } => index != last && sources_sent.insert(script.sha1()),
        };
        commands.push(encode(step, with_source));
    }
    commands
}

/// The command of `step`; `None` when it has no name.
fn encode(step: &Step, with_source: bool) -> Option<Cmd> {
    let mut command = Cmd::new();
    match step {
        Step::Command(words) => {
            words.first()?;
            for word in words {
                command.arg(word.as_ref());
            }
        }
        Step::Script { script, keys, args } => {
            if with_source {
                command.arg("EVAL").arg(script.source());
            } else {
                command.arg("EVALSHA").arg(script.sha1());
            }
            command.arg(keys.len());
            for word in keys.iter().chain(args) {
                command.arg(word.as_ref());
            }
        }
    }
    Some(command)
}

/// `value` as RESP2 defines it.
pub(super) fn reply(value: Value) -> StepResult {
    match value {
        Value::Nil => Ok(Reply::Nil),
        Value::Int(number) => Ok(Reply::Int(number)),
        Value::BulkString(bytes) => Ok(Reply::Bytes(bytes.into())),
        Value::Okay => Ok(Reply::Status("OK".to_owned())),
        Value::SimpleString(text) => Ok(Reply::Status(text)),
        Value::Array(values) => {
            let replies: Result<_, _> = values.into_iter().map(reply).collect();
            Ok(Reply::Array(replies?))
        }
        Value::ServerError(error) => Err(classify(&error)),
        _ => Err(HostError::Fault(
            "the answer is of a kind that was not asked for".to_owned(),
        )),
    }
}
