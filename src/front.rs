//! The listener, and a door that opens once there is a store behind it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use tokio::net::TcpListener;
use tower::Service as _;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}", why(.source))]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another program has the port; stop it, or choose another \
                                     port (0 is any free one)"
            .to_owned(),
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need more rights; choose a higher one".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        _ => error.to_string(),
    }
}

/// Listens on `address`; port 0 is any free one.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| ListenError { address, source })
}

/// Answers with one router until it is given another. All clones are one.
#[derive(Clone, Default)]
pub(crate) struct Door(Arc<OnceLock<Router>>);

impl Door {
    /// A router that hands requests to what was [opened](Self::open), before that to `closed`.
    pub(crate) fn router(&self, closed: Router) -> Router {
        let door = self.clone();
        Router::new().fallback(move |request: Request| {
            let mut router = door.0.get().unwrap_or(&closed).clone();
            async move { router.call(request).await.unwrap_or_default() }
        })
    }

    /// Answers with `router` from now on. The first call counts.
    pub(crate) fn open(&self, router: Router) {
        drop(self.0.set(router));
    }
}
