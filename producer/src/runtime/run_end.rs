//! Why a run ended, and what its error says.

use serde_json::Value;

/// Why a run ended, or waits for a human.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunReason {
    /// It is done.
    Done,
    /// It failed.
    Error,
    /// It was stopped.
    Interrupted,
    /// It made as many steps as it may.
    MaxSteps,
    /// It cost as much as it may.
    CostLimit,
    /// It waits for a human and goes on later.
    WaitingForHuman,
}

impl RunReason {
    /// The word in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Error => "error",
            Self::Interrupted => "interrupted",
            Self::MaxSteps => "max_steps",
            Self::CostLimit => "cost_limit",
            Self::WaitingForHuman => "waiting_for_human",
        }
    }

    /// Whether an answer can be expected of it.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Done | Self::MaxSteps | Self::CostLimit)
    }

    /// The reason with this word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [
            Self::Done,
            Self::Error,
            Self::Interrupted,
            Self::MaxSteps,
            Self::CostLimit,
            Self::WaitingForHuman,
        ]
        .into_iter()
        .find(|reason| reason.as_str() == word)
    }
}

/// What `error` says in words, for `errorMessage`: of the places where runtimes put it, the one
/// that says most.
pub fn error_text(error: &Value) -> String {
    const PLACES: [&str; 4] = [
        "/body/error/message",
        "/body/message",
        "/error/error/message",
        "/error/message",
    ];
    let text = |pointer: &str| {
        let text = error.pointer(pointer).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    };
    let message = text("/message").filter(|message| *message != "error");
    let found = PLACES.into_iter().find_map(text).or(message);
    match found
        .or_else(|| text("/type"))
        .or_else(|| text("/errorType"))
    {
        Some(text) => text.to_owned(),
        None => match error {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_an_error_is_taken_from_where_it_says_most() {
        for (error, expected) in [
            (
                json!({"body": {"error": {"message": "a"}, "message": "b"}, "message": "c"}),
                "a",
            ),
            (
                json!({"body": {"message": "b"}, "error": {"message": "c"}}),
                "b",
            ),
            (
                json!({"error": {"error": {"message": "c"}, "message": "d"}}),
                "c",
            ),
            (json!({"error": {"message": "d"}, "message": "e"}), "d"),
            (json!({"message": "e", "type": "T"}), "e"),
            (json!({"message": "error", "type": "T"}), "T"),
            (json!({"errorType": "U"}), "U"),
            (json!("plain"), "plain"),
            (json!({"x": 1}), r#"{"x":1}"#),
        ] {
            assert_eq!(error_text(&error), expected, "{error}");
        }
    }
}
