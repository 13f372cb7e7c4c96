//! The way from one executor to the shards and to the coordinator of a database: a call when they live on
//! this executor, one message each way when they do not.

use crate::coordinator::Coordinator;
use crate::handle_write::refusal_error;
use crate::hop::{Hop, while_wanted};
use crate::shared::Shared;
use crate::worker::{Shard, count};
use futures_channel::oneshot;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::{ShardId, TableId};
use strandline_core::io::{Env, LocalFuture, TaskQueue};
use strandline_core::revision::Refusal;

/// The executor that hosts the coordinator.
pub const COORDINATOR_EXECUTOR: usize = 0;

/// What lives on one executor. Jobs from other executors are given this one, as `Rc<dyn Any>`.
pub struct ExecutorState {
    /// Its index.
    pub executor: usize,
    /// The world, as this executor sees it.
    pub env: Env,
    shards: RefCell<BTreeMap<ShardId, Rc<Shard>>>,
    coordinator: RefCell<Option<Rc<Coordinator>>>,
}

impl ExecutorState {
    /// Without shards yet.
    pub fn new(executor: usize, env: Env) -> Rc<Self> {
        Rc::new(ExecutorState {
            executor,
            env,
            shards: RefCell::default(),
            coordinator: RefCell::default(),
        })
    }
    /// Takes a recovered shard in.
    pub fn add_shard(&self, shard: Rc<Shard>) {
        self.shards.borrow_mut().insert(shard.id, shard);
    }
    /// Takes the coordinator in.
    pub fn set_coordinator(&self, coordinator: Rc<Coordinator>) {
        *self.coordinator.borrow_mut() = Some(coordinator);
    }
    /// A shard of this executor.
    pub fn shard(&self, id: ShardId) -> Option<Rc<Shard>> {
        self.shards.borrow().get(&id).cloned()
    }
    /// All shards of this executor.
    pub fn local_shards(&self) -> Vec<Rc<Shard>> {
        self.shards.borrow().values().cloned().collect()
    }
    /// The coordinator, on its executor.
    pub fn coordinator(&self) -> Option<Rc<Coordinator>> {
        self.coordinator.borrow().clone()
    }
    /// Lets everything go: the way down, and a simulated crash.
    pub fn clear(&self) {
        let shards = std::mem::take(&mut *self.shards.borrow_mut());
        let coordinator = self.coordinator.borrow_mut().take();
        drop((shards, coordinator));
    }
}

/// See the module.
pub struct Router {
    state: Rc<ExecutorState>,
    hop: Rc<dyn Hop>,
    shared: Arc<Shared>,
    executors: usize,
}

fn down() -> Error {
    Error::new(SqlState::AdminShutdown, "the server is going down")
}

impl Router {
    /// For one executor among `executors`.
    pub fn new(
        state: Rc<ExecutorState>,
        hop: Rc<dyn Hop>,
        shared: Arc<Shared>,
        executors: usize,
    ) -> Rc<Self> {
        Rc::new(Router {
            state,
            hop,
            shared,
            executors: executors.max(1),
        })
    }
    /// This executor.
    pub fn executor(&self) -> usize {
        self.state.executor
    }
    /// What lives here.
    pub fn state(&self) -> &Rc<ExecutorState> {
        &self.state
    }
    /// What all executors share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
    /// The executor that hosts a shard.
    pub fn executor_of(&self, shard: ShardId) -> usize {
        usize::from(shard.0) % self.executors
    }
    /// The shards that an executor hosts.
    pub fn shards_of(&self, executor: usize) -> impl Iterator<Item = ShardId> {
        (executor as u16..self.shared.shards)
            .step_by(self.executors)
            .map(ShardId)
    }
    /// A shard that lives here, if there is one: small batches of new rows prefer it.
    pub fn local_shard(&self) -> Option<ShardId> {
        self.shards_of(self.state.executor).next()
    }

    /// Runs `f` on a shard and answers what it answers. When the caller goes away, a read (in the Query queue)
    /// ends; anything else that runs on another executor goes on.
    pub async fn ask<R, F>(&self, shard: ShardId, queue: TaskQueue, f: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(Rc<Shard>) -> LocalFuture<'static, Result<R>> + Send + 'static,
    {
        if let Some(local) = self.state.shard(shard) {
            return f(local).await;
        }
        let (tx, rx) = oneshot::channel();
        self.hop.send(
            self.executor_of(shard),
            Box::new(move |any| {
                let Some((state, shard)) = state_of(any).and_then(|s| Some((s, s.shard(shard)?)))
                else {
                    return;
                };
                count(&shard.counters.messages, 1);
                let work = f(shard);
                state.env.tasks.spawn(
                    queue,
                    Box::pin(async move {
                        let answer = match queue {
                            TaskQueue::Query => while_wanted(|| tx.is_canceled(), work).await,
                            // What writes goes on, whoever asked.
                            _ => Some(work.await),
                        };
                        if let Some(answer) = answer {
                            let _ = tx.send(answer);
                        }
                    }),
                );
            }),
        );
        rx.await.map_err(|_| down())?
    }

    /// As [`Router::ask`], but the message leaves before this returns: messages of one caller reach a shard
    /// in their order.
    pub fn send<R, F>(
        &self,
        shard: ShardId,
        queue: TaskQueue,
        f: F,
    ) -> LocalFuture<'static, Result<R>>
    where
        R: Send + 'static,
        F: FnOnce(Rc<Shard>) -> LocalFuture<'static, Result<R>> + Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        self.start(shard, queue, move |s| {
            let work = f(s);
            Box::pin(async move {
                let _ = tx.send(work.await);
            })
        });
        Box::pin(async move { rx.await.map_err(|_| down())? })
    }

    /// Starts a task on a shard; it answers by whatever it holds.
    pub fn start<F>(&self, shard: ShardId, queue: TaskQueue, f: F)
    where
        F: FnOnce(Rc<Shard>) -> LocalFuture<'static, ()> + Send + 'static,
    {
        if let Some(local) = self.state.shard(shard) {
            self.state.env.tasks.spawn(queue, f(local));
            return;
        }
        self.hop.send(
            self.executor_of(shard),
            Box::new(move |any| {
                if let Some((state, shard)) = state_of(any).and_then(|s| Some((s, s.shard(shard)?)))
                {
                    count(&shard.counters.messages, 1);
                    state.env.tasks.spawn(queue, f(shard));
                }
            }),
        );
    }

    /// Runs `f` on the coordinator.
    pub async fn coordinate<R, F>(&self, f: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(Rc<Coordinator>) -> LocalFuture<'static, Result<R>> + Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        let run = move |state: &Rc<ExecutorState>| {
            let Some(coordinator) = state.coordinator() else {
                return;
            };
            let work = f(coordinator);
            // A task of its own here too: DDL goes on when the session that asked goes away.
            state.env.tasks.spawn(
                TaskQueue::Ingest,
                Box::pin(async move {
                    let _ = tx.send(work.await);
                }),
            );
        };
        if self.state.executor == COORDINATOR_EXECUTOR {
            run(&self.state);
        } else {
            self.hop.send(
                COORDINATOR_EXECUTOR,
                Box::new(move |any| {
                    if let Ok(state) = any.clone().downcast::<ExecutorState>() {
                        run(&state);
                    }
                }),
            );
        }
        rx.await.map_err(|_| down())?
    }

    /// Waits until numbers can be had again after a refusal, or answers why they cannot.
    pub async fn wait_for_numbers(&self, table: TableId, refusal: Refusal) -> Result<()> {
        if let Some(e) = refusal_error(&refusal) {
            return Err(e);
        }
        match refusal {
            Refusal::RingFull => {
                self.shared.ledger(table)?.room().await;
                Ok(())
            }
            _ => {
                self.coordinate(move |c| Box::pin(async move { c.reserve(table).await }))
                    .await
            }
        }
    }
}

fn state_of(any: &Rc<dyn Any>) -> Option<&ExecutorState> {
    any.downcast_ref::<ExecutorState>()
}
