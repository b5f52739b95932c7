//! The machine is lost: what was answered is there.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Small enough that a few steps start a compaction.
const COMPACT_FROM: u64 = 600;

const ALWAYS_COMPACTING: Options = Options {
    sync: DataSync::Always,
    compact_from_bytes: COMPACT_FROM,
};

/// Every way in which a crash may end.
const MERCIES: [Mercy; 4] = [
    NO_MERCY,
    Mercy {
        bytes: 0,
        names: true,
    },
    Mercy {
        bytes: 33,
        names: false,
    },
    Mercy {
        bytes: usize::MAX,
        names: true,
    },
];

/// Accepts until the machine is off; the ids that were answered.
async fn accept_until_off(host: &EmbeddedHost, most: usize) -> Vec<usize> {
    let mut answered = Vec::new();
    for id in 0..most {
        let mut results = host.run(vec![accept(id, "a body of some bytes")]).await;
        match results.remove(0) {
            Ok(_) => answered.push(id),
            Err(_) => break,
        }
    }
    answered
}

fn assert_has(found: &[usize], answered: &[usize], what: &str) {
    let found: BTreeSet<_> = found.iter().collect();
    let lost: Vec<_> = answered.iter().filter(|id| !found.contains(id)).collect();
    assert!(lost.is_empty(), "{what}: {lost:?} were answered and lost");
}

#[tokio::test]
async fn a_crash_at_any_change_of_the_disk_loses_nothing_that_was_answered() {
    const STEPS: usize = 40;
    let calm = FickleDisk::default();
    let host = open(&calm, ALWAYS_COMPACTING);
    assert_eq!(accept_until_off(&host, STEPS).await.len(), STEPS);
    drop(host);
    let operations = calm.operations();
    assert!(operations > 2 * STEPS as u64);

    let mut renamed = 0;
    for at in 0..operations {
        let disk = FickleDisk::default();
        disk.crash_at(at);
        let opened = try_open_at(&disk, ALWAYS_COMPACTING, Arc::new(SystemClock::new()));
        let answered = match &opened {
            Ok(host) => accept_until_off(host, STEPS).await,
            Err(_) => Vec::new(),
        };
        for mercy in MERCIES {
            let found = disk.crash(mercy);
            renamed += usize::from(found.log().len() < disk.log().len());
            let host = open(&found, ALWAYS_COMPACTING);
            let what = format!("crash at {at} of {operations}, {mercy:?}");
            assert_has(&accepted(&host).await, &answered, &what);
        }
    }
    assert!(renamed > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_under_load_loses_nothing_that_was_answered() {
    const ROUNDS: u64 = 40;
    let mut disk = FickleDisk::default();
    let mut answered = Vec::new();
    let next = Arc::new(AtomicUsize::new(0));
    for round in 0..ROUNDS {
        let host = Arc::new(open(&disk, ALWAYS_COMPACTING));
        disk.let_syncs_take(Duration::from_micros(200));
        assert_has(&accepted(&host).await, &answered, &format!("{round}"));
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let (host, next) = (Arc::clone(&host), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut answered = Vec::new();
                    loop {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        match host.run(vec![accept(id, "body")]).await.remove(0) {
                            Ok(_) => answered.push(id),
                            Err(_) => return answered,
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(1 + round % 7)).await;
        let mercy = MERCIES[usize::try_from(round).unwrap() % MERCIES.len()];
        let found = disk.crash(mercy);
        for caller in callers {
            answered.extend(caller.await.unwrap());
        }
        disk = found;
    }
    assert!(answered.len() > 100, "{}", answered.len());
    let host = open(&disk, ALWAYS_COMPACTING);
    assert_has(&accepted(&host).await, &answered, "the last");
}

#[tokio::test]
async fn a_crash_between_syncs_of_every_second_loses_no_more_than_two_seconds() {
    let disk = FickleDisk::default();
    let host = open(&disk, EVERY_SECOND);
    let clock = SystemClock::new();
    let mut answered = Vec::new();
    while clock.monotonic() < Duration::from_millis(3_500) {
        let id = answered.len();
        host.run(vec![accept(id, "body")]).await.remove(0).unwrap();
        answered.push(clock.monotonic());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let crashed_at = clock.monotonic();
    let found = disk.crash(NO_MERCY);
    let kept = accepted(&open(&found, EVERY_SECOND)).await;
    assert_eq!(
        kept,
        (0..kept.len()).collect::<Vec<_>>(),
        "the oldest are kept"
    );
    assert!(kept.len() < answered.len(), "this crash loses something");
    let oldest_lost = answered[kept.len()];
    let age = crashed_at.saturating_sub(oldest_lost);
    assert!(age < Duration::from_secs(2), "{age:?}");
}

#[tokio::test]
async fn a_killed_process_loses_nothing_with_a_sync_every_second() {
    // A process that is killed leaves to its machine all that it has written.
    let disk = FickleDisk::default();
    let clock = Arc::new(ManualClock::at(1));
    let host = open_at(&disk, EVERY_SECOND, &clock);
    let syncs = disk.syncs();
    for id in 0..100 {
        host.run(vec![accept(id, "body")]).await.remove(0).unwrap();
        let written = FickleDisk::with_log(&disk.log());
        assert_eq!(accepted(&open(&written, ALWAYS)).await.len(), id + 1);
    }
    assert_eq!(disk.syncs(), syncs);
}
