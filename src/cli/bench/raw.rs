//! The raw loop: sign and POST as fast as the receiver answers, without any queue.
//!
//! It does what a delivery thread does for one attempt, with the same client and signer, on as many
//! threads and with as many calls at a time as the worker has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use hookstash_shared::http::{Request, Trust};
use hookstash_shared::message::{MessageId, Shard};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::signing::Signer;
use hookstash_worker::{BuildHttpClient, Call, WorkerParts};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use super::cpu::{Cpu, RAW};
use super::figures::{Pace, Raw};
use super::receiver::{STUCK_AFTER, body};
use super::stage::Stage;
use crate::cli::failure::Failure;

/// Deadline of one call.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Posts `count` messages and says how fast.
pub(super) async fn measure(stage: &Stage, count: usize) -> Result<Raw, Failure> {
    let parts = stage.app.worker_parts(stage.stores.worker.clone(), None);
    let poster = Poster::new(stage, &parts)?;
    let threads = parts.settings.threads.max(1);
    let arrivals = stage.receiver.expect(count, count);
    let next = Arc::new(AtomicUsize::new(0));
    let (before, began) = (Cpu::now(), stage.now());
    let mut running = Vec::new();
    for _ in 0..threads {
        let (poster, next) = (poster.clone(), Arc::clone(&next));
        let build_http = Arc::clone(&parts.build_http);
        let calls = parts.settings.slots.div_ceil(threads);
        let (tell, ended) = tokio::sync::oneshot::channel();
        let work = move || {
            // Nobody listens any more when the bench was interrupted.
            let _ = tell.send(poster.run(&build_http, calls, &next, count));
        };
        std::thread::Builder::new()
            .name(RAW.to_owned())
            .spawn(work)
            .map_err(|error| Failure::failed("start a thread").because(&error))?;
        running.push(ended);
    }
    // What is missing has failed at its sender, which says why.
    arrivals.complete(STUCK_AFTER).await;
    let took = stage.now().saturating_sub(began);
    let mut sender = Duration::ZERO;
    let receiver = (Cpu::now() - before).receiver;
    for ended in running {
        let ended = ended
            .await
            .unwrap_or_else(|_| Err("a thread panicked".to_owned()));
        sender +=
            ended.map_err(|error| Failure::failed(format!("post to the receiver: {error}")))?;
    }
    Ok(Raw {
        pace: Pace { count, took },
        sender,
        receiver,
    })
}

/// Posts when it is told to, to measure how long that takes.
pub(super) struct Calls {
    poster: Poster,
    http: Arc<dyn Call>,
}

impl Calls {
    pub(super) fn new(stage: &Stage) -> Result<Self, Failure> {
        let parts = stage.app.worker_parts(stage.stores.worker.clone(), None);
        let http = (parts.build_http)();
        Ok(Self {
            poster: Poster::new(stage, &parts)?,
            http: http.map_err(|error| Failure::failed("post").because(&error))?,
        })
    }

    /// Posts message `number`.
    pub(super) async fn post(&self, number: usize) -> Result<(), Failure> {
        let posted = self.poster.post(&*self.http, number).await;
        posted.map_err(|error| Failure::failed(format!("post to the receiver: {error}")))
    }
}

/// What signs and posts.
#[derive(Clone)]
struct Poster {
    stage_url: String,
    body_bytes: usize,
    signer: Signer,
    clock: Arc<dyn hookstash_shared::clock::Clock>,
}

impl Poster {
    fn new(stage: &Stage, parts: &WorkerParts) -> Result<Self, Failure> {
        let signer = parts.signer.borrow().clone();
        Ok(Self {
            stage_url: stage.receiver.url().to_owned(),
            body_bytes: stage.body_bytes,
            signer: signer.ok_or_else(|| Failure::failed("sign: there are no keys"))?,
            clock: Arc::clone(stage.clock()),
        })
    }

    /// One thread of the loop: posts until the `count` numbers are taken, `calls` at a time; returns
    /// the CPU time of this thread.
    fn run(
        &self,
        build_http: &BuildHttpClient,
        calls: usize,
        next: &AtomicUsize,
        count: usize,
    ) -> Result<Duration, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let http = build_http().map_err(|error| error.to_string())?;
            let mut running = FuturesUnordered::new();
            for _ in 0..calls {
                running.push(self.post_next(&*http, next, count));
            }
            while let Some(posted) = running.next().await {
                if posted? {
                    running.push(self.post_next(&*http, next, count));
                }
            }
            Ok(Cpu::of_this_thread())
        })
    }

    /// `false` when no number is left.
    async fn post_next(
        &self,
        http: &dyn Call,
        next: &AtomicUsize,
        count: usize,
    ) -> Result<bool, String> {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= count {
            return Ok(false);
        }
        self.post(http, number).await.map(|()| true)
    }

    async fn post(&self, http: &dyn Call, number: usize) -> Result<(), String> {
        let body = body(number, self.body_bytes);
        let id = MessageId::new(Shard::default(), self.clock.now_ms(), &SystemRandom);
        let signed = self.signer.sign(
            &self.stage_url,
            id.as_str(),
            &body,
            self.clock.now_s(),
            &SystemRandom,
        );
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static("Upstash-QStash"),
        );
        let own = [
            ("upstash-message-id", id.as_str().to_owned()),
            ("upstash-retried", "0".to_owned()),
        ];
        for (name, value) in own.into_iter().chain(signed) {
            let value = HeaderValue::from_str(&value).map_err(|error| error.to_string())?;
            headers.insert(HeaderName::from_static(name), value);
        }
        let request = Request {
            method: Method::POST,
            url: &self.stage_url,
            headers,
            body,
            timeout: TIMEOUT,
            response_keep_bytes: 0,
            trust: Trust::Policy,
        };
        let response = http.call(request).await.map_err(|error| error.message)?;
        if response.status.is_success() {
            Ok(())
        } else {
            Err(format!("it answered {}", response.status))
        }
    }
}
