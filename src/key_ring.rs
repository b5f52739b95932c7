//! The signing keys of this process: from its environment, or from the ring that is stored for all
//! processes of the installation, encrypted with `HOOKSTASH_SECRET_KEY`.
//!
//! Keys of the environment are used as they are and never stored. A stored ring wins over them. A
//! ring is made when a secret key is set and no signing keys are; every process reads it again every
//! few seconds, so that a rotation reaches all of them. A Redis that has lost its data, or a rotation
//! (a failover, an older backup), gets the ring back from the processes that know it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::{Clock as _, SystemClock};
use hookstash_shared::config::{Settings, names};
use hookstash_shared::random::{Random, SystemRandom};
use hookstash_shared::signing::keys::{SETTING_CURRENT, SETTING_NEXT};
use hookstash_shared::signing::{
    KeySeal, SealError, Signer, SigningKeys, StoredKeys, WebhookSecret,
};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{RingChange, Store};
use tokio::sync::watch;

/// Time between two looks at the stored ring: a rotation is known everywhere within five seconds.
const LOOK_PAUSE: Duration = Duration::from_secs(3);
/// How often a replacement is tried when others came first, or when its answer did not come.
const TRIES: u32 = 8;
/// Pause before a replacement whose answer did not come is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The keys of this process. All clones are one.
#[derive(Clone)]
pub struct KeyRing(Arc<Ring>);

struct Ring {
    keys: watch::Sender<Option<SigningKeys>>,
    signer: watch::Sender<Option<Signer>>,
    webhook: Option<WebhookSecret>,
    /// `None` = no stored ring can be used.
    seal: Option<KeySeal>,
    /// Whether the environment gave keys.
    is_given: bool,
    /// The stored ring that is in use; `None` while there is none.
    used: Mutex<Option<Used>>,
    /// The last record that did not open.
    unopened: Mutex<Option<Bytes>>,
    random: Arc<dyn Random>,
}

/// A ring and its record.
#[derive(Clone)]
struct Used {
    record: Bytes,
    stored: StoredKeys,
}

/// Why a process has no keys to start with.
#[derive(Debug, thiserror::Error)]
pub enum KeyRingError {
    /// The store does not answer.
    #[error("read the stored signing keys")]
    Store(#[from] HostError),
    /// A ring is stored, and its secret key is not known here.
    #[error(
        "signing keys are stored, and {} is not set: set it to the value that other processes have",
        names::SECRET_KEY.name()
    )]
    NoSecretKey,
    /// A ring is stored, and does not open.
    #[error(
        "the stored signing keys do not open with {}: set it to the value that they were stored \
         with",
        names::SECRET_KEY.name()
    )]
    Unopenable,
    /// The cipher refused.
    #[error(transparent)]
    Seal(SealError),
}

/// Why the keys were not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// Keys of the environment are not ours to change.
    #[error(
        "the signing keys are set by {SETTING_CURRENT} and {SETTING_NEXT}: change these to rotate"
    )]
    Given,
    /// Without a secret key nothing can be stored.
    #[error(
        "signing keys can be rotated only when they are stored: set {} to 32 random bytes in base64",
        names::SECRET_KEY.name()
    )]
    NoSecretKey,
    /// What is stored cannot be read.
    #[error("the stored signing keys do not open with {}", names::SECRET_KEY.name())]
    Unopenable,
    /// Others rotated all the time.
    #[error("other rotations came first")]
    Busy,
    /// The store failed it; it is unknown whether it was done when no answer came.
    #[error(transparent)]
    Store(#[from] HostError),
}

impl KeyRing {
    /// What the settings say, before the store has been asked.
    pub fn new(settings: &Settings) -> Result<Self, SealError> {
        let place = format!("{}:meta keys", settings.key_prefix);
        let secret = settings.secret_key.as_ref();
        let seal = secret.map(|secret| KeySeal::new(secret, &place));
        let ring = Self::with(
            settings.signing_keys.clone(),
            settings.webhook_secret.clone(),
            seal.transpose()?,
        );
        Ok(ring)
    }

    /// Exactly these keys, or none; never stored.
    pub fn fixed(keys: Option<SigningKeys>) -> Self {
        Self::with(keys, None, None)
    }

    fn with(
        given: Option<SigningKeys>,
        webhook: Option<WebhookSecret>,
        seal: Option<KeySeal>,
    ) -> Self {
        let signer = given
            .as_ref()
            .map(|keys| Signer::new(keys, webhook.as_ref()));
        Self(Arc::new(Ring {
            is_given: given.is_some(),
            keys: watch::Sender::new(given),
            signer: watch::Sender::new(signer),
            webhook,
            seal,
            used: Mutex::default(),
            unopened: Mutex::default(),
            random: Arc::new(SystemRandom),
        }))
    }

    /// The keys in use; `None` when deliveries are not signed.
    pub fn keys(&self) -> Option<SigningKeys> {
        self.0.keys.borrow().clone()
    }

    /// What signs deliveries, now and after every rotation.
    pub fn signer(&self) -> watch::Receiver<Option<Signer>> {
        self.0.signer.subscribe()
    }

    /// Takes the stored ring, or makes one if there is to be one. Safe to repeat.
    pub async fn load(&self, store: &Store) -> Result<(), KeyRingError> {
        let ring = &*self.0;
        for _ in 0..TRIES {
            match (store.key_ring().await?, &ring.seal) {
                (Some(_), None) => return Err(KeyRingError::NoSecretKey),
                (Some(record), Some(seal)) => {
                    let stored = seal.open(&record).map_err(|_| KeyRingError::Unopenable)?;
                    if ring.is_given {
                        tracing::warn!(
                            "stored signing keys are used, not those of {SETTING_CURRENT} and \
                             {SETTING_NEXT}: unset these"
                        );
                    }
                    self.take(Used { record, stored });
                    tracing::info!("the signing keys come from the store");
                    return Ok(());
                }
                (None, Some(seal)) if !ring.is_given => {
                    let stored = StoredKeys {
                        keys: SigningKeys::generate(&*ring.random),
                        rotations: 0,
                        made_ms: SystemClock::new().now_ms(),
                    };
                    let record = seal.seal(&stored, &*ring.random);
                    let record = Bytes::from(record.map_err(KeyRingError::Seal)?);
                    if replace(store, None, &record).await? == RingChange::Replaced {
                        self.take(Used { record, stored });
                        tracing::info!("new signing keys were made and stored");
                        return Ok(());
                    }
                }
                (None, _) => return Ok(()),
            }
        }
        let text = "the stored signing keys change all the time".to_owned();
        Err(HostError::RetryLater(text).into())
    }

    /// Looks at the stored ring every few seconds, without end.
    pub async fn follow(&self, store: &Store) {
        if self.0.seal.is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            if let Err(error) = self.look(store).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the stored signing keys cannot be read");
            }
        }
    }

    async fn look(&self, store: &Store) -> Result<(), HostError> {
        let Some(seal) = &self.0.seal else {
            return Ok(());
        };
        let used = self.used().clone();
        match (store.key_ring().await?, used) {
            (Some(record), Some(used)) if record == used.record => Ok(()),
            (Some(record), used) => match (seal.open(&record), used) {
                (Ok(stored), Some(used)) if used.stored.outranks(&stored) => {
                    put_back(store, Some(record), &used).await
                }
                (Ok(stored), _) => {
                    self.take(Used { record, stored });
                    tracing::info!("the stored signing keys have changed and are used now");
                    Ok(())
                }
                (Err(error), _) => {
                    let told = lock(&self.0.unopened).replace(record.clone());
                    if told != Some(record) {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "the keys that are known here stay in use");
                    }
                    Ok(())
                }
            },
            (None, Some(used)) => put_back(store, None, &used).await,
            (None, None) => Ok(()),
        }
    }

    /// Makes the next key the current one and a new one the next. Of concurrent rotations each
    /// applies, one after the other. Not safe to repeat: twice without an update of the receivers
    /// leaves them without a key that fits.
    pub async fn rotate(&self, store: &Store) -> Result<SigningKeys, RotateError> {
        let ring = &*self.0;
        if ring.is_given && self.used().is_none() {
            return Err(RotateError::Given);
        }
        let seal = ring.seal.as_ref().ok_or(RotateError::NoSecretKey)?;
        for _ in 0..TRIES {
            let read = store.key_ring().await?;
            let found = read.as_ref().map(|record| seal.open(record)).transpose();
            let found = found.map_err(|_| RotateError::Unopenable)?;
            let used = self.used().clone().map(|used| used.stored);
            let newest = match (found, used) {
                (Some(found), Some(used)) if used.outranks(&found) => used,
                (Some(found), _) => found,
                (None, used) => used.ok_or(RotateError::Unopenable)?,
            };
            let stored = newest.rotated(&*ring.random);
            let record = seal.seal(&stored, &*ring.random);
            let record = Bytes::from(record.map_err(|_| RotateError::Unopenable)?);
            if replace(store, read, &record).await? == RingChange::Replaced {
                let keys = stored.keys.clone();
                self.take(Used { record, stored });
                tracing::info!("the signing keys were rotated");
                return Ok(keys);
            }
        }
        Err(RotateError::Busy)
    }

    /// Uses `new`, unless what is in use by now outranks it.
    fn take(&self, new: Used) {
        let ring = &*self.0;
        let mut used = self.used();
        if used
            .as_ref()
            .is_some_and(|used| used.stored.outranks(&new.stored))
        {
            return;
        }
        let keys = new.stored.keys.clone();
        *used = Some(new);
        ring.signer
            .send_replace(Some(Signer::new(&keys, ring.webhook.as_ref())));
        ring.keys.send_replace(Some(keys));
    }

    fn used(&self) -> MutexGuard<'_, Option<Used>> {
        lock(&self.0.used)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores the ring that is in use in the place of `read`, which is behind it.
async fn put_back(store: &Store, read: Option<Bytes>, used: &Used) -> Result<(), HostError> {
    if replace(store, read, &used.record).await? == RingChange::Replaced {
        tracing::warn!("the store had lost the signing keys: stored them again");
    }
    Ok(())
}

/// Stores `new` in the place of `read`, again when no answer came: a repeat changes nothing.
async fn replace(store: &Store, read: Option<Bytes>, new: &Bytes) -> Result<RingChange, HostError> {
    let mut tries = 1;
    loop {
        match store.replace_key_ring(read.clone(), new.clone()).await {
            Err(HostError::Lost(_) | HostError::RetryLater(_)) if tries < TRIES => {
                tries += 1;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// Shows no key.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing")
            .field("is_given", &self.0.is_given)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "key_ring_tests.rs"]
mod tests;
