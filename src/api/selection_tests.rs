use super::*;

fn read(list: List, query: &str) -> Result<Selection, ApiError> {
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    Selection::read(list, pairs.map(|(key, value)| (key, Some(value))))
}

fn facts<'a>(url: &'a str, labels: &'a [String]) -> Facts<'a> {
    Facts {
        url,
        labels,
        queue: Some("q".to_owned()),
        caller_ip: Some(IpAddr::from([10, 0, 0, 1])),
        group: Some("g"),
        schedule: Some("s"),
        status: 500,
        state: "FAILED",
        ..Facts::default()
    }
}

#[test]
fn values_of_one_key_are_alternatives_and_keys_must_all_fit() {
    let labels = ["a".to_owned(), "b".to_owned()];
    let url = "https://H.example:8443/p/q?x=1,2";
    for (query, fits) in [
        ("", true),
        ("label=a", true),
        ("label=c", false),
        ("label=c,b", true),
        ("label=c&label=b", true),
        ("label=a&queueName=other", false),
        ("label=a&queueName=other,q", true),
        ("flowControlKey=q", false),
        ("callerIp=10.0.0.1", true),
        ("callerIP=10.0.0.2,10.0.0.1", true),
        ("callerIp=10.0.0.2", false),
        ("url=https://H.example:8443/p/q?x%3D1,2", true),
        ("url=https://h.example:8443/p/q?x%3D1,2", false),
        ("url=https://H.example:8443/p/q?x%3D1", false),
        ("url=https://a,https://H.example:8443/p/q?x%3D1,2", true),
        ("topicName=g", true),
        ("topicName=x,y", false),
        ("urlGroup=x,g", true),
        ("scheduleId=s", true),
        ("scheduleId=t", false),
    ] {
        for list in [List::DeadLetters, List::Events] {
            let selection = read(list, query).unwrap();
            assert_eq!(selection.filter.fits(&facts(url, &labels)), fits, "{query}");
        }
    }
    for (query, fits) in [
        ("host=h.example:8443", true),
        ("host=H.EXAMPLE:8443", true),
        ("host=h.example", false),
        ("path=/p/q", true),
        ("path=/other,/p/q", true),
        ("path=/p", false),
        ("state=FAILED", true),
        ("state=IN_PROGRESS", false),
        ("state=CANCELLED,FAILED", true),
    ] {
        let selection = read(List::Events, query).unwrap();
        assert_eq!(selection.filter.fits(&facts(url, &labels)), fits, "{query}");
    }
    let status = |query| {
        read(List::DeadLetters, query)
            .unwrap()
            .filter
            .fits(&facts(url, &labels))
    };
    assert!(status("responseStatus=404&responseStatus=500") && !status("responseStatus=0,404"));
}

#[test]
fn what_is_no_filter_or_no_value_is_refused_by_name() {
    use List::{DeadLetters, Events};
    for (list, query, named) in [
        (DeadLetters, "labeel=x", "\"labeel\""),
        (DeadLetters, "host=h", "\"host\""),
        (DeadLetters, "path=/", "\"path\""),
        (DeadLetters, "state=FAILED", "\"state\""),
        (Events, "dlqIds=x", "\"dlqIds\""),
        (Events, "responseStatus=1", "\"responseStatus\""),
        (DeadLetters, "label=", "label"),
        (DeadLetters, "url=+", "url"),
        (DeadLetters, "count=0", "count"),
        (DeadLetters, "count=-1", "count"),
        (DeadLetters, "count=+1", "count"),
        (DeadLetters, "fromDate=yesterday", "fromDate"),
        (DeadLetters, "toDate=1.5", "toDate"),
        (DeadLetters, "order=up", "order"),
        (DeadLetters, "responseStatus=bad", "responseStatus"),
        (DeadLetters, "callerIp=me", "callerIp"),
        (Events, "state=DONE", "state"),
    ] {
        let error = read(list, query).unwrap_err().to_string();
        assert!(
            error.starts_with("invalid ") && error.contains(named),
            "{query}: {error}"
        );
    }
    let none: Option<&str> = None;
    assert!(Selection::read(DeadLetters, [("label", none)]).is_err());
}

#[test]
fn ids_are_read_from_every_form_and_an_empty_list_is_none() {
    let ids = [
        "msg_00000000000000000000000000a1",
        "msg_00000000000000000000000000a2",
    ];
    let [one, two] = ids;
    for query in [
        format!("dlqIds={one}&dlqIds={two}"),
        format!("dlqIds={one},{two}"),
        format!("messageIds={one}&messageId={two}&dlqIds={one},1725323658779-0"),
    ] {
        let found = read(List::DeadLetters, &query).unwrap().ids.unwrap();
        assert_eq!(
            found.iter().map(MessageId::as_str).collect::<Vec<_>>(),
            ids,
            "{query}"
        );
    }
    let none: Option<&str> = None;
    let selection = Selection::read(List::DeadLetters, [("dlqIds", none)]).unwrap();
    assert_eq!(selection.ids, Some(vec![]));
    assert!(
        read(List::DeadLetters, "count=5&cursor=&order=earliestFirst")
            .unwrap()
            .is_unfiltered()
    );
}
