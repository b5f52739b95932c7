//! The durable path: a worker drains what was published; and what a worker costs that has nothing
//! to do.

use std::time::Duration;

use hookstash_shared::message::Shard;

use super::cpu::Cpu;
use super::figures::{Durable, Idle, Pace};
use super::receiver::STUCK_AFTER;
use super::stage::Stage;
use crate::cli::failure::Failure;

/// How often the store is asked whether everything is settled.
const SETTLED_LOOK: Duration = Duration::from_millis(2);
/// How long the worker's last calls may take.
const DRAIN: Duration = Duration::from_secs(30);
/// Time in which a worker settles down before it counts as idle.
const CALM: Duration = Duration::from_secs(2);

/// Drains `count` of the `queued` messages that were published before, and stops; from the start of
/// the worker until these are delivered and, when they are all, settled. Messages that do not come
/// are counted as lost.
pub(super) async fn measure(
    stage: &Stage,
    queued: usize,
    count: usize,
) -> Result<Durable, Failure> {
    let arrivals = stage.receiver.expect(queued, count);
    let (before, redis) = (Cpu::now(), stage.redis.info().await?);
    let began = stage.now();
    let worker = stage.start_worker()?;
    let is_complete = arrivals.complete(STUCK_AFTER).await;
    if is_complete && queued == count {
        settled(stage).await?;
    }
    let took = stage.now().saturating_sub(began);
    let cpu = Cpu::now() - before;
    let redis = stage.redis.info().await?.cpu().saturating_sub(redis.cpu());
    worker.drain(DRAIN).await;
    Ok(Durable {
        pace: Pace { count, took },
        store_thread: cpu.store,
        delivery_threads: cpu.delivery,
        receiver: cpu.receiver,
        redis,
        lost: count.saturating_sub(arrivals.arrived()),
        duplicates: arrivals.duplicates(),
    })
}

/// Watches a worker on an empty store for `time`.
pub(super) async fn idle(stage: &Stage, time: Duration) -> Result<Idle, Failure> {
    let worker = stage.start_worker()?;
    tokio::time::sleep(CALM).await;
    let (before, redis) = (Cpu::now(), stage.redis.info().await?);
    let began = stage.now();
    tokio::time::sleep(time).await;
    let took = stage.now().saturating_sub(began).as_secs_f64();
    let cpu = Cpu::now() - before;
    let commands = |info: &super::redis::Info| info.number("total_commands_processed");
    let spent = commands(&stage.redis.info().await?) - commands(&redis);
    worker.drain(DRAIN).await;
    Ok(Idle {
        cpu_percent: 100.0 * cpu.worker().as_secs_f64() / took,
        // One command is the question itself.
        redis_commands_per_s: (spent - 1.0).max(0.0) / took,
    })
}

/// Waits until no message is leased any more.
async fn settled(stage: &Stage) -> Result<(), Failure> {
    let mut connection = stage.redis.connection();
    let key = stage.stores.api.keys().of_shard(Shard::default(), "l");
    loop {
        let leased: redis::RedisResult<u64> = redis::cmd("ZCARD")
            .arg(key.as_ref())
            .query_async(&mut connection)
            .await;
        match leased {
            Ok(0) => return Ok(()),
            Ok(_) => tokio::time::sleep(SETTLED_LOOK).await,
            Err(error) => return Err(Failure::failed("ask Redis").because(&error)),
        }
    }
}
