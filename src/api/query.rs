//! Our own keys in the query of a request: the token, and options in lower case. A publish's query
//! belongs to its destination otherwise, so everything else is kept byte for byte.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

/// The key that carries the token of callers who cannot set headers.
const TOKEN: &str = "qstash_token";
/// Keys that begin so are options of the message.
const OPTION_PREFIX: &str = "upstash-";

/// A query, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// Values of `qstash_token`, decoded.
    pub(super) tokens: Vec<String>,
    /// The other keys of ours with their values, decoded.
    pub(super) options: Vec<(String, Vec<u8>)>,
    /// What is left, as it was sent.
    pub(super) rest: String,
    /// Whether anything was taken out.
    pub(super) is_cut: bool,
}

/// Takes our keys out of a raw query.
pub(super) fn separate(query: &str) -> Query {
    let mut separated = Query::default();
    let mut rest = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = decoded(key);
        if key.as_ref() == TOKEN.as_bytes() {
            let token = String::from_utf8_lossy(&decoded(value)).into_owned();
            separated.tokens.push(token);
        } else if key.starts_with(OPTION_PREFIX.as_bytes()) {
            let key = String::from_utf8_lossy(&key).into_owned();
            separated.options.push((key, decoded(value).into_owned()));
        } else {
            rest.push(pair);
            continue;
        }
        separated.is_cut = true;
    }
    separated.rest = rest.join("&");
    separated
}

/// All pairs of a query, decoded, for resources whose whole query is ours.
pub(super) fn pairs(query: Option<&str>) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes()).filter(|(key, _)| key != TOKEN)
}

/// Form decoding of one part: `+` is a space, `%XX` a byte.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode_str(&spaced).collect());
    }
    percent_decode_str(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_keys_are_taken_and_the_rest_stays_byte_for_byte() {
        for (query, rest) in [
            ("a=1&b=%20%7e", "a=1&b=%20%7e"),
            ("", ""),
            ("&&a", "&&a"),
            ("a=1&qstash_token=t&b=2", "a=1&b=2"),
            ("qstash%5Ftoken=t", ""),
            ("upstash-retries=3&a=b=c", "a=b=c"),
            (
                "xqstash_token=1&QSTASH_TOKEN=2",
                "xqstash_token=1&QSTASH_TOKEN=2",
            ),
            ("Upstash-Delay=1", "Upstash-Delay=1"),
        ] {
            let separated = separate(query);
            assert_eq!(separated.rest, rest, "{query}");
            assert_eq!(separated.is_cut, query != rest, "{query}");
        }
    }

    #[test]
    fn our_values_are_decoded() {
        let query = separate("upstash-label=a+b%2Cc&qstash_token=x%3D%3D&upstash-delay");
        assert_eq!(query.tokens, ["x=="]);
        let option = |key: &str, value: &[u8]| (key.to_owned(), value.to_vec());
        assert_eq!(
            query.options,
            [
                option("upstash-label", b"a b,c"),
                option("upstash-delay", b"")
            ]
        );
    }
}
