//! D01: delays are kept exactly or refused, never cut.

use std::time::Duration;

use crate::support::front_door::FrontDoor;

const DAY_MS: u64 = 86_400_000;

#[tokio::test]
async fn d01_long_delays_stay_scheduled_and_impossible_ones_are_refused() {
    let door = FrontDoor::embedded().await;
    for (delay, expected_ms) in [
        ("24d", Some(24 * DAY_MS)),
        ("25d", Some(25 * DAY_MS)),
        ("50d", Some(50 * DAY_MS)),
        ("366d", Some(366 * DAY_MS)),
        ("1.5s", Some(1_500)),
        ("10m5s", Some(605_000)),
        ("400d", None),
        ("9223372036854775807s", None),
        ("-1s", None),
    ] {
        let now_ms = door.state.clock.now_ms();
        let answer = door
            .publish("https://h/", &[("Upstash-Delay", delay)], "x")
            .await;
        let Some(expected_ms) = expected_ms else {
            assert_eq!(answer.status, 400, "{delay}: {answer:?}");
            assert!(
                answer.error().starts_with("invalid Upstash-Delay: "),
                "{answer:?}"
            );
            continue;
        };
        let id = answer.id();
        let message = door.call("GET", &format!("/v2/messages/{id}")).await;
        let not_before = message.json["notBefore"].as_u64().unwrap();
        assert!(
            not_before.abs_diff(now_ms + expected_ms) <= 1_000,
            "{delay}: {not_before}"
        );
        let stored = door.state.store.message(&id).await.unwrap().unwrap();
        let due_ms = stored.due_ms.unwrap();
        assert!(
            due_ms.abs_diff(now_ms + expected_ms) <= 1_000,
            "{delay}: {due_ms}"
        );
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let leased: usize = door
        .lease()
        .await
        .iter()
        .map(|leased| leased.leases.len())
        .sum();
    assert_eq!(leased, 0, "a delayed message was ready");
}

#[tokio::test]
async fn d01_a_not_before_in_the_past_is_now_and_one_in_milliseconds_is_refused() {
    let door = FrontDoor::embedded().await;
    let now_ms = door.state.clock.now_ms();
    let publish = async |value: u64| {
        let value = value.to_string();
        door.publish("https://h/", &[("Upstash-Not-Before", value.as_str())], "x")
            .await
    };
    for past in [0, now_ms / 1_000 - 3_600] {
        let id = publish(past).await.id();
        let stored = door.state.store.message(&id).await.unwrap().unwrap();
        assert_eq!(stored.due_ms, None);
    }
    let id = publish(now_ms / 1_000 + 60).await.id();
    let stored = door.state.store.message(&id).await.unwrap().unwrap();
    assert_eq!(stored.due_ms, Some((now_ms / 1_000 + 60) * 1_000));
    let refused = publish(now_ms).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.error().starts_with("invalid Upstash-Not-Before: "),
        "{refused:?}"
    );
}
