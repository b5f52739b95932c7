//! The hooks of an operation: one for each of the sixteen moments, which prints, and two controls.
//!
//! Each printing hook is a handler and a webhook. In local mode the handler runs here; in queue
//! mode the webhook is called, and the receiver prints.

use std::sync::Arc;

use hookstash_producer::hooks::{
    AfterCallAgent, AfterCompact, AfterHumanIntervention, AfterStep, AfterToolCall, AgentHook,
    BeforeCallAgent, BeforeCompact, BeforeHumanIntervention, BeforeStep, BeforeToolCall, HookEvent,
    HookType, OnCallAgentError, OnCompactError, OnComplete, OnError, OnErrorEvent,
    OnStopByHumanIntervention, OnToolCallError, Webhook,
};
use serde_json::Value;

/// Where webhooks of this example go, below `APP_URL`.
pub(crate) const TRACE_PATH: &str = "/hooks/trace";
/// Where controls are asked.
pub(crate) const POLICY_PATH: &str = "/hooks/policy";

/// All of them, in the order in which they are asked.
pub(crate) fn all() -> Vec<AgentHook> {
    vec![
        policy("policy-before", HookType::BeforeToolCall),
        policy("policy-after", HookType::AfterToolCall),
        traced::<BeforeStep>(),
        traced::<AfterStep>(),
        traced::<OnComplete>(),
        traced::<OnErrorEvent>(),
        traced::<BeforeToolCall>(),
        traced::<AfterToolCall>(),
        traced::<OnToolCallError>(),
        traced::<BeforeHumanIntervention>(),
        traced::<AfterHumanIntervention>(),
        traced::<OnStopByHumanIntervention>(),
        traced::<BeforeCompact>(),
        traced::<AfterCompact>(),
        traced::<OnCompactError>(),
        traced::<BeforeCallAgent>(),
        traced::<AfterCallAgent>(),
        traced::<OnCallAgentError>(),
    ]
}

/// Asks the policy receiver, and blocks when it cannot be asked.
fn policy(id: &str, moment: HookType) -> AgentHook {
    let webhook = Webhook::to(POLICY_PATH)
        .header("Authorization", "Bearer ${POLICY_KEY}")
        .allow_env_var("POLICY_KEY")
        .control(OnError::Block);
    AgentHook::webhook(id, moment, webhook).matching("^(files|shell)/")
}

fn traced<E: HookEvent>() -> AgentHook {
    let webhook = Webhook::to(TRACE_PATH);
    let webhook = match E::TYPE {
        // The end of a run is worth a queue: it is retried until somebody has heard it.
        HookType::OnComplete | HookType::OnError => webhook.durable(),
        _ => webhook,
    };
    let handler = |event: Arc<E>| async move {
        print(E::TYPE.as_str(), &serde_json::to_value(&*event)?);
        Ok(())
    };
    AgentHook::handler(format!("trace-{}", E::TYPE), handler).with_webhook(webhook)
}

/// Prints an event as it fires.
pub(crate) fn print(hook_type: &str, event: &Value) {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let detail = match hook_type {
        "beforeStep" | "afterStep" => format!("step {}", event["stepIndex"]),
        "onComplete" | "onError" => format!("{} {}", text("reason"), text("errorMessage")),
        "beforeToolCall" | "afterToolCall" | "onToolCallError" => {
            format!("{}/{}", text("identifier"), text("apiName"))
        }
        "beforeHumanIntervention" => event["pendingTools"][0]["apiName"].to_string(),
        "afterHumanIntervention" => text("action").to_owned(),
        "onStopByHumanIntervention" => text("rejectionReason").to_owned(),
        "afterCompact" => text("summary").to_owned(),
        "onCompactError" => text("error").to_owned(),
        "beforeCallAgent" | "afterCallAgent" | "onCallAgentError" => text("agentId").to_owned(),
        _ => String::new(),
    };
    println!("hook   {hook_type:<26} {:<8} {detail}", text("operationId"));
}
