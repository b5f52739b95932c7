//! Talking to a running server over HTTP: the only way that also works with the embedded store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::environment::{Environment, ProcessEnvironment};
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient, Request, Trust};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use url::Url;

use super::credentials;
use super::failure::Failure;
use super::paint::harmless;

/// Where a server is looked for when nobody says.
const URL: &str = "http://127.0.0.1:8080";
/// One call; a page of large dead letters takes a while.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Most bytes of an answer: a page of the API ends after 16 MiB and one more message, in JSON.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A server and the token for it.
pub(super) struct Server {
    client: HttpClient,
    base: String,
    token: SecretString,
}

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Server {
    /// The server at `url`, else at `QSTASH_URL`, else on this machine; with the token of
    /// `QSTASH_TOKEN`, on this machine else the public one of `hookstash dev`.
    pub(super) fn find(url: Option<&str>, environment: &dyn Environment) -> Result<Self, Failure> {
        let url = url
            .map(str::to_owned)
            .or_else(|| environment.get("QSTASH_URL"));
        let base = base(url.as_deref().unwrap_or(URL))?;
        let token = match environment.get("QSTASH_TOKEN") {
            Some(token) if !token.trim().is_empty() => token.trim().into(),
            _ if is_here(&base) => credentials::DEVELOPMENT_TOKEN.into(),
            _ => {
                return Err(Failure::usage("QSTASH_TOKEN is required and not set")
                    .advise("Set it to the token that the server was started with."));
            }
        };
        Self::at(base, token)
    }

    /// The server at exactly this base URL.
    pub(super) fn at(base: String, token: SecretString) -> Result<Self, Failure> {
        let environment = Arc::new(ProcessEnvironment);
        let client = HttpClient::new(EgressPolicy::default(), environment, CONNECT_TIMEOUT)
            .map_err(|error| Failure::failed("prepare HTTP calls").because(&error))?;
        Ok(Self {
            client,
            base,
            token,
        })
    }

    /// Calls `path`, which begins with `/`. An answer of any status but 401 is returned.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Failure> {
        let bearer = HeaderValue::try_from(format!("Bearer {}", self.token.expose_secret()));
        let mut bearer = bearer.map_err(|_| {
            Failure::usage("QSTASH_TOKEN has a character that cannot be sent: paste it alone")
        })?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
        let url = format!("{}{path}", self.base);
        let sent = self.client.send(Request {
            method,
            url: &url,
            headers,
            body,
            timeout: TIMEOUT,
            response_keep_bytes: ANSWER_BYTES_MAX,
            trust: Trust::Operator,
        });
        let answer = sent
            .await
            .map_err(|error| self.unreachable().because(&error))?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Err(Failure::failed(format!("{} refuses the token", self.base))
                .advise("Set QSTASH_TOKEN to the token that the server was started with."));
        }
        Ok(Answer {
            status: answer.status,
            body: answer.body,
        })
    }

    /// Calls `path` without a body.
    pub(super) async fn ask(&self, method: Method, path: &str) -> Result<Answer, Failure> {
        self.call(method, path, HeaderMap::new(), Bytes::new())
            .await
    }

    fn unreachable(&self) -> Failure {
        Failure::failed(format!("call {}", self.base)).advise(
            "Is the server running? `hookstash dev` starts one; --url or QSTASH_URL says where \
             it is.",
        )
    }
}

impl Answer {
    /// The answer, if it is a success.
    pub(super) fn success(self) -> Result<Self, Failure> {
        if self.status.is_success() {
            return Ok(self);
        }
        let text = match self.json::<Refusal>() {
            Ok(refusal) => harmless(&refusal.error),
            Err(_) => format!("the server answered {}", self.status),
        };
        Err(match self.status {
            StatusCode::NOT_FOUND => Failure::not_found(text),
            _ => Failure::failed(text),
        })
    }

    /// The body, read as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::failed("read the server's answer")
                .because(&error)
                .advise("Is this a Hookstash server? --url or QSTASH_URL says where it is.")
        })
    }
}

#[derive(serde::Deserialize)]
struct Refusal {
    error: String,
}

/// The URL without what people add: blanks, slashes and `/v2` at its end.
fn base(url: &str) -> Result<String, Failure> {
    let mut base = url.trim().trim_end_matches('/');
    base = base
        .strip_suffix("/v2")
        .unwrap_or(base)
        .trim_end_matches('/');
    let is_http = Url::parse(base).is_ok_and(|url| ["http", "https"].contains(&url.scheme()));
    if is_http {
        return Ok(base.to_owned());
    }
    Err(
        Failure::usage("--url (QSTASH_URL) is not an http or https URL")
            .advise("Give the address of the server, such as http://127.0.0.1:8080."),
    )
}

fn is_here(base: &str) -> bool {
    let Ok(url) = Url::parse(base) else {
        return false;
    };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g08_base_urls_with_too_much_at_their_end_are_understood() {
        for url in [
            "http://h:1",
            "http://h:1/",
            "http://h:1//",
            "http://h:1/v2",
            " http://h:1/v2/\n",
        ] {
            assert_eq!(base(url).unwrap(), "http://h:1", "{url}");
        }
        assert!(base("h:1").is_err());
        assert!(base("redis://h").is_err());
    }

    #[test]
    fn the_public_token_goes_to_this_machine_only() {
        assert!(
            is_here("http://127.0.0.1:8080")
                && is_here("http://[::1]")
                && is_here("http://localhost")
        );
        assert!(!is_here("http://10.0.0.1") && !is_here("https://localhost.example.com"));
    }
}
