//! The tools: files, a process, one that fails, one that answers later, mail, other agents.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hookstash_producer::hooks::ToolRunResult;
use hookstash_producer::runtime::{
    AgentCall, AgentRuntime, Deferred, PortError, PortResult, Tool, ToolRun,
};
use serde_json::json;

/// Everything the tools work with.
pub(crate) struct Workshop {
    /// Where files are.
    pub(crate) folder: PathBuf,
    /// `http://127.0.0.1:port` of the HTTP API, and its token.
    pub(crate) api: (String, String),
    pub(crate) client: reqwest::Client,
}

/// One tool, by name.
pub(crate) struct NamedTool {
    pub(crate) name: &'static str,
    pub(crate) workshop: Arc<Workshop>,
}

impl Tool for NamedTool {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            let argument = |name: &str| run.call.args.get(name).and_then(|it| it.as_str());
            let file = || self.workshop.folder.join(argument("name").unwrap_or("x"));
            match self.name {
                "files/write" => {
                    tokio::fs::write(file(), argument("text").unwrap_or_default()).await?;
                    Ok(said("written"))
                }
                "files/read" => Ok(said(&tokio::fs::read_to_string(file()).await?)),
                "shell/run" => self.shell(argument("command").unwrap_or_default()).await,
                "weather/today" => Err("the weather service does not answer".into()),
                "report/build" => self.later(&run).await,
                "mail/send" => Ok(said("sent")),
                _ => {
                    let agent = AgentCall {
                        agent_id: argument("agent").unwrap_or_default().to_owned(),
                        instruction: "Find out what milk costs.".to_owned(),
                        thread_id: None,
                    };
                    run.call_agent(agent).await
                }
            }
        })
    }

    fn cost(&self) -> f64 {
        1.0
    }
}

impl NamedTool {
    async fn shell(&self, command: &str) -> Result<ToolRunResult, PortError> {
        let output = tokio::process::Command::new("/bin/sh")
            .args(["-c", command])
            .current_dir(&self.workshop.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        Ok(ToolRunResult {
            success: output.status.success(),
            ..said(String::from_utf8_lossy(&output.stdout).trim())
        })
    }

    /// Leaves a placeholder, and lets somebody else answer over HTTP.
    async fn later(&self, run: &ToolRun<'_>) -> Result<ToolRunResult, PortError> {
        let place = run.defer().await?;
        let runtime = run.operation().runtime().clone();
        tokio::spawn(elsewhere(Arc::clone(&self.workshop), place, runtime));
        Ok(ToolRunResult {
            deferred: Some(true),
            ..ToolRunResult::default()
        })
    }
}

/// A service that knows the API's address, the token and the placeholder, and nothing of agents.
async fn elsewhere(workshop: Arc<Workshop>, place: Deferred, runtime: AgentRuntime) {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (base, token) = &workshop.api;
    let url = format!(
        "{base}/v1/completions/{}/{}",
        place.operation_id, place.tool_message_id
    );
    for content in ["milk: 1.20", "a second answer"] {
        let request = workshop.client.post(&url).bearer_auth(token);
        let answer = request
            .body(json!({ "content": content }).to_string())
            .send()
            .await;
        let text = match answer {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        println!("http   {text}");
    }
    // Without this the runtime finds the answer when it looks the next time, after 15 seconds.
    drop(runtime.check_barrier(&place.operation_id).await);
}

fn said(content: &str) -> ToolRunResult {
    ToolRunResult {
        content: content.to_owned(),
        success: true,
        ..ToolRunResult::default()
    }
}
