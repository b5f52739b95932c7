//! Checks answers against `/openapi.json`: what the document promises is what is answered.

use std::sync::OnceLock;

use serde_json::Value;

/// Panics when an answer of the protocol is not as the document says. Paths that are not in the
/// document (probes, refused paths) are left alone.
pub(crate) fn check_answer(method: &str, path: &str, status: u16, json: &Value) {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    let document = DOCUMENT.get_or_init(hookstash::api::document);
    let Some(operation) = operation(document, method, path) else {
        return;
    };
    let responses = &operation["responses"];
    let response = match &responses[status.to_string()] {
        Value::Null => {
            assert!(
                status >= 400,
                "{method} {path} does not promise {status}: {json}"
            );
            &responses["default"]
        }
        promised => promised,
    };
    let schema = &response["content"]["application/json"]["schema"];
    if let Err(why) = fits(document, schema, json) {
        panic!("{method} {path} -> {status} is not as described: {why}\n{json}");
    }
}

fn operation<'d>(document: &'d Value, method: &str, path: &str) -> Option<&'d Value> {
    let paths = document["paths"].as_object().expect("paths");
    let given: Vec<&str> = path.split('/').collect();
    let is_meant = |template: &str| {
        let template: Vec<&str> = template.split('/').collect();
        let is_rest = template
            .last()
            .is_some_and(|last| *last == "{destination}" || *last == "{key}");
        let length = if is_rest {
            given.len() >= template.len()
        } else {
            given.len() == template.len()
        };
        let mut pairs = template.iter().zip(&given);
        length && pairs.all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
    };
    let mut meant: Vec<_> = paths
        .iter()
        .filter(|(template, _)| is_meant(template))
        .collect();
    // The one that names most of the path.
    meant.sort_by_key(|(template, _)| template.matches('{').count());
    let (_, item) = meant.first()?;
    item.get(method.to_ascii_lowercase())
}

fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').expect("a reference within");
        let schema = document
            .pointer(pointer)
            .unwrap_or_else(|| panic!("no {reference}"));
        return fits(document, schema, value);
    }
    if let Some(schemas) = schema["anyOf"].as_array() {
        let tried: Vec<_> = schemas
            .iter()
            .map(|schema| fits(document, schema, value))
            .collect();
        if tried.iter().any(Result::is_ok) {
            return Ok(());
        }
        return Err(format!("none of {tried:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{value} is none of {allowed:?}"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !types.contains(&name) {
        return Err(format!("{value} is no {types:?}"));
    }
    match value {
        Value::Array(values) => values
            .iter()
            .try_for_each(|value| fits(document, &schema["items"], value)),
        Value::Object(fields) => {
            for required in schema["required"].as_array().into_iter().flatten() {
                let required = required.as_str().expect("a name");
                if !fields.contains_key(required) {
                    return Err(format!("{required} is missing"));
                }
            }
            let Some(known) = schema["properties"].as_object() else {
                let other = &schema["additionalProperties"];
                return fields
                    .values()
                    .try_for_each(|value| fits(document, other, value));
            };
            fields
                .iter()
                .try_for_each(|(name, value)| match known.get(name) {
                    Some(schema) => {
                        fits(document, schema, value).map_err(|why| format!("{name}: {why}"))
                    }
                    None => Err(format!("{name} is not described")),
                })
        }
        _ => Ok(()),
    }
}
