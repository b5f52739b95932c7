//! Ending the program: the first signal drains, the second one or the deadline cuts.

use std::time::Duration;

use crate::support::program::{Program, SOON};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;

const SLOW: Duration = Duration::from_secs(2);
const FOREVER: Duration = Duration::from_mins(1);

#[tokio::test]
async fn the_first_signal_lets_running_deliveries_end_and_exits_with_zero() {
    for signal in ["TERM", "INT"] {
        let redis = RedisServer::start();
        let receiver = Receiver::always(Answer::ok().after(SLOW));
        let mut program = Program::serve(&redis, &[]).await;
        program.publish(&receiver.url("/"), &[], "slow").await;
        receiver.wait_for(1, SOON).await;
        program.process.signal(signal);
        program.process.wait_for_line("draining", SOON).await;
        assert_eq!(
            program.process.wait_exit(SOON).await.code(),
            Some(0),
            "{signal}"
        );
        program.process.wait_for_line("Finished", SOON).await;

        let again = Program::serve(&redis, &[]).await;
        receiver
            .expect_no_more_than(1, Duration::from_secs(3))
            .await;
        assert_eq!(again.dead().await.len(), 0);
    }
}

#[tokio::test]
async fn an_idle_program_ends_at_once() {
    let mut program = Program::dev(&[], &[]).await;
    program.process.signal("INT");
    assert_eq!(
        program
            .process
            .wait_exit(Duration::from_secs(5))
            .await
            .code(),
        Some(0)
    );
}

#[tokio::test]
async fn a_second_signal_and_the_deadline_hand_running_deliveries_back() {
    for (drain, signals) in [("60s", 2), ("1s", 1)] {
        let redis = RedisServer::start();
        let receiver = Receiver::with(move |request| match request.connection {
            0 => Answer::ok().after(FOREVER),
            _ => Answer::ok(),
        });
        let mut program = Program::serve(&redis, &[("HOOKSTASH_DRAIN", drain)]).await;
        program
            .publish(&receiver.url("/"), &[("Upstash-Retries", "0")], "x")
            .await;
        receiver.wait_for(1, SOON).await;
        for _ in 0..signals {
            program.process.signal("TERM");
            program.process.wait_for_line("draining", SOON).await;
        }
        let code = program
            .process
            .wait_exit(Duration::from_secs(20))
            .await
            .code();
        assert_eq!(code, Some(4), "{}", program.process.lines().join("\n"));

        let _again = Program::serve(&redis, &[]).await;
        receiver.wait_for(2, SOON).await;
    }
}
