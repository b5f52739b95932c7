//! The one way out of a delivery: a port with the real HTTP client behind it, and in the simulation
//! a receiver that plays by a script.

use futures::FutureExt;
use futures::future::BoxFuture;
use hookstash_shared::http::{AttemptError, HttpClient, Request, Response};

/// Makes the HTTP calls of one delivery thread. Calls may overlap.
pub trait Call: Send + Sync + 'static {
    /// Makes one call and never a second one; see [`HttpClient::send`], whose promises these are:
    /// it ends within the request's `timeout`, and dropping the future closes the call.
    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Response, AttemptError>>;
}

impl Call for HttpClient {
    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Response, AttemptError>> {
        self.send(request).boxed()
    }
}
