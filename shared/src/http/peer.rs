//! The last of the three checks: who is really at the other end of the socket.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{error, io};

use hyper_util::client::legacy::connect::{Connection, HttpInfo};
use tower::{Layer, Service};

use super::egress::{Egress, EgressPolicy};

type BoxError = Box<dyn error::Error + Send + Sync>;

/// Checks the connected peer against the policy before any byte of HTTP is sent.
#[derive(Debug, Clone)]
pub(super) struct PeerCheckLayer {
    pub(super) policy: Arc<EgressPolicy>,
    pub(super) egress: Egress,
}

impl<S> Layer<S> for PeerCheckLayer {
    type Service = PeerCheck<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PeerCheck {
            inner,
            check: self.clone(),
        }
    }
}

/// A connector whose connections have passed the check.
#[derive(Debug, Clone)]
pub(super) struct PeerCheck<S> {
    inner: S,
    check: PeerCheckLayer,
}

impl<S, R> Service<R> for PeerCheck<S>
where
    S: Service<R, Error = BoxError>,
    S::Response: Connection,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, destination: R) -> Self::Future {
        let connecting = self.inner.call(destination);
        let check = self.check.clone();
        Box::pin(async move {
            let connection = connecting.await?;
            check.check(&connection)?;
            Ok(connection)
        })
    }
}

impl PeerCheckLayer {
    /// A connection that does not say who its peer is (it broke meanwhile) is not used.
    fn check(&self, connection: &impl Connection) -> Result<(), BoxError> {
        let mut extras = http::Extensions::new();
        connection.connected().get_extras(&mut extras);
        let peer = extras
            .get::<HttpInfo>()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?
            .remote_addr();
        Ok(self.policy.check_address(peer.ip(), self.egress)?)
    }
}
