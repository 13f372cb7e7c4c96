//! Executors: a thread per core that runs one shard-per-core loop, with three task queues and a mailbox.

use super::disk::RealDisk;
use super::mailbox::{Mailboxes, Outbox, rings};
use super::poller::Poller;
use super::pulse::{Pulse, TaskWaker, watch};
use super::ring::Ring;
use super::world::{RealClock, RealRandom};
use crate::hop::Job;
use futures_lite::FutureExt;
use glommio::{Latency, LocalExecutorBuilder, Placement, Shares, TaskQueueHandle};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::io::{Env, LocalFuture, TaskQueue, Tasks};
use strandline_core::queue::{Receiver, Sender};

/// How long a task may go on before `should_yield` says so. At glommio's default of 100 ms one busy task
/// delays every completion by as much.
const TIME_SLICE: Duration = Duration::from_millis(1);
/// The same while others wait on its executor: a short statement that comes to a scan's queue waits for so
/// much of the scan, and a switch takes a hundredth of it.
const SHARED_SLICE: Duration = Duration::from_micros(200);
/// Memory that glommio registers with the kernel, per executor and three times over. Our files do not use
/// it and sockets hardly do, and RLIMIT_MEMLOCK is 8 MiB on most machines.
const IO_MEMORY_BYTES: usize = 1 << 20;
/// Shares of the core when all queues are busy.
const SHARES: [(TaskQueue, usize, &str); 3] = [
    (TaskQueue::Ingest, 1000, "ingest"),
    (TaskQueue::Query, 500, "query"),
    // Flush must keep up with ingest: what it does not write, writers wait for.
    (TaskQueue::Background, 400, "background"),
];
/// Jobs that the serving task takes from its mailbox at a time: what senders that wait for room are woken for.
const JOBS_AT_A_TIME: usize = 64;
/// Exit status when an executor dies: EX_SOFTWARE.
const EXIT_DIED: i32 = 70;

/// What this thread's tasks share.
struct Local {
    queues: [TaskQueueHandle; 3],
    ring: Rc<Ring>,
    poller: Rc<Poller>,
    /// Tasks were woken that should run before the one that goes on.
    due: Cell<bool>,
    /// When the long task that is being polled asked for the first time whether it should give way.
    step_began: Cell<Instant>,
    tasks: RefCell<TaskSlots>,
    pulse: Arc<Pulse>,
    outbox: Rc<Outbox>,
    /// Until it is served.
    inbox: RefCell<Option<Receiver<Job>>>,
}

/// The tasks that go on. glommio forgets a pending task when its executor ends, with every file and socket
/// in it, so we hold the futures ourselves and drop them.
#[derive(Default)]
struct TaskSlots {
    slots: Vec<Option<Rc<TaskCell>>>,
    free: Vec<usize>,
    ended: bool,
}

/// A task.
struct TaskCell {
    /// Until it has ended.
    future: RefCell<Option<LocalFuture<'static, ()>>>,
    counted: Arc<TaskWaker>,
    waker: Waker,
}

thread_local! {
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

fn local() -> Rc<Local> {
    LOCAL
        .with(|l| l.borrow().clone())
        .expect("called outside an executor of the runtime")
}

/// Which sockets of this executor are ready.
pub(super) fn this_poller() -> Rc<Poller> {
    local().poller.clone()
}

/// The ring of this executor.
#[cfg(test)]
pub(super) fn this_ring() -> Rc<Ring> {
    local().ring.clone()
}

/// Starts a task on this executor. A panic in it is caught and logged; the others go on.
pub fn spawn(queue: TaskQueue, task: impl Future<Output = ()> + 'static) {
    spawn_boxed(queue, Box::pin(task));
}

fn spawn_boxed(queue: TaskQueue, task: LocalFuture<'static, ()>) {
    let local = local();
    let index = {
        let mut tasks = local.tasks.borrow_mut();
        if tasks.ended {
            return;
        }
        tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(None);
            tasks.slots.len() - 1
        })
    };
    let counted = TaskWaker::new(local.pulse.clone());
    let cell = Rc::new(TaskCell {
        future: RefCell::new(Some(task)),
        waker: Waker::from(counted.clone()),
        counted,
    });
    local.tasks.borrow_mut().slots[index] = Some(cell.clone());
    let driver = std::future::poll_fn(move |cx| {
        cell.counted.polled(cx.waker());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let mut future = cell.future.borrow_mut();
            let polled = match future.as_mut() {
                Some(future) => future.as_mut().poll(&mut Context::from_waker(&cell.waker)),
                None => Poll::Ready(()),
            };
            if polled.is_ready() {
                *future = None;
            }
            polled
        }));
        let polled = polled.unwrap_or_else(|panic| {
            tracing::error!("a task panicked: {}", panic_text(&*panic));
            // Dropping what it held may panic too.
            let _ = catch_unwind(AssertUnwindSafe(|| cell.future.take()));
            Poll::Ready(())
        });
        if polled.is_ready() {
            cell.counted.done();
        }
        if polled.is_ready()
            && let Some(local) = LOCAL.with(|l| l.borrow().clone())
        {
            let mut tasks = local.tasks.borrow_mut();
            if let Some(slot) = tasks.slots.get_mut(index) {
                *slot = None;
                tasks.free.push(index);
            }
        }
        polled
    });
    match glommio::spawn_local_into(driver, local.queues[queue as usize]) {
        Ok(task) => {
            task.detach();
        }
        Err(e) => tracing::error!("a task could not be started: {e}"),
    }
}

impl Local {
    /// Drops the tasks that have not ended, and lets no more start. What others sent here goes too, so that
    /// they notice.
    fn end_tasks(&self) {
        let slots = {
            let mut tasks = self.tasks.borrow_mut();
            tasks.ended = true;
            std::mem::take(&mut tasks.slots)
        };
        for cell in slots.into_iter().flatten() {
            cell.counted.done();
            let _ = catch_unwind(AssertUnwindSafe(|| cell.future.take()));
        }
        self.outbox.close();
        drop(self.inbox.take());
    }
}

/// Waits.
pub async fn sleep(time: Duration) {
    glommio::timer::sleep(time).await;
}

/// The future's answer, or `None` when it takes longer than `limit`; it is dropped then.
pub async fn timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let timer = async {
        sleep(limit).await;
        None
    };
    async { Some(future.await) }.or(timer).await
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

struct RealTasks;

impl Tasks for RealTasks {
    fn spawn(&self, queue: TaskQueue, task: LocalFuture<'static, ()>) {
        spawn_boxed(queue, task);
    }
    fn yield_if_needed(&self) -> LocalFuture<'_, ()> {
        // It gives the whole queue's turn away, not only this task's: that is what lets an acknowledgement
        // pass a merge.
        Box::pin(async {
            if local().due.take() {
                glommio::executor().yield_task_queue_now().await;
            } else {
                glommio::executor().yield_if_needed().await;
            }
        })
    }
    fn should_yield(&self) -> bool {
        // A commit that is done, a message of another executor and a statement that has come need not wait for
        // the end of a scan's time slice, and for the reactor's next round after that.
        let local = local();
        let now = Instant::now();
        let woken = match local.pulse.notice() {
            None => {
                local.step_began.set(now);
                false
            }
            Some(woken) => {
                let long = now.duration_since(local.step_began.get()) >= SHARED_SLICE;
                woken | (long && local.pulse.runnable() > 0) | local.poller.notice(now)
            }
        };
        if local.ring.notice() | woken {
            local.due.set(true);
        }
        local.due.get() || glommio::executor().need_preempt()
    }
    fn sleep(&self, time: Duration) -> LocalFuture<'_, ()> {
        Box::pin(sleep(time))
    }
}

/// Told to all executors when the server is to end.
#[derive(Default)]
struct Stop {
    asked: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Stop {
    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    async fn asked(&self) {
        std::future::poll_fn(|cx| {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if self.asked.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// What an executor's main future is given.
#[derive(Clone)]
pub struct ExecutorContext {
    index: usize,
    count: usize,
    rings: Arc<[Sender<Job>]>,
    stop: Arc<Stop>,
    pulse: Arc<Pulse>,
}

impl ExecutorContext {
    /// Which executor this is, from 0.
    pub fn index(&self) -> usize {
        self.index
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }
    /// The way from the executor that calls it to the others (and to itself).
    pub fn mailboxes(&self) -> Mailboxes {
        Mailboxes(local().outbox.clone())
    }
    /// The world below the directory `root`.
    pub fn env(&self, root: &Path) -> Env {
        Env {
            disk: Rc::new(RealDisk::new(root, local().ring.clone())),
            clock: Rc::new(RealClock),
            random: Rc::new(RealRandom::new()),
            tasks: Rc::new(RealTasks),
        }
    }
    /// From now on runs the jobs that others send here, giving `state` to each; those that came earlier
    /// have waited. Call it once.
    pub fn serve(&self, state: Rc<dyn Any>) {
        let Some(mut inbox) = local().inbox.take() else {
            tracing::error!("executor {} serves its mailbox already", self.index);
            return;
        };
        spawn(TaskQueue::Ingest, async move {
            let mut jobs = Vec::with_capacity(JOBS_AT_A_TIME);
            while inbox.recv_many(&mut jobs, JOBS_AT_A_TIME).await > 0 {
                for job in jobs.drain(..) {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&state))) {
                        tracing::error!("a job panicked: {}", panic_text(&*panic));
                    }
                    glommio::executor().yield_if_needed().await;
                }
            }
        });
    }
    /// Asks all executors to end; [`ExecutorContext::stopped`] returns on each.
    pub fn stop(&self) {
        self.stop.ask();
    }
    /// Returns once somebody has asked to end, or an executor's main has failed.
    pub async fn stopped(&self) {
        self.stop.asked().await;
    }
}

/// The running executors.
pub struct Executors {
    handles: Vec<JoinHandle<Result<()>>>,
    pulses: Vec<Arc<Pulse>>,
    stop: Arc<Stop>,
}

/// Ends the process if its thread unwinds: an executor is gone with the shards on it, and the others would
/// wait for it for ever.
struct DeathWatch(usize, Arc<Pulse>);

impl Drop for DeathWatch {
    fn drop(&mut self) {
        self.1.ended();
        if std::thread::panicking() {
            die(self.0);
        }
    }
}

fn die(index: usize) -> ! {
    tracing::error!("executor {index} died; the process ends");
    eprintln!("strandline: executor {index} died; the process ends");
    std::process::exit(EXIT_DIED);
}

impl Executors {
    /// Starts `count` executors, each pinned to a core of its own where there are enough, and runs `main` on
    /// each. An executor ends when its `main` does; its other tasks are dropped then.
    ///
    /// # Errors
    /// `55000` when one cannot be started; those that were started are asked to stop.
    pub fn start<F>(count: usize, main: F) -> Result<Executors>
    where
        F: Fn(ExecutorContext) -> LocalFuture<'static, Result<()>> + Send + Sync + 'static,
    {
        let cores = allowed_cores();
        let (rings, inboxes) = rings(count);
        let rings: Arc<[_]> = rings.into();
        let stop = Arc::new(Stop::default());
        let main = Arc::new(main);
        let mut handles = Vec::with_capacity(count);
        let pulses: Vec<_> = (0..count).map(|_| Arc::new(Pulse::default())).collect();
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let placement = match cores.get(index) {
                Some(core) if count <= cores.len() => Placement::Fixed(*core),
                _ => Placement::Unbound,
            };
            let context = ExecutorContext {
                index,
                count,
                rings: rings.clone(),
                stop: stop.clone(),
                pulse: pulses[index].clone(),
            };
            let main = main.clone();
            let started = std::thread::Builder::new()
                .name(format!("strandline-{}", index + 1))
                .spawn(move || run_thread(placement, context, inbox, main));
            match started {
                Ok(handle) => handles.push(handle),
                Err(e) => {
                    stop.ask();
                    pulses[index..].iter().for_each(|p| p.ended());
                    let _ = watch(pulses);
                    return Err(refusal(index, &e));
                }
            }
        }
        if let Err(e) = watch(pulses.clone()) {
            stop.ask();
            return Err(refusal(0, &format_args!("the thread that watches: {e}")));
        }
        Ok(Executors {
            handles,
            pulses,
            stop,
        })
    }

    /// Asks all of them to end; from any thread.
    pub fn stop(&self) {
        self.stop.ask();
    }

    /// Waits for all of them to end.
    ///
    /// # Errors
    /// The first error of a `main`, in the order of executors, or why an executor could not start. One that
    /// only went down because another did (`57P01`) does not hide that other's reason.
    pub fn join(self) -> Result<()> {
        let mut first: Result<()> = Ok(());
        for (index, handle) in self.handles.into_iter().enumerate() {
            let ended = match handle.join() {
                Ok(ended) => ended,
                Err(panic) => Err(refusal(index, &panic_text(&*panic))),
            };
            // One that could not start has not said so.
            self.pulses[index].ended();
            first = match (first, ended) {
                (Err(f), Err(e)) if f.state() == SqlState::AdminShutdown => Err(e),
                (first, ended) => first.and(ended),
            };
        }
        first
    }
}

fn refusal(index: usize, e: &dyn std::fmt::Display) -> Error {
    Error::new(
        SqlState::ObjectNotInPrerequisiteState,
        format!("executor {index} could not run: {e}"),
    )
}

/// An executor's thread. The executor is made here and not by glommio's own `spawn`, so that the pulse knows
/// the thread before anything is to run on it.
fn run_thread<F>(
    placement: Placement,
    context: ExecutorContext,
    inbox: Receiver<Job>,
    main: Arc<F>,
) -> Result<()>
where
    F: Fn(ExecutorContext) -> LocalFuture<'static, Result<()>> + 'static,
{
    let executor = LocalExecutorBuilder::new(placement)
        .name("strandline")
        .io_memory(IO_MEMORY_BYTES)
        .preempt_timer(TIME_SLICE)
        .make();
    match executor {
        Ok(executor) => {
            context.pulse.started();
            executor.run(run(context, inbox, main))
        }
        Err(e) => {
            // The others would wait for it for ever.
            context.stop();
            Err(refusal(context.index, &e))
        }
    }
}

async fn run<F>(context: ExecutorContext, inbox: Receiver<Job>, main: Arc<F>) -> Result<()>
where
    F: Fn(ExecutorContext) -> LocalFuture<'static, Result<()>> + 'static,
{
    if let Err(e) = super::slice::shorten() {
        tracing::debug!("the time slice stays as it is: {e}");
    }
    let _watch = DeathWatch(context.index, context.pulse.clone());
    context.pulse.running();
    let ring = Ring::new(context.pulse.clone())
        .map_err(|e| refusal(context.index, &format_args!("io_uring for files: {e}")));
    let ring = match ring {
        Ok(ring) => ring,
        Err(e) => {
            context.stop();
            return Err(e);
        }
    };
    let poller = match Poller::new() {
        Ok(poller) => poller,
        Err(e) => {
            context.stop();
            return Err(refusal(context.index, &format_args!("epoll: {e}")));
        }
    };
    let queues = SHARES.map(|(queue, shares, name)| {
        let latency = match queue {
            TaskQueue::Ingest => Latency::Matters(TIME_SLICE),
            _ => Latency::NotImportant,
        };
        glommio::executor().create_task_queue(Shares::Static(shares), latency, name)
    });
    let local = Rc::new(Local {
        queues,
        ring: ring.clone(),
        poller: poller.clone(),
        due: Cell::new(false),
        step_began: Cell::new(Instant::now()),
        tasks: RefCell::default(),
        pulse: context.pulse.clone(),
        outbox: Outbox::new(&context.rings),
        inbox: RefCell::new(Some(inbox)),
    });
    LOCAL.with(|l| *l.borrow_mut() = Some(local.clone()));
    spawn(TaskQueue::Ingest, ring.reap());
    spawn(TaskQueue::Ingest, poller.serve());
    let (stop, pulse, index) = (context.stop.clone(), context.pulse.clone(), context.index);
    // It runs as a task like all others, so that it is woken as surely as they are.
    let (report, reported) = futures_channel::oneshot::channel();
    spawn(TaskQueue::Query, async move {
        let ended = AssertUnwindSafe(main(context)).catch_unwind().await;
        pulse.ending();
        let _ = report.send(ended);
    });
    let ended = match reported.await {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => {
            tracing::error!("main panicked: {}", panic_text(&*panic));
            die(index)
        }
        Err(_) => Err(Error::internal("an executor's main was dropped")),
    };
    if ended.is_err() {
        stop.ask();
    }
    local.end_tasks();
    LOCAL.with(|l| l.borrow_mut().take());
    ended
}

/// The cores that this process may use: a container's set need not start at 0.
fn allowed_cores() -> Vec<usize> {
    // SAFETY: a cpu_set_t is a plain bit set, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: the pointer is to a live set of ours, and the size is its size.
    if unsafe { libc::sched_getaffinity(0, size, &mut set) } != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|core| unsafe { libc::CPU_ISSET(*core, &set) })
        .collect()
}

/// How many cores this process may use: the default number of executors.
pub fn cores() -> usize {
    allowed_cores().len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::Hop;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn jobs_cross_and_panics_stay_inside() {
        let hits = Arc::new(AtomicUsize::new(0));
        let counted = hits.clone();
        let executors = Executors::start(2, move |cx| {
            let hits = counted.clone();
            Box::pin(async move {
                cx.serve(Rc::new(cx.index()));
                spawn(TaskQueue::Background, async { panic!("caught") });
                let (index, other) = (cx.index(), 1 - cx.index());
                for n in 0..100 {
                    let (reply, answer) = futures_channel::oneshot::channel();
                    let hits = hits.clone();
                    cx.mailboxes().send(
                        other,
                        Box::new(move |state| {
                            hits.fetch_add(1, Ordering::Relaxed);
                            let own = state.downcast_ref::<usize>().copied();
                            assert!(n != 50, "a job panics and takes its reply with it");
                            let _ = reply.send(own);
                        }),
                    );
                    match answer.await {
                        Ok(own) => assert_eq!(own, Some(other)),
                        Err(_) => assert_eq!(n, 50),
                    }
                }
                if timeout(Duration::from_millis(1), cx.stopped())
                    .await
                    .is_some()
                {
                    return Ok(());
                }
                // Neither may end while the other still asks it.
                let (done, other_done) = futures_channel::oneshot::channel();
                let context = cx.clone();
                cx.mailboxes().send(
                    other,
                    Box::new(move |_| {
                        let _ = done.send(());
                        if index == 1 {
                            context.stop();
                        }
                    }),
                );
                let _ = other_done.await;
                cx.stopped().await;
                Ok(())
            })
        })
        .unwrap();
        executors.join().unwrap();
        assert_eq!(hits.load(Ordering::Relaxed), 200);
    }

    /// Messages go there and back beside a task that never ends and gives way when it is asked to: each takes
    /// a few of its steps, not a whole time slice for each way.
    #[test]
    fn messages_pass_long_tasks() {
        const STEP: Duration = Duration::from_micros(20);
        const TRIPS: u32 = 200;
        let executors = Executors::start(2, move |cx| {
            Box::pin(async move {
                cx.serve(Rc::new(()));
                let steps = Rc::new(Cell::new(0_u32));
                let counted = steps.clone();
                spawn(TaskQueue::Query, async move {
                    loop {
                        let begun = Instant::now();
                        while begun.elapsed() < STEP {
                            std::hint::spin_loop();
                        }
                        counted.set(counted.get() + 1);
                        if RealTasks.should_yield() {
                            RealTasks.yield_if_needed().await;
                        }
                    }
                });
                if cx.index() == 1 {
                    cx.stopped().await;
                    return Ok(());
                }
                let (done, ended) = futures_channel::oneshot::channel();
                let sender = cx.clone();
                spawn(TaskQueue::Ingest, async move {
                    let before = steps.get();
                    for _ in 0..TRIPS {
                        let (reply, answer) = futures_channel::oneshot::channel();
                        sender.mailboxes().send(
                            1,
                            Box::new(move |_| {
                                let _ = reply.send(());
                            }),
                        );
                        let _ = answer.await;
                    }
                    let _ = done.send(steps.get() - before);
                });
                let steps = ended.await.unwrap_or(u32::MAX);
                cx.stop();
                // A time slice is fifty steps, and both ways would wait for half of one at the least.
                assert!(steps < TRIPS * 40, "{steps} steps for {TRIPS} round trips");
                Ok(())
            })
        })
        .unwrap();
        executors.join().unwrap();
    }

    #[test]
    fn a_failing_main_stops_the_others_and_is_reported() {
        let executors = Executors::start(2, |cx| {
            Box::pin(async move {
                if cx.index() == 1 {
                    return Err(Error::internal("on purpose"));
                }
                cx.stopped().await;
                // As one says that waited for the other.
                Err(Error::new(SqlState::AdminShutdown, "another failed"))
            })
        })
        .unwrap();
        assert_eq!(executors.join().unwrap_err().message(), "on purpose");
    }
}
