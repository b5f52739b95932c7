//! Base URLs that are slightly wrong: a slash too many, or `/v2` already in them.

use axum::extract::Request;
use http::Uri;
use http::uri::PathAndQuery;

/// Gives a request the path that its sender meant. Only the beginning is looked at: in a
/// destination every slash counts.
pub(super) async fn repair(mut request: Request) -> Request {
    let repaired = request
        .uri()
        .path_and_query()
        .and_then(|target| meant(target.as_str()));
    if let Some(uri) = repaired.and_then(|target| replaced(request.uri(), &target)) {
        *request.uri_mut() = uri;
    }
    request
}

/// The target with one slash and at most one `/v2` at its beginning; `None` when it is so already.
fn meant(target: &str) -> Option<String> {
    let mut rest = target;
    let mut is_versioned = false;
    loop {
        rest = rest.trim_start_matches('/');
        match rest.strip_prefix("v2/") {
            Some(after) => rest = after,
            None => break,
        }
        is_versioned = true;
    }
    let meant = format!("{}{rest}", if is_versioned { "/v2/" } else { "/" });
    (meant != target).then_some(meant)
}

fn replaced(uri: &Uri, target: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g08_slashes_and_versions_in_the_base_url_are_tolerated() {
        for (target, expected) in [
            ("/v2/publish/https://h//p?a=//v2/v2", None),
            ("/healthz", None),
            ("/", None),
            ("//v2/keys", Some("/v2/keys")),
            ("/v2/v2/keys", Some("/v2/keys")),
            (
                "/v2//v2/publish/https://h//p",
                Some("/v2/publish/https://h//p"),
            ),
            ("///v2//v2//publish/x", Some("/v2/publish/x")),
            ("//healthz", Some("/healthz")),
        ] {
            assert_eq!(meant(target).as_deref(), expected, "{target}");
        }
    }
}
