//! All operations of the front door with their descriptions, resource by resource.

use http::Method;

use super::openapi::{OF_SCHEDULES, Routes, doc};
use super::{
    batch, cancel_many, completions, dlq, dlq_bulk, events, flow_control, keys, messages, publish,
    queues, schedules, url_groups,
};

const MESSAGE_FILTERS: &[&str] = &[
    "messageIds",
    "topicName",
    "queueName",
    "url",
    "host",
    "path",
    "label",
    "flowControlKey",
    "scheduleId",
    "callerIp",
    "fromDate",
    "toDate",
    "count",
    "cursor",
];
const DEAD_LETTER_FILTERS: &[&str] = &[
    "dlqIds",
    "messageIds",
    "url",
    "label",
    "queueName",
    "flowControlKey",
    "topicName",
    "scheduleId",
    "callerIp",
    "responseStatus",
    "fromDate",
    "toDate",
    "count",
    "cursor",
    "order",
];
const EVENT_FILTERS: &[&str] = &[
    "messageId",
    "messageIds",
    "state",
    "url",
    "host",
    "path",
    "label",
    "queueName",
    "flowControlKey",
    "topicName",
    "scheduleId",
    "callerIp",
    "fromDate",
    "toDate",
    "count",
    "cursor",
    "order",
];
/// Done, with nothing to tell.
const DONE: &[(u16, &str)] = &[(200, "")];
const PUBLISHED: &[(u16, &str)] = &[(200, "PublishedOrMany"), (202, "PublishedOrMany")];

/// All of them.
pub(super) fn protocol() -> Routes {
    let resources = [
        publishing,
        of_messages,
        of_events,
        of_dead_letters,
        of_queues,
        of_url_groups,
        of_flow_control,
        of_schedules,
        of_keys,
        of_runtimes,
    ];
    resources
        .into_iter()
        .fold(Routes::new(), |routes, add| add(routes))
}

fn publishing(routes: Routes) -> Routes {
    let publish = doc("Publish a message to a URL, or to a URL group", PUBLISHED);
    let enqueue = doc("Put a message into a queue", PUBLISHED);
    let batch = doc(
        "Publish many messages, each by itself",
        &[(200, "BatchAnswer")],
    );
    routes
        // Without a destination: its text says what is missing.
        .alias(&Method::POST, "/v2/publish/", publish::publish)
        .on(
            &Method::POST,
            "/v2/publish/{*destination}",
            publish::publish,
            publish.options().body(""),
        )
        .alias(&Method::POST, "/v2/enqueue/{queue}", publish::enqueue)
        .alias(&Method::POST, "/v2/enqueue/{queue}/", publish::enqueue)
        .on(
            &Method::POST,
            "/v2/enqueue/{queue}/{*destination}",
            publish::enqueue,
            enqueue.options().body(""),
        )
        .on(
            &Method::POST,
            "/v2/batch",
            batch::batch,
            batch.body("Batch"),
        )
}

fn of_queues(routes: Routes) -> Routes {
    let list = doc("List queues, the newest first", &[(200, "Queues")]);
    let show = doc("Show a queue", &[(200, "Queue")]);
    let upsert = doc("Create a queue, or change it", DONE).body("QueueChange");
    let delete = doc("Delete a queue and cancel what waits in it", DONE);
    let pause = doc("Let a queue wait", DONE);
    let resume = doc("Let it go on", DONE);
    let (one, all) = ("/v2/queues/{name}", "/v2/queues");
    routes
        .on(&Method::GET, all, queues::list, list)
        .on(&Method::POST, all, queues::upsert, upsert)
        .on(&Method::GET, one, queues::get, show)
        .on(&Method::DELETE, one, queues::delete, delete)
        .on(
            &Method::POST,
            "/v2/queues/{name}/pause",
            queues::pause,
            pause,
        )
        .on(
            &Method::POST,
            "/v2/queues/{name}/resume",
            queues::resume,
            resume,
        )
}

fn of_url_groups(routes: Routes) -> Routes {
    let list = doc("List URL groups, the newest first", &[(200, "UrlGroups")]);
    let show = doc("Show a URL group", &[(200, "UrlGroup")]);
    let headers = doc("Replace its default headers", DONE).body("GroupHeaders");
    let delete = doc("Delete a URL group; its messages stay", DONE);
    let add = doc("Add or change endpoints; makes the group", DONE).body("EndpointsChange");
    let remove = doc("Remove endpoints; the last takes the group along", DONE);
    let (one, of_one) = ("/v2/topics/{name}", "/v2/topics/{name}/endpoints");
    routes
        .on(&Method::GET, "/v2/topics", url_groups::list, list)
        .on(&Method::GET, one, url_groups::get, show)
        .on(&Method::PATCH, one, url_groups::set_headers, headers)
        .on(&Method::DELETE, one, url_groups::delete, delete)
        .on(&Method::POST, of_one, url_groups::upsert, add)
        .on(
            &Method::DELETE,
            of_one,
            url_groups::remove,
            remove.body("EndpointsChange"),
        )
}

fn of_messages(routes: Routes) -> Routes {
    let show = doc(
        "Show a message while it lives and a little longer",
        &[(200, "Message")],
    );
    let cancel = doc("Cancel a message", &[(200, "Cancelled")]);
    let cancel_many = doc(
        "Cancel messages by ids or filters, or all",
        &[(200, "Cancelled")],
    )
    .takes(MESSAGE_FILTERS)
    .body("Selection");
    routes
        .on(&Method::GET, "/v2/messages/{id}", messages::get, show)
        .on(
            &Method::DELETE,
            "/v2/messages/{id}",
            messages::cancel,
            cancel,
        )
        .on(
            &Method::DELETE,
            "/v2/messages",
            cancel_many::cancel_many,
            cancel_many,
        )
}

fn of_events(routes: Routes) -> Routes {
    let events = doc("List what happened to messages", &[(200, "Events")]);
    let logs = doc("List the same as `logs`", &[(200, "Logs")]);
    routes
        .on(
            &Method::GET,
            "/v2/events",
            events::events,
            events.takes(EVENT_FILTERS),
        )
        .on(
            &Method::GET,
            "/v2/logs",
            events::logs,
            logs.takes(EVENT_FILTERS),
        )
}

fn of_dead_letters(routes: Routes) -> Routes {
    let list = doc("List dead letters", &[(200, "DeadLetters")]).takes(DEAD_LETTER_FILTERS);
    let show = doc(
        "Show a dead letter with its last response",
        &[(200, "DeadLetter")],
    );
    let delete = doc("Delete a dead letter", &[(200, "Deleted")]);
    let redrive = doc(
        "Send a dead letter again, as a new message",
        &[(201, "Redriven")],
    );
    let delete_many = doc("Delete a page of dead letters", &[(200, "Deleted")])
        .takes(DEAD_LETTER_FILTERS)
        .body("Selection");
    let redrive_many = doc(
        "Send a page of dead letters again",
        &[(201, "RedrivenMany")],
    )
    .takes(DEAD_LETTER_FILTERS)
    .body("Selection");
    routes
        .on(&Method::GET, "/v2/dlq", dlq::list, list)
        .on(&Method::DELETE, "/v2/dlq", dlq_bulk::delete, delete_many)
        .on(&Method::GET, "/v2/dlq/{id}", dlq::get, show)
        .on(&Method::DELETE, "/v2/dlq/{id}", dlq::delete, delete)
        .on(
            &Method::POST,
            "/v2/dlq/retry",
            dlq_bulk::redrive,
            redrive_many,
        )
        .on(&Method::POST, "/v2/dlq/retry/{id}", dlq::redrive, redrive)
}

fn of_flow_control(routes: Routes) -> Routes {
    let list = doc("List flow-control keys", &[(200, "FlowControls")]).takes(&["search", "cursor"]);
    let show = doc("Show a flow-control key", &[(200, "FlowControl")]);
    let pin =
        doc("Set limits that messages leave alone", DONE).takes(&["parallelism", "rate", "period"]);
    let unpin = doc("Let messages set these limits again", DONE).takes(&["parallelism", "rate"]);
    let parallelism = doc(
        "Show how many calls there can be and are",
        &[(200, "GlobalParallelism")],
    );
    // A key may hold slashes, so what is done with it is found at the end of the path.
    let key = "/v2/flowControl/{*key}";
    let act = |action: &str| format!("/v2/flowControl/{{key}}/{action}");
    routes
        .on(&Method::GET, "/v2/flowControl", flow_control::list, list)
        .on(&Method::GET, key, flow_control::one, show)
        .alias(&Method::POST, key, flow_control::act)
        .describing(
            &Method::POST,
            &act("pause"),
            doc("Let its messages wait", DONE),
        )
        .describing(&Method::POST, &act("resume"), doc("Let them go on", DONE))
        .describing(
            &Method::POST,
            &act("resetRate"),
            doc("Begin its period anew", DONE),
        )
        .describing(&Method::POST, &act("pin"), pin)
        .describing(&Method::POST, &act("unpin"), unpin)
        .on(
            &Method::GET,
            "/v2/globalParallelism",
            flow_control::global_parallelism,
            parallelism,
        )
}

fn of_schedules(routes: Routes) -> Routes {
    const CREATED: &[(u16, &str)] = &[(200, "ScheduleId"), (202, "ScheduleId")];
    let list = doc("List schedules, the oldest first", &[(200, "Schedules")]);
    let show = doc("Show a schedule", &[(200, "Schedule")]);
    let pause = doc("Let a schedule fire nothing", DONE);
    let resume = doc("Let it fire again, from now on", DONE);
    let create = doc("Create a schedule, or replace the one of its id", CREATED)
        .takes(OF_SCHEDULES)
        .options()
        .body("");
    // A destination has slashes, so what stands behind the resource is one whole.
    schedules::RESOURCES
        .iter()
        .fold(routes, |routes, root| {
            let rest = &format!("{root}/{{*rest}}");
            routes
                .alias(&Method::GET, root, schedules::list)
                .alias(&Method::GET, rest, schedules::get_one)
                .alias(&Method::DELETE, rest, schedules::remove)
                .alias(&Method::PATCH, rest, schedules::act)
                .alias(&Method::POST, rest, schedules::post_any)
                // Without a destination: its text says what is missing.
                .alias(&Method::POST, &format!("{root}/"), schedules::post_any)
        })
        .describing(&Method::GET, "/v2/schedules", list)
        .describing(&Method::GET, "/v2/schedules/{id}", show)
        .describing(
            &Method::DELETE,
            "/v2/schedules/{id}",
            doc("Delete a schedule; its messages stay", DONE),
        )
        .describing(&Method::PATCH, "/v2/schedules/{id}/pause", pause)
        .describing(&Method::POST, "/v2/schedules/{id}/pause", pause)
        .describing(&Method::PATCH, "/v2/schedules/{id}/resume", resume)
        .describing(&Method::POST, "/v2/schedules/{id}/resume", resume)
        .describing(&Method::POST, "/v2/schedules/{*destination}", create)
}

fn of_keys(routes: Routes) -> Routes {
    let show = doc("Show the signing keys", &[(200, "Keys")]);
    let rotate = doc(
        "Sign with the next key, and draw another one",
        &[(200, "Keys")],
    );
    routes
        .on(&Method::GET, "/v2/keys", keys::get, show)
        .on(&Method::POST, "/v2/keys/rotate", keys::rotate, rotate)
        .alias(&Method::POST, "/v2/rotate", keys::rotate)
}

fn of_runtimes(routes: Routes) -> Routes {
    let complete = doc(
        "Complete a deferred tool result; the first one stands",
        &[(200, "Completion")],
    );
    routes.on(
        &Method::POST,
        "/v1/completions/{operation}/{tool_message}",
        completions::complete,
        complete.body("ToolResult"),
    )
}
