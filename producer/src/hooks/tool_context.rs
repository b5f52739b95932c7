//! Where a tool call comes from: one [`ToolCall`] out of what several places know about it.

use serde_json::{Map, Value};

use super::event::{Executor, ToolCall};

/// The call as the model asked for it.
#[derive(Debug, Clone, Default)]
pub struct RequestedCall {
    /// The model's own id of the call.
    pub id: String,
    /// The tool.
    pub identifier: String,
    /// The function.
    pub api_name: String,
    /// The arguments as the model wrote them.
    pub arguments: String,
    /// Whether the call says that the client should execute it.
    pub is_for_client: bool,
    /// Where the tool comes from.
    pub source: Option<String>,
}

/// What one place knows about where a call belongs. The builder asks three of them: the origin of
/// the run, the context of the tool, and the runtime.
#[derive(Debug, Clone, Default)]
pub struct Belonging {
    /// The agent.
    pub agent_id: Option<String>,
    /// The topic.
    pub topic_id: Option<String>,
    /// The workspace.
    pub workspace_id: Option<String>,
    /// The group of agents.
    pub group_id: Option<String>,
    /// The thread.
    pub thread_id: Option<String>,
    /// The owner.
    pub user_id: Option<String>,
}

/// What the origin of a run knows.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// Where the run belongs.
    pub belonging: Belonging,
    /// The operation that started this one, from its recorded lineage.
    pub parent_operation_id: Option<String>,
    /// The message that caused the run.
    pub source_message_id: Option<String>,
}

/// What the context of the tool knows.
#[derive(Debug, Clone, Default)]
pub struct ToolScope {
    /// Where the call belongs.
    pub belonging: Belonging,
    /// The user's device that is in use.
    pub active_device_id: Option<String>,
    /// The document.
    pub document_id: Option<String>,
    /// What the call is executed on.
    pub execution_target: Option<String>,
    /// The message the context is about.
    pub message_id: Option<String>,
    /// The session.
    pub session_id: Option<String>,
    /// The task.
    pub task_id: Option<String>,
    /// Where the tool comes from.
    pub tool_source: Option<String>,
}

/// Everything a [`ToolCall`] is made from.
#[derive(Debug, Clone, Default)]
pub struct ToolCallSources {
    /// The call.
    pub call: RequestedCall,
    /// The operation.
    pub operation_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// The message in which the model asked for the call.
    pub assistant_message_id: String,
    /// The existing row that will take the result, when one is used again.
    pub tool_message_id: Option<String>,
    /// How many calls of this function the run's usage has counted before this batch.
    pub counted_calls: u64,
    /// Whether the runtime can hand calls to the client.
    pub can_dispatch_to_client: bool,
    /// The origin of the run: first in precedence.
    pub origin: Origin,
    /// The context of the tool: second.
    pub scope: ToolScope,
    /// The runtime: last, but first for the owner.
    pub runtime: Belonging,
}

impl ToolCallSources {
    /// The call with everything known about it. What the arguments say about users or agents is
    /// not looked at.
    pub fn build(self) -> ToolCall {
        let Self {
            call,
            origin,
            scope,
            runtime,
            ..
        } = self;
        let is_client = call.is_for_client && self.can_dispatch_to_client;
        let first = |origin: Option<String>, scope: Option<String>, runtime: Option<String>| {
            origin.or(scope).or(runtime)
        };
        let (from, at) = (origin.belonging, scope.belonging);
        ToolCall {
            active_device_id: scope.active_device_id,
            agent_id: first(from.agent_id, at.agent_id, runtime.agent_id),
            api_name: call.api_name,
            args: arguments(&call.arguments),
            assistant_message_id: self.assistant_message_id,
            call_index: self.counted_calls + 1,
            document_id: scope.document_id,
            execution_target: scope.execution_target,
            executor: if is_client {
                Executor::Client
            } else {
                Executor::Server
            },
            group_id: first(from.group_id, at.group_id, runtime.group_id),
            identifier: call.identifier,
            operation_id: self.operation_id,
            parent_operation_id: origin.parent_operation_id,
            session_id: scope.session_id,
            source_message_id: origin.source_message_id.or(scope.message_id),
            step_index: self.step_index,
            task_id: scope.task_id,
            thread_id: first(from.thread_id, at.thread_id, runtime.thread_id),
            tool_call_id: call.id,
            tool_message_id: self.tool_message_id,
            tool_source: scope.tool_source.or(call.source),
            topic_id: first(from.topic_id, at.topic_id, runtime.topic_id),
            user_id: runtime.user_id.or(from.user_id),
            workspace_id: first(from.workspace_id, at.workspace_id, runtime.workspace_id),
        }
    }
}

/// The arguments, or none when they are no JSON object.
fn arguments(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => arguments,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn belonging(from: &str) -> Belonging {
        let text = |name: &str| Some(format!("{name} of {from}"));
        Belonging {
            agent_id: text("agent"),
            topic_id: text("topic"),
            workspace_id: text("workspace"),
            group_id: text("group"),
            thread_id: text("thread"),
            user_id: text("user"),
        }
    }

    fn sources() -> ToolCallSources {
        ToolCallSources {
            call: RequestedCall {
                id: "call_1".to_owned(),
                identifier: "fs".to_owned(),
                api_name: "read".to_owned(),
                arguments: r#"{"path":"x","userId":"somebody"}"#.to_owned(),
                ..RequestedCall::default()
            },
            operation_id: "op".to_owned(),
            assistant_message_id: "m1".to_owned(),
            ..ToolCallSources::default()
        }
    }

    #[test]
    fn the_origin_wins_over_the_context_and_that_over_the_runtime() {
        let mut given = sources();
        given.runtime = belonging("runtime");
        assert_eq!(given.clone().build().agent_id.unwrap(), "agent of runtime");
        given.scope.belonging = belonging("context");
        assert_eq!(given.clone().build().topic_id.unwrap(), "topic of context");
        given.origin.belonging = belonging("origin");
        let call = given.clone().build();
        for (value, name) in [
            (call.agent_id, "agent"),
            (call.topic_id, "topic"),
            (call.workspace_id, "workspace"),
            (call.group_id, "group"),
            (call.thread_id, "thread"),
        ] {
            assert_eq!(value.unwrap(), format!("{name} of origin"));
        }
        assert_eq!(call.user_id.unwrap(), "user of runtime");
        given.runtime.user_id = None;
        assert_eq!(given.build().user_id.unwrap(), "user of origin");
    }

    #[test]
    fn a_user_in_the_arguments_means_nothing() {
        let call = sources().build();
        assert_eq!(call.user_id, None);
        assert_eq!(json!(call.args), json!({"path": "x", "userId": "somebody"}));
    }

    #[test]
    fn sources_of_the_message_and_the_tool_have_their_own_precedence() {
        let mut given = sources();
        given.scope.message_id = Some("context".to_owned());
        given.call.source = Some("call".to_owned());
        let call = given.clone().build();
        assert_eq!(call.source_message_id.as_deref(), Some("context"));
        assert_eq!(call.tool_source.as_deref(), Some("call"));
        given.origin.source_message_id = Some("origin".to_owned());
        given.scope.tool_source = Some("context".to_owned());
        let call = given.build();
        assert_eq!(call.source_message_id.as_deref(), Some("origin"));
        assert_eq!(call.tool_source.as_deref(), Some("context"));
    }

    #[test]
    fn arguments_that_are_no_object_are_none() {
        for text in ["", "[1]", "1", "null", "{\"a\":", "\"x\""] {
            let mut given = sources();
            given.call.arguments = text.to_owned();
            assert!(given.build().args.is_empty(), "{text}");
        }
    }

    #[test]
    fn the_client_executes_only_when_the_call_says_so_and_the_runtime_can_hand_it_over() {
        for (says, can, executor) in [
            (false, false, Executor::Server),
            (true, false, Executor::Server),
            (false, true, Executor::Server),
            (true, true, Executor::Client),
        ] {
            let mut given = sources();
            given.call.is_for_client = says;
            given.can_dispatch_to_client = can;
            assert_eq!(given.build().executor, executor, "{says} {can}");
        }
    }

    #[test]
    fn calls_of_one_batch_share_an_index_from_1() {
        let mut given = sources();
        assert_eq!(given.clone().build().call_index, 1);
        given.counted_calls = 3;
        let other = ToolCallSources {
            call: RequestedCall {
                id: "call_2".to_owned(),
                ..given.call.clone()
            },
            ..given.clone()
        };
        assert_eq!(given.build().call_index, 4);
        let other = other.build();
        assert_eq!((other.call_index, &*other.tool_call_id), (4, "call_2"));
    }
}
