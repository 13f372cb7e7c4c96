//! Placeholder until the stream store lands (helper D replaces this whole folder).
#![allow(missing_docs)]
use crate::segment::Segment;
use crate::store::*;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::Result;
use strandline_core::ids::*;
use strandline_core::io::Env;
use strandline_core::scan::*;
use strandline_core::schema::TableDef;
use strandline_core::stream::batch::StreamBatch;
use strandline_core::stream::bucket::PartialAggregates;
pub struct StreamTable {}
pub struct FlushDone {
    pub segments: Vec<Rc<Segment>>,
    pub flushed_lsn: Lsn,
}
pub struct MergeJob {}
pub struct MergeDone {
    pub inputs: Vec<SegmentId>,
    pub outputs: Vec<Rc<Segment>>,
}
impl StreamTable {
    pub fn new(_: Env, _: Arc<TableDef>, _: StoreContext) -> Self {
        StreamTable {}
    }
    pub fn set_def(&self, _: Arc<TableDef>) {}
    pub async fn open_segments(&self, _: Vec<Rc<Segment>>) -> Result<()> {
        Ok(())
    }
    pub fn apply(&self, _: &StreamBatch, _: Lsn) {}
    pub fn memory_bytes(&self) -> MemoryUse {
        MemoryUse::default()
    }
    pub fn oldest_unflushed(&self) -> Option<Lsn> {
        None
    }
    pub fn freeze(&self) -> bool {
        false
    }
    pub async fn flush(&self) -> Result<Option<FlushDone>> {
        Ok(None)
    }
    pub fn install_flush(&self, _: FlushDone) {}
    pub fn pick_merge(&self) -> Option<MergeJob> {
        None
    }
    pub async fn merge(&self, _: &MergeJob) -> Result<MergeDone> {
        Ok(MergeDone {
            inputs: vec![],
            outputs: vec![],
        })
    }
    pub fn install_merge(&self, d: MergeDone) -> Vec<Rc<Segment>> {
        d.outputs
    }
    pub fn merge_debt_bytes(&self) -> u64 {
        0
    }
    pub fn segments(&self) -> Vec<Rc<Segment>> {
        vec![]
    }
    pub fn rows(&self) -> u64 {
        0
    }
    pub fn entities(&self) -> usize {
        0
    }
    pub async fn scan(&self, _: &StreamScan, _: &mut dyn BatchSink) -> Result<()> {
        Ok(())
    }
    pub async fn latest(&self, _: &LatestScan, _: &mut dyn BatchSink) -> Result<()> {
        Ok(())
    }
    pub async fn aggregate(&self, _: &StreamAggregate) -> Result<PartialAggregates> {
        Ok(PartialAggregates::default())
    }
}
