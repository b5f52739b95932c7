//! Walking the dead letters page by page, newest first.

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::which::Which;
use crate::cli::failure::Failure;
use crate::cli::transport::Server;

/// Letters of one page; the server's own most.
const PAGE: usize = 100;

/// One page as the server sent it: what it says of a letter is kept byte for byte.
#[derive(Deserialize)]
pub(super) struct Page {
    pub(super) messages: Vec<Box<RawValue>>,
    cursor: Option<String>,
}

/// Where a walk is.
pub(super) struct Walk<'a> {
    server: &'a Server,
    /// The path without a cursor.
    first: String,
    /// `None` = at the end.
    path: Option<String>,
}

impl<'a> Walk<'a> {
    /// Through those that are meant, from the newest on.
    pub(super) fn new(server: &'a Server, which: &Which) -> Result<Self, Failure> {
        let first = format!("/v2/dlq?{}", which.query(PAGE)?);
        Ok(Self {
            server,
            path: Some(first.clone()),
            first,
        })
    }

    /// The next page; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Page>, Failure> {
        let Some(path) = self.path.take() else {
            return Ok(None);
        };
        let answer = self.server.ask(Method::GET, &path).await?.success()?;
        let page: Page = answer.json()?;
        let next = page.cursor.as_deref().filter(|cursor| !cursor.is_empty());
        self.path = next.map(|cursor| format!("{}&cursor={cursor}", self.first));
        Ok(Some(page))
    }
}

/// What the commands themselves read of a letter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Letter {
    #[serde(default)]
    pub(super) dlq_id: String,
    #[serde(default)]
    pub(super) url: String,
    #[serde(default)]
    pub(super) method: String,
    /// Milliseconds since the epoch.
    #[serde(default)]
    pub(super) created_at: u64,
    /// Milliseconds since the epoch.
    #[serde(default)]
    pub(super) died_at: u64,
    #[serde(default)]
    pub(super) max_retries: u32,
    /// 0 when there was no answer.
    #[serde(default)]
    pub(super) response_status: u16,
    pub(super) error_class: Option<String>,
    pub(super) error: Option<String>,
    pub(super) response_body: Option<String>,
    pub(super) body: Option<String>,
    pub(super) body_base64: Option<String>,
    #[serde(default)]
    pub(super) header: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    pub(super) response_header: serde_json::Map<String, serde_json::Value>,
}

impl Letter {
    /// Reads what the server says of one letter.
    pub(super) fn read(raw: &RawValue) -> Result<Self, Failure> {
        serde_json::from_str(raw.get())
            .map_err(|error| Failure::failed("read a dead letter").because(&error))
    }

    /// Why it died, in a word or two.
    pub(super) fn cause(&self) -> String {
        match (self.response_status, self.error_class.as_deref()) {
            (0, class) => class.unwrap_or("unknown").to_owned(),
            (status, Some("status") | None) => status.to_string(),
            (status, Some(class)) => format!("{status} {class}"),
        }
    }
}
