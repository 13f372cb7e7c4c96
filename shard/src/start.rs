//! Bringing a database up, executor by executor. The real server runs these steps on its executors, the
//! simulator on one thread.

use crate::coordinator::Coordinator;
use crate::damage::LostSegment;
use crate::hop::Hop;
use crate::recover::Recovery;
use crate::router::{COORDINATOR_EXECUTOR, ExecutorState, Router};
use crate::shared::{CatalogFile, Shared};
use crate::worker::Shard;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::Result;
use strandline_core::xid::Xid;

/// Opens the shards that `state`'s executor hosts, and on the first executor the coordinator, which takes
/// `file`. No write is taken until [`Shared::finish_recovery`].
pub async fn open_executor(
    state: &Rc<ExecutorState>,
    shared: &Arc<Shared>,
    hop: Rc<dyn Hop>,
    executors: usize,
    file: Option<CatalogFile>,
) -> Result<(Rc<Router>, Vec<Recovery>)> {
    let router = Router::new(state.clone(), hop, shared.clone(), executors);
    if state.executor == COORDINATOR_EXECUTOR
        && let Some(file) = file
    {
        state.set_coordinator(Coordinator::new(
            state.env.clone(),
            shared.clone(),
            router.clone(),
            file,
        ));
    }
    let mut found = Vec::new();
    for id in router.shards_of(state.executor).collect::<Vec<_>>() {
        let (shard, recovery) = Shard::open(&state.env, shared, &router, id).await?;
        state.add_shard(shard);
        found.push(recovery);
    }
    Ok((router, found))
}

/// The highest xid that any shard ever held.
pub fn max_xid<'a>(recoveries: impl IntoIterator<Item = &'a Recovery>) -> Xid {
    recoveries
        .into_iter()
        .filter_map(|r| r.max_xid)
        .max()
        .unwrap_or(Xid(0))
}

/// Starts the background tasks of an executor's shards, once the recovery is finished.
pub fn start_executor(state: &Rc<ExecutorState>) {
    state.local_shards().iter().for_each(|s| s.start());
}

/// With `--accept-loss`, once all executors have started: see [`Coordinator::give_up_damaged`].
pub async fn give_up_damaged(state: &Rc<ExecutorState>) -> Result<Vec<LostSegment>> {
    match state.coordinator() {
        Some(coordinator) => coordinator.give_up_damaged().await,
        None => Ok(Vec::new()),
    }
}

/// The clean way down of one executor's shards: no more writes, what is in the log's buffer commits.
pub async fn stop_shards(state: &Rc<ExecutorState>) -> Result<()> {
    for shard in state.local_shards() {
        shard.stop().await;
    }
    Ok(())
}

/// The end of the clean way down, once all shards have stopped.
pub async fn close_coordinator(state: &Rc<ExecutorState>) -> Result<()> {
    match state.coordinator() {
        Some(coordinator) => coordinator.close().await,
        None => Ok(()),
    }
}
