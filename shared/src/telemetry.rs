//! What this process says about itself, and what it must not say.

use std::fmt;
use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::util::TryInitError;

use crate::config::LogFormat;

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The directives of `HOOKSTASH_LOG` are not valid.
    #[error("HOOKSTASH_LOG holds no valid log directives")]
    Directives(#[from] tracing_subscriber::filter::ParseError),
    /// This process logs already.
    #[error("set up logging a second time")]
    Again(#[from] TryInitError),
}

/// Starts logging to standard error: what `directives` (such as `info,hookstash_worker=debug`)
/// select, in `format`. Works once per process.
pub fn start(directives: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(directives)?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => registry.with(layer.with_ansi(false)).try_init()?,
        LogFormat::Json => registry.with(layer.json()).try_init()?,
    }
    Ok(())
}

/// A URL as it may be logged: user name, password, query and fragment are replaced by `***`,
/// because they often carry credentials. Texts that are no URL are hidden from the first `?`, `#`
/// or, before the path, `@`.
#[derive(Clone, Copy)]
pub struct MaskedUrl<'a>(pub &'a str);

impl fmt::Display for MaskedUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, hidden) = match self.0.find(['?', '#']) {
            Some(at) => self.0.split_at(at),
            None => (self.0, ""),
        };
        let (scheme, rest) = match address.split_once("://") {
            // There the URL standard skips further slashes: what follows is the authority.
            Some((scheme, rest)) if is_web(scheme) => {
                (scheme, rest.trim_start_matches(['/', '\\']))
            }
            Some((scheme, rest)) => (scheme, rest),
            None => ("", address),
        };
        if !scheme.is_empty() {
            write!(f, "{scheme}://")?;
        }
        let path_at = rest.find(['/', '\\']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        match authority.rsplit_once('@') {
            Some((_, host)) => write!(f, "***@{host}{path}")?,
            None => write!(f, "{authority}{path}")?,
        }
        match hidden.chars().next() {
            Some(mark) => write!(f, "{mark}***"),
            None => Ok(()),
        }
    }
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

impl fmt::Debug for MaskedUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_directives_and_a_second_start_are_errors() {
        let wrong = start("info,=,=nonsense=", LogFormat::Text).unwrap_err();
        assert!(matches!(wrong, TelemetryError::Directives(_)));
        start("off", LogFormat::Json).unwrap();
        let again = start("off", LogFormat::Text).unwrap_err();
        assert!(matches!(again, TelemetryError::Again(_)));
    }

    #[test]
    fn a_masked_url_shows_where_it_goes_and_no_credential() {
        for (url, shown) in [
            ("https://h/p", "https://h/p"),
            ("https://h/p?signature=SECRET", "https://h/p?***"),
            ("https://user:SECRET@h:1/p", "https://***@h:1/p"),
            ("https://user:SE@CRET@h", "https://***@h"),
            ("https://h/p#SECRET", "https://h/p#***"),
            ("redis://:SECRET@h:6379/0", "redis://***@h:6379/0"),
            ("user:SECRET@h", "***@h"),
            ("https://h/mail@x", "https://h/mail@x"),
            ("https:///user:SECRET@h/p", "https://***@h/p"),
            ("https://\\user:SECRET@h/p", "https://***@h/p"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
            ("", ""),
        ] {
            assert_eq!(MaskedUrl(url).to_string(), shown);
            assert_eq!(format!("{:?}", MaskedUrl(url)), shown);
        }
    }
}
