//! One worker process: production's worker on a `LocalSet` that can be frozen, and dropped at any
//! await.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::task::AtomicWaker;
use hookstash_shared::clock::Clock;
use hookstash_shared::message::Shards;
use hookstash_shared::random::{Random, SeededRandom};
use hookstash_shared::signing::{Signer, SigningKeys};
use hookstash_shared::store::faulty::FaultyHost;
use hookstash_shared::store::{Retention, Store};
use hookstash_worker::{RunningWorker, WorkerParts, WorkerSettings, inline};
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::caller::Caller;
use super::clock::SimClock;
use super::ground::Ground;
use super::tap::Tap;
use super::wire::Wire;
use super::{LEASE, RENEW};

/// How long a graceful end may take, as in production.
pub const DRAIN: Duration = Duration::from_secs(25);

/// What the outside does to a process.
pub struct Control {
    pub number: usize,
    dead: AtomicBool,
    frozen_until: Mutex<Option<Instant>>,
    /// Its link to the store is cut until then.
    pub cut_until: Mutex<Option<Instant>>,
    /// When it was told to end.
    pub drained_at: Mutex<Option<Instant>>,
    pub started_at: Instant,
    body: AtomicWaker,
    thawed: Notify,
    running: OnceLock<Weak<RunningWorker>>,
}

impl Control {
    fn new(number: usize) -> Arc<Self> {
        Arc::new(Self {
            number,
            dead: AtomicBool::new(false),
            frozen_until: Mutex::default(),
            cut_until: Mutex::default(),
            drained_at: Mutex::default(),
            started_at: Instant::now(),
            body: AtomicWaker::new(),
            thawed: Notify::new(),
            running: OnceLock::new(),
        })
    }

    /// Kills the process where it stands: nothing of it is polled again.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.body.wake();
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Polls nothing of the process for `time`.
    pub fn freeze(self: &Arc<Self>, time: Duration) {
        let until = Instant::now() + time;
        *self.frozen_until.lock().expect("no panic") = Some(until);
        let control = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            control.body.wake();
            control.thawed.notify_waiters();
        });
    }

    pub fn is_frozen(&self) -> bool {
        let until = *self.frozen_until.lock().expect("no panic");
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether it was frozen or its link was cut after `since`.
    pub fn was_hindered(&self, since: Instant) -> bool {
        let after = |until: &Mutex<Option<Instant>>| {
            until
                .lock()
                .expect("no panic")
                .is_some_and(|until| until > since)
        };
        after(&self.frozen_until) || after(&self.cut_until)
    }

    pub fn is_cut(&self) -> bool {
        let until = *self.cut_until.lock().expect("no panic");
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Goes on only in a process that lives and is polled.
    pub async fn alive(&self) {
        while self.is_frozen() {
            self.thawed.notified().await;
        }
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// The first signal.
    pub fn drain(&self) {
        if let Some(running) = self.running() {
            self.drained_at
                .lock()
                .expect("no panic")
                .get_or_insert_with(Instant::now);
            // Polled once: the drain has begun. Whoever watches the process waits for its end.
            let _ = running.drain(DRAIN).now_or_never();
        }
    }

    /// The second signal.
    pub fn stop(&self) {
        if let Some(running) = self.running() {
            let _ = running.stop_now().now_or_never();
        }
    }

    fn running(&self) -> Option<Arc<RunningWorker>> {
        self.running.get()?.upgrade()
    }
}

/// Polls a worker's tasks as long as it lives and is not frozen.
struct Body {
    tasks: Option<LocalSet>,
    control: Arc<Control>,
}

impl Future for Body {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.control.body.register(cx.waker());
        if self.control.is_frozen() && !self.control.is_dead() {
            return Poll::Pending;
        }
        let is_dead = |this: &Self| this.control.is_dead();
        if !is_dead(&self)
            && let Some(tasks) = &mut self.tasks
        {
            let polled = tasks.poll_unpin(cx);
            if !is_dead(&self) {
                return polled;
            }
        }
        // Dropping the set drops every task at the await where it stands.
        self.tasks = None;
        Poll::Ready(())
    }
}

/// A worker process. Dropping it kills it.
pub struct Process {
    pub control: Arc<Control>,
    pub faults: Arc<FaultyHost>,
    pub running: Arc<RunningWorker>,
}

impl Process {
    /// Starts on the `LocalSet` that polls the caller.
    pub fn start(ground: &Arc<Ground>, number: usize, slots: usize) -> Self {
        let control = Control::new(number);
        let random = Arc::new(SeededRandom::new(ground.random.next_u64()));
        let tap = Arc::new(Tap::new(Arc::clone(ground), Some(number)));
        let faults = Arc::new(FaultyHost::new(tap, Arc::clone(&random) as _));
        let wire = Wire {
            ground: Arc::clone(ground),
            control: Arc::clone(&control),
            faults: Arc::clone(&faults),
        };
        let store = Store::new(
            Arc::new(wire),
            "hs",
            Shards::ONE,
            LEASE,
            Retention::default(),
        );
        let caller = Arc::new(Caller {
            ground: Arc::clone(ground),
            control: Arc::clone(&control),
        });
        let parts = WorkerParts {
            store,
            clock: Arc::new(SimClock::new()) as Arc<dyn Clock>,
            random,
            environment: Arc::new(std::collections::BTreeMap::<String, String>::new()),
            build_http: Arc::new(move || Ok(Arc::clone(&caller) as _)),
            signer: watch::channel(Some(Signer::new(&SigningKeys::development(), None))).1,
            observer: None,
            settings: WorkerSettings {
                slots,
                threads: 2,
                renew: RENEW,
                batch: slots,
                body_budget_bytes: ground.body_budget,
                ..WorkerSettings::default()
            },
        };
        let tasks = LocalSet::new();
        let running = {
            let _within = tasks.enter();
            Arc::new(inline::start(parts))
        };
        let _ = control.running.set(Arc::downgrade(&running));
        tokio::task::spawn_local(Body {
            tasks: Some(tasks),
            control: Arc::clone(&control),
        });
        ground.note(format!("w{number} starts with {slots} slots"));
        Self {
            control,
            faults,
            running,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.control.kill();
    }
}
