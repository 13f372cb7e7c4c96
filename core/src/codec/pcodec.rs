//! The one place that calls `pco`, whose files earlier versions wrote. Nothing writes them any more:
//! [`super::symbols`] is smaller on nearly everything, and faster both ways.

use super::CodecError;
use pco::data_types::Number;
use pco::standalone::{DecompressorItem, FileDecompressor};

/// Decompresses exactly `n` numbers.
///
/// `pco` reserves what a chunk's first words promise (hundreds of MiB for a dictionary, 128 for a window), so
/// only what was written is let through to it: one chunk, classic, with consecutive differences at most.
pub(super) fn decode<T: Number + Default>(bytes: &[u8], n: usize) -> Result<Vec<T>, CodecError> {
    const INVALID: CodecError = CodecError::Invalid("numbers packed with pco");
    let (file, chunks) = FileDecompressor::new(bytes).map_err(|_| INVALID)?;
    // From version 3 on a chunk is: 1 byte type, 3 bytes count, 4 bits mode, 4 bits kind of differences.
    let (mode, differences) = chunks.get(4).map(|b| (b & 15, b >> 4)).ok_or(INVALID)?;
    if file.format_version().major < 3 || mode != 0 || differences > 1 {
        return Err(INVALID);
    }
    let Ok(DecompressorItem::Chunk(mut chunk)) = file.chunk_decompressor::<T, _>(chunks) else {
        return Err(INVALID);
    };
    if chunk.n() != n {
        return Err(CodecError::Invalid("the count of numbers packed with pco"));
    }
    let mut out = vec![T::default(); n];
    let progress = chunk.read(&mut out).map_err(|_| INVALID)?;
    // The end mark, which closes the file.
    if progress.n_processed != n || chunk.into_src() != [0] {
        return Err(INVALID);
    }
    Ok(out)
}
