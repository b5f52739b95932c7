//! Where Redis is and how to log in, read from a URL.

use std::fmt;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};
use url::form_urlencoded;

use super::errors::ConnectError;

/// Most servers one URL may name.
const SERVERS_MAX: usize = 64;
/// Port of a sentinel when the URL names none.
const SENTINEL_PORT: u16 = 26379;

/// A parsed Redis URL. Neither `Debug` nor any error shows the password.
///
/// - one server: `redis://[user][:password]@host[:port][/db]`, `rediss://` with TLS, and
///   `unix:///path[?db=n&user=u&pass=p]`
/// - a cluster, by some of its nodes: `redis-cluster://…@host:port,host:port` (`rediss-cluster://`)
/// - the master that sentinels know: `redis-sentinel://…@host:port,host:port/name[/db]`
///   (`rediss-sentinel://`); user and password are the master's. Sentinels are asked without any,
///   or with those of `?sentinel_user=u&sentinel_password=p`
///
/// `+` may stand for `-`, and `valkey` for `redis`. Special characters in the user name or password
/// are percent-encoded. Without a user name the password is that of the default user.
#[derive(Clone)]
pub struct RedisUrl {
    pub(super) kind: Kind,
    /// At least one.
    pub(super) servers: Vec<ConnectionInfo>,
    /// What sentinels are asked with.
    pub(super) sentinel_login: RedisConnectionInfo,
}

/// What the named servers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// The one server.
    Standalone,
    /// Some nodes of a cluster.
    Cluster,
    /// Sentinels that know the master by this name.
    Sentinel {
        /// The name the sentinels monitor it under.
        master: String,
    },
}

impl RedisUrl {
    /// Reads `text`; white space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, ConnectError> {
        let text = text.trim();
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| invalid("a scheme such as redis:// is missing"))?;
        if scheme.ends_with("unix") {
            return Ok(Self {
                kind: Kind::Standalone,
                servers: vec![server(text)?],
                sentinel_login: RedisConnectionInfo::default(),
            });
        }
        let (scheme, mode) = scheme.split_once(['-', '+']).unwrap_or((scheme, ""));
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if tail.contains('@') {
            return Err(invalid(
                "special characters in the user name or password must be percent-encoded",
            ));
        }
        let (kind, tail) = kind_of(mode, tail)?;
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        if kind == Kind::Standalone && hosts.contains(',') {
            return Err(invalid(
                "several hosts need redis-cluster:// or redis-sentinel://",
            ));
        }
        let sentinel = matches!(kind, Kind::Sentinel { .. });
        let (tail, sentinel_login) = if sentinel {
            sentinel_login(tail)
        } else {
            (tail.to_owned(), RedisConnectionInfo::default())
        };
        let servers = hosts
            .split(',')
            .take(SERVERS_MAX)
            .map(|host| {
                let host = with_port(host, sentinel.then_some(SENTINEL_PORT));
                server(&format!("{scheme}://{login}{host}{tail}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            kind,
            servers,
            sentinel_login,
        })
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers.iter().map(server_name).collect();
        f.debug_struct("RedisUrl")
            .field("kind", &self.kind)
            .field("servers", &servers)
            .finish_non_exhaustive()
    }
}

/// How errors and logs name a server: `host:port`, or the path of its socket.
pub(super) fn server_name(server: &ConnectionInfo) -> String {
    match server.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        }
        other => other.to_string(),
    }
}

/// The same login and transport at another host and port, as a cluster or a sentinel names it.
pub(super) fn moved_to(server: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let addr = match server.addr() {
        ConnectionAddr::TcpTls { tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: false,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    server.clone().set_addr(addr)
}

fn kind_of<'a>(mode: &str, tail: &'a str) -> Result<(Kind, &'a str), ConnectError> {
    match mode {
        "" => Ok((Kind::Standalone, tail)),
        "cluster" => Ok((Kind::Cluster, tail)),
        "sentinel" => {
            let path = tail.strip_prefix('/').unwrap_or_default();
            let (master, tail) = path.split_at(path.find(['/', '?']).unwrap_or(path.len()));
            if master.is_empty() || master.contains('#') {
                return Err(invalid("the master's name is missing: …/name"));
            }
            let master = master.to_owned();
            Ok((Kind::Sentinel { master }, tail))
        }
        _ => Err(invalid("the scheme is not one of Redis")),
    }
}

/// Takes the sentinels' own user and password out of the query of `tail`.
fn sentinel_login(tail: &str) -> (String, RedisConnectionInfo) {
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let mut login = RedisConnectionInfo::default();
    let mut others = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        login = match &*name {
            "sentinel_user" => login.set_username(value),
            "sentinel_password" => login.set_password(value),
            _ => {
                others.append_pair(&name, &value);
                login
            }
        };
    }
    let others = others.finish();
    let mark = if others.is_empty() { "" } else { "?" };
    (format!("{path}{mark}{others}"), login)
}

/// `host` with a port: its own, else `port` when there is one.
fn with_port(host: &str, port: Option<u16>) -> String {
    let name_end = host.rfind(']').map_or(0, |end| end + 1);
    let has_port = host.get(name_end..).is_some_and(|end| end.contains(':'));
    match port {
        Some(port) if !has_port => format!("{host}:{port}"),
        _ => host.to_owned(),
    }
}

fn server(url: &str) -> Result<ConnectionInfo, ConnectError> {
    let server = url
        .into_connection_info()
        .map_err(|error| invalid(&error.to_string()))?;
    if let ConnectionAddr::TcpTls { insecure: true, .. } = server.addr() {
        return Err(ConnectError::Unsupported("TLS without verification"));
    }
    let redis = server
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP2)
        .set_lib_name("hookstash", env!("CARGO_PKG_VERSION"));
    Ok(server.set_redis_settings(redis))
}

fn invalid(reason: &str) -> ConnectError {
    ConnectError::Url(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "p#a/s@s=:%25é";

    fn only(url: &str) -> ConnectionInfo {
        let parsed = RedisUrl::parse(url).expect(url);
        assert_eq!(parsed.kind, Kind::Standalone);
        parsed.servers.into_iter().next().expect("one server")
    }

    #[test]
    fn f18_special_characters_survive_percent_encoding() {
        let server = only("redis://:p%23a%2Fs%40s%3D%3A%2525%C3%A9@h:6380/3");
        assert_eq!(server.redis_settings().password(), Some(SECRET));
        assert_eq!(server.redis_settings().username(), None);
        assert_eq!(server.redis_settings().db(), 3);
        assert_eq!(server_name(&server), "h:6380");
        assert_eq!(
            only("redis://:pw@h").redis_settings().password(),
            Some("pw")
        );
        let named = only(" rediss://ann:pw@h/ \n");
        assert_eq!(named.redis_settings().username(), Some("ann"));
        assert!(matches!(named.addr(), ConnectionAddr::TcpTls { .. }));
        assert_eq!(server_name(&only("redis://[::1]:7000")), "[::1]:7000");
        assert_eq!(
            server_name(&only("unix:///run/redis.sock?db=2")),
            "/run/redis.sock"
        );
    }

    #[test]
    fn f18_wrong_encodings_are_refused_without_showing_the_password() {
        for url in [
            "redis://:p#secret@h",
            "redis://:p/secret@h",
            "redis://u:1/secret@h",
            "redis://u:1?secret@h",
            "redis://:secret",
            "redis://:secret%ff@h",
            "redis://:secret@",
            "redis://:secret@h:port",
            "redis://:secret@h/db",
            "redis://:secret@h,i",
            "redis-sentinel://:secret@h",
            "rediss://:secret@h/#insecure",
            "http://:secret@h",
            "secret",
            "",
        ] {
            let error = RedisUrl::parse(url).expect_err(url).to_string();
            assert!(!error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn no_output_of_a_url_shows_its_password() {
        let url = RedisUrl::parse("redis-cluster://u:secret@h:1,i:2").expect("valid");
        assert!(!format!("{url:?}").contains("secret"));
        assert!(format!("{url:?}").contains("i:2"));
    }

    #[test]
    fn clusters_and_sentinels_name_several_servers() {
        let cluster = RedisUrl::parse("rediss+cluster://u:p@a:1,b,[::2]:3").expect("valid");
        assert_eq!(cluster.kind, Kind::Cluster);
        let names: Vec<String> = cluster.servers.iter().map(server_name).collect();
        assert_eq!(names, ["a:1", "b:6379", "[::2]:3"]);
        let sentinel = RedisUrl::parse("redis-sentinel://:p@a,[::2],c:5/main/4").expect("valid");
        let master = "main".to_owned();
        assert_eq!(sentinel.kind, Kind::Sentinel { master });
        let names: Vec<String> = sentinel.servers.iter().map(server_name).collect();
        assert_eq!(names, ["a:26379", "[::2]:26379", "c:5"]);
        assert_eq!(sentinel.servers[0].redis_settings().db(), 4);
        assert_eq!(sentinel.sentinel_login.password(), None);
        let url = "redis-sentinel://a/main?sentinel_password=s";
        let sentinel = RedisUrl::parse(url).expect("valid");
        assert_eq!(sentinel.sentinel_login.password(), Some("s"));
        assert_eq!(sentinel.servers[0].redis_settings().password(), None);
        let url = "redis-sentinel://u:p@a/main/4?sentinel_user=eve&sentinel_password=s%40%23";
        let sentinel = RedisUrl::parse(url).expect("valid");
        assert_eq!(sentinel.sentinel_login.username(), Some("eve"));
        assert_eq!(sentinel.sentinel_login.password(), Some("s@#"));
        let master = sentinel.servers[0].redis_settings();
        assert_eq!((master.db(), master.password()), (4, Some("p")));
        assert!(!format!("{sentinel:?}").contains("s@#"));
    }
}
