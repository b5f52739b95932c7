//! Tools of every kind take the same path: built in, in a sandbox, behind MCP.

use std::process::Stdio;
use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// In this process.
struct BuiltIn;

impl Tool for BuiltIn {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        let path = run.call.args["path"].to_string();
        Box::pin(async move { Ok(result(&format!("read {path}"))) })
    }
}

/// In a process of its own, without any of our environment.
struct Sandbox;

impl Tool for Sandbox {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            let output = tokio::process::Command::new("/bin/sh")
                .args([
                    "-c",
                    "printf 'read %s' \"$1\"",
                    "sh",
                    &run.call.args["path"].to_string(),
                ])
                .env_clear()
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .output()
                .await?;
            Ok(ToolRunResult {
                success: output.status.success(),
                ..result(&String::from_utf8_lossy(&output.stdout))
            })
        })
    }
}

/// Behind the Model Context Protocol: one JSON-RPC message a line.
struct Mcp(std::net::SocketAddr);

impl Tool for Mcp {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            let mut stream = BufReader::new(TcpStream::connect(self.0).await?);
            let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": run.call.api_name, "arguments": run.call.args}});
            stream.write_all(format!("{request}\n").as_bytes()).await?;
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let answer: Value = serde_json::from_str(&line)?;
            let text = answer["result"]["content"][0]["text"].as_str();
            Ok(result(text.ok_or("no text")?))
        })
    }
}

async fn mcp_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let request: Value = serde_json::from_str(&line).unwrap();
            let text = format!("read {}", request["params"]["arguments"]["path"]);
            let answer = json!({"jsonrpc": "2.0", "id": request["id"],
                "result": {"content": [{"type": "text", "text": text}]}});
            stream
                .write_all(format!("{answer}\n").as_bytes())
                .await
                .unwrap();
        }
    });
    address
}

/// The order of everything that happened, and what is left of an allowed and of a denied call.
async fn take_the_path(tool: Arc<dyn Tool>) -> (Vec<String>, Vec<Value>) {
    let world = World::answering(Mode::Local, |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let is_denied = body["toolCallId"] == "denied" && body["hookType"] == "afterToolCall";
        let decision = if is_denied { "deny" } else { "allow" };
        Some(Reply::ok().body(json!({"decision": decision}).to_string()))
    });
    let hooks = vec![
        world.before("before"),
        world.after("after"),
        AgentHook::handler("tells", {
            let notes = world.notes.clone();
            move |event: Arc<AfterToolCall>| {
                notes.add(format!("told {}", event.call.tool_call_id));
                async { Ok(()) }
            }
        }),
    ];
    let operation = world.start(hooks).await;
    for id in ["allowed", "denied"] {
        run(&operation, id, &tool).await;
        world.drain().await;
    }
    let rows = ["allowed", "denied"].map(|id| {
        let row = world.rows.of_call(id);
        json!([
            row.content,
            row.error,
            row.state,
            row.intervention,
            row.is_final
        ])
    });
    (world.notes.all(), rows.into())
}

async fn assert_usual(tool: Arc<dyn Tool>) {
    let (order, rows) = take_the_path(tool).await;
    let reason = "Blocked by afterToolCall hook.";
    assert_eq!(
        rows,
        [
            json!(["read \"x\"", null, null, null, true]),
            json!([
                reason,
                "hook_denied",
                {"phase": "afterToolCall", "reason": reason, "type": "blocked"},
                {"status": "rejected", "rejectedReason": reason},
                true
            ])
        ]
    );
    let expected = [
        "http /before allowed",
        "http /after allowed",
        "archive allowed",
        "row allowed",
        "tool_end allowed",
        "http /before denied",
        "http /after denied",
        "row denied",
        "tool_end denied",
    ];
    let seen: Vec<_> = order
        .iter()
        .filter(|note| !note.starts_with("told"))
        .collect();
    assert_eq!(seen, expected);
    let told: Vec<_> = order
        .iter()
        .filter(|note| note.starts_with("told"))
        .collect();
    assert_eq!(told, ["told allowed", "told denied"]);
}

#[tokio::test]
async fn a_built_in_tool_takes_the_path() {
    assert_usual(Arc::new(BuiltIn)).await;
}

#[tokio::test]
async fn a_tool_in_a_sandbox_takes_the_path() {
    assert_usual(Arc::new(Sandbox)).await;
}

#[tokio::test]
async fn a_tool_behind_mcp_takes_the_path() {
    assert_usual(Arc::new(Mcp(mcp_server().await))).await;
}

/// Ends when the other has run.
struct Waits {
    other: Arc<tokio::sync::Notify>,
    is_other: bool,
}

impl Tool for Waits {
    fn run<'a>(&'a self, _: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            if self.is_other {
                self.other.notify_one();
            } else {
                self.other.notified().await;
            }
            Ok(result("x"))
        })
    }
}

#[tokio::test]
async fn a_lane_that_takes_long_holds_up_no_other_of_many() {
    const LANES: usize = 100;
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    let other = Arc::new(tokio::sync::Notify::new());
    let lane = |number: usize| {
        let tool: Arc<dyn Tool> = Arc::new(Waits {
            other: Arc::clone(&other),
            is_other: number > 0,
        });
        vec![request(&number.to_string(), &tool)]
    };
    let any = |number| {
        if number == 0 || number == LANES - 1 {
            lane(number)
        } else {
            vec![request(&number.to_string(), &world.saying("x"))]
        }
    };
    let running = operation.run_tools((0..LANES).map(any).collect());
    let ended = tokio::time::timeout(SOON, running).await;
    let outcome = ended.expect("the last lane is begun").unwrap();
    let order = outcome.calls.into_iter().map(|call| call.call.tool_call_id);
    assert!(
        order.eq((0..LANES).map(|number| number.to_string())),
        "as they were given"
    );
}
