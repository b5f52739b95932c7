//! Operations in our own store: without an end while they live, and 30 days after theirs.

use std::time::Duration;

use hookstash_shared::store::Store;

use super::ports::{OperationStore, PortResult};
use super::record::OperationRecord;

/// How long a record is kept after its operation's end: late results still need its hooks.
const KEPT: Duration = Duration::from_hours(30 * 24);

/// An [`OperationStore`] on the store that queues messages. On Redis it outlives this process.
#[derive(Debug, Clone)]
pub struct StoredOperations(Store);

impl StoredOperations {
    /// Operations in `store`.
    pub fn new(store: Store) -> Self {
        Self(store)
    }
}

impl OperationStore for StoredOperations {
    fn save<'a>(
        &'a self,
        operation_id: &'a str,
        record: &'a OperationRecord,
    ) -> PortResult<'a, ()> {
        Box::pin(async move {
            let json = serde_json::to_vec(record)?;
            Ok(self.0.save_operation(operation_id, json.into()).await?)
        })
    }

    fn load<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<OperationRecord>> {
        Box::pin(async move {
            let json = self.0.operation(operation_id).await?;
            Ok(json.map(|json| serde_json::from_slice(&json)).transpose()?)
        })
    }

    fn retire<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, ()> {
        Box::pin(async move { Ok(self.0.retire_operation(operation_id, KEPT).await?) })
    }
}
