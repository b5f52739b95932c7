//! A receiver that counts by key: `POST /{key}/{ms}` is answered 200 after so many milliseconds.
//!
//! It keeps numbers only, so it bears tens of thousands of requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::post;
use tokio::sync::{Notify, oneshot};

/// A running receiver; closed when dropped.
pub(crate) struct Meter {
    addr: SocketAddr,
    counts: Arc<Counts>,
    _stop: oneshot::Sender<()>,
}

struct Counts {
    keys: Vec<Key>,
    total: AtomicUsize,
    added: Notify,
}

#[derive(Default)]
struct Key {
    active: AtomicUsize,
    active_max: AtomicUsize,
    arrivals: Mutex<Vec<Instant>>,
}

impl Meter {
    /// Listens on a free port of 127.0.0.1, on a thread of its own, for keys below `keys`.
    pub(crate) fn start(keys: usize) -> Self {
        let counts = Arc::new(Counts {
            keys: (0..keys).map(|_| Key::default()).collect(),
            total: AtomicUsize::new(0),
            added: Notify::new(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let app = Router::new()
            .route("/{key}/{ms}", post(answer))
            .with_state(Arc::clone(&counts));
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = super::receiver::listen();
                tell.send(listener.local_addr().expect("an address"))
                    .expect("the test is there");
                tokio::select! {
                    served = async { axum::serve(listener, app).await } => drop(served),
                    _ = stopped => {}
                }
            });
        });
        Self {
            addr: told.recv().expect("the receiver has started"),
            counts,
            _stop: stop,
        }
    }

    /// Where a message of `key` goes that is to take `hold`.
    pub(crate) fn url(&self, key: usize, hold: Duration) -> String {
        format!("http://{}/{key}/{}", self.addr, hold.as_millis())
    }

    /// Requests so far.
    pub(crate) fn total(&self) -> usize {
        self.counts.total.load(Ordering::SeqCst)
    }

    /// When the requests of `key` came.
    pub(crate) fn arrivals(&self, key: usize) -> Vec<Instant> {
        let mut arrivals = self.counts.keys[key].arrivals.lock().unwrap().clone();
        arrivals.sort();
        arrivals
    }

    /// The most requests of `key` that were being answered at one time.
    pub(crate) fn active_max(&self, key: usize) -> usize {
        self.counts.keys[key].active_max.load(Ordering::SeqCst)
    }

    /// Waits until there were `total` requests; panics after `timeout`.
    pub(crate) async fn wait_for(&self, total: usize, timeout: Duration) {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let added = self.counts.added.notified();
            if self.total() >= total {
                return;
            }
            if tokio::time::timeout_at(deadline, added).await.is_err() {
                let came = self.total();
                panic!("{came} of {total} requests came within {timeout:?}");
            }
        }
    }
}

async fn answer(State(counts): State<Arc<Counts>>, Path((key, ms)): Path<(usize, u64)>) {
    let one = &counts.keys[key];
    let active = one.active.fetch_add(1, Ordering::SeqCst) + 1;
    one.active_max.fetch_max(active, Ordering::SeqCst);
    one.arrivals.lock().unwrap().push(Instant::now());
    counts.total.fetch_add(1, Ordering::SeqCst);
    counts.added.notify_waiters();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    one.active.fetch_sub(1, Ordering::SeqCst);
}
