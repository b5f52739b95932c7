//! Names that a publisher may not set, because the delivery sets them or HTTP forbids it.

use http::HeaderName;

/// Headers of one connection (RFC 9110, section 7.6.1) and of the framing of the request.
const CONNECTION: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether no message may set `name`: `Upstash-*`, `Host`, `Content-Length`, `Proxy-*` and the
/// other headers of a single connection.
pub fn is_reserved(name: &HeaderName) -> bool {
    let name = name.as_str();
    CONNECTION.contains(&name) || name.starts_with("upstash-") || name.starts_with("proxy-")
}

/// Whether a hook may not set `name`: the reserved names and `Sec-*`.
pub fn is_forbidden_in_hooks(name: &HeaderName) -> bool {
    is_reserved(name) || name.as_str().starts_with("sec-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deliverys_own_names_are_reserved() {
        let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).unwrap();
        for reserved in [
            "Host",
            "Content-Length",
            "CONNECTION",
            "Transfer-Encoding",
            "Trailer",
            "Upgrade",
            "proxy-authorization",
            "Upstash-Callback",
            "Upstash-Message-Id",
        ] {
            assert!(is_reserved(&name(reserved)), "{reserved}");
            assert!(is_forbidden_in_hooks(&name(reserved)), "{reserved}");
        }
        for free in [
            "Authorization",
            "Content-Type",
            "X-Upstash-Y",
            "Secret",
            "Cookie",
        ] {
            assert!(!is_reserved(&name(free)), "{free}");
            assert!(!is_forbidden_in_hooks(&name(free)), "{free}");
        }
        assert!(!is_reserved(&name("Sec-Fetch-Mode")));
        assert!(is_forbidden_in_hooks(&name("Sec-Fetch-Mode")));
    }
}
