//! One connection: made within a deadline, known to be dead as soon as its socket is.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisResult};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::errors::ConnectError;
use super::url::server_name;

/// Time a connection may take from name lookup to the first answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time a pipeline may take. A script blocks Redis for about a millisecond; this is for stalls
/// (forks, slow disks, swapping), and bounds how long a caller waits.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How connections are made.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Time from name lookup to the first answer; 5 s.
    pub connect_timeout: Duration,
    /// Time for the answers of one pipeline; 5 s.
    pub response_timeout: Duration,
    /// Certificate authorities in PEM form that `rediss://` trusts beside the public ones.
    pub certificate_authorities: Option<Vec<u8>>,
    /// Replicas that must have what a pipeline wrote before it is answered; 0 asks none. For a host
    /// that only publishes: pipelines go one after the other, in groups.
    pub replicas: usize,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
            certificate_authorities: None,
            replicas: 0,
        }
    }
}

/// A connection that answered a `PING`. Clones share the socket, which closes with the last one.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    driver: Arc<Driver>,
}

/// The task that reads and writes the socket; it ends when the socket does.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Live {
    /// Whether the socket is still open as far as this process knows.
    pub(super) fn is_alive(&self) -> bool {
        !self.driver.0.is_finished()
    }

    /// Whether both are clones of one connection.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.driver, &other.driver)
    }
}

/// Connects to `server` and logs in. `response_timeout` bounds each later pipeline.
pub(super) async fn open(
    server: &ConnectionInfo,
    options: &RedisOptions,
    response_timeout: Option<Duration>,
) -> Result<Live, ConnectError> {
    let after = options.connect_timeout;
    let attempt = async {
        let stream = open_stream(server, options).await?;
        log_in(server, stream, response_timeout).await
    };
    match tokio::time::timeout(after, attempt).await {
        Ok(Ok(live)) => Ok(live),
        Ok(Err(error)) => Err(ConnectError::from_login(
            &server_name(server),
            server.redis_settings().password(),
            &error,
        )),
        Err(_) => Err(ConnectError::Silent {
            server: server_name(server),
            after,
        }),
    }
}

async fn log_in(
    server: &ConnectionInfo,
    stream: Box<dyn Stream>,
    response_timeout: Option<Duration>,
) -> RedisResult<Live> {
    let config = AsyncConnectionConfig::new().set_response_timeout(response_timeout);
    let (mut connection, driver) =
        MultiplexedConnection::new_with_config(server.redis_settings(), stream, config).await?;
    let driver = Arc::new(Driver(tokio::spawn(driver)));
    redis::cmd("PING").exec_async(&mut connection).await?;
    Ok(Live { connection, driver })
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn open_stream(
    server: &ConnectionInfo,
    options: &RedisOptions,
) -> io::Result<Box<dyn Stream>> {
    match server.addr() {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(open_tcp(host, *port).await?)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let connector = tls_connector(options)?;
            let tcp = open_tcp(host, *port).await?;
            Ok(Box::new(connector.connect(name, tcp).await?))
        }
        ConnectionAddr::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        _ => Err(io::Error::other("this kind of address is not supported")),
    }
}

/// Connects to all addresses of `host` at once and takes the first that answers.
async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let attempts: Vec<_> = lookup_host((host, port))
        .await?
        .map(|address| TcpStream::connect(address).boxed())
        .collect();
    if attempts.is_empty() {
        return Err(io::Error::other("the name has no address"));
    }
    let (stream, _) = select_ok(attempts).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn tls_connector(options: &RedisOptions) -> io::Result<TlsConnector> {
    let public = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
    let mut roots: RootCertStore = public.collect();
    if let Some(pem) = &options.certificate_authorities {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(io::Error::other)?;
            roots.add(certificate).map_err(io::Error::other)?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
