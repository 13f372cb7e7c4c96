//! The real world: executors, files, sockets, time, signals. The only place that names glommio or
//! io_uring; everything else reaches them through `core::io`, [`crate::hop`] and the types here.
//!
//! | module | holds |
//! |---|---|
//! | [`executors`] | a pinned executor per core, its task queues |
//! | [`mailbox`] | jobs from one executor to another |
//! | `ring` | the executor's own io_uring for files: a write and its fdatasync are one submission |
//! | `pulse` | keeps executors from sleeping on work |
//! | `disk` | `core::io::Disk` over `ring` |
//! | [`net`] | listeners and streams |
//! | `poller` | which sockets are ready |
//! | [`probe`] | what the machine must allow, each with its remedy |
//! | [`lock`] | one process per data directory |
//! | [`signals`] | SIGTERM and SIGINT as a future |
//!
//! Why files do not go through glommio: its write and its fdatasync are two trips through the reactor
//! (1.5 times the latency of one commit), and it copies reads once more. Its poll, scheduler, timers and
//! thread pool are what we use.
#![allow(clippy::disallowed_methods)] // the one place where time, files and threads are real

mod disk;
pub mod executors;
pub mod lock;
pub mod mailbox;
pub mod net;
mod poller;
pub mod probe;
mod pulse;
mod ring;
pub mod signals;
mod slice;
mod world;

pub use executors::{ExecutorContext, Executors, sleep, spawn, timeout};
pub use lock::DataLock;
pub use mailbox::Mailboxes;
pub use probe::probe;
pub use world::{RealClock, RealRandom};
