//! Signatures checked by code that is not ours: Python's standard library, `jsonwebtoken` and
//! `standardwebhooks`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::{Receiver, Signer, SigningKeys, WebhookSecret, jwt};
use crate::clock::{Clock, SystemClock};
use crate::random::SeededRandom;

const GENERATED_CASES: usize = 500;

/// One delivery to sign.
#[derive(Debug, Clone)]
struct Delivery {
    keys: SigningKeys,
    secret: Vec<u8>,
    destination: String,
    body: Vec<u8>,
    now_s: u64,
}

impl Delivery {
    fn webhook_secret(&self) -> WebhookSecret {
        WebhookSecret::parse(&format!("whsec_{}", STANDARD.encode(&self.secret))).unwrap()
    }

    fn headers(&self) -> Vec<(&'static str, String)> {
        let signer = Signer::new(&self.keys, Some(&self.webhook_secret()));
        signer.sign(
            &self.destination,
            "msg_1",
            &self.body,
            self.now_s,
            &SeededRandom::new(3),
        )
    }

    fn as_case(&self) -> Value {
        json!({
            "key": self.keys.current().expose_secret(),
            "secret": hex(&self.secret),
            "destination": hex(self.destination.as_bytes()),
            "body": hex(&self.body),
            "now_s": self.now_s,
            "headers": self.headers().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        })
    }

    fn header(&self, name: &str) -> String {
        let (_, value) = self
            .headers()
            .into_iter()
            .find(|(header, _)| *header == name)
            .unwrap();
        value
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "[<>&'\"\\\\/\u{0}-\u{1f}\u{2028}é😀]{0,12}".prop_map(Value::from),
    ];
    let json = leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".{0,6}", inner), 0..6)
                .prop_map(|members| { Value::Object(members.into_iter().collect()) }),
        ]
    });
    (json, any::<bool>()).prop_map(|(json, pretty)| {
        if pretty {
            format!("{json:#}\n")
        } else {
            json.to_string()
        }
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => json_text().prop_map(String::into_bytes),
        2 => "[0-9]{1,400}".prop_map(String::into_bytes),
        2 => r#"\{"m":"(\\u00e9|\\ud83d\\ude00|é|😀|\\n)*"\}(\r?\n)?"#.prop_map(String::into_bytes),
        2 => prop::collection::vec(any::<u8>(), 0..300),
        1 => Just(Vec::new()),
    ]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    (
        any::<u64>(),
        prop::collection::vec(any::<u8>(), 24..=64),
        "https?://[a-zA-Z0-9.]{1,20}(:[0-9]{1,5})?(/.{0,20})?",
        body(),
        0_u64..1 << 40,
    )
        .prop_map(|(seed, secret, destination, body, now_s)| Delivery {
            keys: SigningKeys::generate(&SeededRandom::new(seed)),
            secret,
            destination,
            body,
            now_s,
        })
}

fn example(body: &[u8]) -> Delivery {
    Delivery {
        keys: SigningKeys::development(),
        secret: (0..24).collect(),
        destination: "https://h/p?x=1&y=%20#ü".into(),
        body: body.to_vec(),
        now_s: SystemClock::new().now_s(),
    }
}

/// The verdict of Python on each case, in order.
fn verify_with_python(cases: &[Value]) -> Vec<String> {
    let mut python = Command::new("python3")
        .args(["-I", "-c", include_str!("independent_verifier.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed to verify signatures independently");
    let mut stdin = python.stdin.take().unwrap();
    let lines = cases
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn s03_python_verifies_every_generated_delivery_and_no_changed_one() {
    let mut runner = TestRunner::deterministic();
    let mut deliveries: Vec<Delivery> = (0..GENERATED_CASES)
        .map(|_| delivery().new_tree(&mut runner).unwrap().current())
        .collect();
    deliveries.extend(
        [
            "".as_bytes(),
            "{\"m\":\"café 😀\"}".as_bytes(),
            br#"{"m":"caf\u00e9 \ud83d\ude00"}"#,
            b"{\"n\":123456789012345678901234567890.10}",
            b"\xff\xfe\x00 not UTF-8",
            b"no final newline",
            b"final newline\r\n",
        ]
        .map(example),
    );
    let cases: Vec<Value> = deliveries.iter().map(Delivery::as_case).collect();
    let verdicts = verify_with_python(&cases);
    assert_eq!(verdicts.len(), deliveries.len());
    for (verdict, delivery) in verdicts.iter().zip(&deliveries) {
        assert_eq!(verdict, "ok", "{delivery:?}");
        let receiver = Receiver::new(Some(&delivery.keys), None, Duration::ZERO);
        let token = delivery.header(jwt::HEADER_SIGNATURE);
        let url = Some(&*delivery.destination);
        assert!(
            receiver
                .verify_qstash(&token, &delivery.body, url, delivery.now_s)
                .is_ok()
        );
    }

    let good = example(b"{}").as_case();
    let changed = [
        ("key", json!("sig_0123456789abcdefghijABCDEFGH"), "jwt-tag"),
        ("body", json!(hex(b"{} ")), "jwt-body"),
        (
            "destination",
            json!(hex(b"https://h/p?x=1&y=%20#u")),
            "destination",
        ),
        ("secret", json!(hex(&[1; 24])), "webhook"),
    ];
    let cases = changed.clone().map(|(name, value, _)| {
        let mut case = good.clone();
        case.as_object_mut().unwrap().insert(name.into(), value);
        case
    });
    assert_eq!(
        verify_with_python(&cases),
        changed.map(|(_, _, expected)| expected)
    );
}

#[test]
fn s14_jsonwebtoken_accepts_the_token_and_refuses_another_key() {
    use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
    let delivery = example(b"{}");
    let token = delivery.header(jwt::HEADER_SIGNATURE);
    let mut validation = Validation::new(Algorithm::HS256);
    validation.leeway = 0;
    validation.validate_nbf = true;
    validation.set_issuer(&["Upstash"]);
    validation.sub = Some(delivery.destination.clone());
    validation.set_required_spec_claims(&["exp", "nbf", "iss", "sub"]);
    let verify = |key: &str| {
        let key = DecodingKey::from_secret(key.as_bytes()).unwrap();
        decode::<Value>(&token, &key, &validation)
    };
    let verified = verify(delivery.keys.current().expose_secret()).unwrap();
    assert_eq!(verified.header.typ.as_deref(), Some("JWT"));
    let body = "RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o=";
    assert_eq!(verified.claims.get("body").unwrap(), body);
    assert!(verify(delivery.keys.next().expose_secret()).is_err());
}

#[test]
fn standardwebhooks_accepts_the_headers_and_refuses_another_body() {
    let delivery = example("{\"m\":\"café 😀\"}".as_bytes());
    let headers: HeaderMap = delivery
        .headers()
        .into_iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
        .collect();
    let secret = format!("whsec_{}", STANDARD.encode(&delivery.secret));
    let verifier = standardwebhooks::Webhook::new(&secret).unwrap();
    verifier.verify(&delivery.body, &headers).unwrap();
    assert!(verifier.verify(b"{}", &headers).is_err());
}
