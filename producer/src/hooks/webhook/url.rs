//! Where a webhook goes: an absolute URL, or a path of this application.

use std::fmt;

use hookstash_shared::environment::Environment;
use url::Url;

use super::WebhookError;

/// Longest URL in bytes: what common HTTP servers take as a request line.
const URL_BYTES_MAX: usize = 8 * 1024;

/// A checked URL, as it was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HookUrl(String);

/// Without its query, which may hold a secret.
impl fmt::Debug for HookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(without_query(&self.0))
    }
}

/// What of a URL may be shown.
pub(super) fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Which variable is asked first for the base of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BaseOf {
    /// A call from this process: the inner address first.
    Fetch,
    /// A call from outside: the public address first.
    Queue,
}

impl HookUrl {
    /// # Errors
    /// It is neither `http`/`https` without credentials nor a path of the application.
    pub(crate) fn parse(text: &str) -> Result<Self, WebhookError> {
        if text.contains("${") {
            return Err(WebhookError::UrlTemplate);
        }
        let is_path = text.starts_with('/') && !text.starts_with("//");
        let is_good = !text.contains('\\')
            && text.len() <= URL_BYTES_MAX
            && (is_path || Url::parse(text).is_ok_and(|url| is_plain_http(&url)));
        if is_good {
            Ok(Self(text.to_owned()))
        } else {
            Err(WebhookError::Url)
        }
    }

    /// The absolute URL now; `None` when it is a path and no base is set. A path takes the place
    /// of the base's own path.
    pub(crate) fn resolve(&self, base: BaseOf, environment: &dyn Environment) -> Option<Url> {
        let url = if self.0.starts_with('/') {
            let names = match base {
                BaseOf::Fetch => ["INTERNAL_APP_URL", "APP_URL"],
                BaseOf::Queue => ["APP_URL", "INTERNAL_APP_URL"],
            };
            let base = names
                .into_iter()
                .filter_map(|name| environment.get(name))
                .find(|value| !value.is_empty())?;
            Url::parse(&base).ok()?.join(&self.0).ok()?
        } else {
            Url::parse(&self.0).ok()?
        };
        is_plain_http(&url).then_some(url)
    }
}

fn is_plain_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none_or(str::is_empty)
}
