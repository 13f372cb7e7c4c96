//! What the integration tests share. The tests themselves stand in `tests/tests/`, in few binaries.

pub mod sim;
