//! Schedulers of several workers: every due time is fired once, whatever happens to the workers and
//! to what they say to the store, and local time jumps under them.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::Clock;
use hookstash_shared::cron::Cron;
use hookstash_shared::message::{Destination, Limits, MessageId, NewMessage, Shard, random_name};
use hookstash_shared::random::Random;
use hookstash_shared::store::faulty::FaultRates;
use hookstash_shared::store::host::Reply;
use hookstash_shared::store::{PutSchedule, Schedule, SchedulePut};

use super::caller::Answer;
use super::ground::Ground;
use super::in_virtual_time;
use super::ledger::{Sent, Strictness};
use super::scene::Scene;
use super::tap::{number, text};

const MINUTE_MS: u64 = 60_000;
const MINUTE: Duration = Duration::from_mins(1);
const URL: &str = "http://h1.test/scheduled";
/// Longest time from a due time to its firing: a look every 5 s, and a few lost replies.
const LATE_MAX_MS: u64 = 15_000;

/// A due time that was fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    pub due_ms: u64,
    pub fired_ms: u64,
    pub ids: Vec<MessageId>,
}

impl Ground {
    /// A tick took effect: the due time is noted, and its messages are accepted.
    pub fn ticked(&self, args: &[Bytes], reply: &Reply) {
        if !matches!(reply, Reply::Bytes(answer) if answer == "fired") {
            return;
        }
        let due_ms = number(&args[2]);
        let ids: Vec<MessageId> = args[12..]
            .chunks(4)
            .map(|member| text(&member[0]).parse().expect("an id"))
            .collect();
        self.note(format!("fired {} due {due_ms}: {ids:?}", text(&args[0])));
        let fired_ms = self.clock.now_ms();
        let mut ledger = self.ledger();
        for id in &ids {
            let sent = Sent {
                url: URL.to_owned(),
                body: Bytes::from_static(b"scheduled"),
                lane: "h:h1.test".to_owned(),
                cap: usize::MAX,
                answers: vec![Answer::Status(200, 5)],
                is_told: false,
            };
            ledger.sent.insert(*id, sent);
            ledger.accepted.insert(*id);
        }
        ledger.firings.push(Firing {
            due_ms,
            fired_ms,
            ids,
        });
    }
}

impl Scene {
    /// Puts the schedule `s`, by the store's clock.
    async fn put_schedule(&self, cron: &str) {
        let now_ms = self.ground.clock.now_ms();
        let message = NewMessage::to(Destination::parse(URL).expect("a URL"))
            .body("scheduled")
            .schedule("s")
            .build(now_ms, &Limits::default())
            .expect("a message");
        let cron = Cron::parse(cron).expect("an expression");
        let put = PutSchedule {
            id: "s".to_owned(),
            due_ms: cron.next_after(now_ms).expect("a due time"),
            schedule: Schedule::new(cron, now_ms, random_name("scb_", &self.ground.random)),
            envelope: message.into_envelope().encode().expect("an envelope"),
            most: 10,
            dedup_scope: None,
        };
        let answer = self.store.put_schedule(Shard::default(), &put).await;
        assert_eq!(answer, Ok(SchedulePut::Accepted));
    }

    fn firings(&self) -> Vec<Firing> {
        self.ground.ledger().firings.clone()
    }

    /// Fails with what broke.
    fn expect_unbroken(&self, what: &str) {
        let ledger = self.ground.ledger();
        if !ledger.broken.is_empty() {
            crate::fail(what, &ledger.broken, &ledger.trace);
        }
    }
}

#[test]
fn c07_three_schedulers_fire_each_of_600_minutes_once_while_workers_crash_and_replies_are_lost() {
    const MINUTES: u64 = 600;
    in_virtual_time(async {
        let ground = Ground::new(7, 20, 1 << 20);
        ground.ledger().strictness = Strictness::Zombies;
        let mut scene = Scene::new(ground, 3, 8).await;
        scene.put_schedule("* * * * *").await;
        let first_ms = scene.ground.clock.now_ms() / MINUTE_MS * MINUTE_MS + MINUTE_MS;
        for _ in 0..MINUTES {
            scene.set_faults(FaultRates {
                lose_before: 200,
                lose_after: 400,
                refuse: 200,
                ..FaultRates::default()
            });
            // One dies within the minute, often while it fires, and one stands still for a while.
            let died_after = Duration::from_millis(scene.ground.random.below(4_000));
            let left = MINUTE.saturating_sub(died_after);
            scene.pass(died_after).await;
            match scene.below(4) {
                0 => scene.processes[0].control.kill(),
                1 => scene.processes[1].control.freeze(Duration::from_secs(10)),
                2 => {
                    scene.processes[0].control.kill();
                    scene.processes[1].control.kill();
                }
                _ => {}
            }
            scene.pass(left).await;
            scene.expect_unbroken("600 minutes");
        }
        // The last one is due just now.
        scene.pass(Duration::from_millis(LATE_MAX_MS)).await;
        let firings = scene.firings();
        for (index, firing) in firings.iter().enumerate() {
            let expected_ms = first_ms + index as u64 * MINUTE_MS;
            assert_eq!(
                firing.due_ms, expected_ms,
                "every minute once, and none left out"
            );
        }
        assert_eq!(firings.len() as u64, MINUTES);
        assert!(firings.iter().all(|firing| firing.ids.len() == 1));
        let late = firings.iter().map(|firing| firing.fired_ms - firing.due_ms);
        let latest = late.max().expect("a firing");
        assert!(latest <= LATE_MAX_MS, "the latest came after {latest} ms");
        scene
            .store
            .remove_schedule(Shard::default(), "s", None)
            .await
            .expect("removed");
        scene.finish().await;
        scene.expect_unbroken("600 minutes");
        let ledger = scene.ground.ledger();
        let is_called = |firing: &Firing| ledger.calls.contains_key(&firing.ids[0]);
        assert!(firings.iter().all(is_called), "and each was sent");
        println!("{MINUTES} minutes, the latest {latest} ms after its due time");
    });
}

#[test]
fn minutes_that_all_workers_missed_fire_once() {
    in_virtual_time(async {
        let ground = Ground::new(1, 0, 1 << 20);
        let mut scene = Scene::new(ground, 1, 4).await;
        scene.put_schedule("* * * * *").await;
        scene.pass(MINUTE * 2).await;
        let before = scene.firings().len();
        // Nobody looks for an hour.
        scene.ground.clock.step(3_600_000);
        scene.pass(Duration::from_secs(10)).await;
        let firings = scene.firings();
        assert_eq!(firings.len(), before + 1, "{firings:?}");
        scene.pass(MINUTE).await;
        let firings = scene.firings();
        assert_eq!(firings.len(), before + 2);
        let [.., missed, next] = firings.as_slice() else {
            panic!("two firings")
        };
        let next_minute = missed.fired_ms / MINUTE_MS * MINUTE_MS + MINUTE_MS;
        assert_eq!(next.due_ms, next_minute, "found from now on");
        scene.expect_unbroken("missed minutes");
    });
}

#[test]
fn c05_two_changes_of_local_time_pass_under_the_scheduler() {
    for (cron, due) in [
        (
            "CRON_TZ=Europe/Berlin 30 2 * * *",
            // 2026-03-28T01:30Z, 29T01:00Z (right after the gap), 30T00:30Z; 2026-10-24T00:30Z,
            // 25T00:30Z (the first of two), 26T01:30Z.
            [
                1_774_661_400_u64,
                1_774_746_000,
                1_774_830_600,
                1_792_801_800,
                1_792_888_200,
                1_792_978_200,
            ],
        ),
        (
            "CRON_TZ=Australia/Lord_Howe 45 1 * * *",
            // 2026-04-03T14:45Z, 04T14:45Z (the first of two), 05T15:15Z; 2026-10-02T15:15Z,
            // 03T15:15Z, 04T14:45Z.
            [
                1_775_227_500,
                1_775_313_900,
                1_775_402_100,
                1_790_954_100,
                1_791_040_500,
                1_791_125_100,
            ],
        ),
    ] {
        in_virtual_time(async {
            let ground = Ground::new(1, 0, 1 << 20);
            let due: Vec<u64> = due.iter().map(|due_s| due_s * 1_000).collect();
            jump_to(&ground, due[0] - 120_000);
            let mut scene = Scene::new(ground, 2, 4).await;
            scene.put_schedule(cron).await;
            for (index, due_ms) in due.iter().enumerate() {
                // To just before it, over all the days between; once more for those that lie
                // within, which are fired as one.
                if index == 3 {
                    jump_to(&scene.ground, due_ms - 86_400_000 + 7_200_000);
                    scene.pass(Duration::from_secs(10)).await;
                    scene.ground.ledger().firings.truncate(index);
                }
                jump_to(&scene.ground, due_ms - 20_000);
                scene.pass(Duration::from_secs(40)).await;
                let fired: Vec<u64> = scene.firings().iter().map(|f| f.due_ms).collect();
                assert_eq!(fired, due[..=index], "{cron}");
            }
            // Between them nothing else is due.
            scene.expect_unbroken(cron);
        });
    }
}

/// Steps the wall clock of the store forward or back to `to_ms`.
fn jump_to(ground: &Ground, to_ms: u64) {
    let now = i64::try_from(ground.clock.now_ms()).expect("a time");
    ground
        .clock
        .step(i64::try_from(to_ms).expect("a time") - now);
}
