//! Reading and cancelling one message.

use std::time::Duration;

use hookstash_shared::store::Outcome;
use serde_json::json;

use crate::support::front_door::FrontDoor;

#[tokio::test]
async fn a_cancelled_message_is_not_found_any_more() {
    let door = FrontDoor::embedded().await;
    let id = door
        .publish("https://h/", &[("Upstash-Delay", "1h")], "x")
        .await
        .id();
    let path = format!("/v2/messages/{id}");
    let cancelled = door.call("DELETE", &path).await;
    assert_eq!(
        (cancelled.status, cancelled.json),
        (200, json!({ "cancelled": 1 }))
    );
    for method in ["GET", "DELETE"] {
        let gone = door.call(method, &path).await;
        assert_eq!(
            (gone.status, gone.error()),
            (404, format!("message {id} not found").as_str())
        );
    }
    for other in [
        "msg_26hZCxZCuWyyTWPmSVBrNB882DvEPDxmC6wg8Srt9QCMhwkVf6HrAG8",
        "x",
        "%FF",
    ] {
        let gone = door.call("GET", &format!("/v2/messages/{other}")).await;
        let text = format!("message {other} not found");
        assert_eq!((gone.status, gone.error()), (404, text.as_str()));
    }
}

#[tokio::test]
async fn r16_a_message_that_waits_for_its_retry_is_never_sent_again_after_its_cancellation() {
    let door = FrontDoor::embedded().await;
    let id = door.publish("https://h/", &[], "x").await.id();
    let after = Duration::from_millis(50);
    assert_eq!(door.settle(&Outcome::Retry { after }).await, 1);
    assert_eq!(
        door.call("DELETE", &format!("/v2/messages/{id}"))
            .await
            .status,
        200
    );
    tokio::time::sleep(after * 3).await;
    assert_eq!(door.settle(&Outcome::Delivered).await, 0);
}

#[tokio::test]
async fn r16_a_message_in_flight_is_cancelled_by_request() {
    let door = FrontDoor::embedded().await;
    let id = door.publish("https://h/", &[], "x").await.id();
    let leased = door
        .lease()
        .await
        .into_iter()
        .flat_map(|leased| leased.leases)
        .count();
    assert_eq!(leased, 1);
    for _ in 0..2 {
        let cancelled = door.call("DELETE", &format!("/v2/messages/{id}")).await;
        assert_eq!(
            (cancelled.status, cancelled.json),
            (200, json!({ "cancelled": 1 }))
        );
    }
    let stored = door.state.store.message(&id).await.unwrap().unwrap();
    assert!(stored.record.is_cancel_requested);
}

#[tokio::test]
async fn a_delivered_message_stays_readable_and_cannot_be_cancelled() {
    let door = FrontDoor::embedded().await;
    let id = door
        .publish("https://h/", &[("Upstash-Label", "l")], "x")
        .await
        .id();
    assert_eq!(door.settle(&Outcome::Delivered).await, 1);
    let path = format!("/v2/messages/{id}");
    let message = door.call("GET", &path).await;
    assert_eq!((message.status, &message.json["label"]), (200, &json!("l")));
    assert_eq!(door.call("DELETE", &path).await.status, 404);
}

#[tokio::test]
async fn redacted_parts_are_shown_as_hashes() {
    let door = FrontDoor::embedded().await;
    let headers = [
        ("Upstash-Redact-Fields", "body,header[X-Secret]"),
        ("Upstash-Forward-X-Secret", "abc"),
        ("Upstash-Forward-X-Open", "abc"),
    ];
    let id = door.publish("https://h/", &headers, "abc").await.id();
    let message = door.call("GET", &format!("/v2/messages/{id}")).await.json;
    let hash = "REDACTED:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(message["body"], hash);
    assert_eq!(
        message["header"],
        json!({ "X-Secret": [hash], "X-Open": ["abc"] })
    );
}
