//! `/v2/messages`: messages while they live and a little longer.

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use hookstash_shared::message::{Envelope, LoggedEvent, MessageId, Peek};
use hookstash_shared::store::{Cancelled, StoredMessage};
use http::Uri;
use serde_json::{Value, json};

use super::error::ApiError;
use super::message_view::{Object, view};
use super::{Shared, bulk, id_in};

/// Most ids of one request.
const IDS_MAX: usize = 1_000;
/// Filters of a bulk cancel, which is not built yet: ignoring one would cancel what was not meant.
const FILTERS_NOT_BUILT: [&str; 12] = [
    "callerIP",
    "callerIp",
    "flowControlKey",
    "fromDate",
    "host",
    "label",
    "path",
    "queueName",
    "scheduleId",
    "toDate",
    "topicName",
    "url",
];

/// The message.
pub(super) async fn get(State(api): State<Shared>, uri: Uri) -> Result<Json<Object>, ApiError> {
    let id = id_in(&uri);
    let not_found = || ApiError::no_such_message(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    let stored = api
        .state
        .store
        .message(&parsed)
        .await
        .map_err(ApiError::of_read)?
        .ok_or_else(not_found)?;
    let (envelope, body) = decode(&stored)?;
    Ok(Json(view(&parsed, &envelope.header, &body)))
}

/// Cancels it. One that a worker is sending just now is cancelled unless that call succeeds.
pub(super) async fn cancel(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let id = id_in(&uri);
    let not_found = || ApiError::no_such_message(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    let store = &api.state.store;
    let stored = store.message(&parsed).await.map_err(ApiError::of_read)?;
    let stored = stored.ok_or_else(not_found)?;
    let envelope = Envelope::decode(&stored.envelope);
    let event = envelope.map_or_else(
        |_| LoggedEvent::default(),
        |envelope| LoggedEvent::of(&envelope.header),
    );
    let event = event.encode();
    match store.cancel(&parsed, event).await? {
        Cancelled::Now | Cancelled::Requested => Ok(Json(json!({ "cancelled": 1 }))),
        Cancelled::None => Err(not_found()),
    }
}

/// Cancels those of the given ids that are not at their end yet; others are skipped.
pub(super) async fn cancel_many(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let ids = read_ids(bulk::read(&api, request).await?)?;
    let store = &api.state.store;
    let heads = store
        .envelope_heads(&ids)
        .await
        .map_err(ApiError::of_read)?;
    let events = heads
        .iter()
        .map(|head| match Envelope::decode_header(head) {
            Ok(Peek::Header(header)) => LoggedEvent::of(&header).encode(),
            _ => LoggedEvent::default().encode(),
        });
    let messages: Vec<(MessageId, Bytes)> = ids.into_iter().zip(events).collect();
    let cancelled = store.cancel_all(&messages).await?;
    let count = cancelled
        .iter()
        .filter(|answer| **answer != Cancelled::None);
    Ok(Json(json!({ "cancelled": count.count() })))
}

fn read_ids(pairs: bulk::Pairs) -> Result<Vec<MessageId>, ApiError> {
    let mut ids: Option<Vec<MessageId>> = None;
    let mut filter = None;
    for (key, value) in pairs {
        match key.as_str() {
            "messageId" | "messageIds" => {
                let given = value.iter().flat_map(|value| value.split(','));
                let known = given.filter_map(|id| id.trim().parse::<MessageId>().ok());
                ids.get_or_insert_default().extend(known);
            }
            // How many of all, and from where on: with ids there is nothing to say.
            "count" | "cursor" => {}
            known if FILTERS_NOT_BUILT.contains(&known) => filter = Some(key),
            _ => return Err(ApiError::invalid("filter", format!("{key:?} is not one"))),
        }
    }
    let Some(mut ids) = ids.filter(|_| filter.is_none()) else {
        let what = filter.map_or("all messages".to_owned(), |filter| format!("by {filter}"));
        return Err(ApiError::not_built(&format!(
            "cancelling {what}, not by messageIds,"
        )));
    };
    ids.sort();
    ids.dedup();
    if ids.len() > IDS_MAX {
        return Err(ApiError::invalid(
            "messageIds",
            format!("more than {IDS_MAX} ids"),
        ));
    }
    Ok(ids)
}

/// The envelope and the bytes that are delivered, which may be another message's.
fn decode(stored: &StoredMessage) -> Result<(Envelope, Bytes), ApiError> {
    let unreadable = |_| ApiError::Internal("the stored message cannot be read");
    let envelope = Envelope::decode(&stored.envelope).map_err(unreadable)?;
    let named = match &stored.shared_body {
        Some(shared) => Envelope::decode(shared).map_err(unreadable)?.body,
        None => Bytes::new(),
    };
    let body = envelope.payload(&named).map_err(unreadable)?;
    Ok((envelope, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_say_what_is_cancelled() {
        let id = "msg_00000000000000000000000000a1";
        let read = |pairs: &[(&str, Option<&str>)]| {
            let pair =
                |(key, value): &(&str, Option<&str>)| ((*key).to_owned(), value.map(str::to_owned));
            read_ids(pairs.iter().map(pair).collect()).map_err(|error| error.to_string())
        };
        let known: MessageId = id.parse().unwrap();
        assert_eq!(
            read(&[("messageIds", Some(id)), ("messageIds", Some(id))]).unwrap(),
            [known]
        );
        assert_eq!(read(&[("messageIds", Some("nothing"))]).unwrap(), []);
        assert_eq!(read(&[("messageIds", None)]).unwrap(), []);
        let with_count = [("messageIds", Some(id)), ("count", Some("100"))];
        assert_eq!(read(&with_count).unwrap(), [known]);
        for (pairs, text) in [
            (vec![], "cancelling all messages"),
            (vec![("count", Some("100"))], "cancelling all messages"),
            (vec![("label", Some("x"))], "by label"),
            (
                vec![("messageIds", Some(id)), ("label", Some("x"))],
                "by label",
            ),
            (vec![("labeel", Some("x"))], "\"labeel\" is not one"),
        ] {
            let error = read(&pairs).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
