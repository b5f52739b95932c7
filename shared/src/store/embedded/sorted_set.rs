//! Members with scores, in Redis's order: score first, then the bytes of the member.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;

use super::dict::Dict;

/// A sorted set. Finding by score is logarithmic; by rank it walks from the nearer end.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SortedSet {
    scores: Dict<f64>,
    order: BTreeSet<Ranked>,
}

/// One place in the order. Scores are never NaN.
#[derive(Debug, Clone)]
struct Ranked {
    score: f64,
    member: Bytes,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.partial_cmp(&other.score);
        by_score
            .unwrap_or(Ordering::Equal)
            .then_with(|| self.member.cmp(&other.member))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

/// One end of a range of scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) score: f64,
    pub(super) exclusive: bool,
}

/// From the lowest score to the highest.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoreRange {
    pub(super) min: Bound,
    pub(super) max: Bound,
}

impl ScoreRange {
    fn starts_before(&self, score: f64) -> bool {
        score > self.min.score || (!self.min.exclusive && score >= self.min.score)
    }

    fn ends_after(&self, score: f64) -> bool {
        score < self.max.score || (!self.max.exclusive && score <= self.max.score)
    }
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn score(&self, member: &Bytes) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Adds or moves `member`. A negative zero is kept as zero, as Redis's compact encoding does.
    pub(super) fn insert(&mut self, member: &Bytes, score: f64) {
        let score = score + 0.0;
        let ranked = |score| Ranked {
            score,
            member: member.clone(),
        };
        if let Some(before) = self.scores.insert(member, score) {
            self.order.remove(&ranked(before));
        }
        self.order.insert(ranked(score));
    }

    pub(super) fn remove(&mut self, member: &Bytes) -> Option<f64> {
        let score = self.scores.remove(member)?;
        let member = member.clone();
        self.order.remove(&Ranked { score, member });
        Some(score)
    }

    /// Ascending.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.order
            .iter()
            .map(|ranked| (&ranked.member, ranked.score))
    }

    /// Members whose scores lie in `range`, ascending.
    pub(super) fn in_range(&self, range: ScoreRange) -> impl Iterator<Item = (&Bytes, f64)> {
        let from = Ranked {
            score: range.min.score,
            member: Bytes::new(),
        };
        self.order
            .range(from..)
            .map(|ranked| (&ranked.member, ranked.score))
            .skip_while(move |(_, score)| !range.starts_before(*score))
            .take_while(move |(_, score)| range.ends_after(*score))
    }

    /// Members whose scores lie in `range`, descending.
    pub(super) fn in_range_rev(&self, range: ScoreRange) -> impl Iterator<Item = (&Bytes, f64)> {
        let after_all = range.max.score.next_up();
        let to = Ranked {
            score: after_all,
            member: Bytes::new(),
        };
        let end = if after_all > range.max.score {
            std::ops::Bound::Excluded(to)
        } else {
            std::ops::Bound::Unbounded
        };
        self.order
            .range((std::ops::Bound::Unbounded, end))
            .rev()
            .map(|ranked| (&ranked.member, ranked.score))
            .skip_while(move |(_, score)| !range.ends_after(*score))
            .take_while(move |(_, score)| range.starts_before(*score))
    }

    /// All members and scores, in the order of a scan.
    pub(super) fn dict(&self) -> &Dict<f64> {
        &self.scores
    }
}
