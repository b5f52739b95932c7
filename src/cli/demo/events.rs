//! The events of the demo: what webhooks really look like.

use bytes::Bytes;
use hookstash_shared::random::Random;

/// Bytes of the large body.
const LARGE_BYTES: usize = 1024 * 1024;

/// One event, and how its receiver behaves.
pub(super) struct Event {
    pub(super) name: &'static str,
    /// What is special about it.
    pub(super) about: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
    pub(super) retries: u32,
    pub(super) behaviour: Behaviour,
}

/// How the receiver answers an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// 200 at once.
    Healthy,
    /// First these statuses, then 200.
    Recovering(&'static [u16]),
    /// 500 until it is repaired.
    Broken,
}

impl Event {
    /// Attempts until the message is delivered or dead.
    pub(super) fn attempts(&self) -> usize {
        match self.behaviour {
            Behaviour::Healthy => 1,
            Behaviour::Recovering(failures) => failures.len() + 1,
            Behaviour::Broken => self.retries as usize + 1,
        }
    }
}

/// All events in the order they are published.
pub(super) fn events(random: &dyn Random) -> Vec<Event> {
    let json = |name, about, body: &'static str| Event {
        name,
        about,
        content_type: "application/json",
        body: Bytes::from_static(body.as_bytes()),
        retries: 3,
        behaviour: Behaviour::Healthy,
    };
    vec![
        json(
            "order.created",
            "nested JSON, 18-digit ids, money as text",
            ORDER,
        ),
        json(
            "message.posted",
            "漢字, emoji, accents, right-to-left text",
            MESSAGE,
        ),
        Event {
            content_type: "text/plain",
            ..json("monitor.heartbeat", "an empty body", "")
        },
        Event {
            content_type: "application/octet-stream",
            body: large(random),
            ..json("export.ready", "1 MiB of binary", "")
        },
        Event {
            behaviour: Behaviour::Recovering(&[503, 500]),
            ..json(
                "invoice.paid",
                "its receiver fails twice, then recovers",
                INVOICE,
            )
        },
        Event {
            retries: 2,
            behaviour: Behaviour::Broken,
            ..json(
                "agent.completed",
                "its receiver is broken until someone repairs it",
                AGENT,
            )
        },
    ]
}

fn large(random: &dyn Random) -> Bytes {
    let words = std::iter::repeat_with(|| random.next_u64().to_le_bytes());
    words
        .take(LARGE_BYTES / size_of::<u64>())
        .flatten()
        .collect()
}

const ORDER: &str = r#"{
  "id": 820982911946154508,
  "admin_graphql_api_id": "gid://shop/Order/820982911946154508",
  "created_at": "2026-03-14T09:26:53-04:00",
  "currency": "EUR",
  "total_price": "409.90",
  "customer": {
    "id": 115310627314723954,
    "name": "Zoë Müller-Ångström",
    "note": null,
    "addresses": [{ "city": "København", "zip": "01067", "default": true }]
  },
  "line_items": [
    { "id": 866550311766439020, "title": "Tasse „Grün“", "price": "199.00", "quantity": 1, "tax": [] },
    { "id": 141249953214522974, "title": "Teekanne 2\u202fl", "price": "210.90", "quantity": 1, "tax": [] }
  ],
  "links": { "self": "https://shop.example/orders/{id}{?expand}" }
}
"#;

const MESSAGE: &str = r#"{"channel":"general","author":{"id":1152921506151679042,"name":"渡辺 さくら"},"text":"発送しました 🚀👩‍👩‍👧 — déjà vu, שלום, مرحبا","at":1773480413.004200}"#;

const INVOICE: &str = r#"{"type":"invoice.paid","data":{"object":{"id":"in_1P7","amount_paid":129900,"currency":"usd","lines":{"data":[{"description":"Seats × 12","amount":129900}],"has_more":false}}},"created":1773480413}"#;

const AGENT: &str = r#"{"event":"agent.completed","operation":{"id":"op_01J9","steps":7,"tools":["search","code"],"result":{"ok":true,"summary":"Done ✓"}}}"#;
