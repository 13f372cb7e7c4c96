//! The plain parser of lines, which the fast one is held against: the file that the unit tests of `net` use.

pub use strandline_net::ilp::{local, parser, precision};

#[path = "../../../net/src/ilp/reference.rs"]
pub mod reference;
