//! What a control answers. Whatever JavaScript's `JSON.parse` reads must be read here too, or a
//! deny would turn into no decision: lone surrogates, any depth, any number, repeated keys.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// A surrogate by itself, as `serde_json` hands it over: three bytes that are not UTF-8.
const SURROGATE_LEAD: u8 = 0xed;
const SURROGATE_SECOND_MIN: u8 = 0xa0;
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// A decision, or that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allow,
    /// With the reason as given; `None` when absent.
    Deny(Option<String>),
    /// The answer does not decide, for this reason.
    None(NoDecision),
}

/// Why an answer does not decide. It is a notification then, whatever `onError` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoDecision {
    Empty,
    NotJson,
    KeyMissing,
}

/// An answer that is not allowed: an error of the control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Invalid;

/// Reads the complete body of an answer.
pub(crate) fn parse(body: &[u8]) -> Result<Decision, Invalid> {
    let text = std::str::from_utf8(body.strip_prefix(BOM).unwrap_or(body)).map_err(|_| Invalid)?;
    let blank = |char| matches!(char, ' ' | '\t' | '\n' | '\r');
    if text.trim_matches(blank).is_empty() {
        return Ok(Decision::None(NoDecision::Empty));
    }
    let Ok(answer) = serde_json::from_str::<Answer>(text) else {
        // Other JSON than an object has no decision either.
        let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
        return Ok(Decision::None(if is_json {
            NoDecision::KeyMissing
        } else {
            NoDecision::NotJson
        }));
    };
    let Some(decision) = answer.decision else {
        return Ok(Decision::None(NoDecision::KeyMissing));
    };
    match string(decision).as_deref() {
        Some(b"allow") => Ok(Decision::Allow),
        Some(b"deny") => {
            let reason = answer.reason.map(|raw| string(raw).ok_or(Invalid));
            Ok(Decision::Deny(
                reason.transpose()?.map(|bytes| lossy(&bytes)),
            ))
        }
        _ => Err(Invalid),
    }
}

/// The two keys that count, unread. The last of several wins.
#[derive(Default)]
struct Answer<'a> {
    decision: Option<&'a RawValue>,
    reason: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Answer<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Answer<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut answer = Answer::default();
                while let Some(Text(key)) = map.next_key()? {
                    let value = map.next_value()?;
                    match key.as_slice() {
                        b"decision" => answer.decision = Some(value),
                        b"reason" => answer.reason = Some(value),
                        _ => {}
                    }
                }
                Ok(answer)
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// The bytes of a JSON string, in which surrogates may stand alone.
struct Text(Vec<u8>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(bytes.to_vec()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.as_bytes().to_vec()))
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

fn string(raw: &RawValue) -> Option<Vec<u8>> {
    // An array would be read as bytes too.
    let is_string = raw.get().starts_with('"');
    let text = is_string.then(|| serde_json::from_str::<Text>(raw.get()).ok());
    text.flatten().map(|Text(bytes)| bytes)
}

/// The text, with one replacement character for each lone surrogate.
fn lossy(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, others @ ..] = rest {
        match rest {
            [SURROGATE_LEAD, second, _, after @ ..] if *second >= SURROGATE_SECOND_MIN => {
                text.extend_from_slice(REPLACEMENT);
                rest = after;
            }
            _ => {
                text.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
