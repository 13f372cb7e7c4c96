//! The simulated world: one seed decides the order in which tasks run, how long each disk operation and
//! message takes, what a crash leaves of unsynced writes, and which operations fail. Virtual time passes only
//! when no task can run.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use strandline_core::io::{Clock, LocalFuture, Random, TaskQueue, Tasks};

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
#[derive(Debug)]
pub struct Rng(Cell<u64>);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Rng(Cell::new(seed))
    }
    /// 64 bits.
    pub fn next(&self) -> u64 {
        let s = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(s);
        let z = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// Below `n` (≥ 1).
    pub fn below(&self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    /// From `low` to `high`.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    /// True once in `n`.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl Random for Rng {
    fn next_u64(&self) -> u64 {
        self.next()
    }
}

#[derive(Default)]
struct Ready(Mutex<Vec<u64>>);

struct TaskWaker {
    id: u64,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.0.lock().expect("one thread");
        if !ready.contains(&self.id) {
            ready.push(self.id);
        }
    }
}

/// The scheduler, the clock and the timers.
pub struct World {
    /// Random numbers of the whole run.
    pub rng: Rng,
    ready: Arc<Ready>,
    tasks: RefCell<BTreeMap<u64, LocalFuture<'static, ()>>>,
    next_task: Cell<u64>,
    timers: RefCell<BinaryHeap<Reverse<(u64, u64)>>>,
    timer_wakers: RefCell<BTreeMap<u64, Waker>>,
    next_timer: Cell<u64>,
    now_ns: Cell<u64>,
    /// What the wall clock is off by; steps back and forth during a run.
    skew_ms: Cell<i64>,
    steps: Cell<u64>,
    trace: Cell<u64>,
}

/// The wall clock at virtual time 0.
const START_MS: i64 = 1_767_225_600_000;

impl World {
    /// From a seed.
    pub fn new(seed: u64) -> Rc<Self> {
        Rc::new(World {
            rng: Rng::new(seed),
            ready: Arc::default(),
            tasks: RefCell::default(),
            next_task: Cell::new(0),
            timers: RefCell::default(),
            timer_wakers: RefCell::default(),
            next_timer: Cell::new(0),
            now_ns: Cell::new(0),
            skew_ms: Cell::new(0),
            steps: Cell::new(0),
            trace: Cell::new(seed),
        })
    }

    /// Starts a task.
    pub fn spawn(&self, task: LocalFuture<'static, ()>) -> u64 {
        let id = self.next_task.get();
        self.next_task.set(id + 1);
        self.tasks.borrow_mut().insert(id, task);
        self.ready.0.lock().expect("one thread").push(id);
        id
    }

    /// Runs one ready task, chosen by the seed, to its next await; lets time pass when none is ready. False:
    /// nothing will ever happen again.
    pub fn step(&self) -> bool {
        loop {
            let id = {
                let mut ready = self.ready.0.lock().expect("one thread");
                let n = ready.len() as u64;
                if n == 0 {
                    None
                } else {
                    Some(ready.swap_remove(self.rng.below(n) as usize))
                }
            };
            let Some(id) = id else {
                if self.pass_time() {
                    continue;
                }
                return false;
            };
            let Some(mut task) = self.tasks.borrow_mut().remove(&id) else {
                continue;
            };
            let waker = Waker::from(Arc::new(TaskWaker {
                id,
                ready: self.ready.clone(),
            }));
            self.steps.set(self.steps.get() + 1);
            self.trace.set(
                (self.trace.get() ^ id)
                    .wrapping_mul(0x0100_0000_01B3)
                    .rotate_left(5)
                    ^ self.now_ns.get(),
            );
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                self.tasks.borrow_mut().insert(id, task);
            }
            return true;
        }
    }

    fn pass_time(&self) -> bool {
        let Some(Reverse((at, timer))) = self.timers.borrow_mut().pop() else {
            return false;
        };
        self.now_ns.set(self.now_ns.get().max(at));
        if let Some(waker) = self.timer_wakers.borrow_mut().remove(&timer) {
            waker.wake();
        }
        true
    }

    /// Runs until `done` is true. An error when nothing can happen any more or after too many steps.
    pub fn run_until(&self, what: &str, mut done: impl FnMut() -> bool) -> Result<(), String> {
        let limit = self.steps.get() + 3_000_000;
        while !done() {
            if !self.step() {
                return Err(format!(
                    "{what}: every task waits and nothing will wake one"
                ));
            }
            if self.steps.get() > limit {
                return Err(format!("{what}: no end after 3,000,000 steps"));
            }
        }
        Ok(())
    }

    /// Runs a future to its end, with everything else running beside it.
    pub fn block_on<T: 'static>(
        self: &Rc<Self>,
        what: &str,
        future: impl Future<Output = T> + 'static,
    ) -> Result<T, String> {
        let slot: Rc<RefCell<Option<T>>> = Rc::default();
        let out = slot.clone();
        self.spawn(Box::pin(async move {
            let value = future.await;
            *out.borrow_mut() = Some(value);
        }));
        self.run_until(what, || slot.borrow().is_some())?;
        slot.borrow_mut().take().ok_or_else(|| what.to_string())
    }

    /// A crash of the process: every task is gone where it stands.
    pub fn kill_tasks(&self) {
        loop {
            // A task's destructor may wake or even spawn others.
            let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        self.ready.0.lock().expect("one thread").clear();
        self.timers.borrow_mut().clear();
        self.timer_wakers.borrow_mut().clear();
    }

    /// Waits a virtual time.
    pub fn sleep_ns(self: &Rc<Self>, ns: u64) -> Sleep {
        Sleep {
            world: self.clone(),
            at: self.now_ns.get() + ns,
            timer: None,
        }
    }

    /// Steps the wall clock, back or forth.
    pub fn skew(&self, ms: i64) {
        self.skew_ms.set(ms);
    }
    /// Tasks polled so far.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }
    /// A hash of everything that ran, in order, with its time: equal for equal seeds.
    pub fn trace(&self) -> u64 {
        self.trace.get() ^ self.rng.next()
    }
}

/// See [`World::sleep_ns`].
pub struct Sleep {
    world: Rc<World>,
    at: u64,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.world.now_ns.get() >= self.at && self.timer.is_some() {
            return Poll::Ready(());
        }
        let id = match self.timer {
            Some(id) => id,
            None => {
                let id = self.world.next_timer.get();
                self.world.next_timer.set(id + 1);
                self.world.timers.borrow_mut().push(Reverse((self.at, id)));
                self.timer = Some(id);
                id
            }
        };
        self.world
            .timer_wakers
            .borrow_mut()
            .insert(id, cx.waker().clone());
        Poll::Pending
    }
}

/// `core::io`'s clock over a world.
pub struct SimClock(pub Rc<World>);

impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        START_MS + (self.0.now_ns.get() / 1_000_000) as i64 + self.0.skew_ms.get()
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.now_ns.get()
    }
}

/// `core::io`'s random numbers over a world.
pub struct SimRandom(pub Rc<World>);

impl Random for SimRandom {
    fn next_u64(&self) -> u64 {
        self.0.rng.next()
    }
}

/// `core::io`'s tasks over a world.
pub struct SimTasks(pub Rc<World>);

impl Tasks for SimTasks {
    fn spawn(&self, _queue: TaskQueue, task: LocalFuture<'static, ()>) {
        self.0.spawn(task);
    }
    fn yield_if_needed(&self) -> LocalFuture<'_, ()> {
        let mut yielded = false;
        Box::pin(std::future::poll_fn(move |cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
    fn should_yield(&self) -> bool {
        // Often enough that a crash and other tasks come between any two steps of a long loop.
        self.0.rng.one_in(8)
    }
    fn sleep(&self, time: Duration) -> LocalFuture<'_, ()> {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Box::pin(self.0.sleep_ns(ns))
    }
}
