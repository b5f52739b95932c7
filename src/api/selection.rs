//! What a list or a bulk action is asked for: filters, ids, a page and its order.
//!
//! A key may come several times or with values between commas: any of them is meant. Different keys
//! must all fit. Lists of ids win over every other filter; the one `messageId` of a list of events is
//! a filter like others, as clients use it. A key that is none is refused: ignoring one would list,
//! and delete, what was not asked for.

use std::net::IpAddr;

use hookstash_shared::message::{EnvelopeHeader, Lane, LaneKind, MessageId};
use hookstash_shared::store::Order;

use super::error::ApiError;

/// Most ids of one request.
const IDS_MAX: usize = 1_000;
/// Most values of one filter.
const VALUES_MAX: usize = 1_000;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// Dead letters.
    DeadLetters,
    /// The event log.
    Events,
    /// Messages on their way.
    Messages,
}

/// A request for a page or for an action on one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Exactly these messages. Ids that are none of ours are left out.
    pub(super) ids: Option<Vec<MessageId>>,
    /// Whether other filters are looked at beside ids.
    pub(super) is_filtered_by_id: bool,
    /// What a message must be like.
    pub(super) filter: Filter,
    /// Earliest time, milliseconds since the epoch, inclusive.
    pub(super) from_ms: Option<u64>,
    /// Latest time, milliseconds since the epoch, inclusive.
    pub(super) to_ms: Option<u64>,
    /// Which way the list goes; `None` = nothing was said.
    pub(super) order: Option<Order>,
    /// Entries of the page.
    pub(super) count: Option<usize>,
    /// Where the last page ended, as it was given out.
    pub(super) cursor: Option<String>,
}

/// What a message must be like; an absent field fits all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    urls: Option<Vec<String>>,
    hosts: Option<Vec<String>>,
    paths: Option<Vec<String>>,
    labels: Option<Vec<String>>,
    queues: Option<Vec<String>>,
    flow_keys: Option<Vec<String>>,
    caller_ips: Option<Vec<IpAddr>>,
    statuses: Option<Vec<u16>>,
    states: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    schedules: Option<Vec<String>>,
}

/// What a filter looks at.
#[derive(Debug, Default)]
pub(super) struct Facts<'a> {
    pub(super) url: &'a str,
    pub(super) labels: &'a [String],
    pub(super) queue: Option<String>,
    pub(super) flow_key: Option<String>,
    pub(super) group: Option<&'a str>,
    pub(super) schedule: Option<&'a str>,
    pub(super) caller_ip: Option<IpAddr>,
    /// 0 when there was no answer.
    pub(super) status: u16,
    /// Of an event.
    pub(super) state: &'a str,
}

impl<'a> Facts<'a> {
    /// What a stored message tells; it has neither status nor state.
    pub(super) fn of(header: &'a EnvelopeHeader) -> Self {
        let endpoint = header.endpoint.as_ref();
        Self {
            url: header.url.as_str(),
            labels: &header.labels,
            queue: header.queue(),
            flow_key: header.flow_key(),
            group: endpoint.map(|endpoint| endpoint.group.as_str()),
            schedule: header.schedule.as_deref(),
            caller_ip: header.caller_ip,
            ..Self::default()
        }
    }
}

impl Selection {
    /// Reads the pairs of a query, or of a body that says the same. A pair without a value stands
    /// for an empty list.
    pub(super) fn read<K: AsRef<str>, V: AsRef<str>>(
        list: List,
        pairs: impl IntoIterator<Item = (K, Option<V>)>,
    ) -> Result<Self, ApiError> {
        let mut selection = Self::default();
        for (key, value) in pairs {
            let value = value.as_ref().map(AsRef::as_ref);
            selection.take(list, key.as_ref(), value)?;
        }
        Ok(selection)
    }

    fn take(&mut self, list: List, key: &str, value: Option<&str>) -> Result<(), ApiError> {
        let (is_of_events, is_of_letters) = (list == List::Events, list == List::DeadLetters);
        match key {
            "messageId" | "messageIds" => {
                self.is_filtered_by_id |= is_of_events && key == "messageId";
                return self.take_ids(key, value);
            }
            "dlqIds" if is_of_letters => return self.take_ids(key, value),
            _ => {}
        }
        let Some(value) = value else {
            return Err(ApiError::invalid(key, "the list is empty"));
        };
        if key == "cursor" {
            self.cursor = Some(value.to_owned()).filter(|cursor| !cursor.is_empty());
            return Ok(());
        }
        let is_known = match key {
            "host" | "path" => !is_of_letters,
            "state" => is_of_events,
            "responseStatus" => is_of_letters,
            "order" => list != List::Messages,
            "url" | "label" | "queueName" | "flowControlKey" | "callerIp" | "callerIP"
            | "topicName" | "urlGroup" | "scheduleId" | "fromDate" | "toDate" | "count" => true,
            "trimBody" => return Err(ApiError::not_built("the filter trimBody")),
            _ => false,
        };
        if !is_known {
            return Err(ApiError::invalid("filter", format!("{key:?} is not one")));
        }
        if value.trim().is_empty() {
            return Err(ApiError::invalid(key, "it is blank: leave it out instead"));
        }
        match key {
            "fromDate" => self.from_ms = Some(number(key, value)?),
            "toDate" => self.to_ms = Some(number(key, value)?),
            "count" => match number(key, value)? {
                0 => return Err(ApiError::invalid(key, "expected a number above 0")),
                count => self.count = Some(usize::try_from(count).unwrap_or(usize::MAX)),
            },
            "order" => {
                self.order = match value {
                    "latestFirst" => Some(Order::LatestFirst),
                    "earliestFirst" => Some(Order::EarliestFirst),
                    _ => {
                        let text = "expected earliestFirst or latestFirst";
                        return Err(ApiError::invalid(key, text));
                    }
                }
            }
            _ => self.filter.take(key, value)?,
        }
        Ok(())
    }

    fn take_ids(&mut self, key: &str, value: Option<&str>) -> Result<(), ApiError> {
        let ids = self.ids.get_or_insert_default();
        let given = value.iter().flat_map(|value| value.split(','));
        ids.extend(given.filter_map(|id| id.trim().parse::<MessageId>().ok()));
        if ids.len() > IDS_MAX {
            return Err(ApiError::invalid(key, format!("more than {IDS_MAX} ids")));
        }
        ids.sort();
        ids.dedup();
        Ok(())
    }

    /// Whether no filter but ids says which entries are meant.
    pub(super) fn is_unfiltered(&self) -> bool {
        self.filter.is_open() && self.from_ms.is_none() && self.to_ms.is_none()
    }
}

impl Filter {
    fn take(&mut self, key: &str, value: &str) -> Result<(), ApiError> {
        let is_too_long = match key {
            "url" => add(
                &mut self.urls,
                split_before(value, &["http://", "https://"]),
            ),
            "host" => add(&mut self.hosts, split(&value.to_ascii_lowercase())),
            "path" => add(&mut self.paths, split_before(value, &["/"])),
            "label" => add(&mut self.labels, split(value)),
            "queueName" => add(&mut self.queues, split(value)),
            // A key may hold a comma of its own.
            "flowControlKey" => add(
                &mut self.flow_keys,
                [vec![value.to_owned()], split(value)].concat(),
            ),
            "callerIp" | "callerIP" => {
                let parse = |text: String| {
                    text.parse::<IpAddr>()
                        .map_err(|_| ApiError::invalid(key, "expected an IP address"))
                };
                let values = split(value).into_iter().map(parse);
                add(&mut self.caller_ips, values.collect::<Result<_, _>>()?)
            }
            "responseStatus" => {
                let parse = |text: String| {
                    text.parse::<u16>()
                        .map_err(|_| ApiError::invalid(key, "expected a status, such as 500"))
                };
                let values = split(value).into_iter().map(parse);
                add(&mut self.statuses, values.collect::<Result<_, _>>()?)
            }
            "state" => {
                let mut states = Vec::new();
                for state in split(value) {
                    states.extend(known_state(&state)?.iter().map(|&state| state.to_owned()));
                }
                add(&mut self.states, states)
            }
            "topicName" | "urlGroup" => add(&mut self.groups, split(value)),
            "scheduleId" => add(&mut self.schedules, split(value)),
            _ => return Err(ApiError::invalid("filter", format!("{key:?} is not one"))),
        };
        if is_too_long {
            return Err(ApiError::invalid(
                key,
                format!("more than {VALUES_MAX} values"),
            ));
        }
        Ok(())
    }

    /// Whether every message fits.
    pub(super) fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a message of this lane may fit: `false` when its queue or flow-control key says no.
    pub(super) fn may_fit(&self, lane: &Lane) -> bool {
        let is_it = |kind: LaneKind, name: &String| {
            lane.kind() == kind && String::from_utf8_lossy(&lane.plain_name()) == name.as_str()
        };
        has(self.queues.as_ref(), |name| is_it(LaneKind::Queue, name))
            && has(self.flow_keys.as_ref(), |name| is_it(LaneKind::Flow, name))
    }

    /// Whether `facts` fit.
    pub(super) fn fits(&self, facts: &Facts<'_>) -> bool {
        let of_url = |text: fn(&url::Url) -> String| {
            move || url::Url::parse(facts.url).ok().map(|url| text(&url))
        };
        has(self.urls.as_ref(), |url| url == facts.url)
            && has_lazily(self.hosts.as_ref(), of_url(host))
            && has_lazily(self.paths.as_ref(), of_url(|url| url.path().to_owned()))
            && has(self.labels.as_ref(), |label| facts.labels.contains(label))
            && has(self.queues.as_ref(), |queue| {
                facts.queue.as_ref() == Some(queue)
            })
            && has(self.flow_keys.as_ref(), |key| {
                facts.flow_key.as_ref() == Some(key)
            })
            && has(self.groups.as_ref(), |group| facts.group == Some(group))
            && has(self.schedules.as_ref(), |id| facts.schedule == Some(id))
            && has(self.caller_ips.as_ref(), |ip| facts.caller_ip == Some(*ip))
            && has(self.statuses.as_ref(), |status| facts.status == *status)
            && has(self.states.as_ref(), |state| facts.state == state)
    }
}

/// The host with its port, as in the URL, in lower case.
fn host(url: &url::Url) -> String {
    let name = url.host_str().unwrap_or_default().to_ascii_lowercase();
    match url.port() {
        Some(port) => format!("{name}:{port}"),
        None => name,
    }
}

/// The states that one word stands for.
fn known_state(state: &str) -> Result<&'static [&'static str], ApiError> {
    Ok(match state {
        "CREATED" => &["CREATED"],
        "ACTIVE" => &["ACTIVE"],
        "RETRY" => &["RETRY"],
        "ERROR" => &["ERROR"],
        "IN_PROGRESS" => &["ACTIVE", "RETRY", "ERROR"],
        "DELIVERED" => &["DELIVERED"],
        "FAILED" => &["FAILED"],
        "CANCEL_REQUESTED" => &["CANCEL_REQUESTED"],
        "CANCELED" | "CANCELLED" => &["CANCELED"],
        _ => {
            return Err(ApiError::invalid(
                "state",
                "expected CREATED, ACTIVE, RETRY, ERROR, IN_PROGRESS, DELIVERED, FAILED, \
                 CANCEL_REQUESTED or CANCELED",
            ));
        }
    })
}

/// Adds values; `true` when there are too many.
fn add<T>(values: &mut Option<Vec<T>>, more: Vec<T>) -> bool {
    let values = values.get_or_insert_default();
    values.extend(more);
    values.len() > VALUES_MAX
}

fn has<T>(wanted: Option<&Vec<T>>, is_it: impl FnMut(&T) -> bool) -> bool {
    wanted.is_none_or(|wanted| wanted.iter().any(is_it))
}

fn has_lazily(wanted: Option<&Vec<String>>, found: impl FnOnce() -> Option<String>) -> bool {
    wanted.is_none_or(|wanted| found().is_some_and(|found| wanted.contains(&found)))
}

fn split(value: &str) -> Vec<String> {
    let parts = value.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Splits at commas before one of `starts` only: a URL may hold commas of its own. The whole is a
/// value too.
fn split_before(value: &str, starts: &[&str]) -> Vec<String> {
    let mut values = vec![value.to_owned()];
    let mut part = String::new();
    for piece in value.split(',') {
        let begins = starts
            .iter()
            .any(|start| piece.trim_start().starts_with(start));
        if begins && !part.is_empty() {
            values.push(std::mem::take(&mut part).trim().to_owned());
        }
        if !part.is_empty() {
            part.push(',');
        }
        part.push_str(piece);
    }
    values.push(part.trim().to_owned());
    values
}

fn number(key: &str, value: &str) -> Result<u64, ApiError> {
    let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(number) if is_digits => Ok(number),
        _ => Err(ApiError::invalid(key, "expected a whole number")),
    }
}

#[cfg(test)]
#[path = "selection_tests.rs"]
mod tests;
