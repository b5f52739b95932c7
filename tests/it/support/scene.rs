//! `hookstash api` and `hookstash worker` under load, on a store to which something happens.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::load::{Load, Publish, accepted, all_arrive, arrivals, first};
use super::program::{Program, SOON};
use super::receiver::{Answer, Receiver};

/// Lease time of the worker: shorter than the outages of a scene.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// An outage that outlives every lease.
pub(crate) const OUTAGE: Duration = Duration::from_secs(4);
/// Within this after the store's return, a message that was waiting is delivered.
pub(crate) const HEAL: Duration = Duration::from_secs(5);
/// Calls under way when it happens: some end before the store is back, some afterwards.
const CALLS: [(&str, Duration); 2] = [
    ("/during", Duration::from_secs(2)),
    ("/after", Duration::from_secs(7)),
];
const CALLS_OF_EACH: usize = 8;

/// Both roles, each a process of its own, and a receiver.
pub(crate) struct Scene {
    pub(crate) name: String,
    pub(crate) front: Program,
    pub(crate) worker: Program,
    pub(crate) receiver: Receiver,
    load: Option<Load>,
}

impl Scene {
    /// Starts everything on the store at `url`, and the load.
    pub(crate) async fn begin(name: &str, url: &str, env: &[(&str, &str)]) -> Self {
        let lease = [("HOOKSTASH_LEASE", "3s"), ("HOOKSTASH_RENEW", "750ms")];
        let env = [&lease[..], env].concat();
        let front = Program::role_on("api", url, &env).await;
        let worker = Program::role_on("worker", url, &env).await;
        let receiver = Receiver::with(|request| {
            let slow = CALLS.iter().find(|(path, _)| request.path == *path);
            Answer::ok().after(slow.map_or(Duration::ZERO, |(_, time)| *time))
        });
        let load = Load::start("load", &front, &receiver.url("/load"));
        first(&receiver, |one| one.path == "/load", SOON).await;
        Self {
            name: name.to_owned(),
            front,
            worker,
            receiver,
            load: Some(load),
        }
    }

    /// Has calls under way, and `waiting` messages that fall due in 2 s. Their ids.
    pub(crate) async fn prepare(&self, waiting: usize) -> Vec<String> {
        for (path, _) in CALLS {
            let url = self.receiver.url(path);
            for number in 0..CALLS_OF_EACH {
                let body = format!("{path} {number}");
                self.front.publish(&url, &[], body).await;
            }
        }
        let calls = || {
            arrivals(&self.receiver)
                .keys()
                .filter(|body| body.starts_with('/'))
                .count()
        };
        let deadline = Instant::now() + SOON;
        while calls() < CALLS.len() * CALLS_OF_EACH {
            assert!(Instant::now() < deadline, "the calls have not begun");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let url = self.receiver.url("/waiting");
        let delay = [("Upstash-Delay", "2s")];
        let publishes = (0..waiting).map(|number| {
            self.front
                .publish(&url, &delay, format!("waiting {number}"))
        });
        futures::future::join_all(publishes).await
    }

    /// The first of the messages `ids` is delivered soon after the store came `back`.
    pub(crate) async fn heals(&self, ids: &[String], back: Instant) {
        let is_wanted = |id: &str| ids.iter().any(|wanted| wanted == id);
        let at = first(
            &self.receiver,
            |one| one.header("upstash-message-id").is_some_and(is_wanted),
            SOON,
        )
        .await;
        let after = at.saturating_duration_since(back);
        println!(
            "figure: {}: first delivery {after:?} after the return",
            self.name
        );
        assert!(after <= HEAL, "{}: {after:?} after the return", self.name);
    }

    /// Ends the load; what it published.
    pub(crate) async fn stop_load(&mut self) -> Vec<Publish> {
        match self.load.take() {
            Some(load) => load.stop().await,
            None => Vec::new(),
        }
    }

    /// Goes on with a new load, whose bodies begin with `name`.
    pub(crate) fn restart_load(&mut self, name: &'static str) {
        self.load = Some(Load::start(name, &self.front, &self.receiver.url("/load")));
    }

    /// Everything of `published` that was accepted, the calls and `waiting` messages have arrived,
    /// and both processes are well and are the same as at the beginning.
    pub(crate) async fn ends_well(&mut self, published: &[Publish], waiting: usize) {
        let calls = CALLS
            .iter()
            .flat_map(|(path, _)| (0..CALLS_OF_EACH).map(move |number| format!("{path} {number}")));
        let waiting = (0..waiting).map(|number| format!("waiting {number}"));
        let others: Vec<String> = calls.chain(waiting).collect();
        let mut bodies = accepted(published);
        let (all, taken) = (published.len(), bodies.len());
        println!("figure: {}: {taken} of {all} publishes accepted", self.name);
        assert!(taken > 0, "{}: nothing was accepted", self.name);
        bodies.extend(others.iter().map(String::as_str));
        all_arrive(&self.receiver, &bodies, SOON).await;
        for program in [&mut self.front, &mut self.worker] {
            program.wait_until_ready().await;
            assert!(program.process.is_running(), "{}", self.name);
            let lines = program.process.lines().join("\n");
            assert!(!lines.contains("panicked"), "{}: {lines}", self.name);
        }
        assert_eq!(self.front.dead().await, Vec::<String>::new());
    }

    /// Nothing has arrived twice, also after the time in which leases would be recovered.
    pub(crate) async fn nothing_twice(&self) {
        tokio::time::sleep(LEASE + LEASE).await;
        let twice: BTreeSet<_> = arrivals(&self.receiver)
            .into_iter()
            .filter(|(_, count)| *count > 1)
            .collect();
        assert!(twice.is_empty(), "{}: {twice:?}", self.name);
    }
}
