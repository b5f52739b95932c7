use serde_json::json;

use super::*;

fn fields(event: impl Into<Event>) -> Value {
    Value::Object(event.into().to_fields().unwrap())
}

#[test]
fn required_fields_are_there_and_absent_ones_are_not_null() {
    let step = AfterStep {
        operation_id: "op".to_owned(),
        step_cost: Some(0.5),
        total_cost: 3.0,
        last_llm_content: Some("x".to_owned()),
        final_state: Some(LocalState::new("state")),
        ..AfterStep::default()
    };
    let expected = json!({
        "agentId": "", "operationId": "op", "userId": "", "stepIndex": 0, "steps": 0,
        "stepType": "call_llm", "thinking": false, "shouldContinue": false,
        "executionTimeMs": 0, "stepCost": 0.5, "totalCost": 3, "totalInputTokens": 0,
        "totalOutputTokens": 0, "totalTokens": 0, "totalSteps": 0, "totalToolCalls": 0,
        "lastLLMContent": "x",
    });
    assert_eq!(fields(step).to_string(), expected.to_string());
    let end = fields(OnComplete::default());
    let expected = json!({
        "agentId": "", "operationId": "", "userId": "", "reason": "", "status": "", "steps": 0,
        "errorMessage": "",
    });
    assert_eq!(end, expected);
}

#[test]
fn the_words_of_enumerations_are_those_of_the_wire() {
    assert_eq!(json!(HumanAction::RejectAndContinue), "rejectAndContinue");
    assert_eq!(json!(StepType::CallTool), "call_tool");
    assert_eq!(json!(Executor::Client), "client");
    assert_eq!(json!(ErrorAttribution::Harness), "harness");
    assert_eq!(json!(AttachmentType::Image), "image");
}

#[test]
fn the_result_of_a_tool_carries_whatever_else_the_runtime_keeps() {
    let result = ToolRunResult {
        content: "c".to_owned(),
        execution_time: Some(12.0),
        other: json!({"images": [1]}).as_object().unwrap().clone(),
        ..ToolRunResult::default()
    };
    let expected = r#"{"content":"c","executionTime":12,"success":false,"images":[1]}"#;
    assert_eq!(serde_json::to_string(&result).unwrap(), expected);
}

#[test]
fn a_mock_is_not_part_of_an_event() {
    let event = BeforeToolCall {
        call: ToolCall::default(),
        mock: Mock::open(),
    };
    assert!(event.mock(ToolRunResult::default()));
    assert!(fields(event).get("mock").is_none());
    let observed = BeforeToolCall::of_call(ToolCall::default());
    assert!(!observed.mock(ToolRunResult::default()));
}
