use std::sync::atomic::{AtomicUsize, Ordering};

use hookstash_shared::clock::ManualClock;

use super::*;

#[derive(Default)]
struct Counting(AtomicUsize);

impl UserLookup for Counting {
    fn email<'a>(
        &'a self,
        user_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn Error + Send + Sync>>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match user_id {
                "bad" => Err("no".into()),
                "none" => Ok(None),
                "silent" => std::future::pending().await,
                "panics" => panic!("a lookup that panics"),
                _ => Ok(Some(format!("{user_id}@mail.test"))),
            }
        })
    }
}

fn emails() -> (Emails, Arc<Counting>, Arc<ManualClock>) {
    let users = Arc::new(Counting::default());
    let clock = Arc::new(ManualClock::at(0));
    let emails = Emails::new(Some(Arc::clone(&users) as _), Arc::clone(&clock) as _);
    (emails, users, clock)
}

#[tokio::test]
async fn vector_197_a_thousand_users_are_kept_the_oldest_goes_first() {
    let (emails, users, _) = emails();
    emails.of("first").await;
    for n in 0..1_000 {
        // A hit does not make an entry younger.
        if n < 999 {
            emails.of("first").await;
        }
        emails.of(&n.to_string()).await;
    }
    assert_eq!(users.0.load(Ordering::SeqCst), 1_001);
    emails.of("first").await;
    assert_eq!(users.0.load(Ordering::SeqCst), 1_002);
}

#[tokio::test]
async fn no_address_and_a_failure_are_kept_too_for_five_minutes() {
    for user in ["none", "bad"] {
        let (emails, users, clock) = emails();
        for _ in 0..3 {
            assert_eq!(emails.of(user).await, None);
        }
        assert_eq!(users.0.load(Ordering::SeqCst), 1, "{user}");
        clock.advance(Duration::from_mins(5));
        assert_eq!(emails.of(user).await, None);
        assert_eq!(users.0.load(Ordering::SeqCst), 2, "{user}");
    }
}

#[tokio::test]
async fn a_step_of_the_wall_clock_changes_nothing() {
    let (emails, users, clock) = emails();
    emails.of("u").await;
    clock.step_wall(3_600_000);
    emails.of("u").await;
    assert_eq!(users.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_lookup_that_panics_is_a_failed_one() {
    let (emails, ..) = emails();
    assert_eq!(emails.of("panics").await, None);
}

#[tokio::test]
async fn without_a_source_nobody_has_an_address() {
    let emails = Emails::new(None, Arc::new(ManualClock::at(0)));
    assert_eq!(emails.of("u").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_without_an_answer_is_given_up_and_counts_as_failed() {
    let (emails, users, _) = emails();
    let start = tokio::time::Instant::now();
    for _ in 0..2 {
        assert_eq!(emails.of("silent").await, None);
    }
    assert_eq!(start.elapsed(), LOOKUP_TIMEOUT);
    assert_eq!(users.0.load(Ordering::SeqCst), 1);
}
