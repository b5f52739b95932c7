//! Publishing: in batches and one by one, beside a bare loop over the same script.
//!
//! The bare loop sends the very commands that the publisher would send, made before the clock
//! starts, through a plain Redis client: what it lacks is everything that the publisher adds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};
use hookstash_producer::publish::{PublishError, Published, Publisher};
use hookstash_shared::message::Shards;
use hookstash_shared::random::SystemRandom;
use hookstash_shared::store::host::{Host, HostError, Reply, Step, StepResult};
use hookstash_shared::store::{Retention, Store, scripts};

use super::cpu::Cpu;
use super::figures::{Pace, Publishing};
use super::stage::Stage;
use crate::cli::failure::Failure;

/// Messages of one pipeline.
const BATCH: usize = 64;
/// Pipelines under way at a time, so that client and server work side by side.
const LOOPS: usize = 4;
/// Callers that publish one by one, side by side.
const CALLERS: usize = 64;
/// How long an unclear answer is asked for again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Publishes `count` messages to the receiver in batches, and leaves them in the store.
pub(super) async fn batched(stage: &Stage, count: usize) -> Result<Publishing, Failure> {
    timed(stage, count, async {
        try_join_all((0..LOOPS).map(|caller| async move {
            for batch in (0..count.div_ceil(BATCH)).skip(caller).step_by(LOOPS) {
                let end = ((batch + 1) * BATCH).min(count);
                let messages = stage.messages(batch * BATCH..end)?;
                for result in stage.publisher.publish_many(messages, PATIENCE).await {
                    accepted(result)?;
                }
            }
            Ok(())
        }))
        .await
        .map(drop)
    })
    .await
}

/// Publishes `count` messages one by one from many callers, and removes them again.
pub(super) async fn singles(stage: &Stage, count: usize) -> Result<Publishing, Failure> {
    let publishing = timed(stage, count, async {
        try_join_all((0..CALLERS).map(|caller| async move {
            for number in (caller..count).step_by(CALLERS) {
                let message = stage.message(number)?;
                accepted(stage.publisher.publish(message, PATIENCE).await)?;
            }
            Ok(())
        }))
        .await
        .map(drop)
    })
    .await?;
    stage.redis.clear().await?;
    Ok(publishing)
}

/// The bare loop: the commands of `count` messages, made beforehand, in pipelines of as many.
/// Removes what it made.
pub(super) async fn bare(stage: &Stage, count: usize) -> Result<Publishing, Failure> {
    let mut loops: Vec<Vec<redis::Pipeline>> = (0..LOOPS).map(|_| Vec::new()).collect();
    for batch in 0..count.div_ceil(BATCH) {
        let end = ((batch + 1) * BATCH).min(count);
        let pipeline = pipeline(recorded(stage, batch * BATCH..end).await?);
        if let Some(of_loop) = loops.get_mut(batch % LOOPS) {
            of_loop.push(pipeline);
        }
    }
    let mut connection = stage.redis.connection();
    let _: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(scripts::PUBLISH_MESSAGE.source())
        .query_async(&mut connection)
        .await
        .map_err(|error| failed(&error))?;
    let publishing = timed(stage, count, async {
        try_join_all(loops.into_iter().map(|pipelines| async {
            let mut connection = stage.redis.connection();
            for pipeline in pipelines {
                let sent: redis::RedisResult<redis::Value> =
                    pipeline.query_async(&mut connection).await;
                sent.map_err(|error| failed(&error))?;
            }
            Ok(())
        }))
        .await
        .map(drop)
    })
    .await?;
    stage.redis.clear().await?;
    Ok(publishing)
}

/// Runs `work`, which publishes `count` messages.
async fn timed(
    stage: &Stage,
    count: usize,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<Publishing, Failure> {
    let (before, redis) = (Cpu::now(), stage.redis.info().await?);
    let began = stage.now();
    work.await?;
    let took = stage.now().saturating_sub(began);
    let (cpu, after) = (Cpu::now() - before, stage.redis.info().await?);
    Ok(Publishing {
        pace: Pace { count, took },
        publisher: cpu.rest,
        redis: after.cpu().saturating_sub(redis.cpu()),
        memory: after.number("used_memory") - redis.number("used_memory"),
    })
}

fn accepted(result: Result<Published, PublishError>) -> Result<(), Failure> {
    result.map(drop).map_err(|error| failed(&error))
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::failed("publish").because(error)
}

/// What the publisher sends for `numbers`.
async fn recorded(stage: &Stage, numbers: std::ops::Range<usize>) -> Result<Vec<Step>, Failure> {
    let recorder = Arc::new(Recorder::default());
    let settings = stage.app.settings();
    let store = Store::new(
        Arc::clone(&recorder) as Arc<dyn Host>,
        &settings.key_prefix,
        Shards::ONE,
        settings.lease,
        Retention::default(),
    );
    let publisher = Publisher::new(store, Arc::clone(stage.clock()), Arc::new(SystemRandom));
    let messages = stage.messages(numbers)?;
    for result in publisher.publish_many(messages, PATIENCE).await {
        accepted(result)?;
    }
    Ok(std::mem::take(&mut *recorder.lock()))
}

fn pipeline(steps: Vec<Step>) -> redis::Pipeline {
    let mut pipeline = redis::pipe();
    for step in steps {
        match step {
            Step::Command(words) => {
                let mut words = words.iter();
                let name = words.next().map_or(&[][..], |name| name);
                let command = pipeline.cmd(&String::from_utf8_lossy(name));
                for word in words {
                    command.arg(word.as_ref());
                }
            }
            Step::Script { script, keys, args } => {
                let command = pipeline.cmd("EVALSHA").arg(script.sha1()).arg(keys.len());
                for word in keys.iter().chain(&args) {
                    command.arg(word.as_ref());
                }
            }
        }
    }
    pipeline
}

/// A host that keeps what it is asked and accepts everything.
#[derive(Default)]
struct Recorder(Mutex<Vec<Step>>);

impl Recorder {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Step>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for Recorder {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        let replies = steps.iter().map(|step| match step {
            Step::Command(_) => Ok(Reply::Status("OK".to_owned())),
            Step::Script { args, .. } => {
                let id = args.first().cloned().unwrap_or_default();
                let accepted = Reply::Bytes(Bytes::from_static(b"accepted"));
                Ok(Reply::Array(vec![accepted, Reply::Bytes(id)]))
            }
        });
        let replies = replies.collect();
        self.lock().extend(steps);
        Box::pin(async { replies })
    }

    fn wait(&self, _: Bytes, _: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        Box::pin(async { Ok(false) })
    }
}
