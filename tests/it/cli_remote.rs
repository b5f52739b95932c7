//! The commands that talk to a running server: publish, messages, events, keys, verify.

use std::process::Command;

use serde_json::Value;

use crate::support::process::hookstash;
use crate::support::program::{Finished, Program, SOON, TOKEN, finish};
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::RedisServer;

const SECRET: (&str, &str) = (
    "HOOKSTASH_SECRET_KEY",
    "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
);
const WEBHOOK: (&str, &str) = (
    "HOOKSTASH_WEBHOOK_SECRET",
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
);

async fn run(program: &Program, args: &[&str]) -> Finished {
    let env = [
        ("QSTASH_URL", &*program.base),
        ("QSTASH_TOKEN", &*program.token),
    ];
    finish(args, &env).await
}

fn json(finished: &Finished) -> Value {
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{}", finished.stdout))
}

#[tokio::test]
async fn publish_sends_bodies_headers_and_options() {
    let program = Program::dev(&[], &[]).await;
    let receiver = Receiver::always(Answer::ok());
    let url = receiver.url("/hook?a=1");
    let args = [
        "publish",
        &url,
        "-d",
        "{\"a\":1}",
        "-H",
        "X-Step: 7",
        "--label",
        "l1",
        "--label",
        "l2",
    ];
    let published = run(&program, &args).await;
    assert_eq!(published.code, 0, "{}", published.stderr);
    let id = published
        .stdout
        .trim()
        .trim_start_matches("Accepted as ")
        .to_owned();
    assert!(id.starts_with("msg_"), "{}", published.stdout);
    let request = receiver.wait_for(1, SOON).await.remove(0);
    assert_eq!((&*request.path, request.text()), ("/hook?a=1", "{\"a\":1}"));
    assert_eq!(request.header("X-Step"), Some("7"));
    assert_eq!(request.header("Content-Type"), Some("application/json"));
    assert_eq!(request.header("Upstash-Message-Id"), Some(&*id));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    std::fs::write(&file, b"\xffraw\n").unwrap();
    let from_file = format!("@{}", file.display());
    let args = [
        "publish",
        &url,
        "-X",
        "PUT",
        "-d",
        &from_file,
        "--dedup-id",
        "once",
        "-o",
        "json",
    ];
    let first = json(&run(&program, &args).await);
    let again = json(&run(&program, &args).await);
    assert_eq!(
        (&again["messageId"], &again["deduplicated"]),
        (&first["messageId"], &Value::Bool(true))
    );
    let request = receiver.wait_for(2, SOON).await.remove(1);
    assert_eq!(
        (&*request.method, &*request.body),
        ("PUT", &b"\xffraw\n"[..])
    );
    assert_eq!(request.header("Content-Type"), None);

    let mut shell = Command::new("sh");
    let script = "printf 'from stdin' | \"$0\" publish \"$1\" -d - --url \"$2\"";
    shell.args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_hookstash"),
        &url,
        &program.base,
    ]);
    let output = tokio::task::spawn_blocking(move || shell.output())
        .await
        .unwrap()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(receiver.wait_for(3, SOON).await[2].text(), "from stdin");
}

#[tokio::test]
async fn what_cannot_be_published_is_said_plainly() {
    let program = Program::dev(&[], &[]).await;
    for (args, code, text) in [
        (
            vec!["publish", "localhost:3000/hook"],
            1,
            "add http:// or https://",
        ),
        (
            vec!["publish", "https://h/", "--delay", "soon"],
            1,
            "Upstash-Delay",
        ),
        (
            vec!["publish", "https://h/", "--retries", "many"],
            1,
            "Upstash-Retries",
        ),
        (
            vec!["publish", "https://h/", "--dedup-id", "a:b"],
            1,
            "cannot contain ':'",
        ),
        (
            vec!["publish", "https://h/", "-H", "nothing"],
            2,
            "Name: value",
        ),
        (
            vec!["publish", "https://h/", "-d", "@/does/not/exist"],
            2,
            "/does/not/exist",
        ),
        (
            vec![
                "publish",
                "https://h/",
                "--delay",
                "1s",
                "--not-before",
                "9",
            ],
            2,
            "cannot be used with",
        ),
        (vec!["publish"], 2, "DESTINATION"),
    ] {
        let finished = run(&program, &args).await;
        assert_eq!(finished.code, code, "{args:?}: {}", finished.stderr);
        assert!(
            finished.stderr.contains(text),
            "{args:?}: {}",
            finished.stderr
        );
    }
}

#[tokio::test]
async fn messages_are_shown_and_cancelled() {
    let program = Program::dev(&[], &[]).await;
    let args = [
        "publish",
        "https://h/p",
        "-d",
        "hello",
        "--delay",
        "1h",
        "--retries",
        "7",
        "--label",
        "l",
        "-o",
        "json",
    ];
    let id = json(&run(&program, &args).await)["messageId"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = run(&program, &["messages", "get", &id]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for part in [
        &*id,
        "POST https://h/p",
        "hello",
        "Retries     7",
        "Labels      l",
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let message = json(&run(&program, &["messages", "get", &id, "-o", "json"]).await);
    assert_eq!(message["messages"][0]["body"], "hello");
    let cancelled = run(&program, &["messages", "cancel", &id]).await;
    assert_eq!(
        (cancelled.code, cancelled.stdout.trim()),
        (0, &*format!("Cancelled {id}"))
    );
    for command in ["get", "cancel"] {
        let missing = run(&program, &["messages", command, &id]).await;
        assert_eq!(missing.code, 3, "{}", missing.stderr);
        assert!(missing.stderr.contains("not found"), "{}", missing.stderr);
    }
    let wrong = run(&program, &["messages", "get", "a/../../keys"]).await;
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}

#[tokio::test]
async fn events_are_listed_for_people_and_for_programs() {
    let program = Program::dev(&[], &[]).await;
    let receiver = Receiver::always(Answer::status(500));
    let id = program
        .publish(&receiver.url("/"), &[("Upstash-Retries", "0")], "x")
        .await;
    program.wait_for_dead(1).await;
    let listed = run(&program, &["events"]).await;
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert!(
        lines[0].starts_with("TIME ") && lines.len() == 4,
        "{}",
        listed.stdout
    );
    assert!(
        lines[1].contains(" FAILED ") && lines[1].contains("status 500"),
        "{}",
        lines[1]
    );
    let story = json(&run(&program, &["events", "--message", &id, "-o", "json"]).await);
    assert_eq!(story["events"].as_array().unwrap().len(), 3);
    let args = ["events", "--message", &id, "--state", "ERROR"];
    assert_eq!(
        run(&program, &args).await.code,
        2,
        "ids tell the whole story"
    );
    let events = json(&run(&program, &["events", "--state", "ERROR", "-o", "json"]).await);
    assert_eq!(events["events"].as_array().unwrap().len(), 1);
    assert_eq!(events["events"][0]["responseStatus"], 500);
    let one = run(
        &program,
        &[
            "events", "--limit", "1", "--first", "earliest", "--since", "1h",
        ],
    )
    .await;
    assert!(
        one.stdout.contains(" CREATED ") && one.stdout.lines().count() == 2,
        "{}",
        one.stdout
    );
    assert!(one.stderr.contains("There are more"), "{}", one.stderr);
    let none = run(&program, &["events", "--host", "elsewhere"]).await;
    assert_eq!((none.code, none.stdout.trim()), (0, "No such events."));
    let wrong = run(&program, &["events", "--state", "DONE"]).await;
    assert!(
        wrong.code == 1 && wrong.stderr.contains("invalid state"),
        "{}",
        wrong.stderr
    );
}

#[tokio::test]
async fn keys_are_shown_and_rotated_only_when_asked_for() {
    let redis = RedisServer::start();
    let program = Program::role("api", &redis, &[SECRET]).await;
    let shown = run(&program, &["keys", "show"]).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(
        shown
            .stdout
            .starts_with("export QSTASH_CURRENT_SIGNING_KEY=\"sig_"),
        "{}",
        shown.stdout
    );
    let before = json(&run(&program, &["keys", "show", "-o", "json"]).await);
    let asked = run(&program, &["keys", "rotate"]).await;
    assert_eq!(asked.code, 2, "nobody can be asked: {}", asked.stderr);
    assert!(asked.stderr.contains("--yes"), "{}", asked.stderr);
    assert_eq!(
        json(&run(&program, &["keys", "show", "-o", "json"]).await),
        before
    );
    let rotated = run(&program, &["keys", "rotate", "--yes", "-o", "json"]).await;
    assert_eq!(json(&rotated)["current"], before["next"]);
    assert!(
        rotated.stderr.contains("before you rotate again"),
        "{}",
        rotated.stderr
    );

    let dev = Program::dev(&[], &[]).await;
    let refused = run(&dev, &["keys", "rotate", "--yes"]).await;
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("QSTASH_CURRENT_SIGNING_KEY"),
        "{}",
        refused.stderr
    );
}

/// The signature headers of a delivery, as flags.
fn flags(request: &Received) -> Vec<String> {
    let names = [
        "upstash-signature",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    ];
    let flag = |name: &&str| format!("{name}: {}", request.header(name).expect("a signature"));
    names
        .iter()
        .flat_map(|name| ["-H".to_owned(), flag(name)])
        .collect()
}

#[tokio::test]
async fn a_delivery_is_verified_and_a_changed_one_is_not() {
    let redis = RedisServer::start();
    let program = Program::serve(&redis, &[SECRET, WEBHOOK]).await;
    let receiver = Receiver::always(Answer::ok());
    let url = receiver.url("/hook");
    program.publish(&url, &[], "the body").await;
    let request = receiver.wait_for(1, SOON).await.remove(0);
    let signatures = flags(&request);
    let verify = async |more: &[&str], env: &[(&str, &str)]| {
        let args: Vec<&str> = ["verify"]
            .into_iter()
            .chain(signatures.iter().map(String::as_str))
            .collect();
        let usual = [
            ("QSTASH_URL", &*program.base),
            ("QSTASH_TOKEN", TOKEN),
            WEBHOOK,
        ];
        finish(&[&args[..], more].concat(), &[&usual[..], env].concat()).await
    };
    let good = verify(&["-d", "the body", "--to", &url], &[]).await;
    assert_eq!(good.code, 0, "{}{}", good.stdout, good.stderr);
    assert!(good.stdout.contains(&url), "{}", good.stdout);
    let good = verify(&["-d", "the body", "-o", "json"], &[]).await;
    assert_eq!(json(&good)["signatures"].as_array().unwrap().len(), 2);

    let other_keys = [
        (
            "QSTASH_CURRENT_SIGNING_KEY",
            "sig_anotheroneAAAAAAAAAAAAAAAAAA",
        ),
        (
            "QSTASH_NEXT_SIGNING_KEY",
            "sig_anotheroneBBBBBBBBBBBBBBBBBB",
        ),
    ];
    for (more, env, text) in [
        (
            vec!["-d", "the body "],
            &[][..],
            "the body is not the one that was signed",
        ),
        (
            vec!["-d", "the body", "--to", "http://h/other"],
            &[],
            "for another URL",
        ),
        (
            vec!["-d", "the body"],
            &other_keys[..],
            "neither the current nor the next signing key",
        ),
    ] {
        let bad = verify(&more, env).await;
        assert_eq!(bad.code, 1, "{}{}", bad.stdout, bad.stderr);
        assert!(
            bad.stdout.contains("BAD") && bad.stdout.contains(text),
            "{}",
            bad.stdout
        );
        assert!(!bad.stdout.contains("sig_another"), "{}", bad.stdout);
    }
    let nothing = finish(&["verify", "-H", "X-A: b", "-d", ""], &[]).await;
    assert_eq!(nothing.code, 2);
    assert!(
        nothing.stderr.contains("Upstash-Signature"),
        "{}",
        nothing.stderr
    );
}

#[tokio::test]
async fn g08_every_form_of_the_base_url_reaches_the_server() {
    let program = Program::dev(&[], &[]).await;
    for end in ["", "/", "//", "/v2", "/v2/", "/v2//", " ", "\n"] {
        let url = format!("{}{end}", program.base);
        for args in [vec!["keys", "show"], vec!["dlq", "list"], vec!["events"]] {
            let env = [("QSTASH_URL", &*url), ("QSTASH_TOKEN", &*program.token)];
            let finished = finish(&args, &env).await;
            assert_eq!(finished.code, 0, "{url:?} {args:?}: {}", finished.stderr);
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_result_that_cannot_be_written_is_a_failure_and_a_reader_that_left_is_none() {
    let program = Program::dev(&[], &[]).await;
    let run = |sink: std::process::Stdio| {
        let args = ["events", "--url", &program.base, "-o", "json"];
        let mut command = hookstash(&args, &[("QSTASH_TOKEN", &program.token)]);
        let output = command.stdout(sink).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let full = std::fs::File::create("/dev/full").unwrap();
    let (code, text) = run(full.into());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("standard output"), "{text}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run(writer.into()), (Some(0), String::new()));
}
