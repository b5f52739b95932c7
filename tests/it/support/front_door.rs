//! The front door on a free port, over a store that the test can look into and settle by hand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookstash::api::{self, ApiState, Callers, Readiness};
use hookstash::key_ring::KeyRing;
use hookstash_producer::hooks::{HookDispatcher, Mode};
use hookstash_producer::publish::Publisher;
use hookstash_producer::runtime::{Completions, StoredOperations};
use hookstash_shared::clock::{Clock, SystemClock};
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
use hookstash_shared::message::{LastResponse, Limits, MessageId, Shards};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::signing::SigningKeys;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::host::Host;
use hookstash_shared::store::redis_host::{RedisHost, RedisOptions, RedisUrl};
use hookstash_shared::store::{
    Exchange, Exchanged, Fair, Lease, Outcome, Retention, Settlement, Store,
};
use http::{HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::openapi::check_answer;
use super::redis::RedisServer;

/// What every request of a test carries.
pub(crate) const TOKEN: &str = "t0ken==";
/// What a request of a caller who only looks carries.
pub(crate) const READ_ONLY_TOKEN: &str = "l00k==";
const SHARDS: u16 = 4;
const LEASE: Duration = Duration::from_secs(15);

/// A running front door; it ends when dropped.
pub(crate) struct FrontDoor {
    pub(crate) addr: SocketAddr,
    pub(crate) state: ApiState,
    client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) json: Value,
}

impl Answered {
    /// The text of a refusal.
    pub(crate) fn error(&self) -> &str {
        self.json["error"]
            .as_str()
            .unwrap_or_else(|| panic!("no error in {self:?}"))
    }

    /// The id of an accepted message.
    pub(crate) fn id(&self) -> MessageId {
        let id = self.json["messageId"]
            .as_str()
            .unwrap_or_else(|| panic!("no id in {self:?}"));
        id.parse().expect("a message id")
    }
}

/// A state over `host` with the machine's clock, open to no private address.
pub(crate) fn state_on(host: Arc<dyn Host>, clock: Arc<dyn Clock>) -> ApiState {
    let shards = Shards::new(SHARDS).expect("a number of shards");
    let store = Store::new(host, "hs", shards, LEASE, Retention::default());
    let random = Arc::new(SystemRandom);
    let environment = Arc::new(BTreeMap::<String, String>::new());
    // Controls of tests listen on loopback.
    let policy = EgressPolicy::default().in_development();
    let http = HttpClient::new(policy, environment.clone(), CONNECT_TIMEOUT).expect("a client");
    let hooks = HookDispatcher::builder(Mode::Local, http, environment, Arc::clone(&clock))
        .build()
        .expect("a dispatcher");
    let operations = Arc::new(StoredOperations::new(store.clone()));
    ApiState {
        completions: Completions::new(hooks, store.clone(), operations),
        callers: Callers::Anyone,
        publisher: Publisher::new(store.clone(), Arc::clone(&clock), random.clone()),
        store,
        clock,
        random,
        limits: Limits::default(),
        token: TOKEN.into(),
        read_only_token: Some(READ_ONLY_TOKEN.into()),
        keys: KeyRing::fixed(Some(SigningKeys::development())),
        egress: EgressPolicy::default(),
        environment: Arc::new(BTreeMap::<String, String>::new()),
        readiness: Readiness::new(),
    }
}

/// A state over a new embedded store.
pub(crate) fn embedded_state() -> ApiState {
    let clock = Arc::new(SystemClock::new());
    let host = EmbeddedHost::new(clock.clone()).expect("an embedded store");
    state_on(Arc::new(host), clock)
}

/// A state over the Redis at `url`, which may be down.
pub(crate) fn redis_state(url: &str) -> ApiState {
    let options = RedisOptions {
        connect_timeout: Duration::from_millis(500),
        response_timeout: Duration::from_secs(2),
        ..RedisOptions::default()
    };
    let url = RedisUrl::parse(url).expect("a URL");
    let host = RedisHost::lazy(&url, options).expect("a host");
    state_on(Arc::new(host), Arc::new(SystemClock::new()))
}

/// Runs `test` on a door over each store.
pub(crate) async fn on_both(test: impl AsyncFn(&FrontDoor)) {
    test(&FrontDoor::embedded().await).await;
    let redis = RedisServer::start();
    test(&FrontDoor::open(redis_state(&redis.url())).await).await;
}

impl FrontDoor {
    /// A front door over a new embedded store.
    pub(crate) async fn embedded() -> Self {
        Self::open(embedded_state()).await
    }

    /// A front door with `state`.
    pub(crate) async fn open(state: ApiState) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let router = api::router(state.clone());
        let server = tokio::spawn(api::serve(listener, router, async {
            drop(stopped.await);
        }));
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client");
        Self {
            addr,
            state,
            client,
            stop: Some(stop),
            server,
        }
    }

    /// Ends it as a shutdown does, and waits for it.
    pub(crate) async fn close(mut self) {
        drop(self.stop.take());
        (&mut self.server)
            .await
            .expect("the server ends without a panic");
    }

    /// A request with the token.
    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method");
        let url = format!("http://{}{path}", self.addr);
        self.client.request(method, url).bearer_auth(TOKEN)
    }

    /// Sends a request without a body.
    pub(crate) async fn call(&self, method: &str, path: &str) -> Answered {
        answered(self.request(method, path)).await
    }

    /// Sends `body` as JSON.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> Answered {
        answered(self.request(method, path).json(body)).await
    }

    /// Publishes `body` to `destination`.
    pub(crate) async fn publish(
        &self,
        destination: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answered {
        let path = format!("/v2/publish/{destination}");
        let mut request = self.request("POST", &path).body(body.into());
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header value");
            request = request.header(*name, value);
        }
        answered(request).await
    }

    /// Sends these bytes on a connection of its own and reads the answer to its end.
    pub(crate) async fn raw(&self, request: impl AsRef<[u8]>) -> Answered {
        let mut stream = TcpStream::connect(self.addr).await.expect("a connection");
        stream.write_all(request.as_ref()).await.expect("a request");
        read_answer(&mut stream).await
    }

    /// The bytes of a request without a body that closes its connection.
    pub(crate) async fn raw_target(&self, method: &str, target: &str, headers: &str) -> Answered {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\
             Connection: close\r\nContent-Length: 0\r\n{headers}\r\n"
        );
        self.raw(head).await
    }

    /// Leases everything that is ready.
    pub(crate) async fn lease(&self) -> Vec<Exchanged> {
        let mut all = Vec::new();
        for shard in self.state.store.shards().iter() {
            all.push(
                self.state
                    .store
                    .exchange(shard, &exchange(&[], 500))
                    .await
                    .expect("leases"),
            );
        }
        all
    }

    /// Leases everything that is ready and ends each in `outcome`; returns how many there were.
    pub(crate) async fn settle(&self, outcome: &Outcome) -> usize {
        let mut count = 0;
        for leased in self.lease().await {
            for lease in leased.leases {
                self.settle_one(&lease, outcome).await;
                count += 1;
            }
        }
        count
    }

    /// Ends what `lease` holds in `outcome`.
    pub(crate) async fn settle_one(&self, lease: &Lease, outcome: &Outcome) {
        let settlement = Settlement {
            id: lease.id,
            token: lease.token,
            outcome: outcome.clone(),
            event: Bytes::from_static(b"{}"),
            children: Vec::new(),
        };
        let done = exchange(std::slice::from_ref(&settlement), 0);
        let settled = self.state.store.exchange(lease.id.shard(), &done).await;
        settled.expect("settled");
    }

    /// Lets everything that is ready die of `status` with this response.
    pub(crate) async fn kill(&self, status: u16, headers: &HeaderMap, body: &Bytes) -> usize {
        let response = LastResponse::answer(status, headers, body, false);
        let response = response.encode().expect("a response");
        self.settle(&Outcome::Dead { response }).await
    }
}

impl Drop for FrontDoor {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Sends a request and reads its answer, which must be JSON.
pub(crate) async fn answered(request: reqwest::RequestBuilder) -> Answered {
    let (client, request) = request.build_split();
    let request = request.expect("a request");
    let (method, path) = (request.method().clone(), request.url().path().to_owned());
    let response = client.execute(request).await.expect("an answer");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.expect("a body");
    let json = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{status} with {text:?}: {error}"));
    check_answer(method.as_str(), &path, status, &json);
    Answered {
        status,
        headers,
        json,
    }
}

/// Reads one answer that ends with its connection. An answer that is not JSON is null.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> Answered {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("an answer");
    let text = String::from_utf8(bytes).expect("an answer in UTF-8");
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no head: {text:?}"));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Answered {
        status: status.unwrap_or_else(|| panic!("no status: {head:?}")),
        headers: HeaderMap::new(),
        json: serde_json::from_str(body).unwrap_or_default(),
    }
}

fn exchange(settlements: &[Settlement], want: u32) -> Exchange<'_> {
    Exchange {
        settlements,
        want,
        nonce: 1,
        fair: Fair {
            flow: 1_000,
            host: 1_000,
        },
        upkeep: 64,
        may_recover: false,
        byte_budget: u64::MAX >> 12,
    }
}
