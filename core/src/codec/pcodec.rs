//! The one place that calls `pco`.

use super::{CodecError, Effort};
use pco::data_types::Number;
use pco::standalone::{DecompressorItem, FileDecompressor, simple_compress};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

/// `pco` must save at least one part in so many, or the encoding that decodes faster is kept.
pub(super) const SAVING_ASKED: usize = 16;

/// Measured on blocks of 4096: 55 to 75 million numbers per second at level 2, and 35 to 70 at level 6,
/// which gives 1 to 3 % away to level 8 and is two to three times as fast.
const LEVEL_FLUSH: usize = 2;
const LEVEL_MERGE: usize = 6;

/// Compresses, if that takes less than `limit` bytes. `order`: how often differences are taken (0 to 2).
///
/// The caller says the order and finds common factors itself, because `pco`'s own search for them costs
/// ten times what it then does.
pub(super) fn encode<T: Number>(
    values: &[T],
    order: usize,
    effort: Effort,
    limit: usize,
) -> Option<Vec<u8>> {
    let level = match effort {
        Effort::Flush => LEVEL_FLUSH,
        Effort::Merge => LEVEL_MERGE,
    };
    let delta = match order {
        0 => DeltaSpec::NoOp,
        _ => DeltaSpec::TryConsecutive(order),
    };
    let config = ChunkConfig::default()
        .with_compression_level(level)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(delta);
    simple_compress(values, &config)
        .ok()
        .filter(|bytes| bytes.len() < limit)
}

/// Decompresses exactly `n` numbers.
///
/// `pco` reserves what a chunk's first words promise (hundreds of MiB for a dictionary, 128 for a window), so
/// only what [`encode`] makes is let through to it: one chunk, classic, with consecutive differences at most.
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
