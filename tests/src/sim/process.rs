//! A whole database process in the simulated world: executors, mailboxes between them, shards, coordinator.

use crate::sim::disk::{SimDisk, SimMount};
use crate::sim::world::{SimClock, SimRandom, SimTasks, World};
use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use strandline_core::error::Result;
use strandline_core::io::Env;
use strandline_shard::engine::LocalEngine;
use strandline_shard::hop::{Hop, Job};
use strandline_shard::recover::Recovery;
use strandline_shard::router::ExecutorState;
use strandline_shard::shared::{Options, Shared};
use strandline_shard::start;

/// Mailboxes: a message takes a while, and messages to one executor arrive in the order they were sent.
pub struct SimHop {
    world: Rc<World>,
    boxes: Vec<RefCell<VecDeque<Job>>>,
    states: RefCell<Vec<Weak<ExecutorState>>>,
    this: Weak<SimHop>,
}

impl SimHop {
    fn new(world: Rc<World>, executors: usize) -> Rc<Self> {
        Rc::new_cyclic(|this| SimHop {
            world,
            boxes: (0..executors).map(|_| RefCell::default()).collect(),
            states: RefCell::default(),
            this: this.clone(),
        })
    }
}

impl Hop for SimHop {
    fn send(&self, executor: usize, job: Job) {
        self.boxes[executor].borrow_mut().push_back(job);
        let Some(hop) = self.this.upgrade() else {
            return;
        };
        self.world.spawn(Box::pin(async move {
            hop.world
                .sleep_ns(hop.world.rng.between(1_000, 120_000))
                .await;
            // Whichever of the waiting deliveries runs first takes the oldest message.
            let job = hop.boxes[executor].borrow_mut().pop_front();
            let state = hop.states.borrow()[executor].upgrade();
            if let (Some(job), Some(state)) = (job, state) {
                let any: Rc<dyn Any> = state;
                job(&any);
            }
        }));
    }
}

/// A running process.
pub struct Process {
    /// One per executor.
    pub engines: Vec<Rc<LocalEngine>>,
    /// What the executors share.
    pub shared: Arc<Shared>,
    /// What the start found.
    pub recoveries: Vec<Recovery>,
    states: Vec<Rc<ExecutorState>>,
}

/// States of a process that is starting, so that a crash can let them go.
pub type Starting = Rc<RefCell<Vec<Rc<ExecutorState>>>>;

impl Process {
    /// Starts a process over the disk's directory `root`.
    pub async fn start(
        world: Rc<World>,
        disk: Rc<SimDisk>,
        root: String,
        options: Options,
        executors: usize,
        starting: Starting,
    ) -> Result<Process> {
        let env = Env {
            disk: SimMount::new(disk, &root),
            clock: Rc::new(SimClock(world.clone())),
            random: Rc::new(SimRandom(world.clone())),
            tasks: Rc::new(SimTasks(world.clone())),
        };
        let (shared, file) = Shared::open(&env, &options).await?;
        let hop = SimHop::new(world, executors);
        let states: Vec<Rc<ExecutorState>> = (0..executors)
            .map(|e| ExecutorState::new(e, env.clone()))
            .collect();
        *hop.states.borrow_mut() = states.iter().map(Rc::downgrade).collect();
        *starting.borrow_mut() = states.clone();
        let mut engines = Vec::new();
        let mut recoveries = Vec::new();
        for state in &states {
            let (router, found) =
                start::open_executor(state, &shared, hop.clone(), executors, Some(file.clone()))
                    .await?;
            engines.push(LocalEngine::new(router));
            recoveries.extend(found);
        }
        shared.finish_recovery(start::max_xid(&recoveries), &file)?;
        states.iter().for_each(start::start_executor);
        Ok(Process {
            engines,
            shared,
            recoveries,
            states,
        })
    }

    /// A clean way down.
    pub async fn stop(self) -> Result<()> {
        self.shared.start_draining();
        for state in &self.states {
            start::stop_shards(state).await?;
        }
        start::close_coordinator(&self.states[0]).await?;
        self.states.iter().for_each(|s| s.clear());
        Ok(())
    }

    /// The executors' states, for a crash.
    pub fn states(&self) -> &[Rc<ExecutorState>] {
        &self.states
    }
}
