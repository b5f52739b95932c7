//! Where a publish goes: byte for byte as asked, and not where the egress policy refuses.

use hookstash_shared::http::EgressPolicy;

use crate::support::front_door::{FrontDoor, embedded_state};

#[tokio::test]
async fn s12_the_url_that_is_signed_is_the_one_that_was_published() {
    let door = FrontDoor::embedded().await;
    for url in [
        "https://h/p",
        "https://h/p?x=1&y=%20",
        "https://H/p",
        "https://h:443/p",
        "https://h/p/",
        "https://h/ü",
        "https://h//a//b",
        "https://h/%7e/%2F",
        "https://h/p?",
        "https://h/p?a=1&&b=?c",
        "https://u:p@h/p",
        "https://h/p;a=1,b",
        "https://h",
        "https://h/a/../b/./c",
    ] {
        let published = door
            .raw_target("POST", &format!("/v2/publish/{url}"), "")
            .await;
        assert_eq!(published.status, 200, "{url}: {published:?}");
        let message = door
            .call("GET", &format!("/v2/messages/{}", published.id()))
            .await;
        assert_eq!(message.json["url"], *url);
    }
}

#[tokio::test]
async fn g08_base_urls_that_are_slightly_wrong_work() {
    let door = FrontDoor::embedded().await;
    for base in [
        "",
        "/",
        "//",
        "/v2",
        "/v2/",
        "/v2//",
        "/v2/publish",
        "/v2/publish/",
    ] {
        let target = format!("{base}/v2/publish/https://h//p?q=//");
        let published = door.raw_target("POST", &target, "").await;
        assert_eq!(published.status, 200, "{target}: {published:?}");
        let message = door
            .call("GET", &format!("/v2/messages/{}", published.id()))
            .await;
        assert_eq!(message.json["url"], "https://h//p?q=//", "{target}");
    }
    let wrong = door
        .raw_target("POST", "/api/v2/publish/https://h/p", "")
        .await;
    assert_eq!(wrong.status, 404);
    assert!(
        wrong.error().contains("/api/v2/publish/"),
        "{}",
        wrong.error()
    );
}

#[tokio::test]
async fn merged_slashes_and_encoded_destinations_are_understood() {
    let door = FrontDoor::embedded().await;
    for (target, url) in [
        ("https:/h/p", "https://h/p"),
        ("https%3A%2F%2Fh%2Fp%3Fa%3D1", "https://h/p?a=1"),
    ] {
        let published = door
            .raw_target("POST", &format!("/v2/publish/{target}"), "")
            .await;
        let message = door
            .call("GET", &format!("/v2/messages/{}", published.id()))
            .await;
        assert_eq!(message.json["url"], url);
    }
}

#[tokio::test]
async fn destinations_that_are_no_urls_get_the_exact_text() {
    let door = FrontDoor::embedded().await;
    for destination in ["my-url-group", "example.com/p", "ftp://h/p"] {
        let refused = door.publish(destination, &[], "x").await;
        let text = "invalid destination url: endpoint has invalid scheme, add http:// or https://";
        assert_eq!(
            (refused.status, refused.error()),
            (400, text),
            "{destination}"
        );
    }
    for service in ["api/llm", "api/email"] {
        let refused = door.publish(service, &[], "x").await;
        let text = format!("{service} is a service of the cloud");
        assert_eq!(refused.status, 400);
        assert!(refused.error().contains(&text), "{refused:?}");
    }
    let refused = door.publish("https://", &[], "x").await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.error().starts_with("invalid destination url: "),
        "{refused:?}"
    );
    let long = format!("https://h/{}", "x".repeat(9_000));
    let refused = door.publish(&long, &[], "x").await;
    assert_eq!(refused.status, 400);
    assert!(refused.error().contains("longer than"), "{refused:?}");
}

#[tokio::test]
async fn x01_private_addresses_are_refused_at_publish() {
    let door = FrontDoor::embedded().await;
    for host in [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "[::1]",
        "[fe80::1]",
        "[fd00::1]",
        "localhost",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "192.0.2.1",
        "240.0.0.1",
    ] {
        let target = format!("/v2/publish/http://{host}/hook");
        let refused = door.raw_target("POST", &target, "").await;
        assert_eq!(refused.status, 400, "{host}: {refused:?}");
        let start = "invalid destination url: endpoint resolves to a ";
        assert!(
            refused.error().starts_with(start),
            "{host}: {}",
            refused.error()
        );
    }
    let loopback = door.publish("http://localhost:3000/", &[], "x").await;
    let text = "invalid destination url: endpoint resolves to a loopback address: ::1";
    assert_eq!(loopback.error(), text);
}

#[tokio::test]
async fn x04_other_spellings_of_addresses_are_refused_at_publish() {
    let door = FrontDoor::embedded().await;
    for host in [
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "017700000001",
        "2852039166",
        "0",
        "127.0.0.1.",
        "localhost.",
        "①②⑦.0.0.1",
        "127。0。0。1",
        "LOCALHOST",
        "a.localhost",
        "%31%32%37.0.0.1",
    ] {
        let target = format!("/v2/publish/http://{host}/hook");
        let refused = door.raw_target("POST", &target, "").await;
        assert_eq!(refused.status, 400, "{host}: {refused:?}");
        assert!(
            refused.error().contains("endpoint resolves to a "),
            "{}",
            refused.error()
        );
    }
}

#[tokio::test]
async fn x01_what_the_operator_opens_is_accepted() {
    let mut state = embedded_state();
    state.egress = EgressPolicy::parse("10.1.0.0/16").unwrap();
    let door = FrontDoor::open(state).await;
    assert_eq!(
        door.publish("http://10.1.2.3/hook", &[], "x").await.status,
        200
    );
    assert_eq!(
        door.publish("http://10.2.2.3/hook", &[], "x").await.status,
        400
    );
    let mut state = embedded_state();
    state.egress = EgressPolicy::default().in_development();
    let door = FrontDoor::open(state).await;
    assert_eq!(
        door.publish("http://localhost:3000/", &[], "x")
            .await
            .status,
        200
    );
    assert_eq!(
        door.publish("http://169.254.169.254/", &[], "x")
            .await
            .status,
        400
    );
}
