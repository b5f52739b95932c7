//! The laws of the store, checked on a [`View`] after every step.

use std::collections::{BTreeMap, BTreeSet};

use hookstash_shared::store::Exchanged;

use super::view::View;

/// What a shard breaks; empty when all laws hold.
pub fn broken(view: &View) -> Vec<String> {
    let mut broken = Vec::new();
    in_flight_counts(view, &mut broken);
    one_place_each(view, &mut broken);
    retries_bound(view, &mut broken);
    bodies_present(view, &mut broken);
    no_lane_stranded(view, &mut broken);
    caps_kept(view, &mut broken);
    schedules_whole(view, &mut broken);
    wake_up_at_most_two(view, &mut broken);
    broken
}

fn is_live(state: char) -> bool {
    matches!(state, 'w' | 'd' | 'h' | 'l')
}

/// Law 1: in-flight = leased + holding + live records that hold for the lane; likewise per host.
fn in_flight_counts(view: &View, broken: &mut Vec<String>) {
    let mut lanes: BTreeMap<&str, i64> = BTreeMap::new();
    let mut hosts: BTreeMap<&str, i64> = BTreeMap::new();
    for record in view.records.values() {
        if matches!(record.state, 'l' | 'h') {
            *lanes.entry(&record.lane).or_default() += 1;
        }
        if is_live(record.state) && !record.holds.is_empty() {
            *lanes.entry(&record.holds).or_default() += 1;
        }
        if record.state == 'l' && !record.lane.starts_with("q:") {
            *hosts.entry(&record.host).or_default() += 1;
        }
    }
    for (hash, real) in [("inf", lanes), ("hi", hosts)] {
        let stored = view.hashes.get(hash).cloned().unwrap_or_default();
        let names = real
            .keys()
            .copied()
            .chain(stored.keys().map(String::as_str));
        for name in names {
            let (counted, real) = (
                view.number(hash, name),
                real.get(name).copied().unwrap_or(0),
            );
            if counted != real {
                broken.push(format!(
                    "law 1: {hash} of {name} is {counted}, really {real}"
                ));
            }
        }
    }
}

/// Law 2: each record is in exactly the one place that its state names.
fn one_place_each(view: &View, broken: &mut Vec<String>) {
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, ids) in view.lists_of("ln:").chain(view.lists_of("tl:")) {
        for id in ids {
            *listed.entry(id).or_default() += 1;
        }
    }
    let ended = |list: &str| -> BTreeSet<&str> {
        view.list(list)
            .iter()
            .filter_map(|entry| entry.split(' ').nth(1))
            .collect()
    };
    let (done, gone) = (ended("done"), ended("gone"));
    for (id, record) in &view.records {
        let places = [
            (
                'w',
                record.state == 'w' && listed.get(id.as_str()) == Some(&1),
            ),
            ('d', view.score("d", id).is_some()),
            ('l', view.score("l", id).is_some()),
            ('x', view.score("x", id).is_some()),
            (
                'k',
                done.contains(id.as_str()) || gone.contains(id.as_str()),
            ),
        ];
        let found: Vec<char> = places
            .iter()
            .filter(|(_, is)| *is)
            .map(|(name, _)| *name)
            .collect();
        let expected = match record.state {
            'h' => 'd',
            'c' | 'g' => 'k',
            state => state,
        };
        if found != [expected] {
            broken.push(format!(
                "law 2: {id} is {} but found in {found:?}",
                record.state
            ));
        }
    }
    for zset in ["d", "l", "x"] {
        for (id, _) in view.zset(zset) {
            if !view.records.contains_key(id) {
                broken.push(format!("law 2: {id} in {zset} has no record"));
            }
        }
    }
    let ring = view.list("run");
    if ring
        .iter()
        .enumerate()
        .any(|(i, lane)| ring[..i].contains(lane))
    {
        broken.push(format!("law 2: a lane is twice in the ring: {ring:?}"));
    }
}

/// Law 4, the part the store can see: failed <= retries.
fn retries_bound(view: &View, broken: &mut Vec<String>) {
    for (id, record) in &view.records {
        if record.failed > record.retries {
            broken.push(format!(
                "law 4: {id} failed {} of {}",
                record.failed, record.retries
            ));
        }
    }
}

/// Whatever can still be sent has its envelope, and the body that its envelope names.
fn bodies_present(view: &View, broken: &mut Vec<String>) {
    for (id, record) in &view.records {
        if is_live(record.state) || record.state == 'x' {
            let shared = record.body_key.is_empty() || view.bodies.contains(&record.body_key);
            if !view.bodies.contains(id) || !shared {
                broken.push(format!("body: {id} ({}) has lost its body", record.state));
            }
        }
    }
}

/// Law 5: a lane with waiting work is in the ring or where its state says, with good reason.
fn no_lane_stranded(view: &View, broken: &mut Vec<String>) {
    for (lane, ids) in view.lists_of("ln:") {
        if !ids
            .iter()
            .any(|id| view.records.get(id).is_some_and(|r| r.state == 'w'))
        {
            continue;
        }
        let (cap, _, _, paused) = view.settings(lane);
        let in_flight = view.in_flight(lane);
        let state = view.field("st", lane).unwrap_or("none");
        let is_placed = match state {
            "R" => view.list("run").iter().any(|l| l == lane),
            "T" => view.score("tm", lane).is_some(),
            "C" => in_flight > 0 && in_flight >= cap,
            "P" => paused,
            "F" => in_flight > 0 && view.score("fp", lane).is_some(),
            "H" => view.lists_of("hw:").any(|(host, lanes)| {
                lanes.iter().any(|l| l == lane) && view.score("hq", host).is_some()
            }),
            _ => false,
        };
        if !is_placed {
            broken.push(format!(
                "law 5: lane {lane} is stranded: state {state}, in flight {in_flight}, cap {cap}"
            ));
        }
    }
}

/// A cap that nobody changes is never exceeded: those of the flow-control keys.
fn caps_kept(view: &View, broken: &mut Vec<String>) {
    for lane in view
        .hashes
        .get("inf")
        .into_iter()
        .flatten()
        .map(|(lane, _)| lane)
    {
        let (cap, ..) = view.settings(lane);
        if lane.starts_with("f:") && view.in_flight(lane) > cap {
            broken.push(format!(
                "cap: {lane} has {} in flight of {cap}",
                view.in_flight(lane)
            ));
        }
    }
}

/// A schedule has its definition, its state and its message, and is due unless it is paused.
fn schedules_whole(view: &View, broken: &mut Vec<String>) {
    let of = |hash: &str| view.hashes.get(hash).cloned().unwrap_or_default();
    let (definitions, states) = (of("sd"), of("sf"));
    for (id, state) in &states {
        let fields: Vec<&str> = state.split('|').collect();
        let (body, is_paused) = (fields[1], fields[2] == "1");
        if !definitions.contains_key(id) || !view.bodies.contains(body) {
            broken.push(format!(
                "schedule {id} has lost its definition or its message"
            ));
        }
        if is_paused == view.score("sc", id).is_some() {
            broken.push(format!(
                "schedule {id} is paused: {is_paused}, due: {}",
                !is_paused
            ));
        }
    }
    let due = view.zset("sc").map(|(id, _)| id);
    if let Some(id) = definitions
        .keys()
        .chain(due)
        .find(|id| !states.contains_key(*id))
    {
        broken.push(format!("schedule {id} has no state"));
    }
}

fn wake_up_at_most_two(view: &View, broken: &mut Vec<String>) {
    if view.tokens > 2 {
        broken.push(format!("wake-up: {} tokens", view.tokens));
    }
}

/// What holds right after an exchange: others are woken for what it left, and its caller knows when
/// the next thing is due.
pub fn broken_after(exchanged: &Exchanged, view: &View) -> Vec<String> {
    let mut broken = Vec::new();
    if !view.list("run").is_empty() && view.tokens == 0 {
        broken.push("wake-up: lanes are left in the ring and nobody is woken".to_owned());
    }
    let dues = ["d", "tm", "l"].into_iter().flat_map(|set| view.zset(set));
    let due = dues.map(|(_, due)| due).min();
    let due = due.and_then(|due| u64::try_from(due).ok());
    if due != exchanged.next_due_ms {
        let told = exchanged.next_due_ms;
        broken.push(format!("next due: {due:?}, told {told:?}"));
    }
    broken
}
