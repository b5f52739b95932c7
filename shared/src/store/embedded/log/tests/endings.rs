//! Compaction while the store runs, ordinary ends, and directories of this machine.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

/// Sets one key again and again: the log grows, the store does not. Goes on over a full disk.
async fn churn(host: &EmbeddedHost, steps: usize) -> usize {
    let mut refused = 0;
    for step in 0..steps {
        while try_run(host, &format!("SET churned {step} PX 100000"))
            .await
            .is_err()
        {
            refused += 1;
            assert!(refused < 1_000, "it goes on by itself");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    refused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_four_times_its_size_is_compacted_while_steps_run() {
    let disk = FickleDisk::default();
    let options = Options {
        compact_from_bytes: 20_000,
        ..EVERY_SECOND
    };
    let host = Arc::new(open(&disk, options));
    fill(&host).await;
    let writer = {
        let host = Arc::clone(&host);
        tokio::spawn(async move {
            for id in 0..2_000 {
                host.run(vec![accept(id, "body")]).await.remove(0).unwrap();
            }
        })
    };
    churn(&host, 2_000).await;
    writer.await.unwrap();
    let most = disk.log().len();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while disk.log().len() >= most && tokio::time::Instant::now() < deadline {
        churn(&host, 50).await;
    }
    assert!(disk.log().len() < 4 * most, "it was compacted");
    let before = host.dump();
    drop(host);
    let host = open(&disk, options);
    assert_eq!(host.dump(), before);
    assert_eq!(accepted(&host).await.len(), 2_000);
}

#[tokio::test]
async fn a_compaction_that_fails_leaves_the_log_as_it_was() {
    let disk = FickleDisk::default();
    let options = Options {
        compact_from_bytes: 2_000,
        ..EVERY_SECOND
    };
    let host = open(&disk, options);
    // Less than a compacted log needs, more than the steps do: it gives back what it took.
    run(&host, &format!("SET large {}", "x".repeat(10_000))).await;
    disk.set_room(Some(9_000));
    churn(&host, 60).await;
    disk.set_room(None);
    assert_eq!(churn(&host, 60).await, 0);
    let before = host.dump();
    drop(host);
    assert_eq!(open(&disk, options).dump(), before);
}

#[tokio::test]
async fn an_ordinary_end_leaves_everything_on_the_disk() {
    let disk = FickleDisk::default();
    let clock = Arc::new(ManualClock::at(1));
    let host = open_at(&disk, EVERY_SECOND, &clock);
    host.run(vec![accept(0, "x")]).await.remove(0).unwrap();
    drop(host);
    assert_eq!(accepted(&open(&disk.crash(NO_MERCY), ALWAYS)).await, [0]);

    let disk = FickleDisk::default();
    let host = open(&disk, EVERY_SECOND);
    host.run(vec![accept(0, "x")]).await.remove(0).unwrap();
    host.synced().await.unwrap();
    assert_eq!(accepted(&open(&disk.crash(NO_MERCY), ALWAYS)).await, [0]);
}

fn open_directory(path: &Path) -> Result<EmbeddedHost, OpenError> {
    EmbeddedHost::open(path, DataSync::Always, Arc::new(SystemClock::new()))
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_directory_is_made_for_its_owner_alone_and_holds_what_the_store_held() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("not/yet/there");
    let host = open_directory(&path).unwrap();
    fill(&host).await;
    let before = host.dump();
    drop(host);
    assert_eq!(mode(&path), 0o700);
    for file in path.read_dir().unwrap() {
        let file = file.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert_eq!(open_directory(&path).unwrap().dump(), before);
    assert!(path.join("appendonly.aof").exists());
    assert!(!path.join("appendonly.aof.new").exists());
}

#[tokio::test]
async fn a_directory_belongs_to_one_host_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let host = open_directory(home.path()).unwrap();
    let refused = open_directory(home.path()).unwrap_err();
    assert!(matches!(refused, OpenError::InUse(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains(&*home.path().to_string_lossy()), "{text}");
    run(&host, "SET k v").await;
    drop(host);
    let host = open_directory(home.path()).unwrap();
    assert_eq!(run(&host, "EXISTS k").await, Reply::Int(1));
}

#[tokio::test]
async fn a_directory_that_a_redis_took_over_or_that_is_a_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("appendonlydir")).unwrap();
    let refused = open_directory(home.path()).unwrap_err();
    assert!(matches!(refused, OpenError::TakenOver(_)), "{refused:?}");
    let file = home.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let refused = open_directory(&file).unwrap_err();
    assert!(
        matches!(refused, OpenError::Directory { .. }),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_torn_end_on_this_machine_is_kept_beside_the_log() {
    let home = tempfile::tempdir().unwrap();
    let host = open_directory(home.path()).unwrap();
    run(&host, "SET k v").await;
    drop(host);
    let log = home.path().join("appendonly.aof");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nto");
    std::fs::write(&log, &bytes).unwrap();
    let host = open_directory(home.path()).unwrap();
    assert_eq!(run(&host, "GET k").await, Reply::Bytes("v".into()));
    let torn = std::fs::read(home.path().join("appendonly.aof.torn")).unwrap();
    assert_eq!(torn, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nto");
}
