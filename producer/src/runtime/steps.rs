//! Events of steps: awaited, and whatever fails in them is logged and goes no further.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operation::Operation;
use super::truncate::head_with_dots;
use crate::hooks::{AfterStep, BeforeStep, EnvironmentHooks, Event, HookType, StepType};

/// Most UTF-16 units of the model's last words that are carried on.
const LAST_CONTENT_UNITS: usize = 1_800;

/// What steps hand on to later ones, for progress that is shown. Kept by the runtime with its
/// state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StepTracker {
    /// What the model wrote last, shortened.
    #[serde(rename = "lastLLMContent")]
    pub last_llm_content: Option<String>,
    /// The tools that it wanted to call last.
    pub last_tools_calling: Option<Value>,
    /// Tool calls so far.
    pub total_tool_calls: u64,
}

impl Operation {
    /// `beforeStep`. Returns when its hooks have run; what is known of the operation is filled in.
    pub async fn before_step(&self, mut step: BeforeStep) {
        self.name(
            &mut step.operation_id,
            &mut step.user_id,
            &mut step.agent_id,
        );
        self.tell_step(step).await;
    }

    /// `afterStep`. What is known of the operation and of earlier steps is filled in, and what
    /// later steps will need goes into `tracker`, if anybody listens to steps at all.
    pub async fn after_step(&self, mut step: AfterStep, tracker: &mut StepTracker) {
        self.name(
            &mut step.operation_id,
            &mut step.user_id,
            &mut step.agent_id,
        );
        step.thinking = step.step_type == StepType::CallLlm;
        for text in [&mut step.content, &mut step.reasoning] {
            if step.step_type == StepType::CallTool || text.as_deref() == Some("") {
                *text = None;
            }
        }
        for tool in &mut step.tools_result {
            for name in [&mut tool.identifier, &mut tool.api_name] {
                if name.is_empty() {
                    "unknown".clone_into(name);
                }
            }
        }
        step.step_label = step.step_label.filter(|label| !label.is_empty());
        if self.is_heard(HookType::AfterStep) {
            tracker.take(&mut step);
        }
        self.tell_step(step).await;
    }

    fn name(&self, operation_id: &mut String, user_id: &mut String, agent_id: &mut String) {
        self.id().clone_into(operation_id);
        self.user_id().unwrap_or_default().clone_into(user_id);
        self.identity.agent_id.clone_into(agent_id);
    }

    async fn tell_step(&self, event: impl Into<Event>) {
        let event = event.into();
        let hook_type = event.hook_type();
        let told = self.runtime.hooks().dispatch(event, self.hooks()).await;
        if let Err(error) = told {
            let error = &error as &dyn std::error::Error;
            tracing::error!(
                operation_id = self.id(),
                hook_type = hook_type.as_str(),
                error,
                "a hook of a step failed; the step goes on"
            );
        }
    }

    fn is_heard(&self, hook_type: HookType) -> bool {
        let dispatcher = &self.runtime.hooks().0;
        let environment = EnvironmentHooks::Included;
        dispatcher
            .resolve(self.id(), self.hooks(), environment)
            .is_ok_and(|hooks| hooks.iter().any(|hook| hook.moment == hook_type))
    }
}

impl StepTracker {
    fn take(&mut self, step: &mut AfterStep) {
        let calls = u64::try_from(step.tools_calling.len()).unwrap_or(u64::MAX);
        self.total_tool_calls = self.total_tool_calls.saturating_add(calls);
        step.total_tool_calls = self.total_tool_calls;
        step.last_llm_content.clone_from(&self.last_llm_content);
        step.last_tools_calling.clone_from(&self.last_tools_calling);
        if let Some(content) = &step.content {
            self.last_llm_content = Some(head_with_dots(content, LAST_CONTENT_UNITS));
        }
        if !step.tools_calling.is_empty() {
            self.last_tools_calling = serde_json::to_value(&step.tools_calling).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::CalledTool;

    #[test]
    fn the_tracker_carries_what_was_before_and_cuts_what_it_keeps() {
        let mut tracker = StepTracker::default();
        let long = "🚀".repeat(901);
        let mut first = AfterStep {
            content: Some(long),
            tools_calling: vec![CalledTool::default(), CalledTool::default()],
            ..AfterStep::default()
        };
        tracker.take(&mut first);
        assert_eq!(
            (first.total_tool_calls, &first.last_llm_content),
            (2, &None)
        );
        let mut second = AfterStep {
            tools_calling: vec![CalledTool::default()],
            ..AfterStep::default()
        };
        tracker.take(&mut second);
        assert_eq!(second.total_tool_calls, 3);
        let kept = format!("{}...", "🚀".repeat(900));
        assert_eq!(second.last_llm_content, Some(kept));
        assert_eq!(
            second.last_tools_calling.unwrap().as_array().unwrap().len(),
            2
        );
    }
}
