//! Who may call: in development the token is public, so only programs of this machine may, and no
//! web page that happens to be open in a browser on it.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};

use super::Shared;
use super::error::ApiError;

/// Who may call the front door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Whoever has the token.
    Anyone,
    /// Programs of this machine. A browser says for whom it asks (`Origin`, `Sec-Fetch-Site`), and
    /// a page that moved its own name to a loopback address says that name (`Host`).
    LocalPrograms,
}

/// Refuses what a web page sent, where only local programs may call.
pub(super) async fn check(State(api): State<Shared>, request: Request, next: Next) -> Response {
    let is_open = api.state.callers == Callers::Anyone || is_local_program(request.headers());
    if is_open {
        next.run(request).await
    } else {
        ApiError::Browser.into_response()
    }
}

fn is_local_program(headers: &HeaderMap) -> bool {
    let site = headers
        .get("sec-fetch-site")
        .map(http::HeaderValue::as_bytes);
    let is_page = headers.contains_key(header::ORIGIN)
        || site.is_some_and(|site| site != b"none" && site != b"same-origin");
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    !is_page && host.is_none_or(is_loopback)
}

/// `localhost`, `127.0.0.1:8080`, `[::1]:8080` and the like.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _port)) => v6,
        None => host.split_once(':').map_or(host, |(name, _port)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn programs_of_this_machine_may_call() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:8080",
            "127.8.8.8",
            "[::1]:80",
        ] {
            assert!(is_local_program(&headers(&[("host", host)])), "{host}");
        }
        assert!(is_local_program(&headers(&[])));
        assert!(is_local_program(&headers(&[
            ("sec-fetch-mode", "cors"),
            ("host", "localhost")
        ])));
    }

    #[test]
    fn web_pages_may_not() {
        for page in [
            &[("origin", "https://evil.example")][..],
            &[("origin", "null"), ("host", "localhost:8080")],
            &[("sec-fetch-site", "cross-site"), ("host", "localhost:8080")],
            &[("sec-fetch-site", "same-site"), ("host", "localhost:8080")],
            &[("host", "rebound.evil.example:8080")],
            &[("host", "192.168.0.7:8080")],
            &[("host", "127.0.0.1.evil.example")],
        ] {
            assert!(!is_local_program(&headers(page)), "{page:?}");
        }
    }
}
