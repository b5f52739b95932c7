//! Where a message goes: everything behind `/v2/publish/` or `/v2/enqueue/{queue}/` in the raw request
//! target, or the text that an item of a batch gives.
//!
//! Receivers compare the signed URL byte by byte, so nothing is normalised. Two things that proxies
//! and clients do to a URL within a URL are undone: merged slashes behind the scheme, and percent
//! encoding of the whole.

use std::borrow::Cow;

use hookstash_shared::environment::Environment;
use hookstash_shared::http::EgressPolicy;
use hookstash_shared::message::Destination;
use percent_encoding::percent_decode_str;
use url::Url;

use super::error::ApiError;
use super::query;

const PUBLISH: &str = "/v2/publish/";
const ENQUEUE: &str = "/v2/enqueue/";

/// What a text that names a destination says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The URL or the name of a URL group, not checked yet.
    pub(super) text: String,
    /// Options of the message given in the query.
    pub(super) options: Vec<(String, Vec<u8>)>,
}

/// Cuts the raw request target (path and query) of a publish.
pub(super) fn of_publish(target: &str) -> Result<Target, ApiError> {
    behind(PUBLISH, target)
}

/// Cuts a raw request target behind `route`, which may stand there again when it is in the client's
/// base URL already.
pub(super) fn behind(route: &str, target: &str) -> Result<Target, ApiError> {
    let mut behind = target.strip_prefix(route).unwrap_or_default();
    let repeated = route.trim_start_matches('/');
    while let Some(rest) = behind.trim_start_matches('/').strip_prefix(repeated) {
        behind = rest;
    }
    read(behind)
}

/// Cuts the raw request target of an enqueue, into the name of its queue, not checked yet, and the
/// destination.
pub(super) fn of_enqueue(target: &str) -> Result<(&str, Target), ApiError> {
    let behind = target.strip_prefix(ENQUEUE).unwrap_or_default();
    let (queue, rest) = behind.split_once('/').unwrap_or((behind, ""));
    Ok((queue, read(rest)?))
}

/// Takes our own keys out of the query of a destination.
pub(super) fn read(text: &str) -> Result<Target, ApiError> {
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    let mut text = plain(path)?;
    let ours = query.map(query::separate).unwrap_or_default();
    if query.is_some() && (!ours.rest.is_empty() || !ours.is_cut) {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(&ours.rest);
    }
    Ok(Target {
        text,
        options: ours.options,
    })
}

/// Checks a destination as far as its text tells: syntax, and the egress policy on addresses.
pub(super) fn check(
    text: &str,
    egress: &EgressPolicy,
    environment: &dyn Environment,
) -> Result<Destination, ApiError> {
    let destination =
        Destination::parse(text).map_err(|error| ApiError::Invalid(error.to_string()))?;
    let url = Url::parse(destination.as_str())
        .map_err(|error| ApiError::Invalid(format!("invalid destination url: {error}")))?;
    egress
        .check_destination(&url, environment)
        .map_err(|refusal| ApiError::Invalid(refusal.publish_error()))?;
    Ok(destination)
}

/// The path with both slashes behind its scheme, decoded if these were encoded.
fn plain(path: &str) -> Result<String, ApiError> {
    let path = if is_encoded(path) {
        percent_decode_str(path).decode_utf8().map_err(|_| {
            ApiError::Invalid("invalid destination url: the encoded text is not UTF-8".to_owned())
        })?
    } else {
        Cow::Borrowed(path)
    };
    Ok(match split_scheme(&path) {
        Some((scheme, rest)) if !rest.starts_with("//") => format!("{scheme}:/{rest}"),
        _ => path.into_owned(),
    })
}

/// Whether the colon or a slash behind the scheme is percent-encoded.
fn is_encoded(path: &str) -> bool {
    let Some((scheme, _)) = path.split_once(['%', ':']) else {
        return false;
    };
    let is_http = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    let behind = path.get(scheme.len()..).unwrap_or_default();
    let has = |text: &str| {
        behind
            .get(..text.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(text))
    };
    is_http && ["%3a", ":%2f", ":/%2f"].into_iter().any(has)
}

/// `http` or `https`, and what follows its colon if that is a path.
fn split_scheme(path: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = path.split_once(':')?;
    let is_http = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    (is_http && rest.starts_with('/')).then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn text_of(behind: &str) -> String {
        of_publish(&format!("/v2/publish/{behind}")).unwrap().text
    }

    #[test]
    fn s12_the_destination_is_kept_byte_for_byte() {
        for text in [
            "https://H/p",
            "https://h:443/p",
            "https://h/p/",
            "https://h/p?x=1&y=%20",
            "https://h//a//b/",
            "https://h/ü?ü=ß",
            "https://h/%7e%7E",
            "https://h/p?",
            "https://h/p??a=b?c",
            "https://h/p?a&&b=",
            "https://h/p;v=1@x:y",
            "https://h/v2/publish/https://i/",
            "HTTPS://h/p",
            "my-group",
            "",
        ] {
            assert_eq!(text_of(text), text);
        }
    }

    #[test]
    fn our_keys_leave_the_query() {
        for (behind, text) in [
            ("https://h/p?qstash_token=t", "https://h/p"),
            (
                "https://h/p?a=1&qstash_token=t&b=%20",
                "https://h/p?a=1&b=%20",
            ),
            (
                "https://h/p?upstash-retries=3&upstash-delay=100s",
                "https://h/p",
            ),
        ] {
            assert_eq!(text_of(behind), text);
        }
        let target = of_publish("/v2/publish/https://h/?upstash-delay=1h&x").unwrap();
        assert_eq!(
            target.options,
            [("upstash-delay".to_owned(), b"1h".to_vec())]
        );
    }

    #[test]
    fn merged_slashes_and_encoded_destinations_are_understood() {
        for (behind, text) in [
            ("https:/h/p", "https://h/p"),
            ("http:/h:8/p//q?x=//", "http://h:8/p//q?x=//"),
            (
                "https%3A%2F%2Fh%2Fp%3Fa%3D1%26b%3D%2520",
                "https://h/p?a=1&b=%20",
            ),
            ("https%3a%2f%2fh%2fp", "https://h/p"),
            ("https%3A%2Fh", "https://h"),
            ("https:%2F%2Fh%2Fp", "https://h/p"),
            ("https%3A%2F%2Fh%2F?upstash-retries=1", "https://h/"),
            ("https%3A%2F%2Fh%2F%3Fa%3D1?b=2", "https://h/?a=1&b=2"),
            ("https://h/https%3A%2F%2Fi", "https://h/https%3A%2F%2Fi"),
            ("https", "https"),
            ("https:", "https:"),
        ] {
            assert_eq!(text_of(behind), text, "{behind}");
        }
        assert!(of_publish("/v2/publish/https%3A%2F%2Fh%2F%FF").is_err());
    }

    #[test]
    fn g08_a_base_url_with_the_route_in_it_is_understood() {
        assert_eq!(text_of("v2/publish/https://h/p"), "https://h/p");
        assert_eq!(
            text_of("/v2/publish/v2/publish/https://h/p?q"),
            "https://h/p?q"
        );
    }

    #[test]
    fn an_enqueue_names_its_queue_in_one_segment() {
        for (behind, queue, text) in [
            ("q/https://h/p?x=%20", "q", "https://h/p?x=%20"),
            ("q/https:/h//p", "q", "https://h//p"),
            ("q/https%3A%2F%2Fh%2Fp", "q", "https://h/p"),
            ("q/my-group", "q", "my-group"),
            ("q/", "q", ""),
            ("q", "q", ""),
            ("a%2Fb/https://h/", "a%2Fb", "https://h/"),
            ("/https://h/", "", "https://h/"),
        ] {
            let target = format!("/v2/enqueue/{behind}");
            let (given, target) = of_enqueue(&target).unwrap();
            assert_eq!((given, target.text.as_str()), (queue, text), "{behind}");
        }
    }

    #[test]
    fn a_fragment_is_cut_before_the_query_is_read() {
        let target = read("https://h/p?a=1&upstash-retries=3#part?upstash-delay=1").unwrap();
        assert_eq!(target.text, "https://h/p?a=1");
        assert_eq!(
            target.options,
            [("upstash-retries".to_owned(), b"3".to_vec())]
        );
    }

    #[test]
    fn refusals_have_the_exact_texts() {
        let scheme =
            "invalid destination url: endpoint has invalid scheme, add http:// or https://";
        let loopback = "invalid destination url: endpoint resolves to a loopback address: ";
        for (text, expected) in [
            ("", scheme.to_owned()),
            ("my-group", scheme.to_owned()),
            ("api/llm", scheme.to_owned()),
            ("ftp://h", scheme.to_owned()),
            ("http://localhost:3000/x", format!("{loopback}::1")),
            ("http://127.0.0.1/x", format!("{loopback}127.0.0.1")),
        ] {
            let policy = EgressPolicy::default();
            let error = check(text, &policy, &BTreeMap::new()).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn the_applications_own_origin_is_allowed() {
        let ours = BTreeMap::from([("APP_URL".to_owned(), "http://localhost:3010".to_owned())]);
        let policy = EgressPolicy::default();
        assert!(check("http://localhost:3010/hook", &policy, &ours).is_ok());
        assert!(check("http://localhost:3011/hook", &policy, &ours).is_err());
    }
}
