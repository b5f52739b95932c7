//! The outbound HTTP client: one bounded call to one checked destination.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use thiserror::Error;
use tokio::time::Instant;
use url::Url;

use super::attempt_error::{AttemptError, is_out_of_files};
use super::egress::{Egress, EgressPolicy};
use super::idle::{Idle, Keeping};
use super::peer::PeerCheckLayer;
use super::resolver::{GuardedResolver, Resolver, ResolverError};
use crate::environment::Environment;

/// Default deadline for name resolution, TCP and TLS together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default number of body bytes kept of an answer.
pub const RESPONSE_KEEP_BYTES: usize = 64 * 1024;
/// Most bytes read beyond the kept ones, so that the connection can be used again.
const DISCARD_BYTES_MAX: usize = 1024 * 1024;
/// Longest time spent on reading them: the answer is already known.
const DISCARD_TIME_MAX: Duration = Duration::from_millis(250);
/// How long an unused connection is kept. Short, because receivers close theirs silently.
const POOL_IDLE: Duration = Duration::from_secs(15);
/// Most unused connections kept per host: as many calls as one client makes to one host at a time.
/// With fewer, a backlog for one host makes a new connection for almost every call.
const POOL_IDLE_PER_HOST_MAX: usize = 256;
/// When one is certainly gone: the pool looks for those that are too old as often as that.
const POOL_IDLE_END: Duration = Duration::from_secs(30);
/// Most unused connections kept over all hosts when nobody says otherwise.
const POOL_IDLE_MAX: usize = 256;

/// Pause before another try to get a socket when too many files are open.
const FILES_PAUSE: Duration = Duration::from_millis(250);

/// Headers that frame or route the request: the client writes them itself, because a second
/// opinion on them is how requests are smuggled.
const OWN_HEADERS: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::TRAILER,
    header::TE,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];

/// Makes outbound calls. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct HttpClient {
    guarded: reqwest::Client,
    opened: reqwest::Client,
    policy: Arc<EgressPolicy>,
    environment: Arc<dyn Environment>,
    idle: Arc<Idle>,
}

/// The client could not be built.
#[derive(Debug, Error)]
pub enum HttpClientError {
    /// See [`ResolverError`].
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// No usable TLS: most often the machine has no root certificates.
    #[error("cannot build the HTTP client")]
    Build(#[source] reqwest::Error),
}

/// Who vouches for the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nobody but the policy's list and this deployment's own origins.
    Policy,
    /// The operator, who wrote the URL into the environment (environment hooks).
    Operator,
}

/// One call. Without `Debug`: headers and bodies carry secrets.
#[derive(Clone)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// Absolute `http` or `https` URL, sent as the URL standard serialises it. User information in
    /// it becomes basic authentication unless `headers` has an `Authorization`.
    pub url: &'a str,
    /// Headers in the order of insertion. Those that frame the request are left out. `Accept:
    /// */*` and `Accept-Encoding: identity` are added where absent.
    pub headers: HeaderMap,
    /// The exact bytes of the body; empty for none.
    pub body: Bytes,
    /// From the start to the last kept byte of the answer.
    pub timeout: Duration,
    /// Most body bytes of the answer to keep.
    pub response_keep_bytes: usize,
    /// Who vouches for the destination.
    pub trust: Trust,
}

/// The answer to a call, whatever its status. `Debug` shows neither headers nor body.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The final status; 1xx answers before it are skipped.
    pub status: StatusCode,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The beginning of the body, undecoded.
    pub body: Bytes,
    /// Whether the body was longer than what was kept.
    pub is_truncated: bool,
}

/// An answer whose body has not been read. Dropping it closes the connection, unless the body was
/// read to its end. `Debug` shows the status only.
pub struct OpenResponse {
    inner: reqwest::Response,
    /// Counts the connection, if it may be used again.
    keeping: Option<Keeping>,
    /// Whether the end of the body was read.
    has_ended: bool,
    is_https: bool,
    timeout: Duration,
    deadline: Instant,
}

impl HttpClient {
    /// A client that asks the machine's resolver. `environment` names the deployment's own
    /// origins; `connect_timeout` bounds name resolution, TCP and TLS together.
    ///
    /// # Errors
    /// See [`HttpClientError`].
    pub fn new(
        policy: EgressPolicy,
        environment: Arc<dyn Environment>,
        connect_timeout: Duration,
    ) -> Result<Self, HttpClientError> {
        Self::with_resolver(policy, environment, connect_timeout, &Resolver::system()?)
    }

    /// The same with another resolver.
    ///
    /// # Errors
    /// See [`HttpClientError`].
    pub fn with_resolver(
        policy: EgressPolicy,
        environment: Arc<dyn Environment>,
        connect_timeout: Duration,
        resolver: &Resolver,
    ) -> Result<Self, HttpClientError> {
        let policy = Arc::new(policy);
        let build = |egress| {
            builder(&policy, egress, resolver.clone(), connect_timeout)
                .build()
                .map_err(HttpClientError::Build)
        };
        Ok(Self {
            guarded: build(Egress::Guarded)?,
            opened: build(Egress::Opened)?,
            policy,
            environment,
            idle: Arc::new(Idle::new(POOL_IDLE_MAX, POOL_IDLE_END)),
        })
    }

    /// The same with at most `count` unused connections over all hosts, instead of 256. For a
    /// client that has made no call yet.
    #[must_use]
    pub fn keeping_at_most(self, count: usize) -> Self {
        Self {
            idle: Arc::new(Idle::new(count, POOL_IDLE_END)),
            ..self
        }
    }

    /// Makes one call and never a second one: no redirect is followed and nothing is repeated that
    /// a receiver could have seen. Dropping the future closes the call.
    ///
    /// # Errors
    /// No complete answer arrived in time; see [`AttemptError`].
    pub async fn send(&self, request: Request<'_>) -> Result<Response, AttemptError> {
        let keep = request.response_keep_bytes;
        let mut answer = self.open(request).await?;
        let (body, is_truncated) = answer.keep(keep).await?;
        let response = Response {
            status: answer.status(),
            headers: std::mem::take(answer.inner.headers_mut()),
            body,
            is_truncated,
        };
        if is_truncated {
            // Past either bound the connection is dropped with the rest of the body in it.
            let _ = tokio::time::timeout(DISCARD_TIME_MAX, answer.discard()).await;
        }
        Ok(response)
    }

    /// The same call, but it returns as soon as the head of the answer is there and reads nothing
    /// of the body; `response_keep_bytes` is not looked at. The deadline goes on over the body.
    ///
    /// # Errors
    /// No head arrived in time; see [`AttemptError`].
    pub async fn open(&self, request: Request<'_>) -> Result<OpenResponse, AttemptError> {
        let url = http_url(request.url)?;
        let egress = match request.trust {
            Trust::Operator => Egress::Opened,
            Trust::Policy => self.policy.egress(&url, &*self.environment),
        };
        self.policy
            .check_literal(&url, egress)
            .map_err(|refusal| AttemptError::egress(&refusal))?;
        let client = match egress {
            Egress::Guarded => &self.guarded,
            Egress::Opened => &self.opened,
        };
        let keeping = self.idle.begin(origin(&url, egress));
        let timeout = request.timeout;
        let deadline = Instant::now() + timeout;
        let is_https = url.scheme() == "https";
        let called = call(client, url, request, keeping.is_none());
        let inner = tokio::time::timeout_at(deadline, called)
            .await
            .map_err(|_| AttemptError::timeout(timeout))?
            .map_err(|error| AttemptError::from_reqwest(&error, is_https))?;
        Ok(OpenResponse {
            inner,
            keeping,
            has_ended: false,
            is_https,
            timeout,
            deadline,
        })
    }
}

impl OpenResponse {
    /// The final status; 1xx answers before it are skipped.
    pub fn status(&self) -> StatusCode {
        self.inner.status()
    }

    /// The headers of the answer.
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// The next piece of the undecoded body; `None` at its end.
    ///
    /// # Errors
    /// The body broke off, or the deadline of the call passed.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, AttemptError> {
        let chunk = tokio::time::timeout_at(self.deadline, self.inner.chunk())
            .await
            .map_err(|_| AttemptError::timeout(self.timeout))?
            .map_err(|error| AttemptError::from_reqwest(&error, self.is_https))?;
        self.has_ended |= chunk.is_none();
        Ok(chunk)
    }

    /// The first `bytes_max` bytes of the body, and whether there are more.
    async fn keep(&mut self, bytes_max: usize) -> Result<(Bytes, bool), AttemptError> {
        let mut body = BytesMut::new();
        let mut is_truncated = false;
        while !is_truncated && let Some(mut chunk) = self.chunk().await? {
            let room = bytes_max - body.len();
            is_truncated = chunk.len() > room;
            chunk.truncate(room);
            body.extend_from_slice(&chunk);
        }
        Ok((body.freeze(), is_truncated))
    }

    /// Reads what nobody keeps, so that a well-behaved receiver's connection stays usable.
    async fn discard(&mut self) {
        let mut discarded = 0;
        while let Ok(Some(chunk)) = self.chunk().await {
            discarded += chunk.len();
            if discarded > DISCARD_BYTES_MAX {
                return;
            }
        }
    }
}

impl Drop for OpenResponse {
    fn drop(&mut self) {
        let is_read = self.has_ended || self.inner.content_length() == Some(0);
        if let Some(keeping) = self.keeping.take().filter(|_| is_read) {
            keeping.keep();
        }
    }
}

impl fmt::Debug for OpenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenResponse")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .field("is_truncated", &self.is_truncated)
            .finish_non_exhaustive()
    }
}

/// The one place where the client's behaviour is decided.
fn builder(
    policy: &Arc<EgressPolicy>,
    egress: Egress,
    resolver: Resolver,
    connect_timeout: Duration,
) -> reqwest::ClientBuilder {
    install_crypto_provider();
    let mut headers = HeaderMap::new();
    headers.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    let builder = reqwest::Client::builder()
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .retry(reqwest::retry::never())
        .connect_timeout(connect_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_IDLE_PER_HOST_MAX)
        .tcp_nodelay(true)
        .dns_resolver(GuardedResolver {
            resolver,
            policy: Arc::clone(policy),
            egress,
        })
        .connector_layer(PeerCheckLayer {
            policy: Arc::clone(policy),
            egress,
        });
    // reqwest gives up when a receiver reads nothing for 30 s; only the call's own deadline counts.
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(None::<Duration>);
    builder
}

/// Makes aws-lc-rs the TLS provider of this process. Building a client does it too; repeats change
/// nothing.
pub fn install_crypto_provider() {
    // Refused only when a provider is installed already, which serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// What connections are shared for: scheme, host, port and the policy they were made under.
fn origin(url: &Url, egress: Egress) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(0);
    format!("{}://{host}:{port} {egress:?}", url.scheme())
}

fn http_url(url: &str) -> Result<Url, AttemptError> {
    let url = Url::parse(url).map_err(|reason| {
        AttemptError::configuration(&format!("the URL is malformed: {reason}"))
    })?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(AttemptError::configuration(
            "the URL is neither http nor https",
        )),
    }
}

/// Sends, and returns with the head of the answer. The last call of its connection has it closed.
async fn call(
    client: &reqwest::Client,
    url: Url,
    request: Request<'_>,
    is_last: bool,
) -> Result<reqwest::Response, reqwest::Error> {
    let mut headers = request.headers;
    for name in OWN_HEADERS {
        headers.remove(name);
    }
    if is_last {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let call = client
        .request(request.method, url)
        .headers(headers)
        .body(request.body)
        .build()?;
    execute(client, call).await
}

/// Sends `call`. Without a file for its socket nothing has been sent, and the destination is not to
/// blame: it waits for one, within the deadline of the call.
async fn execute(
    client: &reqwest::Client,
    call: reqwest::Request,
) -> reqwest::Result<reqwest::Response> {
    let mut is_first = true;
    loop {
        // A body of bytes can always be cloned.
        let Some(again) = call.try_clone() else {
            return client.execute(call).await;
        };
        match client.execute(again).await {
            Err(error) if is_out_of_files(&error) => {
                if std::mem::take(&mut is_first) {
                    tracing::warn!(
                        "too many open files (ulimit -n): a call waits until one is free"
                    );
                }
                tokio::time::sleep(FILES_PAUSE).await;
            }
            sent => return sent,
        }
    }
}
