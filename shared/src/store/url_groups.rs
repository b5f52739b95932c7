//! URL groups: destinations under one name. A record each, in the shard of its name.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::args::{Args, Reader, command, text};
use super::host::{HostError, Reply};
use super::{Store, scripts};
use crate::message::{Destination, Shard, shard_of_url_group};

/// Most groups of one shard.
const GROUPS_MAX: u32 = 1_000;
/// How many groups one page of a walk asks for.
const PAGE: &str = "16";

/// A URL group. It has at least one endpoint, and no two with the same name or the same URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlGroup {
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When it was last changed, in milliseconds since the epoch.
    pub updated_ms: u64,
    /// Headers of every publish to it that does not have them itself, by name in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Vec<String>>,
    /// Where its messages go, in the order in which they were added.
    pub endpoints: Vec<UrlEndpoint>,
}

/// One destination of a URL group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlEndpoint {
    /// Where it is.
    pub url: Destination,
    /// Its name within the group; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A group as it was read, for [`Store::replace_url_group`].
#[derive(Debug, Clone)]
pub struct StoredUrlGroup {
    /// The group.
    pub group: UrlGroup,
    stored: Bytes,
}

/// The answer to a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlGroupChange {
    /// The new one is stored, or the group is gone.
    Replaced,
    /// Another one was stored in between.
    Changed,
    /// It would be a new one, and there are too many.
    Full,
}

/// One page of a walk over the groups of a shard.
#[derive(Debug)]
pub struct UrlGroupPage {
    /// Where the next page starts; 0 when the walk is over.
    pub cursor: u64,
    /// The groups of this page with their names. One may come twice in a walk when others are made
    /// meanwhile.
    pub groups: Vec<(String, UrlGroup)>,
}

impl UrlGroup {
    /// A group without endpoints, which cannot be stored yet.
    pub fn new(now_ms: u64) -> Self {
        Self {
            created_ms: now_ms,
            updated_ms: now_ms,
            headers: BTreeMap::new(),
            endpoints: Vec::new(),
        }
    }

    /// Puts `endpoint` in the place of the one of its name, else of its URL, else at the end. A name
    /// stays when none is given.
    pub fn upsert(&mut self, mut endpoint: UrlEndpoint) {
        let named = |other: &UrlEndpoint| other.name.is_some() && other.name == endpoint.name;
        let here = |other: &UrlEndpoint| other.url == endpoint.url;
        let by_name = self.endpoints.iter().position(named);
        let place = by_name.or_else(|| self.endpoints.iter().position(here));
        let Some(place) = place else {
            return self.endpoints.push(endpoint);
        };
        let others = self.endpoints.drain(..).enumerate();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (index, other) in others {
            if index == place {
                endpoint.name = endpoint.name.or(other.name);
            } else if other.url != endpoint.url {
                let side = if index < place {
                    &mut before
                } else {
                    &mut after
                };
                side.push(other);
            }
        }
        before.push(endpoint);
        before.append(&mut after);
        self.endpoints = before;
    }

    /// Removes the endpoint called `name`, else that of `url`, if there is one.
    pub fn remove(&mut self, name: Option<&str>, url: Option<&str>) {
        let named = |endpoint: &UrlEndpoint| name.is_some() && endpoint.name.as_deref() == name;
        let here = |endpoint: &UrlEndpoint| url == Some(endpoint.url.as_str());
        if self.endpoints.iter().any(named) {
            self.endpoints.retain(|endpoint| !named(endpoint));
        } else {
            self.endpoints.retain(|endpoint| !here(endpoint));
        }
    }
}

impl Store {
    /// The group called `name`; `None` when there is none.
    pub async fn url_group(&self, name: &str) -> Result<Option<StoredUrlGroup>, HostError> {
        let key = self.url_groups_key(name);
        match self
            .run_one(command([b"HGET", &key, name.as_bytes()]))
            .await?
        {
            Reply::Bytes(stored) => Ok(Some(StoredUrlGroup {
                group: read(&stored)?,
                stored,
            })),
            _ => Ok(None),
        }
    }

    /// Stores `new` under `name` if what is stored is still `read` (`None`: nothing), or removes the
    /// group if `new` has no endpoints. Of concurrent callers one wins and the others are told. Safe
    /// to repeat.
    pub async fn replace_url_group(
        &self,
        name: &str,
        read: Option<&StoredUrlGroup>,
        new: &UrlGroup,
    ) -> Result<UrlGroupChange, HostError> {
        let read = read.map(|read| read.stored.clone()).unwrap_or_default();
        let new = if new.endpoints.is_empty() {
            Bytes::new()
        } else {
            let written = serde_json::to_vec(new);
            written
                .map_err(|error| HostError::Fault(error.to_string()))?
                .into()
        };
        let shard = shard_of_url_group(name, self.shards);
        let args = Args::new()
            .text(name)
            .bytes(read)
            .bytes(new)
            .number(GROUPS_MAX);
        let reply = self
            .run_script(shard, &scripts::REPLACE_URL_GROUP, args)
            .await?;
        Ok(match text(&reply).as_deref() {
            Some("replaced") => UrlGroupChange::Replaced,
            Some("full") => UrlGroupChange::Full,
            _ => UrlGroupChange::Changed,
        })
    }

    /// Deletes the group called `name`. Safe to repeat. Its messages go their way.
    pub async fn delete_url_group(&self, name: &str) -> Result<(), HostError> {
        let key = self.url_groups_key(name);
        self.run_one(command([b"HDEL", &key, name.as_bytes()]))
            .await
            .map(drop)
    }

    /// One page of the groups of `shard`, from `cursor` on (0 at first). O(page).
    pub async fn url_groups(&self, shard: Shard, cursor: u64) -> Result<UrlGroupPage, HostError> {
        let key = self.keys.of_shard(shard, "ug");
        let from = cursor.to_string();
        let scan = command([b"HSCAN", &key, from.as_bytes(), b"COUNT", PAGE.as_bytes()]);
        let mut reader = Reader::new(self.run_one(scan).await?, "URL groups")?;
        let cursor = reader.number()?;
        let mut fields = reader.array()?;
        let mut groups = Vec::new();
        while fields.len() > 0 {
            let name = fields.text()?;
            if let Reply::Bytes(stored) = fields.next()? {
                groups.push((name, self::read(&stored)?));
            }
        }
        Ok(UrlGroupPage { cursor, groups })
    }

    fn url_groups_key(&self, name: &str) -> Bytes {
        self.keys
            .of_shard(shard_of_url_group(name, self.shards), "ug")
    }
}

fn read(stored: &[u8]) -> Result<UrlGroup, HostError> {
    let unreadable = |_| HostError::Fault("a stored URL group cannot be read".to_owned());
    serde_json::from_slice(stored).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, name: Option<&str>) -> UrlEndpoint {
        UrlEndpoint {
            url: Destination::parse(url).unwrap(),
            name: name.map(str::to_owned),
        }
    }

    fn shown(group: &UrlGroup) -> Vec<(&str, Option<&str>)> {
        let all = group.endpoints.iter();
        all.map(|one| (one.url.as_str(), one.name.as_deref()))
            .collect()
    }

    #[test]
    fn an_endpoint_is_found_by_its_name_else_by_its_url() {
        let mut group = UrlGroup::new(0);
        let (a, b, c) = ("http://a/", "http://b/", "http://c/");
        for (given, expected) in [
            (endpoint(a, None), vec![(a, None)]),
            (endpoint(b, Some("x")), vec![(a, None), (b, Some("x"))]),
            (endpoint(b, None), vec![(a, None), (b, Some("x"))]),
            (endpoint(a, Some("y")), vec![(a, Some("y")), (b, Some("x"))]),
            (endpoint(c, Some("x")), vec![(a, Some("y")), (c, Some("x"))]),
            // The place of one and the URL of another: one endpoint.
            (endpoint(a, Some("x")), vec![(a, Some("x"))]),
        ] {
            group.upsert(given.clone());
            assert_eq!(shown(&group), expected, "{given:?}");
        }
    }

    #[test]
    fn an_endpoint_is_removed_by_name_or_by_url() {
        let mut group = UrlGroup::new(0);
        for (url, name) in [
            ("http://a/", Some("x")),
            ("http://b/", None),
            ("http://c/", None),
        ] {
            group.upsert(endpoint(url, name));
        }
        group.remove(Some("none"), Some("http://none/"));
        group.remove(None, None);
        assert_eq!(group.endpoints.len(), 3);
        group.remove(Some("x"), Some("http://c/"));
        group.remove(Some("none"), Some("http://b/"));
        assert_eq!(shown(&group), [("http://c/", None)]);
    }
}
