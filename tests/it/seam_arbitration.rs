//! Many tasks of many processes complete the same placeholders, while processes and connections are
//! killed at random: each placeholder gets one result, and everyone the same one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hookstash_producer::hooks::{OnError, ToolRunResult, Webhook};
use hookstash_producer::runtime::{OperationRecord, OperationStore, Publication, StoredOperations};
use hookstash_shared::environment::{Environment, ProcessEnvironment};
use hookstash_shared::random::{Random, SeededRandom};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{CompletionKey, Store};
use serde_json::{Value, json};

use crate::support::process::Process;
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;
use crate::support::seam_actor::{
    self, ENDED, FORBIDDEN, FileRows, RACES, Steps, race_operation, race_row, store_on,
};
use crate::support::stage::connect;

const NAME: &str =
    "seam_arbitration::every_placeholder_has_one_result_however_many_race_and_whoever_is_killed";
/// The placeholders of the long tier: 10000. Without it, as many as a minute allows.
const PLACEHOLDERS: &str = "SEAM_PLACEHOLDERS";
const PLACEHOLDERS_USUAL: usize = 800;
const PROCESSES: usize = 4;
const TASKS: usize = 16;
/// How often something is killed.
const KILLS: usize = 10;
/// One more for so many placeholders.
const PLACEHOLDERS_PER_KILL: usize = 200;
const DONE: Duration = Duration::from_mins(20);

/// What a caller was told: the placeholder, whether it won, and the result.
type Seen = (usize, bool, ToolRunResult);

fn start(redis: &RedisServer, folder: &Path, policy: &str, name: &str, count: usize) -> Process {
    let told = json!({"name": name, "tasks": TASKS, "placeholders": count}).to_string();
    seam_actor::start(NAME, &redis.url(), folder, policy, &[(RACES, &told)])
}

/// Calls the store until it answers: what is asked of it here is safe to repeat, and a disk that is
/// busy elsewhere may keep it waiting.
async fn patiently<T>(mut call: impl AsyncFnMut() -> Result<T, HostError>) -> T {
    const TRIES: usize = 20;
    for _ in 1..TRIES {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => println!("once more after: {error}"),
        }
    }
    call().await.expect("an answer")
}

/// Opens every placeholder, with its row.
async fn open(store: &Store, rows: &FileRows, policy: &str, count: usize) {
    let operations = StoredOperations::new(store.clone());
    let webhook = Value::from(Webhook::to(policy).control(OnError::Block));
    let hooks = json!([{"id": "after", "type": "afterToolCall", "webhook": webhook}]);
    for placeholder in 0..count {
        let operation = race_operation(placeholder);
        if placeholder < 8 {
            let record = OperationRecord {
                hooks: Some(hooks.clone()),
                user_id: Some("u1".to_owned()),
                ..OperationRecord::default()
            };
            operations.save(&operation, &record).await.expect("saved");
        }
        let row = race_row(placeholder);
        let context = json!({"call": row.call, "operations": [operation]});
        let key = CompletionKey::new(&operation, &row.id, store.shards());
        let open = async || {
            store
                .open_completion(&key, context.to_string().into())
                .await
        };
        patiently(open).await;
        rows.write(&row);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_placeholder_has_one_result_however_many_race_and_whoever_is_killed() {
    seam_actor::act_if_started_as_actor().await;
    let count = ProcessEnvironment.get(PLACEHOLDERS);
    let count = count.map_or(PLACEHOLDERS_USUAL, |count| count.parse().expect("a number"));
    let redis = RedisServer::start_durable();
    let folder = tempfile::tempdir().expect("a folder");
    let policy = Receiver::with(|request| {
        let is_denied = request.text().contains(FORBIDDEN);
        let decision = if is_denied { "deny" } else { "allow" };
        Answer::ok().body(json!({"decision": decision, "reason": "no"}).to_string())
    });
    let store = store_on(connect(&redis.url()));
    let rows = FileRows::at(folder.path().to_owned(), Steps::of_the_living());
    open(&store, &rows, &policy.url("/"), count).await;

    let url = policy.url("/");
    let begin = |name: &str| start(&redis, folder.path(), &url, name, count);
    let mut running: Vec<_> = (0..PROCESSES)
        .map(|one| begin(&format!("{one}-0")))
        .collect();
    let random = SeededRandom::new(7);
    for kill in 0..KILLS + count / PLACEHOLDERS_PER_KILL {
        tokio::time::sleep(Duration::from_millis(200 + random.below(600))).await;
        let victim = usize::try_from(random.below(PROCESSES as u64)).expect("small");
        if kill % 2 == 0 {
            redis.cli::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        } else {
            running[victim].kill9();
            assert_silent(&running[victim]);
            running[victim] = begin(&format!("{victim}-{}", kill + 1));
        }
    }
    for process in &mut running {
        process.wait_for_line(ENDED, DONE).await;
        assert!(process.wait_exit(DONE).await.success());
        assert_silent(process);
    }
    judge(&store, &rows, folder.path(), count).await;
}

/// Compares what everyone was told with what is stored and shown.
async fn judge(store: &Store, rows: &FileRows, folder: &Path, count: usize) {
    let seen = all_seen(folder);
    let shown = rows.all();
    assert_eq!(shown.len(), count);
    let mut denied = 0;
    for placeholder in 0..count {
        let row = &shown[&race_row(placeholder).id];
        let key = CompletionKey::new(&race_operation(placeholder), &row.id, store.shards());
        let stored = patiently(async || store.placeholder(&key).await).await;
        let stored = stored.expect("open");
        let result = stored.result.expect("a result");
        let publication: Publication = serde_json::from_slice(&result).expect("JSON");
        let told = &seen[&placeholder];
        assert!(told.len() >= PROCESSES * 2, "{} tries", told.len());
        for (_, _, result) in told {
            assert_eq!(result, &publication.result, "placeholder {placeholder}");
        }
        let winners = told.iter().filter(|told| told.1).count();
        assert!(winners <= 1, "{winners} winners of {placeholder}");
        assert_eq!(row.content, publication.result.content);
        assert!(row.is_final);
        let text = format!("{row:?} {publication:?}");
        assert!(!text.contains(FORBIDDEN), "{text}");
        let operation = race_operation(placeholder);
        let open = patiently(async || store.open_completions(&operation).await).await;
        assert_eq!(open, Vec::<String>::new(), "nothing stays open");
        denied += usize::from(row.content == "no");
    }
    assert!(
        denied > count / 10 && denied < count,
        "{denied} of {count} were denied"
    );
    println!(
        "{count} placeholders, {denied} denied, {} answers",
        seen.values().flatten().count()
    );
}

fn all_seen(folder: &Path) -> BTreeMap<usize, Vec<Seen>> {
    let mut all: BTreeMap<usize, Vec<Seen>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(|name| name.starts_with("seen-")) {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("text");
        assert!(!text.contains(FORBIDDEN), "{text}");
        for line in text.lines() {
            let seen: Seen = serde_json::from_str(line).expect("JSON");
            all.entry(seen.0).or_default().push(seen);
        }
    }
    all
}

fn assert_silent(process: &Process) {
    let lines = process.lines();
    let said = lines.iter().find(|line| line.contains(FORBIDDEN));
    assert!(said.is_none(), "{said:?}");
}
