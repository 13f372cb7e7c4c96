//! Starts that must be refused.

use crate::api::Engine;
use crate::engine::LocalEngine;
use crate::hop::{Hop, Job};
use crate::router::ExecutorState;
use crate::shared::{Options, Shared};
use crate::{start, testing};
use std::path::Path;
use std::rc::Rc;
use strandline_core::error::{Result, SqlState};
use strandline_core::schema::{Family, TableSpec};

/// There is one executor: nobody to send to.
struct NoHop;

impl Hop for NoHop {
    fn send(&self, executor: usize, _job: Job) {
        panic!("there is no executor {executor}");
    }
}

async fn open(dir: &Path) -> Result<(Rc<LocalEngine>, Rc<ExecutorState>)> {
    let env = testing::env(dir);
    let options = Options {
        shards: 2,
        ..Options::default()
    };
    let (shared, file) = Shared::open(&env, &options).await?;
    let state = ExecutorState::new(0, env);
    let (router, found) =
        start::open_executor(&state, &shared, Rc::new(NoHop), 1, Some(file.clone())).await?;
    shared.finish_recovery(start::max_xid(&found), &file)?;
    start::start_executor(&state);
    Ok((LocalEngine::new(router), state))
}

#[test]
fn a_lost_manifest_is_no_new_shard() {
    let dir = tempfile::tempdir().unwrap();
    testing::block_on(async {
        let (_, state) = open(dir.path()).await.unwrap();
        start::stop_shards(&state).await.unwrap();
        // A start that a crash ended before all shards were there.
        std::fs::remove_file(dir.path().join("shard-0001/manifest")).unwrap();
        let (engine, state) = open(dir.path()).await.unwrap();
        let spec = TableSpec {
            name: "t".into(),
            family: Family::Timeseries,
            columns: Vec::new(),
            entity_uuid: false,
            options: Default::default(),
        };
        engine.create_table(spec, false).await.unwrap();
        start::stop_shards(&state).await.unwrap();

        for lost in ["shard-0000/manifest", "shard-0001/manifest", "shard-0001"] {
            let (at, aside) = (dir.path().join(lost), dir.path().join("aside"));
            std::fs::rename(&at, &aside).unwrap();
            let Err(e) = open(dir.path()).await else {
                panic!("it started without {lost}");
            };
            assert_eq!(e.state(), SqlState::DataCorrupted, "{e}");
            assert!(e.message().contains(&lost[..10]), "{e}");
            if at.is_dir() {
                std::fs::remove_dir_all(&at).unwrap();
            }
            std::fs::rename(&aside, &at).unwrap();
        }
        open(dir.path()).await.unwrap();
    });
}
