//! Crossing to another executor. The real mailbox stands in `runtime/`, the simulated one in `tests/sim`.

use std::any::Any;
use std::rc::Rc;

/// What is done on another executor. It gets what that executor serves (the value it gave to its
/// mailbox), must not block, and starts a task of its own there for anything that waits.
pub type Job = Box<dyn FnOnce(&Rc<dyn Any>) + Send>;

/// Sends work to executors.
pub trait Hop {
    /// Runs `job` on executor `executor` soon, in the order of sending. It never waits, so whoever sends
    /// must bound what is on its way: by an answer that it waits for, or by bytes in flight. Work for an
    /// executor that has ended is dropped, which the sender notices by whatever reply it waits for being
    /// dropped too; and so is what an executor could not hand over before it ended itself.
    fn send(&self, executor: usize, job: Job);
}
