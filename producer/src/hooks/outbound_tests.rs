use std::collections::{BTreeMap, HashMap};

use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, Resolver};
use serde_json::json;

use super::*;
use crate::hooks::hook::AgentHook;

#[tokio::test]
async fn vector_081_a_control_is_never_sent_as_a_notification_nor_the_other_way_round() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let environment: Arc<dyn Environment> = Arc::new(BTreeMap::<String, String>::new());
    let nobody = Resolver::with_name_servers(&[([127, 0, 0, 1], 9).into()]).unwrap();
    let policy = EgressPolicy::default().in_development();
    let client =
        HttpClient::with_resolver(policy, Arc::clone(&environment), CONNECT_TIMEOUT, &nobody);
    let outbound = Outbound {
        http: client.unwrap(),
        environment,
    };
    for (handling, purpose) in [("toolCall", Purpose::Notify), ("ignore", Purpose::Control)] {
        let json = json!({
            "id": "h", "type": "beforeToolCall",
            "webhook": {"url": url, "responseHandling": handling},
        });
        let hook = AgentHook::from_json(json).unwrap();
        let hook = Hook::checked(hook, &mut HashMap::new()).unwrap();
        let webhook = hook.webhook.as_ref().unwrap();
        let failed = outbound.call(&hook, webhook, Bytes::new(), purpose).await;
        assert_eq!(failed.err(), Some(DeliveryError::configuration()));
    }
    let nobody_came = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept());
    assert!(nobody_came.await.is_err());
}
