//! What becomes of the keys when the store is not what it was.

use hookstash_shared::message::Shards;
use hookstash_shared::store::Retention;
use hookstash_shared::store::embedded::{EmbeddedHost, Keyspace};
use secrecy::{ExposeSecret as _, SecretBox};

use super::*;

struct Scene {
    host: Arc<EmbeddedHost>,
    store: Store,
}

impl Scene {
    fn new() -> Self {
        let host = Arc::new(EmbeddedHost::new(Arc::new(SystemClock::new())).unwrap());
        let lease = Duration::from_secs(15);
        let (shards, retention) = (Shards::ONE, Retention::default());
        let store = Store::new(Arc::clone(&host) as _, "hs", shards, lease, retention);
        Self { host, store }
    }

    fn empty(&self) {
        self.host.restore(Keyspace::default());
    }

    async fn stored(&self) -> Option<Bytes> {
        self.store.key_ring().await.unwrap()
    }
}

/// The keys of one process.
fn process(given: Option<SigningKeys>, secret: u8) -> KeyRing {
    let seal = KeySeal::new(&SecretBox::new(Box::new([secret; 32])), "hs:meta keys");
    KeyRing::with(given, None, Some(seal.unwrap()))
}

fn current(ring: &KeyRing) -> String {
    let keys = ring.keys().expect("keys");
    keys.current().expose_secret().to_owned()
}

#[tokio::test]
async fn a_rotation_outlives_a_store_that_goes_back_in_time() {
    let scene = Scene::new();
    let [one, two] = [(); 2].map(|()| process(None, 7));
    one.load(&scene.store).await.unwrap();
    two.load(&scene.store).await.unwrap();
    let before = scene.host.snapshot();
    one.rotate(&scene.store).await.unwrap();
    let (rotated, record) = (current(&one), scene.stored().await);
    assert_ne!(rotated, current(&two));
    // A failover to a replica that lagged behind, or an older backup.
    scene.host.restore(before.clone());
    two.look(&scene.store).await.unwrap();
    one.look(&scene.store).await.unwrap();
    two.look(&scene.store).await.unwrap();
    assert_eq!((current(&one), current(&two)), (rotated.clone(), rotated));
    assert_eq!(scene.stored().await, record);
    // Rotated again before anybody has looked: the first rotation is not undone.
    scene.host.restore(before);
    let next = one.keys().unwrap().next().expose_secret().to_owned();
    one.rotate(&scene.store).await.unwrap();
    assert_eq!(current(&one), next);
}

#[tokio::test]
async fn a_ring_made_in_an_emptied_store_gives_way_to_the_one_that_receivers_know() {
    let scene = Scene::new();
    let [known, new] = [(); 2].map(|()| process(None, 7));
    known.load(&scene.store).await.unwrap();
    let keys = current(&known);
    tokio::time::sleep(Duration::from_millis(5)).await;
    scene.empty();
    new.load(&scene.store).await.unwrap();
    assert_ne!(current(&new), keys);
    known.look(&scene.store).await.unwrap();
    new.look(&scene.store).await.unwrap();
    assert_eq!((current(&known), current(&new)), (keys.clone(), keys));
}

#[tokio::test]
async fn keys_of_the_environment_are_not_stored_after_a_ring_that_did_not_open() {
    let scene = Scene::new();
    let given = SigningKeys::generate(&SystemRandom);
    let ring = process(Some(given), 7);
    ring.load(&scene.store).await.unwrap();
    process(None, 8).load(&scene.store).await.unwrap();
    let keys = current(&ring);
    ring.look(&scene.store).await.unwrap();
    scene.empty();
    ring.look(&scene.store).await.unwrap();
    assert_eq!(scene.stored().await, None);
    assert_eq!(current(&ring), keys);
    assert!(matches!(
        ring.rotate(&scene.store).await,
        Err(RotateError::Given)
    ));
}
