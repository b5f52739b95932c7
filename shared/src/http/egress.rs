//! The egress policy: which addresses an outbound call may reach, and what opens more of them.
//!
//! Public addresses are open. Special ranges are refused unless the operator opened them in
//! [`EGRESS_ALLOW`], the process runs in development, or the destination itself is trusted.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use thiserror::Error;
use url::{Host, Url};

use super::address::AddressRange;
use crate::environment::Environment;

/// The setting that opens addresses: a comma-separated list of CIDRs, addresses, host names
/// (`host`, `host:port`, `*.suffix`), `loopback` and `private`.
pub const EGRESS_ALLOW: &str = "HOOKSTASH_EGRESS_ALLOW";

/// The variables that name this deployment's own application.
const TRUSTED_ORIGINS: [&str; 2] = ["APP_URL", "INTERNAL_APP_URL"];

/// What a call may reach. The two kinds never share a connection, or a name opened for one
/// destination would leave an open road for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Egress {
    /// Public addresses and what the policy opens.
    Guarded,
    /// Also loopback, private and shared addresses: the operator vouches for the destination.
    Opened,
}

/// Which destinations are allowed. Immutable; shared by all calls of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    ranges: Vec<AddressRange>,
    networks: Vec<IpNet>,
    hosts: Vec<HostRule>,
}

/// An opened host name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostRule {
    host: HostPattern,
    /// `None` opens every port.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// The host as the URL parser writes it, without a final dot.
    Exact(String),
    /// A domain whose subdomains match, with its leading dot.
    Under(String),
}

/// An entry of [`EGRESS_ALLOW`] that is none of the accepted forms.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{EGRESS_ALLOW}: {entry:?} is not a CIDR, an address, host, host:port, *.suffix, loopback or private"
)]
pub struct EgressAllowError {
    /// The entry as written.
    pub entry: String,
}

/// The policy refuses an address.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("the egress policy refuses {address} ({range} address); {EGRESS_ALLOW} can open it")]
pub struct EgressRefusal {
    /// The refused address; `::1` stands for a `localhost` name.
    pub address: IpAddr,
    /// The special range it lies in.
    pub range: AddressRange,
}

impl EgressRefusal {
    /// The text of the 400 that answers a publish to this destination. For loopback it is the
    /// cloud's own text, byte for byte.
    pub fn publish_error(&self) -> String {
        let Self { address, range } = self;
        let text =
            format!("invalid destination url: endpoint resolves to a {range} address: {address}");
        match range {
            AddressRange::Loopback => text,
            _ => format!("{text} ({EGRESS_ALLOW} can open it)"),
        }
    }
}

impl EgressPolicy {
    /// The policy of a deployment that opens `allow` (the value of [`EGRESS_ALLOW`], empty for
    /// nothing).
    ///
    /// # Errors
    /// The first entry that is none of the accepted forms.
    pub fn parse(allow: &str) -> Result<Self, EgressAllowError> {
        let mut policy = Self::default();
        for entry in allow.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            policy.open(entry).ok_or_else(|| EgressAllowError {
                entry: entry.to_owned(),
            })?;
        }
        Ok(policy)
    }

    /// The same policy with loopback and private addresses opened, as on a developer's machine.
    #[must_use]
    pub fn in_development(mut self) -> Self {
        self.ranges
            .extend([AddressRange::Loopback, AddressRange::Private]);
        self
    }

    fn open(&mut self, entry: &str) -> Option<()> {
        match entry {
            "loopback" => self.ranges.push(AddressRange::Loopback),
            "private" => self.ranges.push(AddressRange::Private),
            _ if entry.contains('/') => self.networks.push(entry.parse::<IpNet>().ok()?.trunc()),
            _ => match entry.parse::<IpAddr>() {
                Ok(address) => self.networks.push(address.to_canonical().into()),
                Err(_) => self.open_host(entry)?,
            },
        }
        Some(())
    }

    fn open_host(&mut self, entry: &str) -> Option<()> {
        let (name, port) = match entry.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port.parse().ok()?)),
            _ => (entry, None),
        };
        let (name, is_suffix) = match name.strip_prefix("*.") {
            Some(suffix) => (suffix, true),
            None => (name, false),
        };
        if name.contains('*') {
            return None;
        }
        let host = match (Host::parse(name).ok()?, is_suffix) {
            (Host::Domain(name), true) => HostPattern::Under(format!(".{}", undotted(&name))),
            (Host::Domain(name), false) => HostPattern::Exact(undotted(&name).to_owned()),
            (Host::Ipv4(address), false) if port.is_none() => {
                self.networks.push(IpAddr::V4(address).into());
                return Some(());
            }
            (Host::Ipv6(address), false) if port.is_none() => {
                self.networks
                    .push(IpAddr::V6(address).to_canonical().into());
                return Some(());
            }
            (address, false) => HostPattern::Exact(address.to_string()),
            (_, true) => return None,
        };
        self.hosts.push(HostRule { host, port });
        Some(())
    }

    /// What a call to `url` may reach: more when its host is on the list or its origin is this
    /// deployment's own application, asked from `environment` now.
    pub(super) fn egress(&self, url: &Url, environment: &dyn Environment) -> Egress {
        if self.opens_host(url) || is_trusted(url, environment) {
            Egress::Opened
        } else {
            Egress::Guarded
        }
    }

    fn opens_host(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().map(undotted) else {
            return false;
        };
        let port = url.port_or_known_default();
        self.hosts.iter().any(|rule| {
            let matches_host = match &rule.host {
                HostPattern::Exact(exact) => host == exact,
                HostPattern::Under(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            };
            matches_host && (rule.port.is_none() || rule.port == port)
        })
    }

    /// Checks a destination before anything is sent, as a publish does: an address in any spelling,
    /// or a name that means loopback. Other names pass; their addresses are checked when they are
    /// resolved and connected.
    ///
    /// # Errors
    /// The address the policy refuses.
    pub fn check_destination(
        &self,
        url: &Url,
        environment: &dyn Environment,
    ) -> Result<(), EgressRefusal> {
        self.check_literal(url, self.egress(url, environment))
    }

    pub(super) fn check_literal(&self, url: &Url, egress: Egress) -> Result<(), EgressRefusal> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check_address(address.into(), egress),
            Some(Host::Ipv6(address)) => self.check_address(address.into(), egress),
            Some(Host::Domain(name)) if is_localhost(name) => {
                self.check_address(Ipv6Addr::LOCALHOST.into(), egress)
            }
            _ => Ok(()),
        }
    }

    /// Checks one address.
    ///
    /// # Errors
    /// The address, when the policy refuses it.
    pub(super) fn check_address(
        &self,
        address: IpAddr,
        egress: Egress,
    ) -> Result<(), EgressRefusal> {
        let Some(range) = AddressRange::of(address) else {
            return Ok(());
        };
        let address = address.to_canonical();
        let is_open = match egress {
            Egress::Guarded => self.ranges.contains(&range),
            Egress::Opened => matches!(
                range,
                AddressRange::Loopback | AddressRange::Private | AddressRange::Shared
            ),
        };
        if is_open
            || self
                .networks
                .iter()
                .any(|net| net_opens(net, address, range))
        {
            Ok(())
        } else {
            Err(EgressRefusal { address, range })
        }
    }
}

/// Whether a listed network opens `address`. Link-local and metadata addresses hand out
/// credentials, so only a network that lies wholly inside their range opens them: `0.0.0.0/0` is
/// not a wish to reach them.
fn net_opens(net: &IpNet, address: IpAddr, range: AddressRange) -> bool {
    let is_meant = !matches!(range, AddressRange::LinkLocal | AddressRange::Metadata)
        || [net.network(), net.broadcast()]
            .into_iter()
            .all(|edge| AddressRange::of(edge) == Some(range));
    is_meant && net.contains(&address)
}

/// Whether `url` belongs to this deployment's own application: its origin equals that of `APP_URL`
/// or `INTERNAL_APP_URL`. Both are read now; an unset or malformed variable trusts nothing.
pub fn is_trusted(url: &Url, environment: &dyn Environment) -> bool {
    TRUSTED_ORIGINS
        .into_iter()
        .filter_map(|name| environment.get(name))
        .filter_map(|value| Url::parse(value.trim()).ok())
        .any(|trusted| trusted.origin() == url.origin())
}

/// RFC 6761: `localhost` and everything under it is loopback, whatever a resolver says.
fn is_localhost(name: &str) -> bool {
    let name = undotted(name);
    name == "localhost" || name.ends_with(".localhost")
}

fn undotted(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect(text)
    }

    fn refused(policy: &EgressPolicy, host: &str) -> Option<AddressRange> {
        let url = url(&format!("http://{host}/hook"));
        let checked = policy.check_destination(&url, &BTreeMap::new());
        checked.err().map(|refusal| refusal.range)
    }

    const X01_HOSTS: [&str; 16] = [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "[::1]",
        "[fe80::1]",
        "[fd00::1]",
        "localhost",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "192.0.2.1",
        "240.0.0.1",
    ];

    #[test]
    fn x01_private_literals_are_refused_by_default() {
        let policy = EgressPolicy::default();
        for host in X01_HOSTS {
            assert!(refused(&policy, host).is_some(), "{host}");
            assert!(
                refused(&policy, &format!("{host}:8443")).is_some(),
                "{host}"
            );
        }
        for host in [
            "8.8.8.8",
            "[2a00:1450::1]",
            "example.com",
            "localhost.example.com",
        ] {
            assert_eq!(refused(&policy, host), None, "{host}");
        }
    }

    #[test]
    fn x04_every_spelling_of_an_address_is_refused() {
        let policy = EgressPolicy::default();
        for (host, range) in [
            ("2130706433", AddressRange::Loopback),
            ("0x7f000001", AddressRange::Loopback),
            ("0177.0.0.1", AddressRange::Loopback),
            ("127.1", AddressRange::Loopback),
            ("017700000001", AddressRange::Loopback),
            ("2852039166", AddressRange::LinkLocal),
            ("0", AddressRange::Unspecified),
            ("127.0.0.1.", AddressRange::Loopback),
            ("localhost.", AddressRange::Loopback),
            ("①②⑦.0.0.1", AddressRange::Loopback),
            ("127。0。0。1", AddressRange::Loopback),
            ("LOCALHOST", AddressRange::Loopback),
            ("a.localhost", AddressRange::Loopback),
            ("a.localhost.", AddressRange::Loopback),
            ("%31%32%37.0.0.1", AddressRange::Loopback),
            ("user:pass@127.0.0.1", AddressRange::Loopback),
            ("[::ffff:127.0.0.1]", AddressRange::Loopback),
            ("[::ffff:a9fe:a9fe]", AddressRange::LinkLocal),
            ("[64:ff9b::7f00:1]", AddressRange::Loopback),
        ] {
            assert_eq!(refused(&policy, host), Some(range), "{host}");
        }
    }

    #[test]
    fn x06_the_list_opens_exactly_what_it_names() {
        let cases: [(&str, &[&str], &[&str]); 12] = [
            (
                "10.0.0.0/8",
                &["10.0.0.0", "10.255.255.255", "[::ffff:10.1.2.3]"],
                &["11.0.0.0.nip.localhost", "172.16.0.1", "127.0.0.1"],
            ),
            ("192.168.1.7", &["192.168.1.7"], &["192.168.1.8"]),
            ("fd12::/16", &["[fd12::1]"], &["[fd13::1]", "[::1]"]),
            ("[fd12::1]", &["[fd12::1]"], &["[fd12::2]"]),
            (
                "10.0.0.5:81",
                &["10.0.0.5:81"],
                &["10.0.0.5", "10.0.0.5:82"],
            ),
            ("[fd12::1]:81", &["[fd12::1]:81"], &["[fd12::1]"]),
            (
                "localhost",
                &["localhost", "localhost.", "LOCALHOST:1"],
                &["a.localhost"],
            ),
            (
                "*.localhost:81",
                &["a.localhost:81"],
                &["localhost:81", "a.localhost"],
            ),
            (
                "loopback",
                &["127.9.9.9", "[::1]", "localhost"],
                &["10.0.0.1", "0.0.0.0"],
            ),
            (
                "private",
                &["10.0.0.1", "[fc00::1]"],
                &["127.0.0.1", "100.64.0.1"],
            ),
            (
                "0.0.0.0/0, ::/0",
                &["127.0.0.1", "240.0.0.1", "[ff02::1]"],
                &[
                    "169.254.169.254",
                    "[fe80::1]",
                    "100.100.100.200",
                    "[fd00:ec2::254]",
                ],
            ),
            (
                " 169.254.169.254 ,, 100.100.100.200",
                &["169.254.169.254", "100.100.100.200"],
                &["169.254.169.253"],
            ),
        ];
        for (allow, open, closed) in cases {
            let policy = EgressPolicy::parse(allow).expect(allow);
            for host in open {
                assert_eq!(refused(&policy, host), None, "{allow} opens {host}");
            }
            for host in closed {
                assert!(
                    refused(&policy, host).is_some(),
                    "{allow} keeps {host} closed"
                );
            }
        }
    }

    #[test]
    fn x06_a_bad_entry_names_the_setting_and_itself() {
        for entry in [
            "10.0.0.0/33",
            "10.0.0/8",
            "*",
            "*.",
            "a.*.b",
            "*.10.0.0.1",
            "host:port",
            "host:70000",
            "fd00::zz",
            "http://host",
            "a b",
            "1.2.3.4.5",
        ] {
            let error = EgressPolicy::parse(&format!("loopback,{entry}")).expect_err(entry);
            let text = error.to_string();
            assert!(text.contains("HOOKSTASH_EGRESS_ALLOW"), "{text}");
            assert!(text.contains(entry), "{text}");
        }
    }

    #[test]
    fn a_refused_publish_gets_the_cloud_text_for_loopback_and_the_setting_otherwise() {
        let text = |host: &str| {
            EgressPolicy::default()
                .check_destination(&url(&format!("http://{host}")), &BTreeMap::new())
                .expect_err(host)
                .publish_error()
        };
        let loopback = "invalid destination url: endpoint resolves to a loopback address: ::1";
        assert_eq!(text("localhost:3000"), loopback);
        assert_eq!(text("[::1]"), loopback);
        assert_eq!(
            text("2130706433"),
            "invalid destination url: endpoint resolves to a loopback address: 127.0.0.1"
        );
        assert_eq!(
            text("10.1.2.3"),
            "invalid destination url: endpoint resolves to a private address: 10.1.2.3 \
             (HOOKSTASH_EGRESS_ALLOW can open it)"
        );
    }

    #[test]
    fn development_opens_loopback_and_private_and_nothing_else() {
        let policy = EgressPolicy::default().in_development();
        for host in ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "[fd00::1]"] {
            assert_eq!(refused(&policy, host), None, "{host}");
        }
        for host in [
            "169.254.169.254",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "0.0.0.0",
            "100.64.0.1",
        ] {
            assert!(refused(&policy, host).is_some(), "{host}");
        }
    }

    #[test]
    fn the_own_application_is_trusted_by_origin_and_never_for_metadata() {
        let environment = BTreeMap::from([
            ("APP_URL".to_owned(), "http://10.0.0.9:3210/base".to_owned()),
            ("INTERNAL_APP_URL".to_owned(), "http://LOCALHOST".to_owned()),
        ]);
        let policy = EgressPolicy::default();
        for (text, egress) in [
            ("http://10.0.0.9:3210/api", Egress::Opened),
            ("http://localhost:80/api", Egress::Opened),
            ("http://10.0.0.9:3211/api", Egress::Guarded),
            ("https://10.0.0.9:3210/api", Egress::Guarded),
            ("http://10.0.0.9.example.com:3210/", Egress::Guarded),
            ("http://10.0.0.9:3210@example.com/", Egress::Guarded),
        ] {
            assert_eq!(policy.egress(&url(text), &environment), egress, "{text}");
        }
        for value in ["", "not a url", "data:text/plain,x"] {
            let environment = BTreeMap::from([("APP_URL".to_owned(), value.to_owned())]);
            assert!(!is_trusted(&url("http://localhost/"), &environment));
            assert!(!is_trusted(&url("data:text/plain,x"), &environment));
        }
        for host in [
            "169.254.169.254",
            "[fe80::1]",
            "100.100.100.200",
            "224.0.0.1",
            "0.0.0.0",
        ] {
            let url = url(&format!("http://{host}/"));
            assert!(
                policy.check_literal(&url, Egress::Opened).is_err(),
                "{host}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_entry_text_panics_or_opens_metadata(entry in "[a-z0-9.:*/\\[\\], -]{0,40}") {
            if let Ok(policy) = EgressPolicy::parse(&entry) {
                let metadata = IpAddr::from([169, 254, 169, 254]);
                let is_named = entry.contains("169.254") || entry.contains("a9fe");
                prop_assert!(is_named || policy.check_address(metadata, Egress::Guarded).is_err());
            }
        }
    }
}
