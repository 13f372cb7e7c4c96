//! Whole databases in one thread, over a simulated disk, clock, mailbox and scheduler, from a seed.
//!
//! | module | holds |
//! |---|---|
//! | [`world`], [`disk`], [`process`] | scheduler and clock; the disk and its faults; a database in them |
//! | [`model`] | what is known: acknowledged, tried, seen |
//! | [`reads`] | reads through the engine, and queries made up from a seed |
//! | [`client`], [`check`] | what happens while others write; what must hold when nobody does |
//! | [`run`] | a seed from its first start to its last |

pub mod check;
pub mod client;
pub mod disk;
pub mod model;
pub mod process;
pub mod reads;
pub mod run;
pub mod world;
