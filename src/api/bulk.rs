//! What a bulk action is asked for: in the query, as JavaScript clients do, or in a JSON body, as
//! Python and Go clients do.

use axum::extract::Request;
use serde_json::Value;

use super::error::ApiError;
use super::{Shared, query};

/// Largest body: a thousand ids several times over.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Keys with their values; no value stands for an empty list.
pub(super) type Pairs = Vec<(String, Option<String>)>;

/// Reads query and body. A body that names nothing is refused, because it would mean everything.
pub(super) async fn read(api: &Shared, request: Request) -> Result<Pairs, ApiError> {
    let (parts, body) = request.into_parts();
    let in_query = query::pairs(parts.uri.query());
    let mut pairs: Pairs = in_query
        .map(|(key, value)| (key.into_owned(), Some(value.into_owned())))
        .collect();
    let body = api
        .bodies
        .read(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    if !body.bytes.trim_ascii().is_empty() {
        pairs.extend(read_body(&body.bytes)?);
    }
    Ok(pairs)
}

fn read_body(body: &[u8]) -> Result<Pairs, ApiError> {
    let expected = || ApiError::invalid("body", "expected a JSON object with ids or filters");
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else {
        return Err(expected());
    };
    if object.is_empty() {
        return Err(expected());
    }
    let mut pairs = Vec::new();
    for (key, value) in object {
        match value {
            Value::Array(values) if values.is_empty() => pairs.push((key, None)),
            Value::Array(values) => {
                for value in values {
                    pairs.push((key.clone(), Some(text(&key, value)?)));
                }
            }
            value => {
                let value = text(&key, value)?;
                pairs.push((key, Some(value)));
            }
        }
    }
    Ok(pairs)
}

fn text(key: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(ApiError::invalid(
            key,
            "expected a text, a number or a list of them",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_the_same_as_a_query() {
        let pairs = read_body(br#"{"dlqIds":["a","b"],"label":"x","count":5,"messageIds":[]}"#);
        let pair = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
        let expected = vec![
            pair("dlqIds", "a"),
            pair("dlqIds", "b"),
            pair("label", "x"),
            pair("count", "5"),
            ("messageIds".to_owned(), None),
        ];
        assert_eq!(pairs.unwrap(), expected);
    }

    #[test]
    fn a_body_that_names_nothing_is_refused() {
        for body in [
            "{}",
            "[]",
            "null",
            "x",
            r#"{"dlqIds":null}"#,
            r#"{"dlqIds":[null]}"#,
        ] {
            assert!(read_body(body.as_bytes()).is_err(), "{body}");
        }
    }
}
