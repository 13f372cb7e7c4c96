//! Fewer, larger segments. Only neighbours by flush are merged, so that order of arrival stays the order of
//! segments; dropped channels go away here.

use super::StreamTable;
use super::flush::SegmentWriter;
use super::keys::only_entity;
use super::snapshot::Snapshot;
use super::source::Reader;
use crate::segment::{DecodedColumn, Effort, Segment};
use std::rc::Rc;
use strandline_core::error::Result;
use strandline_core::format::block::BlockData;
use strandline_core::ids::{ColumnId, SegmentId};
use strandline_core::value::Kind;

/// Segments to be merged, oldest first.
pub struct MergeJob {
    inputs: Vec<Rc<Segment>>,
}

impl MergeJob {
    /// Bytes to be rewritten.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|s| s.bytes()).sum()
    }
}

/// A merge that is durable and not yet part of the table.
pub struct MergeDone {
    /// What it replaces.
    pub inputs: Vec<SegmentId>,
    /// With what; nothing when no row of a live channel was left.
    pub outputs: Vec<Rc<Segment>>,
}

/// The first segment and the number of the best neighbours to merge: like sizes, the smallest sum first.
fn pick(sizes: &[u64], fan_in: usize, most: u64) -> Option<usize> {
    let crowded = sizes.len() > fan_in * 8;
    (0..(sizes.len() + 1).saturating_sub(fan_in))
        .filter_map(|at| {
            let window = &sizes[at..at + fan_in];
            let sum: u64 = window.iter().sum();
            let max = window.iter().copied().max().unwrap_or(0);
            let others = (sum - max) / (fan_in as u64 - 1).max(1);
            let alike = max <= others.saturating_mul(3).max(1 << 16) || crowded;
            (alike && sum <= most).then_some((sum, at))
        })
        .min()
        .map(|(_, at)| at)
}

impl StreamTable {
    /// The next merge, if one is worth it.
    pub fn pick_merge(&self) -> Option<MergeJob> {
        let limits = &self.cx.limits;
        let fan_in = limits.merge_fan_in.max(2) as usize;
        let segments = self.state.borrow().segments.clone();
        let sizes: Vec<u64> = segments.iter().map(|s| s.bytes()).collect();
        let at = pick(&sizes, fan_in, limits.segment_bytes)?;
        Some(MergeJob {
            inputs: segments[at..at + fan_in].to_vec(),
        })
    }

    /// Bytes that merges would rewrite now.
    pub fn merge_debt_bytes(&self) -> u64 {
        let limits = &self.cx.limits;
        let fan_in = limits.merge_fan_in.max(2) as usize;
        let segments = self.state.borrow().segments.clone();
        let mut sizes: Vec<u64> = segments.iter().map(|s| s.bytes()).collect();
        let mut debt = 0;
        while let Some(at) = pick(&sizes, fan_in, limits.segment_bytes) {
            let sum: u64 = sizes[at..at + fan_in].iter().sum();
            debt += sum;
            sizes.splice(at..at + fan_in, [sum]);
        }
        debt
    }

    /// Writes the segments of a job anew as one. The table is as before until
    /// [`StreamTable::install_merge`].
    ///
    /// # Errors
    /// `XX001` for a damaged input, `53100` or `58030` from the disk.
    pub async fn merge(&self, job: &MergeJob) -> Result<MergeDone> {
        let snapshot = Snapshot {
            def: self.def(),
            segments: Rc::new(job.inputs.clone()),
            runs: Vec::new(),
            applied: 0,
        };
        let channels: Vec<(ColumnId, Kind)> = snapshot.live_channels();
        let first = job.inputs.first().map_or(0, |s| s.info().flushes.0);
        let last = job.inputs.last().map_or(0, |s| s.info().flushes.1);
        let mut writer = SegmentWriter::new(self, (first, last), Effort::Merge, channels.clone());
        let mut names = Vec::new();
        for segment in &job.inputs {
            let mut cursor = NameCursor::new(segment.clone());
            cursor.advance().await?;
            names.push(cursor);
        }
        let mut reader = Reader::new(snapshot, channels);
        loop {
            let next = names.iter().filter(|c| !c.ended).map(|c| &c.name).min();
            let Some(name) = next.cloned() else { break };
            writer.entity(&mut reader, &name, None).await?;
            for cursor in &mut names {
                if !cursor.ended && cursor.name == name {
                    cursor.advance().await?;
                }
            }
            self.env.breathe().await;
        }
        Ok(MergeDone {
            inputs: job.inputs.iter().map(|s| s.id()).collect(),
            outputs: writer.finish().await?.into_iter().collect(),
        })
    }

    /// Puts a merge's outputs in the place of its inputs, which are returned: they can be removed once no
    /// reader holds them.
    pub fn install_merge(&self, done: MergeDone) -> Vec<Rc<Segment>> {
        let mut state = self.state.borrow_mut();
        let (doomed, mut kept): (Vec<_>, Vec<_>) = state
            .segments
            .iter()
            .cloned()
            .partition(|s| done.inputs.contains(&s.id()));
        kept.extend(done.outputs);
        kept.sort_by_key(|s| s.info().flushes);
        state.segments = Rc::new(kept);
        doomed
    }
}

/// Goes through the entities of a segment by name.
struct NameCursor {
    segment: Rc<Segment>,
    /// The next block to look at.
    block: usize,
    /// Names of the block before, when it has several, and the next of them.
    column: Option<(Rc<DecodedColumn>, usize)>,
    name: Vec<u8>,
    started: bool,
    ended: bool,
}

impl NameCursor {
    fn new(segment: Rc<Segment>) -> Self {
        NameCursor {
            segment,
            block: 0,
            column: None,
            name: Vec::new(),
            started: false,
            ended: false,
        }
    }

    /// To the next name, or to the end.
    async fn advance(&mut self) -> Result<()> {
        loop {
            if let Some((column, next)) = &mut self.column
                && let BlockData::StrRuns { names, .. } = &column.data
                && *next < names.len()
            {
                let name = names.get_bytes(*next);
                *next += 1;
                if !self.started || name != self.name {
                    self.name = name.to_vec();
                    self.started = true;
                    return Ok(());
                }
                continue;
            }
            self.column = None;
            let segment = self.segment.clone();
            let Some(meta) = segment.blocks(0).get(self.block) else {
                self.ended = true;
                return Ok(());
            };
            self.block += 1;
            if let Some(name) = only_entity(meta) {
                if !self.started || name != self.name {
                    self.name = name.to_vec();
                    self.started = true;
                    return Ok(());
                }
            } else {
                let decoded = segment.read(0, self.block - 1, &[ColumnId::ENTITY]).await?;
                self.column = decoded.get(ColumnId::ENTITY).map(|c| (c.clone(), 0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_like_size_are_merged() {
        let mib = 1 << 20;
        let sizes = |list: &[u64]| list.iter().map(|s| s * mib).collect::<Vec<_>>();
        assert_eq!(pick(&sizes(&[1, 1, 1]), 4, 1 << 40), None);
        assert_eq!(pick(&sizes(&[40, 1, 1, 1, 1]), 4, 1 << 40), Some(1));
        assert_eq!(pick(&sizes(&[40, 1, 1, 1]), 4, 1 << 40), None);
        assert_eq!(pick(&sizes(&[9, 9, 9, 9, 1, 1, 1, 1]), 4, 1 << 40), Some(4));
        assert_eq!(pick(&sizes(&[9, 9, 9, 9]), 4, 20 * mib), None);
        assert_eq!(pick(&sizes(&[2, 1]), 2, 1 << 40), Some(0));
        assert_eq!(pick(&[], 2, 1 << 40), None);
    }
}
