//! Whole databases in one thread, over a simulated disk, clock, mailbox and scheduler, from a seed.

pub mod disk;
pub mod model;
pub mod process;
pub mod run;
pub mod world;
