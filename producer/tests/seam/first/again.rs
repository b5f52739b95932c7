//! A call that is made again after an attempt that died with its placeholder open.

use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;

use super::*;

#[tokio::test]
async fn a_call_that_ends_otherwise_the_second_time_leaves_no_placeholder_of_the_first() {
    for (identifier, permission, expected) in [
        ("denied", Permission::Granted, CallEnd::DeniedBefore),
        ("withheld", Permission::Granted, CallEnd::DeniedAfter),
        ("fs", Permission::Granted, CallEnd::Published),
        ("broken", Permission::Granted, CallEnd::Failed),
        ("fs", Permission::NotAllowed, CallEnd::NotAllowed),
    ] {
        let world = World::new(Mode::Local);
        let operation = judging(&world).await;
        let (row, _) = dies_waiting(&operation, "c1").await;
        let tool = world.tool(move |_| match identifier {
            "broken" => Err("broken".into()),
            _ => Ok(result("at once")),
        });
        let again = ToolRequest {
            permission,
            ..calling(identifier, "c1", &tool)
        };
        let outcome = operation.run_tools(vec![vec![again]]).await.unwrap();
        assert_eq!(outcome.calls[0].end, expected);
        assert_eq!(outcome.calls[0].tool_message_id, row);
        assert_closed(&world, &row).await;
        // Nor is one left that was opened when the row had its result.
        open(&world.store, &row).await;
        run(&operation, "c1", &tool).await;
        assert_closed(&world, &row).await;
    }
}

#[tokio::test]
async fn a_mocked_result_of_the_second_attempt_leaves_no_placeholder_of_the_first() {
    let world = World::new(Mode::Local);
    let mock = AgentHook::handler("mock", |event: Arc<BeforeToolCall>| async move {
        event.mock(result("mocked"));
        Ok(())
    });
    let (row, _) = dies_waiting(&world.start(vec![]).await, "c1").await;
    world.runtime.hooks().register(OP, vec![mock]).unwrap();
    let again = world.runtime.resume(OP).await.unwrap();
    let outcome = run(&again, "c1", &world.saying("real")).await;
    assert_eq!((outcome.mocked, world.runs()), (true, 0));
    assert_closed(&world, &row).await;
}

#[tokio::test]
async fn a_group_that_is_denied_the_second_time_leaves_no_placeholder_of_its_members() {
    struct Calls;
    impl Tool for Calls {
        fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
            let member = |id: &str| AgentCall {
                agent_id: id.to_owned(),
                ..AgentCall::default()
            };
            let group = GroupCall {
                members: vec![member("a"), member("b")],
                mode: GroupMode::Isolated,
                on_complete: None,
                deadline_at: None,
            };
            Box::pin(run_group(run, group))
        }
    }
    async fn run_group(run: ToolRun<'_>, group: GroupCall) -> Result<ToolRunResult, PortError> {
        run.call_group(group).await?;
        std::future::pending().await
    }
    let world = World::new(Mode::Local);
    let operation = judging(&world).await;
    let tool: Arc<dyn Tool> = Arc::new(Calls);
    tokio::select! {
        outcome = run(&operation, "c1", &tool) => panic!("{outcome:?}"),
        () = until(&world, "start ", 2) => {}
    }
    let again = calling("denied", "c1", &tool);
    operation.run_tools(vec![vec![again]]).await.unwrap();
    for call in ["c1", "c1::m0", "c1::m1"] {
        assert_closed(&world, &world.rows.of_call(call).id).await;
    }
}

#[tokio::test]
async fn a_result_that_comes_while_the_second_attempt_is_reviewed_is_the_outcome() {
    for (answer, fills_row) in [
        ("gate-deny", false),
        ("gate-deny", true),
        ("gate-allow", false),
    ] {
        let (world, gate) = gated();
        let control = world.before(answer).matching("^again/");
        let operation = world.start(vec![control]).await;
        let (row, _) = dies_waiting(&operation, "c1").await;
        let again = calling("again", "c1", &world.saying("second"));
        let comes = async {
            until(&world, "http /gate", 1).await;
            let publication = complete_elsewhere(&world, &row).await;
            if fills_row {
                world.runtime.collect(OP, &row).await.unwrap().unwrap();
            }
            gate.open();
            publication
        };
        let (outcome, first) =
            futures::future::join(operation.run_tools(vec![vec![again]]), comes).await;
        let outcome = outcome.unwrap().calls.remove(0);
        let shown = world.rows.get(&row);
        assert_eq!((outcome.end, world.runs()), (CallEnd::Published, 0));
        assert_eq!(first.result.content, "first");
        assert_eq!((shown.content.as_str(), shown.is_final), ("first", true));
        assert_eq!(outcome.result.unwrap().content, "first");
        assert_eq!(world.screen.end_of("c1").result.content, "first");
    }
}

#[tokio::test]
async fn a_denied_call_that_is_made_again_is_still_denied() {
    let world = World::new(Mode::Local);
    let operation = judging(&world).await;
    for (identifier, expected) in [
        ("denied", CallEnd::DeniedBefore),
        ("withheld", CallEnd::DeniedAfter),
        ("fs", CallEnd::Published),
    ] {
        for _ in 0..2 {
            let call = calling(identifier, identifier, &world.saying("content"));
            let outcome = operation.run_tools(vec![vec![call]]).await.unwrap();
            assert_eq!(outcome.calls[0].end, expected);
        }
    }
}
