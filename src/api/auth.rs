//! The token: `Authorization: Bearer <token>`, or `qstash_token` in the query for callers that
//! cannot set headers. A second one, if there is one, is for callers who only look.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Method;
use http::header::AUTHORIZATION;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::error::ApiError;
use super::{Shared, body, query};

const SCHEME: &[u8] = b"bearer ";
/// Whoever has the signing keys can pretend to be this server.
const KEYS: &str = "/v2/keys";

/// Lets a request pass that carries the token in either place.
pub(super) async fn require_token(
    State(api): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    if is_authentic(&request, &api.state.token) {
        return next.run(request).await;
    }
    let second = api.state.read_only_token.as_ref();
    let only_looks = second.is_some_and(|token| is_authentic(&request, token));
    if only_looks && is_harmless(&request) {
        return next.run(request).await;
    }
    body::discard(request).await;
    let refusal = if only_looks {
        ApiError::ReadOnly
    } else {
        ApiError::Token
    };
    refusal.into_response()
}

/// Whether a request changes nothing and asks for no secret.
fn is_harmless(request: &Request) -> bool {
    request.method() == Method::GET && request.uri().path() != KEYS
}

fn is_authentic(request: &Request, token: &SecretString) -> bool {
    let in_headers = request.headers().get_all(AUTHORIZATION).into_iter();
    let mut bearers = in_headers.filter_map(|value| bearer(value.as_bytes()));
    if bearers.any(|given| is_same(given, token)) {
        return true;
    }
    let query = query::separate(request.uri().query().unwrap_or_default());
    query
        .tokens
        .iter()
        .any(|given| is_same(given.as_bytes(), token))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then(|| token.trim_ascii())
}

/// Compares digests, so that neither content nor length shows in the time taken.
fn is_same(given: &[u8], token: &SecretString) -> bool {
    let given = Sha256::digest(given);
    let expected = Sha256::digest(token.expose_secret().as_bytes());
    given.as_slice().ct_eq(expected.as_slice()).into()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn passes(uri: &str, header: Option<&str>) -> bool {
        let mut request = Request::builder().uri(uri);
        if let Some(value) = header {
            request = request.header(AUTHORIZATION, value);
        }
        is_authentic(&request.body(Body::empty()).unwrap(), &"s3cret==".into())
    }

    #[test]
    fn the_token_is_taken_from_the_header_or_the_query() {
        for (uri, header, expected) in [
            ("/v2/keys", Some("Bearer s3cret=="), true),
            ("/v2/keys", Some("bearer   s3cret== "), true),
            ("/v2/keys?qstash_token=s3cret==", None, true),
            (
                "/v2/keys?a=b&qstash_token=s3cret%3D%3D",
                Some("Basic other"),
                true,
            ),
            ("/v2/keys", None, false),
            ("/v2/keys", Some("s3cret=="), false),
            ("/v2/keys", Some("Bearer "), false),
            ("/v2/keys", Some("Bearer s3cret="), false),
            ("/v2/keys", Some("Bearer s3cret==x"), false),
            ("/v2/keys", Some("Basic s3cret=="), false),
            ("/v2/keys?qstash_token=", None, false),
            ("/v2/keys?token=s3cret==", None, false),
        ] {
            assert_eq!(passes(uri, header), expected, "{uri} {header:?}");
        }
    }
}
