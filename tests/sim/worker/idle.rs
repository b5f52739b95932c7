//! A worker with little to do, and nothing that goes wrong.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::Clock;

use super::caller::Answer;
use super::ground::Ground;
use super::scene::Scene;
use super::{RENEW, in_virtual_time};

const HOUR: Duration = Duration::from_hours(1);

#[test]
fn an_idle_worker_looks_beats_and_sweeps_and_does_nothing_else() {
    in_virtual_time(async {
        let ground = Ground::new(1, 0, 1 << 20);
        let mut scene = Scene::new(ground, 1, 4).await;
        let ok = [Answer::Status(200, 5)];
        scene.publish("h1.test/ok", Bytes::new(), &ok, |m| m).await;
        // Between two looks.
        scene.pass(Duration::from_millis(122_300)).await;
        let late = scene.publish("h1.test/ok", Bytes::new(), &ok, |m| m).await;
        scene.pass(Duration::from_millis(10)).await;
        let calls = scene.ground.ledger().calls.get(&late).copied();
        assert_eq!(calls, Some(1), "it is called at once");
        scene.pass(Duration::from_mins(2)).await;
        scene.counts();
        scene.pass(HOUR).await;
        let counts = scene.counts();
        // A look every 4 s, a wait of at most 5 s between, a beat every 5 s, a walk each minute, and
        // two commands every 5 s to see whether a schedule is due.
        let most = |what: &str| match what {
            "exchange" | "wait" => 3600 / 4 + 1,
            "heartbeat" => 3600 / 5 + 1,
            "command" => 60 * 4 + 10 + 2 * (3600 / 5 + 1),
            "sweep_trash" => 61,
            _ => 2,
        };
        for (what, count) in &counts {
            assert!(*count <= most(what), "{what}: {count} of {counts:?}");
        }
        scene.finish().await;
        assert!(!scene.is_broken());
    });
}

#[test]
fn a_cancelled_call_is_dropped_at_the_next_beat() {
    in_virtual_time(async {
        let ground = Ground::new(1, 0, 1 << 20);
        let mut scene = Scene::new(ground, 1, 4).await;
        let long = [Answer::Status(200, 30_000)];
        let id = scene
            .publish("h1.test/long", Bytes::new(), &long, |m| m)
            .await;
        scene.pass(Duration::from_secs(1)).await;
        let is_calling = |scene: &Scene| {
            let now = scene.ground.clock.monotonic();
            scene.ground.ledger().is_calling(&id, now)
        };
        assert!(is_calling(&scene));
        scene.cancel(id).await;
        scene.pass(RENEW).await;
        assert!(!is_calling(&scene));
        scene.finish().await;
        assert!(!scene.is_broken());
    });
}
