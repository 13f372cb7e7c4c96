//! The strandline binary.
fn main() {}
