//! The connection to Redis is cut once, at every place of one publish and one delivery: between
//! the body and the script, behind the script and before its answer, in the exchange that leases,
//! in reading the envelope, in the exchange that settles.

use std::path::PathBuf;
use std::time::Duration;

use hookstash_shared::message::State;
use tokio::time::Instant;

use crate::support::proxy::Proxy;
use crate::support::receiver::Receiver;
use crate::support::redis::{RedisOptions, RedisServer, binaries};
use crate::support::stage::{LEASE, SOON, Stage, message};

/// Databases of one server, one for each cut.
const CUTS: usize = 16;

/// Where the connection is cut, counted from the publish.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// Behind the command of this number, before its answer.
    Command(usize),
    /// In the middle of a request, behind so many bytes.
    Request(usize),
    /// In the middle of an answer, behind so many bytes.
    Reply(usize),
}

/// One message over a connection that is cut: it is accepted and called once.
async fn survives(server: &RedisServer, database: usize, cut: Cut) -> Duration {
    let proxy = Proxy::to_port(server.port());
    let url = format!("{}/{database}", proxy.redis_url());
    let mut stage = Stage::on_url(&url, LEASE, 1);
    // Looks at the store without the proxy.
    let aside = Stage::on_url(&format!("{}/{database}", server.url()), LEASE, 1);
    stage.settings.threads = 1;
    let receiver = Receiver::start();
    let worker = stage.work();
    stage.wait_for_first_exchange(&worker).await;
    let first = stage.publish(message(&receiver.url("/first"))).await;
    aside.wait_for_state(&first, State::Delivered).await;
    match cut {
        Cut::Command(count) => proxy.cut_after_commands(count),
        Cut::Request(bytes) => proxy.cut_after_request_bytes(bytes),
        Cut::Reply(bytes) => proxy.cut_after_reply_bytes(bytes),
    }
    let begun = Instant::now();
    let id = stage
        .publish(message(&receiver.url("/second")).retries(0))
        .await;
    receiver.wait_for(2, SOON).await;
    let after = begun.elapsed();
    aside.wait_for_state(&id, State::Delivered).await;
    // Longer than a lease that nobody knows of takes to come back.
    receiver.expect_no_more_than(2, LEASE + LEASE).await;
    assert!(worker.is_healthy(), "{cut:?}");
    after
}

async fn survives_all(cuts: &[Cut]) {
    assert!(cuts.len() <= CUTS);
    let on = |binary: PathBuf| async move {
        let server = RedisServer::start_with(RedisOptions {
            binary: Some(binary),
            ..RedisOptions::default()
        });
        let runs = cuts.iter().enumerate();
        let runs = runs.map(|(database, cut)| survives(&server, database, *cut));
        let took = futures::future::join_all(runs).await;
        let slowest = took.iter().max().unwrap();
        println!(
            "figure: cuts such as {:?}: delivered after {slowest:?} at most",
            cuts[0]
        );
    };
    futures::future::join_all(binaries().into_iter().map(on)).await;
}

#[tokio::test]
async fn a_cut_behind_every_command_of_a_cycle_loses_nothing_and_sends_nothing_twice() {
    let cuts: Vec<Cut> = (0..14).map(Cut::Command).collect();
    survives_all(&cuts).await;
}

#[tokio::test]
async fn a_cut_within_requests_and_answers_loses_nothing_and_sends_nothing_twice() {
    let requests = [1, 60, 400, 1_000, 6_000, 12_000, 20_000].map(Cut::Request);
    let replies = [0, 3, 5, 9, 40, 90, 200, 400].map(Cut::Reply);
    survives_all(&[&requests[..], &replies[..]].concat()).await;
}
