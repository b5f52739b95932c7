//! The form of the log, and starting from one.

use super::*;

#[tokio::test]
async fn a_store_comes_back_as_it_was_from_its_log_and_from_a_compacted_one() {
    let disk = FickleDisk::default();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let host = open_at(&disk, ALWAYS, &clock);
    fill(&host).await;
    let before = host.dump();
    assert!(before.len() > 10);
    drop(host);
    // The first start replays effects, the second one what the first wrote anew.
    for start in ["first", "second"] {
        let host = open_at(&disk, ALWAYS, &clock);
        assert_eq!(host.dump(), before, "{start}");
        run(&host, "XADD holed 5-6 f v").await;
        run(&host, "XDEL holed 5-6").await;
        let again = try_run(&host, "XADD holed 5-6 f v").await;
        assert!(again.is_err(), "{start}: the last id is kept");
        run(&host, "DEL holed").await;
        run(&host, "XADD holed 1-1 f v").await;
        run(&host, "XADD holed 5-5 f v").await;
        run(&host, "XDEL holed 5-5").await;
    }
}

#[tokio::test]
async fn the_log_holds_effects_that_depend_on_no_clock_and_steps_stand_together() {
    let disk = FickleDisk::default();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let host = open_at(&disk, ALWAYS, &clock);
    run(&host, "SET k v EX 10").await;
    run(&host, "GET k").await;
    host.run(vec![accept(7, "x")]).await.remove(0).unwrap();
    run(&host, "DEL nothing").await;
    let text = String::from_utf8(disk.log()).unwrap().replace("\r\n", " ");
    let want = "*2 $6 SELECT $1 0 \
                *5 $3 SET $1 k $1 v $4 PXAT $13 1700000010000 \
                *1 $5 MULTI \
                *3 $3 SET $3 b:7 $1 x \
                *3 $5 RPUSH $3 ids $1 7 \
                *1 $4 EXEC ";
    assert_eq!(text, want);
}

#[tokio::test]
async fn nothing_expires_while_the_log_is_replayed_and_what_has_expired_goes_after() {
    let disk = FickleDisk::default();
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let host = open_at(&disk, ALWAYS, &clock);
    run(&host, "SET kept v PX 100").await;
    run(&host, "SET gone v PX 100").await;
    run(&host, "PERSIST kept").await;
    drop(host);
    clock.advance(Duration::from_secs(1));
    let host = open_at(&disk, ALWAYS, &clock);
    assert_eq!(run(&host, "EXISTS kept gone").await, Reply::Int(1));
    assert_eq!(run(&host, "GET kept").await, Reply::Bytes("v".into()));
}

/// A log of three steps, and how many bytes its first two have.
async fn three_steps() -> (Vec<u8>, usize) {
    let disk = FickleDisk::default();
    let host = open(&disk, ALWAYS);
    for id in 0..2 {
        host.run(vec![accept(id, "body")]).await.remove(0).unwrap();
    }
    let two = disk.log().len();
    host.run(vec![accept(2, "*1\r\n$4\r\nEXEC\r\n")])
        .await
        .remove(0)
        .unwrap();
    (disk.log(), two)
}

#[tokio::test]
async fn a_last_step_torn_at_any_byte_is_dropped_whole_and_kept_aside() {
    let (log, two) = three_steps().await;
    for end in two..log.len() {
        let disk = FickleDisk::with_log(&log[..end]);
        let host = open(&disk, ALWAYS);
        assert_eq!(accepted(&host).await, [0, 1], "torn at {end}");
        let torn = (end > two).then(|| log[two..end].to_vec());
        assert_eq!(disk.torn(), torn, "torn at {end}");
        // What was torn is gone for good, and the log goes on.
        host.run(vec![accept(9, "x")]).await.remove(0).unwrap();
        drop(host);
        assert_eq!(accepted(&open(&disk, ALWAYS)).await, [0, 1, 9]);
    }
    let whole = open(&FickleDisk::with_log(&log), ALWAYS);
    assert_eq!(accepted(&whole).await, [0, 1, 2]);
}

#[tokio::test]
async fn room_that_a_lost_machine_had_not_filled_is_a_torn_end() {
    let (log, two) = three_steps().await;
    for end in two..log.len() {
        let mut blank = log[..end].to_vec();
        blank.resize(log.len() + 4096, 0);
        let disk = FickleDisk::with_log(&blank);
        assert_eq!(accepted(&open(&disk, ALWAYS)).await, [0, 1], "{end}");
    }
}

#[tokio::test]
async fn damage_before_the_end_stops_the_start_and_changes_nothing() {
    let (log, two) = three_steps().await;
    let mut refused = 0;
    for at in 0..two {
        let mut damaged = log.clone();
        damaged[at] = b'!';
        let disk = FickleDisk::with_log(&damaged);
        let opened = try_open_at(&disk, ALWAYS, Arc::new(SystemClock::new()));
        // Damage within a value cannot be seen in this format.
        if let Err(error) = opened {
            refused += 1;
            let text = error.to_string();
            assert!(
                text.contains("fickle") && text.contains("truncate -s"),
                "{text}"
            );
            let OpenError::Damaged { whole, .. } = error else {
                panic!("{error:?}");
            };
            assert!(whole <= at as u64, "{at}: {text}");
            assert_eq!((disk.log(), disk.operations()), (damaged, 0));
        }
    }
    assert!(refused > two / 2, "{refused} of {two}");
}

#[tokio::test]
async fn a_damaged_length_that_reaches_beyond_the_end_is_not_taken_for_a_torn_end() {
    let (log, _) = three_steps().await;
    let text = String::from_utf8(log).unwrap();
    let damaged = text.replacen("$4\r\nbody", "$400000\r\nbody", 1);
    assert_ne!(damaged, text);
    let disk = FickleDisk::with_log(damaged.as_bytes());
    let opened = try_open_at(&disk, ALWAYS, Arc::new(SystemClock::new()));
    assert!(
        matches!(opened, Err(OpenError::Damaged { .. })),
        "{opened:?}"
    );
    assert_eq!(disk.log(), damaged.as_bytes());
}

#[tokio::test]
async fn what_is_no_log_of_this_store_is_not_started_from() {
    for (log, why) in [
        (&b"REDIS0011\xfa\t"[..], "not the form"),
        (b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n", "another database"),
        (b"*1\r\n$6\r\nNOSUCH\r\n", "unknown command"),
        (
            b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n*2\r\n$4\r\nLPOP\r\n$1\r\nk\r\n",
            "WRONGTYPE",
        ),
    ] {
        let disk = FickleDisk::with_log(log);
        let opened = try_open_at(&disk, ALWAYS, Arc::new(SystemClock::new()));
        let text = opened.map(drop).unwrap_err().to_string();
        assert!(text.contains(why), "{text}");
        assert_eq!(disk.log(), log);
    }
}
