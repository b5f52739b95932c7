//! Routes that describe themselves: one table is what the server answers and what
//! `/openapi.json` says of it.
//!
//! [`Routes`] takes an operation with its description and adds it to both. Schemas and parameters
//! stand beside this file in `components.json`.

use axum::Router;
use axum::handler::Handler;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use serde_json::{Map, Value, json};

use super::Shared;

/// Schemas and parameters that operations name.
const COMPONENTS: &str = include_str!("components.json");
/// Headers that only schedules take.
pub(super) const OF_SCHEDULES: &[&str] = &["Upstash-Cron", "Upstash-Schedule-Id"];
const INTRODUCTION: &str = "The QStash v2 protocol, served by Hookstash, and completions of \
    deferred tool results. Every refusal is an object with `error`. A 503 says whether a repeat is \
    safe.";

/// What an operation takes and answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doc {
    summary: &'static str,
    /// Names of parameters besides those of the path and the options.
    parameters: &'static [&'static str],
    takes_options: bool,
    /// Name of the body's schema; empty = any bytes, absent = no body.
    body: Option<&'static str>,
    /// Statuses with the names of their schemas; an empty name = a body without meaning.
    answers: &'static [(u16, &'static str)],
}

/// Begins the description of an operation: what it does, and its answers.
pub(super) const fn doc(summary: &'static str, answers: &'static [(u16, &'static str)]) -> Doc {
    Doc {
        summary,
        parameters: &[],
        takes_options: false,
        body: None,
        answers,
    }
}

impl Doc {
    /// With these parameters.
    pub(super) const fn takes(mut self, names: &'static [&'static str]) -> Self {
        self.parameters = names;
        self
    }

    /// With the options of a message as headers.
    pub(super) const fn options(mut self) -> Self {
        self.takes_options = true;
        self
    }

    /// With a body of this schema; without a name any bytes.
    pub(super) const fn body(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }
}

/// Answers with the document.
pub(super) fn answer(document: Bytes) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], document).into_response()
}

/// Routes with their description.
pub(super) struct Routes {
    router: Router<Shared>,
    components: Map<String, Value>,
    paths: Map<String, Value>,
}

impl Routes {
    pub(super) fn new() -> Self {
        Self {
            router: Router::new(),
            components: serde_json::from_str(COMPONENTS).unwrap_or_default(),
            paths: Map::new(),
        }
    }

    /// The same operation under another path or case, which the description leaves out.
    pub(super) fn alias<H, T>(mut self, method: &Method, path: &str, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        // Every method that is used here is one that axum filters by.
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::POST);
        self.router = self.router.route(path, on(filter, handler));
        self
    }

    /// Adds an operation to the routes and to the document.
    pub(super) fn on<H, T>(mut self, method: &Method, path: &str, handler: H, doc: Doc) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        self = self.alias(method, path, handler);
        self.describing(method, path, doc)
    }

    /// Describes an operation that a path with a wildcard answers.
    pub(super) fn describing(mut self, method: &Method, path: &str, doc: Doc) -> Self {
        let method = method.as_str().to_ascii_lowercase();
        let described = self.describe(&method, path, doc);
        // What axum calls `{*rest}` is one parameter with slashes.
        let item = self.paths.entry(path.replace("{*", "{"));
        let item = item.or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            item.insert(method, described);
        }
        self
    }

    /// The router, and the document as JSON.
    pub(super) fn finish(self) -> (Router<Shared>, Value) {
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Hookstash",
                "version": env!("CARGO_PKG_VERSION"),
                "description": INTRODUCTION,
                "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            },
            "servers": [{ "url": "/" }],
            "security": [{ "bearer": [] }, { "query": [] }],
            "paths": self.paths,
            "components": self.components,
        });
        (self.router, document)
    }

    fn describe(&self, method: &str, path: &str, doc: Doc) -> Value {
        let mut parameters: Vec<Value> = path_parameters(path).collect();
        let reference = |name: &str| json!({ "$ref": format!("#/components/parameters/{name}") });
        parameters.extend(doc.parameters.iter().map(|name| reference(name)));
        if doc.takes_options {
            parameters.extend(self.option_names().map(reference));
        }
        let mut responses: Map<String, Value> = Map::new();
        for (status, schema) in doc.answers {
            responses.insert(status.to_string(), response(schema));
        }
        responses.insert("default".to_owned(), response("Error"));
        let mut described = json!({
            "operationId": operation_id(method, path),
            "summary": doc.summary,
            "responses": responses,
        });
        if let Value::Object(described) = &mut described {
            if !parameters.is_empty() {
                described.insert("parameters".to_owned(), parameters.into());
            }
            if let Some(schema) = doc.body {
                described.insert("requestBody".to_owned(), body(schema));
            }
        }
        described
    }

    /// Parameters that are headers: the options of a message.
    fn option_names(&self) -> impl Iterator<Item = &str> {
        let parameters = self.components.get("parameters");
        let parameters = parameters.and_then(Value::as_object).into_iter().flatten();
        let is_header = |parameter: &Value| parameter.get("in").is_some_and(|at| at == "header");
        parameters
            .filter(move |(name, parameter)| {
                is_header(parameter) && !OF_SCHEDULES.contains(&name.as_str())
            })
            .map(|(name, _)| name.as_str())
    }
}

fn path_parameters(path: &str) -> impl Iterator<Item = Value> {
    path.split('/').filter_map(|segment| {
        let name = segment.strip_prefix('{')?.strip_suffix('}')?;
        let rest = name.strip_prefix('*');
        let mut parameter = json!({
            "name": rest.unwrap_or(name), "in": "path", "required": true,
            "schema": { "type": "string" },
        });
        if rest.is_some() {
            parameter["description"] =
                json!("everything to the end of the path, as it is, slashes and query included");
        }
        Some(parameter)
    })
}

fn response(schema: &str) -> Value {
    if schema.is_empty() {
        return json!({ "description": "done" });
    }
    let reference = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({
        "description": schema,
        "content": { "application/json": { "schema": reference } },
    })
}

fn body(schema: &str) -> Value {
    if schema.is_empty() {
        return json!({ "description": "the body, any bytes", "content": { "*/*": {} } });
    }
    let reference = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({ "content": { "application/json": { "schema": reference } } })
}

/// `get /v2/messages/{id}` is `get_messages_id`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path
        .split(['/', '{', '}', '*', '.'])
        .filter(|word| !word.is_empty());
    let words = words.filter(|word| *word != "v1" && *word != "v2");
    words.fold(method.to_owned(), |id, word| format!("{id}_{word}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every `$ref` within `value`.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    match value {
                        Value::String(target) if key == "$ref" => {
                            found.insert(target.clone());
                        }
                        other => references(other, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_component_is_named_and_every_name_is_a_component() {
        let document = super::super::document();
        let mut named = BTreeSet::new();
        references(&document, &mut named);
        let components = document["components"].as_object().unwrap();
        let there: BTreeSet<String> = ["schemas", "parameters"]
            .into_iter()
            .flat_map(|kind| {
                let names = components[kind].as_object().unwrap().keys();
                names.map(move |name| format!("#/components/{kind}/{name}"))
            })
            .collect();
        assert!(named.is_subset(&there), "{named:?}");
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = super::super::document();
        let paths = document["paths"].as_object().unwrap();
        let operations = paths
            .values()
            .flat_map(|item| item.as_object().unwrap().values());
        let ids: Vec<&str> = operations
            .map(|operation| operation["operationId"].as_str().unwrap())
            .collect();
        let different: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), different.len());
        assert!(different.contains("get_messages_id"), "{different:?}");
    }
}
