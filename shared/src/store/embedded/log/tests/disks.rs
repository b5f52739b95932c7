//! Disks that are slow, full or broken, and what answers wait for.

use super::*;

const SOON: Duration = Duration::from_secs(20);

fn pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    futures::FutureExt::now_or_never(future).is_none()
}

#[tokio::test]
async fn an_answer_waits_for_the_sync_of_all_that_it_has_seen() {
    let disk = FickleDisk::default();
    let host = open(&disk, ALWAYS);
    run(&host, "SET old v").await;
    disk.hold_syncs(true);
    let mut write = host.run(vec![accept(1, "x")]);
    assert!(pending(&mut write));
    // Another caller sees the write, so its answer says as much as the writer's own.
    let mut read = host.run(vec![Step::Command(words("LLEN ids"))]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(pending(&mut write) && pending(&mut read));
    disk.hold_syncs(false);
    assert_eq!(write.await.remove(0), Ok(Reply::Int(1)));
    assert_eq!(read.await.remove(0), Ok(Reply::Int(1)));
}

#[tokio::test]
async fn the_store_works_on_while_a_sync_is_under_way() {
    let disk = FickleDisk::default();
    let host = open(&disk, EVERY_SECOND);
    assert_eq!(host.keys().len(), 0);
    disk.hold_syncs(true);
    let mut first = host.run(vec![accept(1, "x")]);
    // It may be written before the sync begins.
    let _ = pending(&mut first);
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let mut second = host.run(vec![accept(2, "x")]);
    let _ = pending(&mut second);
    // The lock is free: the step has run, whether or not it is answered.
    assert_eq!(host.keys().len(), 3);
    disk.hold_syncs(false);
    assert_eq!(second.await.remove(0), Ok(Reply::Int(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_a_sync() {
    const CALLERS: usize = 64;
    let disk = FickleDisk::default();
    let host = Arc::new(open(&disk, ALWAYS));
    disk.let_syncs_take(Duration::from_millis(20));
    let before = disk.syncs();
    let callers = (0..CALLERS).map(|id| {
        let host = Arc::clone(&host);
        tokio::spawn(async move { host.run(vec![accept(id, "x")]).await.remove(0) })
    });
    for result in futures::future::join_all(callers).await {
        result.unwrap().unwrap();
    }
    let syncs = disk.syncs() - before;
    assert!(syncs <= 8, "{syncs} syncs for {CALLERS} callers");
}

#[tokio::test]
async fn a_full_disk_refuses_everything_until_there_is_room_and_loses_nothing() {
    for options in [ALWAYS, EVERY_SECOND] {
        let disk = FickleDisk::default();
        let host = open(&disk, options);
        host.run(vec![accept(0, "x")]).await.remove(0).unwrap();
        disk.set_room(Some(40));
        // The step that meets the full disk has run, so its end is unknown.
        let met = host.run(vec![accept(1, "x")]).await.remove(0);
        assert!(matches!(met, Err(HostError::Lost(_))), "{met:?}");
        for line in ["SET k v", "GET b:0"] {
            let refused = try_run(&host, line).await;
            assert!(matches!(refused, Err(HostError::Full(_))), "{refused:?}");
        }
        let waited = host.wait(Bytes::from_static(b"w"), SOON).await;
        assert!(matches!(waited, Err(HostError::Full(_))), "{waited:?}");
        disk.set_room(None);
        let healed = tokio::time::timeout(SOON, async {
            while try_run(&host, "SET after v").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        healed.await.expect("it goes on by itself");
        assert_eq!(
            run(&host, "EXISTS k").await,
            Reply::Int(0),
            "it was refused"
        );
        let found = disk.crash(Mercy {
            bytes: usize::MAX,
            names: false,
        });
        let host = open(&found, ALWAYS);
        assert_eq!(accepted(&host).await, [0, 1]);
        assert_eq!(run(&host, "EXISTS after").await, Reply::Int(1));
    }
}

#[tokio::test]
async fn a_failed_sync_is_final_and_nothing_is_answered_after_it() {
    let disk = FickleDisk::default();
    let host = open(&disk, ALWAYS);
    host.run(vec![accept(0, "x")]).await.remove(0).unwrap();
    disk.fail_syncs();
    let met = host.run(vec![accept(1, "x")]).await.remove(0);
    assert!(matches!(met, Err(HostError::Lost(_))), "{met:?}");
    for _ in 0..20 {
        let refused = host.run(vec![accept(2, "x"), accept(3, "x")]).await;
        for refused in refused {
            let Err(HostError::RetryLater(text)) = refused else {
                panic!("{refused:?}");
            };
            assert!(text.contains("started again"), "{text}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(host.synced().await.is_err());
    let host = open(&disk.crash(NO_MERCY), ALWAYS);
    assert_eq!(accepted(&host).await, [0]);
}

#[tokio::test]
async fn a_step_that_runs_while_the_log_fails_is_not_answered_as_kept() {
    let disk = FickleDisk::default();
    let host = open(&disk, ALWAYS);
    let log = host.log.clone().unwrap();
    disk.fail_syncs();
    assert!(log.admits().unwrap());
    let met = host.run(vec![accept(0, "x")]).await.remove(0);
    assert!(met.is_err());
    // Another step was admitted before that, and comes to its effects only now.
    log.append(&vec![words("SET k v")]);
    let kept = log.kept(log.end()).await;
    assert!(matches!(kept, Err(HostError::Lost(_))), "{kept:?}");
}

#[tokio::test]
async fn a_compacted_log_whose_name_may_not_last_is_final_too() {
    let disk = FickleDisk::default();
    let options = Options {
        compact_from_bytes: 600,
        ..ALWAYS
    };
    let host = open(&disk, options);
    disk.fail_names();
    let mut answered = 0;
    while host
        .run(vec![accept(answered, "x")])
        .await
        .remove(0)
        .is_ok()
    {
        answered += 1;
        assert!(answered < 1_000, "it never compacts");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for names in [false, true] {
        let host = open(&disk.crash(Mercy { bytes: 0, names }), ALWAYS);
        let found = accepted(&host).await.len();
        assert!(found >= answered, "{found} of {answered}, {names}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_be_written_is_bounded() {
    const BODY: usize = 8 * 1024 * 1024;
    const CALLS: usize = 24;
    let disk = FickleDisk::default();
    let host = Arc::new(open(&disk, ALWAYS));
    disk.hold_syncs(true);
    let body: Arc<str> = "x".repeat(BODY).into();
    let calls: Vec<_> = (0..CALLS)
        .map(|id| {
            let (host, body) = (Arc::clone(&host), Arc::clone(&body));
            tokio::spawn(async move { host.run(vec![accept(id, &body)]).await.remove(0) })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    // One write is under way, as much again may wait, and one step comes on top of each.
    let ran = host.keys().len();
    assert!((9..CALLS).contains(&ran), "{ran} steps ran");
    disk.hold_syncs(false);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}
