//! Reads one setting: finds its value and checks it against its kind.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::error::ConfigError;
use super::table::{Kind, Setting};
use super::{secret, size};
use crate::duration;
use crate::environment::Environment;

/// Values from the command line, which win over the environment.
#[derive(Default, Clone)]
pub struct Overrides(Vec<(&'static str, String)>);

impl Overrides {
    /// Sets `setting` to what its flag says. The last value counts.
    pub fn set(&mut self, setting: &Setting, value: impl Into<String>) {
        self.0.push((setting.name(), value.into()));
    }

    fn get(&self, setting: &Setting) -> Option<&str> {
        let mut found = self.0.iter().rev();
        let (_, value) = found.find(|(name, _)| *name == setting.name())?;
        Some(value)
    }
}

/// Where the value of a setting is looked for.
pub(super) struct Reader<'a> {
    pub(super) env: &'a dyn Environment,
    pub(super) overrides: &'a Overrides,
}

/// A value and the name it came from, for errors.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) value: String,
}

impl Found {
    /// The error that this value is wrong for `reason`.
    pub(super) fn wrong(&self, reason: &(impl ToString + ?Sized)) -> ConfigError {
        ConfigError::Value {
            name: self.name.clone(),
            reason: reason.to_string(),
        }
    }
}

impl Reader<'_> {
    /// The value that was given, trimmed unless it is a secret; `None` when none was. Blank values are errors: they
    /// usually come from a variable that was meant to be filled.
    pub(super) fn given(&self, setting: &Setting) -> Result<Option<Found>, ConfigError> {
        let trimmed = |value: &str| match setting.kind {
            Kind::Secret => value.to_owned(),
            _ => value.trim().to_owned(),
        };
        let flag = self.overrides.get(setting).map(|value| Found {
            name: setting.flag().unwrap_or_else(|| setting.name().to_owned()),
            value: trimmed(value),
        });
        let variable = || {
            setting.names.iter().find_map(|name| {
                Some(Found {
                    name: (*name).to_owned(),
                    value: trimmed(&self.env.get(name)?),
                })
            })
        };
        match flag.or_else(variable) {
            Some(found) if found.value.is_empty() && setting.default != Some("") => {
                Err(found.wrong("is blank: give it a value or leave it unset"))
            }
            found => Ok(found),
        }
    }

    /// The value that was given, else the default.
    fn value(&self, setting: &Setting) -> Result<Found, ConfigError> {
        Ok(self.given(setting)?.unwrap_or_else(|| Found {
            name: setting.name().to_owned(),
            value: setting.default.unwrap_or_default().to_owned(),
        }))
    }

    /// A text.
    pub(super) fn text(&self, setting: &Setting) -> Result<String, ConfigError> {
        Ok(self.value(setting)?.value)
    }

    /// One of the words of the setting.
    pub(super) fn choice(&self, setting: &Setting) -> Result<String, ConfigError> {
        let found = self.value(setting)?;
        match setting.kind {
            Kind::Choice(words) if !words.contains(&found.value.as_str()) => {
                Err(found.wrong(&format!("must be one of {}", words.join(", "))))
            }
            _ => Ok(found.value),
        }
    }

    /// An address with a port.
    pub(super) fn address(&self, setting: &Setting) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(found) = self.given(setting)? else {
            return Ok(None);
        };
        match found.value.parse() {
            Ok(address) => Ok(Some(address)),
            Err(_) => Err(found.wrong("must be an IP address with a port, such as 0.0.0.0:8080")),
        }
    }

    /// A secret; `None` when it is not set.
    pub(super) fn secret(&self, setting: &Setting) -> Result<Option<SecretString>, ConfigError> {
        let Some(found) = self.given(setting)? else {
            return Ok(None);
        };
        let secret = secret::parse(&found.value).map_err(|error| found.wrong(&error))?;
        Ok(Some(secret))
    }

    /// A secret of 32 bytes in base64.
    pub(super) fn key(&self, setting: &Setting) -> Result<Option<[u8; 32]>, ConfigError> {
        use base64::Engine as _;
        let Some(secret) = self.secret(setting)? else {
            return Ok(None);
        };
        let bytes = base64::engine::general_purpose::STANDARD.decode(secret.expose_secret());
        match bytes.map(<[u8; 32]>::try_from) {
            Ok(Ok(key)) => Ok(Some(key)),
            _ => Err(ConfigError::Value {
                name: setting.name().to_owned(),
                reason: "must be 32 bytes in base64".to_owned(),
            }),
        }
    }

    /// A whole number within its bounds.
    pub(super) fn count(&self, setting: &Setting) -> Result<u64, ConfigError> {
        let found = self.value(setting)?;
        let (min, max) = match setting.kind {
            Kind::Count(min, max) => (min, max),
            _ => (0, u64::MAX),
        };
        let is_digits = found.value.bytes().all(|byte| byte.is_ascii_digit());
        match found.value.parse() {
            Ok(count) if is_digits && (min..=max).contains(&count) => Ok(count),
            _ => Err(found.wrong(&format!("must be a whole number from {min} to {max}"))),
        }
    }

    /// A duration within its bounds.
    pub(super) fn duration(&self, setting: &Setting) -> Result<Duration, ConfigError> {
        let found = self.value(setting)?;
        let value = duration::parse(&found.value)
            .map_err(|error| found.wrong(&format!("is not a duration: {error}")))?;
        let (min, max) = match setting.kind {
            Kind::Duration(min, max) => (Duration::from_millis(min), Duration::from_millis(max)),
            _ => (Duration::ZERO, Duration::MAX),
        };
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            let (min, max) = (duration::display(min), duration::display(max));
            Err(found.wrong(&format!("must be a duration from {min} to {max}")))
        }
    }

    /// A size in bytes within its bounds.
    pub(super) fn size(&self, setting: &Setting) -> Result<usize, ConfigError> {
        let found = self.value(setting)?;
        let (min, max) = match setting.kind {
            Kind::Size(min, max) => (min, max),
            _ => (0, u64::MAX),
        };
        let bytes = size::parse(&found.value).filter(|bytes| (min..=max).contains(bytes));
        bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| {
                let (min, max) = (size::format(min), size::format(max));
                found.wrong(&format!(
                    "must be a size from {min} to {max}, such as 10MiB"
                ))
            })
    }
}
