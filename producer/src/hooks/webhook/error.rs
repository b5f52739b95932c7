//! Why a webhook configuration is refused.

/// Why a webhook configuration is refused. The texts of the rules between keys are normative.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// It is no JSON object.
    #[error("Webhook must be an object")]
    NotAnObject,
    /// A key that does not exist.
    #[error("Unrecognized key in webhook: {0:?}")]
    UnknownKey(String),
    /// A key whose value is not of its kind.
    #[error("Invalid webhook {key}: expected {expected}")]
    Value {
        /// The key, with the index or name inside it.
        key: String,
        /// What it takes.
        expected: &'static str,
    },
    /// A value that an earlier version had.
    #[error("Invalid webhook responseHandling: {0:?} was removed; use \"toolCall\"")]
    Removed(&'static str),
    /// The URL is neither absolute nor a path of the application.
    #[error("Webhook URL must be HTTP(S) or an application-relative path without credentials")]
    Url,
    /// The URL holds a template.
    #[error("Webhook URL cannot contain ${{VAR}}: variables are filled in headers only")]
    UrlTemplate,
    /// A control cannot be queued.
    #[error("toolCall response handling requires fetch delivery")]
    ControlNeedsFetch,
    /// Only a control can block.
    #[error("onError:block requires toolCall response handling")]
    BlockNeedsControl,
    /// A control sees the whole event.
    #[error("Control hooks cannot filter or override the event payload")]
    ControlSeesAll,
}
