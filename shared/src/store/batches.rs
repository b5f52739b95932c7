//! The same for many: steps grouped by shard into pipelines of bounded length.

use futures::future::try_join_all;

use super::Store;
use super::host::{HostError, Reply, Step};
use crate::message::Shard;

/// Most items of one pipeline.
const ITEMS_MAX: usize = 64;

impl Store {
    /// Runs the steps of each item and returns the replies to each, in the order of `items`. Shards
    /// run side by side; the pipelines of one shard one after the other. The first error ends it;
    /// what ran before it stays done.
    pub(super) async fn batched<T>(
        &self,
        items: &[T],
        shard_of: impl Fn(&T) -> Shard,
        steps_of: impl Fn(&Self, &T) -> Vec<Step>,
    ) -> Result<Vec<Vec<Reply>>, HostError> {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&index| items.get(index).map(&shard_of));
        let of_shard =
            |a: &usize, b: &usize| items.get(*a).map(&shard_of) == items.get(*b).map(&shard_of);
        let shards = order.chunk_by(of_shard);
        let steps_of = &steps_of;
        let done = try_join_all(shards.map(async |indexes| {
            let mut done = Vec::with_capacity(indexes.len());
            for chunk in indexes.chunks(ITEMS_MAX) {
                let chunk_items = chunk.iter().filter_map(|&index| items.get(index));
                let steps: Vec<Vec<Step>> = chunk_items.map(|item| steps_of(self, item)).collect();
                let lengths: Vec<usize> = steps.iter().map(Vec::len).collect();
                let mut replies = self.host.run(steps.concat()).await.into_iter();
                for (&index, length) in chunk.iter().zip(lengths) {
                    let replies: Result<Vec<Reply>, HostError> =
                        replies.by_ref().take(length).collect();
                    done.push((index, replies?));
                }
            }
            Ok::<_, HostError>(done)
        }));
        let mut done: Vec<(usize, Vec<Reply>)> = done.await?.into_iter().flatten().collect();
        done.sort_by_key(|(index, _)| *index);
        Ok(done.into_iter().map(|(_, replies)| replies).collect())
    }

    /// Runs exactly `N` steps in one pipeline.
    pub(super) async fn run_all<const N: usize>(
        &self,
        steps: Vec<Step>,
    ) -> Result<[Reply; N], HostError> {
        let replies: Vec<Reply> = self
            .host
            .run(steps)
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let short = |_| HostError::Lost("the host gave no reply".to_owned());
        replies.try_into().map_err(short)
    }
}
