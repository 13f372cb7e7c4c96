//! The database on real executors: opened by all of them together, served, and closed in the order that
//! loses nothing.

use crate::api::Engine;
use crate::engine::LocalEngine;
use crate::recover::Recovery;
use crate::router::{COORDINATOR_EXECUTOR, ExecutorState};
use crate::runtime::{ExecutorContext, Executors};
use crate::shared::{CatalogFile, Options, Shared};
use crate::start;
use futures_lite::FutureExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::io::{Env, LocalFuture};

/// Databases below the data directory.
pub const DATABASES_DIR: &str = "dbs";
/// The one database there is.
pub const MAIN_DATABASE: &str = "main";

/// What one executor's front is given.
#[derive(Clone)]
pub struct Front {
    /// The engine, as this executor sees it.
    pub engine: Rc<dyn Engine>,
    /// This executor.
    pub cx: ExecutorContext,
    /// The world of this executor; files below the database's directory.
    pub env: Env,
    /// What the start found, all shards together.
    pub recoveries: Arc<Vec<Recovery>>,
}

/// The directory of a database.
pub fn database_dir(data: &Path) -> PathBuf {
    data.join(DATABASES_DIR).join(MAIN_DATABASE)
}

/// All executors meet: nobody goes on before the last has come.
struct Meeting {
    count: usize,
    state: Mutex<MeetingState>,
}

#[derive(Default)]
struct MeetingState {
    arrived: usize,
    round: u64,
    wakers: Vec<Waker>,
}

impl Meeting {
    fn new(count: usize) -> Self {
        Meeting {
            count,
            state: Mutex::default(),
        }
    }

    /// Arrives and waits for the others. An error when the server is told to end before they have come and
    /// `stopped` says so.
    async fn meet(&self, stopped: impl Future<Output = ()>) -> Result<()> {
        let mut round = None;
        let all = std::future::poll_fn(|cx| {
            let mut s = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mine = *round.get_or_insert_with(|| {
                s.arrived += 1;
                let mine = s.round;
                if s.arrived == self.count {
                    s.arrived = 0;
                    s.round += 1;
                    s.wakers.drain(..).for_each(Waker::wake);
                }
                mine
            });
            if s.round > mine {
                return Poll::Ready(Ok(()));
            }
            s.wakers.push(cx.waker().clone());
            Poll::Pending
        });
        let ended = async {
            stopped.await;
            Err(Error::new(
                SqlState::AdminShutdown,
                "another executor could not start",
            ))
        };
        all.or(ended).await
    }
}

/// What executors hand to each other while they start.
struct Startup {
    meeting: Meeting,
    opened: Mutex<Option<(Arc<Shared>, CatalogFile)>>,
    recoveries: Mutex<Vec<Recovery>>,
}

fn held<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a database over `data` on `executors` executors, with `front` on each, until every front has
/// returned. Blocks.
///
/// # Errors
/// Why the database could not be opened, or the first error of a front.
pub fn run<F>(data: &Path, executors: usize, options: Options, front: F) -> Result<()>
where
    F: Fn(Front) -> LocalFuture<'static, Result<()>> + Send + Sync + 'static,
{
    let root = database_dir(data);
    let executors = executors.max(1);
    let startup = Arc::new(Startup {
        meeting: Meeting::new(executors),
        opened: Mutex::new(None),
        recoveries: Mutex::default(),
    });
    let front = Arc::new(front);
    Executors::start(executors, move |cx| {
        let (root, options, startup, front) = (
            root.clone(),
            options.clone(),
            startup.clone(),
            front.clone(),
        );
        Box::pin(async move { run_executor(cx, &root, &options, &startup, &*front).await })
    })?
    .join()
}

async fn run_executor<F>(
    cx: ExecutorContext,
    root: &Path,
    options: &Options,
    startup: &Startup,
    front: &F,
) -> Result<()>
where
    F: Fn(Front) -> LocalFuture<'static, Result<()>>,
{
    let env = cx.env(root);
    let leads = cx.index() == COORDINATOR_EXECUTOR;
    if leads {
        let opened = Shared::open(&env, options).await?;
        *held(&startup.opened) = Some(opened);
    }
    startup.meeting.meet(cx.stopped()).await?;
    let opened = held(&startup.opened).clone();
    let (shared, file) = opened.ok_or_else(|| Error::internal("the database was not opened"))?;

    let state = ExecutorState::new(cx.index(), env.clone());
    let hop = Rc::new(cx.mailboxes());
    let coordinator = leads.then(|| file.clone());
    let (router, found) =
        start::open_executor(&state, &shared, hop, cx.count(), coordinator).await?;
    held(&startup.recoveries).extend(found);
    cx.serve(state.clone());
    startup.meeting.meet(cx.stopped()).await?;
    if leads {
        shared.finish_recovery(start::max_xid(held(&startup.recoveries).iter()), &file)?;
    }
    startup.meeting.meet(cx.stopped()).await?;
    start::start_executor(&state);
    if leads && options.accept_loss {
        start::give_up_damaged(&state).await?;
    }

    let recoveries = Arc::new(held(&startup.recoveries).clone());
    let served = front(Front {
        engine: LocalEngine::new(router),
        cx: cx.clone(),
        env,
        recoveries,
    })
    .await;
    // A front that failed takes the others down with it, but in order.
    cx.stop();
    let never = || std::future::pending::<()>();
    startup.meeting.meet(never()).await?;
    shared.start_draining();
    let mut closed = start::stop_shards(&state).await;
    startup.meeting.meet(never()).await?;
    if leads {
        closed = closed.and(start::close_coordinator(&state).await);
    }
    state.clear();
    served.and(closed)
}
