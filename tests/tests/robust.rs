//! What must hold whatever the bytes are: fuzz targets over everything that comes from a disk or a network, and
//! data directories of earlier versions.
//!
//! | setting | does |
//! |---|---|
//! | `STRANDLINE_FUZZ_SECONDS=60` | time of each target; a few seconds unless set |
//! | `STRANDLINE_FUZZ_SEED=7` | other inputs; the same seed gives the same inputs in the same order |
//! | `STRANDLINE_FUZZ_INPUT=file` | one input, as a failing run has written it |

// Fuzzing is bounded by the clock and watched by a thread.
#![allow(clippy::disallowed_methods)]

#[path = "robust/alloc.rs"]
mod alloc;
#[path = "robust/bodies.rs"]
mod bodies;
#[path = "robust/codecs.rs"]
mod codecs;
#[path = "robust/compat.rs"]
mod compat;
#[path = "robust/database.rs"]
mod database;
#[path = "robust/fuzz.rs"]
mod fuzz;
#[path = "robust/log.rs"]
mod log;
#[path = "robust/memdisk.rs"]
mod memdisk;
#[path = "robust/mutate.rs"]
mod mutate;
#[path = "robust/plain.rs"]
mod plain;
#[path = "robust/protocols.rs"]
mod protocols;
#[path = "robust/sealed.rs"]
mod sealed;
#[path = "robust/segments.rs"]
mod segments;
#[path = "robust/sql.rs"]
mod sql;
#[path = "robust/whole.rs"]
mod whole;
#[path = "robust/wire.rs"]
mod wire;
