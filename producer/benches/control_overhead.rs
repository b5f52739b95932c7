//! What asking a control costs beyond the round trip itself: medians of both against the same
//! receiver, taken in turns in one run.
//!
//! `cargo bench -p hookstash-producer` prints them, and fails when the difference is 0.3 ms or more.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark fails by panicking and measures real time"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hookstash_producer::hooks::{
    AgentHook, EnvironmentHooks, HookDispatcher, HookType, Mode, OnError, ToolCall, Verdict,
    Webhook,
};
use hookstash_shared::clock::SystemClock;
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient, Request, Trust};
use http::{HeaderMap, Method};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 3_000;
const WARM_UP: usize = 200;
const OVERHEAD_MAX: Duration = Duration::from_micros(300);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{\"decision\":\"allow\"}";

/// Answers every request on a thread of its own; its address.
fn receiver() -> std::net::SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    // Requests are smaller than this and come one at a time.
                    let mut request = vec![0; 16 * 1024];
                    while stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                        if stream.write_all(ANSWER).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
    });
    told.recv().unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let url = format!("http://{}/policy", receiver());
    let variables = BTreeMap::from([("KEY".to_owned(), "secret".to_owned())]);
    let environment: Arc<dyn Environment> = Arc::new(variables);
    let policy = EgressPolicy::default().in_development();
    let http = HttpClient::new(policy, Arc::clone(&environment), CONNECT_TIMEOUT).unwrap();
    let clock = Arc::new(SystemClock::new());
    let hooks = HookDispatcher::builder(Mode::Local, http.clone(), environment, clock).build();
    let hooks = hooks.unwrap();
    let webhook = Webhook::to(&url)
        .header("Authorization", "Bearer ${KEY}")
        .allow_env_var("KEY")
        .control(OnError::Block);
    let control = AgentHook::webhook("policy", HookType::BeforeToolCall, webhook);
    hooks
        .register("op", vec![control.matching(r"^(?!admin/)\w+/\w+$")])
        .unwrap();
    let call = ToolCall {
        operation_id: "op".to_owned(),
        identifier: "files".to_owned(),
        api_name: "write".to_owned(),
        ..ToolCall::default()
    };
    let body = Bytes::from(serde_json::to_vec(&call).unwrap());
    let cancel = CancellationToken::new();
    let (mut bare, mut asked) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + ROUNDS {
        let begun = Instant::now();
        let request = Request {
            method: Method::POST,
            url: &url,
            headers: HeaderMap::new(),
            body: body.clone(),
            timeout: Duration::from_secs(30),
            response_keep_bytes: 1_024,
            trust: Trust::Policy,
        };
        http.send(request).await.unwrap();
        let bare_took = begun.elapsed();
        let begun = Instant::now();
        let included = EnvironmentHooks::Included;
        let verdict = hooks.evaluate(call.clone(), None, included, &cancel).await;
        let asked_took = begun.elapsed();
        assert_eq!(verdict.unwrap(), Verdict::Allow);
        if round >= WARM_UP {
            bare.push(bare_took);
            asked.push(asked_took);
        }
    }
    let (bare, asked) = (median(bare), median(asked));
    let overhead = asked.saturating_sub(bare);
    let ratio = asked.as_secs_f64() / bare.as_secs_f64();
    println!("round trip {bare:?}, control {asked:?}: overhead {overhead:?}, ratio {ratio:.2}");
    if overhead < OVERHEAD_MAX {
        ExitCode::SUCCESS
    } else {
        println!("the overhead must be below {OVERHEAD_MAX:?}");
        ExitCode::FAILURE
    }
}
