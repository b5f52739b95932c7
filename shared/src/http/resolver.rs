//! Names to addresses, with the second of the three checks: every address a name has.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
    ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;

use super::egress::{Egress, EgressPolicy};

/// How long one query to one name server may take. Lost datagrams are sent again within it.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer is reused, however long its TTL: a destination that moves is followed.
const POSITIVE_TTL_MAX: Duration = Duration::from_secs(30);
/// Failures are never reused: the next attempt asks again.
const NEGATIVE_TTL_MAX: Duration = Duration::ZERO;

/// Resolves host names. Cheap to clone; clones share one cache.
#[derive(Clone)]
pub struct Resolver(TokioResolver);

/// The resolver could not be set up.
#[derive(Debug, Error)]
#[error("cannot set up name resolution")]
pub struct ResolverError(#[source] NetError);

/// A name has no usable answer now.
#[derive(Debug, Error)]
#[error("cannot resolve {name}")]
struct LookupError {
    name: String,
    source: Box<dyn Error + Send + Sync>,
}

impl Resolver {
    /// Asks as the machine is configured: `/etc/hosts` first, then the name servers and search
    /// domains of `/etc/resolv.conf`. Without that file it asks `127.0.0.1:53`, as the C library
    /// does. Both files are read once, here.
    ///
    /// # Errors
    /// The resolver could not be built.
    pub fn system() -> Result<Self, ResolverError> {
        let (config, options) =
            hickory_resolver::system_conf::read_system_conf().unwrap_or_else(|_| {
                (
                    only(&[(Ipv4Addr::LOCALHOST, 53).into()]),
                    ResolverOpts::default(),
                )
            });
        Self::build(config, options)
    }

    /// Asks the given name servers and nothing else: no hosts file, no search domains.
    ///
    /// # Errors
    /// The resolver could not be built.
    pub fn with_name_servers(servers: &[SocketAddr]) -> Result<Self, ResolverError> {
        let mut options = ResolverOpts::default();
        options.use_hosts_file = ResolveHosts::Never;
        Self::build(only(servers), options)
    }

    fn build(config: ResolverConfig, mut options: ResolverOpts) -> Result<Self, ResolverError> {
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.timeout = options.timeout.min(QUERY_TIMEOUT);
        // An answer that says "failed" ends the attempt; the message's own retries follow.
        options.attempts = 0;
        options.positive_max_ttl = Some(POSITIVE_TTL_MAX);
        options.negative_max_ttl = Some(NEGATIVE_TTL_MAX);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        builder.build().map(Self).map_err(ResolverError)
    }

    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        match self.0.lookup_ip(name).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) => Err(LookupError {
                name: name.to_owned(),
                source: match (&error, UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))) {
                    // Which hides that this process has no file left for a question.
                    (NetError::NoConnections, Err(cause)) => cause.into(),
                    _ => error.into(),
                },
            }),
        }
    }
}

fn only(servers: &[SocketAddr]) -> ResolverConfig {
    let servers = servers.iter().map(|server| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut to| {
            to.port = server.port();
            to
        });
        NameServerConfig::new(server.ip(), true, connections.into())
    });
    ResolverConfig::from_name_servers(servers.collect())
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// The resolver of one client: an answer with a single forbidden address is refused as a whole,
/// because a public address beside a private one is how rebinding attacks look.
#[derive(Debug)]
pub(super) struct GuardedResolver {
    pub(super) resolver: Resolver,
    pub(super) policy: Arc<EgressPolicy>,
    pub(super) egress: Egress,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.resolver.clone();
        let policy = Arc::clone(&self.policy);
        let egress = self.egress;
        Box::pin(async move {
            let addresses = resolver.addresses(name.as_str()).await?;
            for address in &addresses {
                policy.check_address(*address, egress)?;
            }
            // Port 0 stands for the URL's port.
            let addresses = addresses.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}
