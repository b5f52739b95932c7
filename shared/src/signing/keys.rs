//! The two `QStash` signing keys: one signs, the other will sign after the next rotation.

use secrecy::{ExposeSecret, SecretString};

use crate::random::Random;

/// Setting of the key that signs.
pub const SETTING_CURRENT: &str = "QSTASH_CURRENT_SIGNING_KEY";

/// Setting of the key that signs after the next rotation.
pub const SETTING_NEXT: &str = "QSTASH_NEXT_SIGNING_KEY";

/// The shortest key, in bytes: what Standard Webhooks asks for. Keys made here have 32, the least
/// that RFC 7518 section 3.2 wants for HS256, so that no JWT library complains.
pub const KEY_BYTES_MIN: usize = 24;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 512;

const KEY_PREFIX: &str = "sig_";
const KEY_RANDOM_CHARS: usize = 28;

/// The public keys of `QStash`'s development mode, which anybody can sign with.
const DEVELOPMENT_CURRENT: &str = "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r";
const DEVELOPMENT_NEXT: &str = "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs";

/// Both keys. A key is used as its literal UTF-8 bytes, prefix included.
#[derive(Debug, Clone)]
pub struct SigningKeys {
    current: SecretString,
    next: SecretString,
}

/// Why settings give no signing keys. Names the setting, never its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// One of the two is set, this one is not.
    #[error("{0} is not set although the other signing key is: set both or none")]
    Missing(&'static str),
    /// Set, but to nothing or to white space.
    #[error("{0} is blank: set it to a signing key, or set neither signing key")]
    Blank(&'static str),
    /// White space or a control character inside or around the key.
    #[error("{0} has white space or a control character in it: paste the key alone")]
    Space(&'static str),
    /// Fewer than [`KEY_BYTES_MIN`] bytes.
    #[error("{0} is too short: a signing key has at least {KEY_BYTES_MIN} bytes")]
    TooShort(&'static str),
    /// More than [`KEY_BYTES_MAX`] bytes.
    #[error("{0} is too long: a signing key has at most {KEY_BYTES_MAX} bytes")]
    TooLong(&'static str),
}

impl SigningKeys {
    /// The keys as they were set; `None` when neither is set (a set but blank one is an error, so
    /// that nothing is ever signed with an empty key).
    pub fn from_settings(
        current: Option<&str>,
        next: Option<&str>,
    ) -> Result<Option<Self>, KeysError> {
        let current = current.map(|key| check(key, SETTING_CURRENT)).transpose()?;
        let next = next.map(|key| check(key, SETTING_NEXT)).transpose()?;
        match (current, next) {
            (Some(current), Some(next)) => Ok(Some(Self { current, next })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(KeysError::Missing(SETTING_NEXT)),
            (None, Some(_)) => Err(KeysError::Missing(SETTING_CURRENT)),
        }
    }

    /// The well-known keys of `QStash`'s development mode. They protect nothing.
    pub fn development() -> Self {
        Self {
            current: DEVELOPMENT_CURRENT.into(),
            next: DEVELOPMENT_NEXT.into(),
        }
    }

    /// Two new keys.
    pub fn generate(random: &dyn Random) -> Self {
        Self {
            current: generate_key(random),
            next: generate_key(random),
        }
    }

    /// The keys after a rotation: next becomes current, a new one becomes next. Receivers that
    /// know the old pair verify signatures of this one, but not of a second rotation.
    #[must_use]
    pub fn rotated(&self, random: &dyn Random) -> Self {
        Self {
            current: self.next.clone(),
            next: generate_key(random),
        }
    }

    /// The key that signs.
    pub fn current(&self) -> &SecretString {
        &self.current
    }

    /// The key that signs after the next rotation.
    pub fn next(&self) -> &SecretString {
        &self.next
    }

    /// Whether these are the well-known keys of the development mode.
    pub fn are_development(&self) -> bool {
        [&self.current, &self.next]
            .iter()
            .any(|key| [DEVELOPMENT_CURRENT, DEVELOPMENT_NEXT].contains(&key.expose_secret()))
    }
}

fn check(key: &str, setting: &'static str) -> Result<SecretString, KeysError> {
    if key.trim().is_empty() {
        Err(KeysError::Blank(setting))
    } else if key.chars().any(|c| c.is_whitespace() || c.is_control()) {
        Err(KeysError::Space(setting))
    } else if key.len() < KEY_BYTES_MIN {
        Err(KeysError::TooShort(setting))
    } else if key.len() > KEY_BYTES_MAX {
        Err(KeysError::TooLong(setting))
    } else {
        Ok(key.into())
    }
}

/// `sig_` and 28 letters and digits, about 166 bits.
fn generate_key(random: &dyn Random) -> SecretString {
    let mut key = String::from(KEY_PREFIX);
    push_alphanumerics(&mut key, KEY_RANDOM_CHARS, random);
    key.into()
}

/// Appends `count` random letters and digits.
pub(super) fn push_alphanumerics(text: &mut String, count: usize, random: &dyn Random) {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    text.extend((0..count).filter_map(|_| {
        let index = usize::try_from(random.below(62)).ok()?;
        ALPHABET.get(index).copied().map(char::from)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    const GOOD: &str = "sig_0123456789abcdefghijABCDEFGH";

    #[test]
    fn s10_a_blank_or_malformed_key_is_refused_by_the_name_of_its_setting() {
        use KeysError as E;
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        for (key, error) in [
            ("", E::Blank as fn(&'static str) -> E),
            ("   ", E::Blank),
            ("\n", E::Blank),
            (" sig_0123456789abcdefghijABCDEFGH", E::Space),
            ("sig_0123456789abcdefghijABCDEFGH\n", E::Space),
            ("sig_0123456789 bcdefghijABCDEFGH", E::Space),
            ("sig_0123456789\u{0}bcdefghijABCDEFGH", E::Space),
            ("sig_", E::TooShort),
            ("sig_secretsecretsecrets", E::TooShort),
            (&long, E::TooLong),
        ] {
            let as_current = SigningKeys::from_settings(Some(key), Some(GOOD)).unwrap_err();
            assert_eq!(as_current, error(SETTING_CURRENT), "{key:?}");
            let as_next = SigningKeys::from_settings(Some(GOOD), Some(key)).unwrap_err();
            assert_eq!(as_next, error(SETTING_NEXT), "{key:?}");
            assert!(as_next.to_string().starts_with("QSTASH_NEXT_SIGNING_KEY "));
            assert!(key.trim().len() < 5 || !as_next.to_string().contains(key.trim()));
            assert!(SigningKeys::from_settings(Some(key), None).is_err());
        }
    }

    #[test]
    fn s10_both_keys_or_none() {
        assert!(SigningKeys::from_settings(None, None).unwrap().is_none());
        let only_current = SigningKeys::from_settings(Some(GOOD), None).unwrap_err();
        assert_eq!(only_current, KeysError::Missing(SETTING_NEXT));
        let only_next = SigningKeys::from_settings(None, Some(GOOD)).unwrap_err();
        assert_eq!(only_next, KeysError::Missing(SETTING_CURRENT));
        let keys = SigningKeys::from_settings(Some(GOOD), Some("ключ-ключ-ключ-ключ")).unwrap();
        assert_eq!(keys.unwrap().current().expose_secret(), GOOD);
    }

    #[test]
    fn keys_are_never_shown() {
        let shown = format!("{:?}", SigningKeys::development());
        assert!(
            !shown.contains("sig_") && shown.contains("REDACTED"),
            "{shown}"
        );
    }

    #[test]
    fn a_generated_key_is_32_letters_and_digits_after_its_prefix() {
        let keys = SigningKeys::generate(&SeededRandom::new(7));
        for key in [keys.current(), keys.next()] {
            let random = key.expose_secret().strip_prefix("sig_").unwrap();
            assert_eq!(random.len(), 28);
            assert!(random.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
        assert_ne!(keys.current().expose_secret(), keys.next().expose_secret());
        assert!(!keys.are_development() && SigningKeys::development().are_development());
    }

    #[test]
    fn every_letter_and_digit_can_be_drawn() {
        let mut drawn = String::new();
        push_alphanumerics(&mut drawn, 5_000, &SeededRandom::new(1));
        let distinct: std::collections::BTreeSet<char> = drawn.chars().collect();
        assert_eq!((drawn.len(), distinct.len()), (5_000, 62));
    }

    #[test]
    fn a_rotation_keeps_the_next_key() {
        let random = SeededRandom::new(7);
        let keys = SigningKeys::generate(&random);
        let rotated = keys.rotated(&random);
        assert_eq!(
            rotated.current().expose_secret(),
            keys.next().expose_secret()
        );
        assert_ne!(rotated.next().expose_secret(), keys.next().expose_secret());
    }
}
