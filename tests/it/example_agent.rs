//! The example of an agent runtime, run as the tutorial says, in both modes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use hookstash_producer::hooks::HookType;

/// The story takes two seconds on an idle machine.
const LONGEST: Duration = Duration::from_mins(3);

/// `target/<profile>/examples/agent`, which cargo builds together with this test.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let profile = own.parent().and_then(|deps| deps.parent());
    let program = profile.expect("a target folder").join("examples/agent");
    assert!(
        program.exists(),
        "cargo build --example agent makes {}",
        program.display()
    );
    program
}

/// Everything it printed.
async fn story(mode: &str) -> Vec<String> {
    let mut command = tokio::process::Command::from(Command::new(program()));
    command
        .args(["--mode", mode])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(LONGEST, command.output()).await;
    let output = output.expect("it ends").expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}\n{errors}");
    text.lines().map(str::to_owned).collect()
}

/// `hook operation` of every hook that fired, in order.
fn trace(story: &[String]) -> Vec<String> {
    let words = story.iter().map(|line| line.split_whitespace());
    words
        .filter_map(
            |mut words| match (words.next(), words.next(), words.next()) {
                (Some("hook"), Some(hook), Some(operation)) => Some(format!("{hook} {operation}")),
                _ => None,
            },
        )
        .collect()
}

/// What fires, in the order of the story.
const EXPECTED: &[&str] = &[
    "beforeStep writer",
    "afterStep writer",
    "beforeStep writer",
    "beforeToolCall writer",
    "afterToolCall writer",
    "beforeToolCall writer",
    "afterToolCall writer",
    "afterToolCall writer",
    "afterStep writer",
    "beforeStep writer",
    "beforeToolCall writer",
    "beforeToolCall writer",
    "afterToolCall writer",
    "onToolCallError writer",
    "afterStep writer",
    "beforeStep writer",
    "beforeCompact writer",
    "afterCompact writer",
    "afterStep writer",
    "beforeStep writer",
    "beforeCompact writer",
    "onCompactError writer",
    "afterStep writer",
    "beforeStep writer",
    "beforeToolCall writer",
    "afterStep writer",
    "beforeStep writer",
    "beforeToolCall writer",
    "beforeToolCall writer",
    "beforeCallAgent writer",
    "afterCallAgent writer",
    "beforeCallAgent writer",
    "onCallAgentError writer",
    "afterToolCall writer",
    "afterStep writer",
    "beforeStep writer",
    "beforeHumanIntervention writer",
    "afterStep writer",
    "onComplete writer",
    "afterHumanIntervention writer",
    "beforeStep writer",
    "beforeToolCall writer",
    "afterToolCall writer",
    "afterStep writer",
    "beforeStep writer",
    "afterStep writer",
    "onComplete writer",
    "beforeStep stopped",
    "beforeHumanIntervention stopped",
    "afterStep stopped",
    "onComplete stopped",
    "onStopByHumanIntervention stopped",
    "onComplete stopped",
    "onComplete failing",
    "onError failing",
];

fn assert_told(story: &[String], needle: &str) {
    let is_told = story.iter().any(|line| line.contains(needle));
    assert!(is_told, "{needle:?} is not in\n{}", story.join("\n"));
}

fn assert_policy(story: &[String]) {
    assert_told(story, "shell/run is denied: Nothing is deleted by force.");
    assert_told(
        story,
        "files/read is denied: Passwords stay where they are.",
    );
    assert_told(story, r#""applied":true"#);
    assert_told(story, r#""applied":false,"result":{"content":"milk: 1.20""#);
    let leaks = story.iter().filter(|line| line.contains("the password is"));
    assert_eq!(leaks.count(), 0);
    let fired = trace(story);
    for hook in HookType::ALL {
        let start = format!("{hook} ");
        assert!(
            fired.iter().any(|one| one.starts_with(&start)),
            "{hook} does not fire"
        );
    }
}

#[tokio::test]
async fn in_local_mode_the_example_fires_every_hook_in_the_order_of_its_story() {
    let story = story("local").await;
    assert_policy(&story);
    assert_eq!(trace(&story), EXPECTED, "\n{}", story.join("\n"));
}

#[tokio::test]
async fn in_queue_mode_the_example_fires_the_same_hooks() {
    let story = story("queue").await;
    assert_policy(&story);
    let count = |hooks: &mut dyn Iterator<Item = String>| {
        hooks.fold(
            BTreeMap::new(),
            |mut counts: BTreeMap<String, usize>, hook| {
                *counts.entry(hook).or_default() += 1;
                counts
            },
        )
    };
    let fired = count(&mut trace(&story).into_iter());
    let expected = count(&mut EXPECTED.iter().map(|hook| (*hook).to_owned()));
    assert_eq!(fired, expected, "\n{}", story.join("\n"));
}
