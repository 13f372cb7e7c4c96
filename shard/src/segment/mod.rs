//! Segment files on disk: written by a [`SegmentSink`], read through an opened [`Segment`] and the
//! executor's [`BlockCache`]. The layout is `core::format::segment`; what columns and keys mean is the
//! stores' business.

mod cache;
mod reader;
mod sink;
#[cfg(test)]
mod tests;

pub use cache::BlockCache;
pub use reader::{Segment, Trash};
pub use sink::{SegmentFile, SegmentSink};
pub use strandline_core::codec::Effort;
pub use strandline_core::format::decoded::{DecodedBlock, DecodedColumn};

use std::io;
use strandline_core::error::{Error, SqlState};
use strandline_core::format::segment::SegmentError;
use strandline_core::ids::SegmentId;

/// Ends the name of a segment.
const SUFFIX: &str = ".seg";
/// Ends the name of a file that is not finished; such files are removed at the next start.
pub const TMP_SUFFIX: &str = ".tmp";

/// The name of a segment's file in its shard's directory: `0000000000000012.seg`.
pub fn file_name(id: SegmentId) -> String {
    format!("{:016}{SUFFIX}", id.0)
}

/// The segment whose file has this name; none for any other file.
pub fn parse_file_name(name: &str) -> Option<SegmentId> {
    let id = SegmentId(name.strip_suffix(SUFFIX)?.parse().ok()?);
    (file_name(id) == name).then_some(id)
}

/// An operation on a file that failed, as the client sees it.
fn io_error(doing: &str, path: &str, e: &io::Error) -> Error {
    let state = match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            SqlState::DiskFull
        }
        _ => SqlState::IoError,
    };
    Error::new(state, format!("cannot {doing} segment {path}: {e}"))
}

/// A segment that fails its checks at a place of its file.
fn damaged(path: &str, offset: u64, what: &dyn std::fmt::Display) -> Error {
    Error::corrupted(format!(
        "segment {path} is damaged at offset {offset}: {what}"
    ))
}

/// As [`damaged`], for what the layout says; a newer version is no damage.
fn layout_error(path: &str, offset: u64, e: SegmentError) -> Error {
    match e {
        SegmentError::Newer { .. } => Error::unsupported(format!("segment {path} has {e}"))
            .hint("open the database with the release that wrote it, or a later one"),
        e => damaged(path, offset, &e),
    }
}
