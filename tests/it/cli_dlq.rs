//! `hookstash dlq` against a running server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use crate::support::program::{Finished, Program, SOON, finish};
use crate::support::receiver::{Answer, Receiver};

/// A program whose destination fails until it is told otherwise.
struct Scene {
    program: Program,
    receiver: Receiver,
    status: Arc<AtomicU16>,
}

impl Scene {
    async fn with_dead(bodies: &[&'static str]) -> Self {
        let status = Arc::new(AtomicU16::new(500));
        let now = Arc::clone(&status);
        let receiver = Receiver::with(move |_| {
            Answer::status(now.load(Ordering::SeqCst))
                .header("X-Why", "broken")
                .body("no \x1b[31m")
        });
        let program = Program::dev(&[], &[]).await;
        for (index, body) in bodies.iter().enumerate() {
            let headers = [("Upstash-Retries", "0"), ("Upstash-Forward-X-Kind", "test")];
            program
                .publish(&receiver.url("/hook"), &headers, *body)
                .await;
            // One after the other, so that their order is known.
            program.wait_for_dead(index + 1).await;
        }
        Self {
            program,
            receiver,
            status,
        }
    }

    async fn dlq(&self, args: &[&str]) -> Finished {
        // With a slash too many, as people paste it.
        let url = format!("{}/", self.program.base);
        let env = [
            ("QSTASH_URL", &*url),
            ("QSTASH_TOKEN", &*self.program.token),
        ];
        finish(&[&["dlq"], args].concat(), &env).await
    }
}

#[tokio::test]
async fn dead_letters_are_listed_for_people_and_for_programs() {
    let scene = Scene::with_dead(&["{\"id\":1152921506151679042}", "zwei"]).await;
    let table = scene.dlq(&["list"]).await;
    assert_eq!(table.code, 0, "{}", table.stderr);
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert!(
        lines[0].starts_with("ID ") && lines[0].contains("CAUSE"),
        "{}",
        table.stdout
    );
    assert_eq!(lines.len(), 3);
    assert!(
        lines[1].starts_with("msg_") && lines[1].contains(" 500 "),
        "{}",
        lines[1]
    );
    assert!(lines[1].contains(&scene.receiver.url("/hook")));

    let json = scene.dlq(&["list", "-o", "json"]).await;
    let listed: Value = serde_json::from_str(&json.stdout).expect("one JSON document");
    let letters = listed["messages"].as_array().unwrap();
    assert_eq!(letters.len(), 2);
    assert_eq!(letters[0]["body"], "zwei", "the newest is first");
    assert_eq!(letters[1]["body"], "{\"id\":1152921506151679042}");
    assert_eq!(letters[0]["responseStatus"], 500);

    let one = scene.dlq(&["list", "--limit", "1", "-o", "json"]).await;
    let listed: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(listed["messages"].as_array().unwrap().len(), 1);
    assert!(one.stderr.contains("There are more"), "{}", one.stderr);
}

#[tokio::test]
async fn one_dead_letter_is_shown_whole_and_harmless() {
    let scene = Scene::with_dead(&["hello"]).await;
    let id = scene.program.dead().await.remove(0);
    let shown = scene.dlq(&["show", &id]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for part in [
        &*id,
        "X-Kind: test",
        "hello",
        "X-Why: broken",
        "no \\u{1b}[31m",
        "500",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    assert!(!shown.stdout.contains('\x1b'));
    let json = scene.dlq(&["show", &id, "-o", "json"]).await;
    let letter: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(letter["dlqId"], *id);
    assert_eq!(letter["header"]["X-Kind"][0], "test");
}

#[tokio::test]
async fn dead_letters_are_redriven_and_deleted() {
    let scene = Scene::with_dead(&["1", "2", "3", "4"]).await;
    let dead = scene.program.dead().await;
    scene.status.store(200, Ordering::SeqCst);
    let one = scene
        .dlq(&["redrive", &dead[0], &dead[1], "-o", "json"])
        .await;
    assert_eq!(one.code, 0, "{}", one.stderr);
    let done: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(done["messages"][0]["dlqId"], *dead[0]);
    assert!(
        done["messages"][0]["messageId"]
            .as_str()
            .unwrap()
            .starts_with("msg_")
    );
    scene.receiver.wait_for(6, SOON).await;

    let deleted = scene.dlq(&["delete", &dead[2]]).await;
    assert_eq!(
        (deleted.code, deleted.stdout.trim()),
        (0, &*format!("Deleted {}", dead[2]))
    );
    for action in [&["list"][..], &["redrive", "--all"]] {
        let none = scene.dlq(&[action, &["--label", "none"]].concat()).await;
        assert_eq!(
            (none.code, none.stdout.trim()),
            (0, "No such dead letters."),
            "the queue is not empty"
        );
    }
    let all = scene.dlq(&["redrive", "--all"]).await;
    assert_eq!(all.code, 0, "{}", all.stderr);
    assert!(
        all.stdout
            .starts_with(&format!("Redriven {} as msg_", dead[3])),
        "{}",
        all.stdout
    );
    scene.receiver.wait_for(7, SOON).await;
    assert_eq!(scene.program.dead().await.len(), 0);
    let none = scene.dlq(&["redrive", "--all"]).await;
    assert_eq!(
        (none.code, none.stdout.trim()),
        (0, "The dead-letter queue is empty.")
    );
}

#[tokio::test]
async fn dead_letters_are_listed_and_redriven_by_filter() {
    let scene = Scene::with_dead(&["1", "2"]).await;
    let url = scene.receiver.url("/hook");
    for (args, count) in [
        (vec!["list", "--status", "500"], 3),
        (vec!["list", "--status", "404"], 1),
        (vec!["list", "--to", &url, "--since", "1h"], 3),
        (vec!["list", "--label", "none"], 1),
    ] {
        let listed = scene.dlq(&args).await;
        assert_eq!(
            listed.stdout.lines().count(),
            count,
            "{args:?}: {}",
            listed.stdout
        );
    }
    let none = scene.dlq(&["redrive", "--all", "--status", "404"]).await;
    assert_eq!(none.code, 0, "{}", none.stderr);
    assert_eq!(scene.program.dead().await.len(), 2);
    let all = scene
        .dlq(&["redrive", "--all", "--status", "404", "--status", "500"])
        .await;
    assert_eq!(all.stdout.lines().count(), 2, "{}", all.stdout);
}

#[tokio::test]
async fn exit_codes_tell_failures_apart() {
    let scene = Scene::with_dead(&["1"]).await;
    let dead = scene.program.dead().await.remove(0);
    let missing = "msg_00000000000000000000000000zz";
    for (args, code) in [
        (vec!["show", missing], 3),
        (vec!["delete", missing], 3),
        (vec!["redrive", missing], 3),
        (vec!["redrive", missing, &dead], 3),
        (vec!["show", "a/../../v2/keys"], 2),
        (vec!["show"], 2),
        (vec!["redrive"], 2),
        (vec!["redrive", "--all", &dead], 2),
        (vec!["redrive", &dead, "--label", "x"], 2),
        (vec!["list", "--since", "yesterday"], 2),
        (vec!["list", "--url", "redis://h"], 2),
        (vec!["list", "--url", "http://127.0.0.1:9"], 1),
    ] {
        let finished = scene.dlq(&args).await;
        assert_eq!(finished.code, code, "{args:?}: {}", finished.stderr);
    }
    let env = [
        ("QSTASH_URL", &*scene.program.base),
        ("QSTASH_TOKEN", "another-one"),
    ];
    let refused = finish(&["dlq", "list"], &env).await;
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("refuses the token"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("another-one"));
    let usual = finish(&["dlq", "list", "--url", &scene.program.base], &[]).await;
    assert_eq!(
        usual.code, 0,
        "the public token of `dev` is used here: {}",
        usual.stderr
    );
    let elsewhere = finish(&["dlq", "list", "--url", "http://192.0.2.1"], &[]).await;
    assert_eq!(elsewhere.code, 2, "{}", elsewhere.stderr);
}
