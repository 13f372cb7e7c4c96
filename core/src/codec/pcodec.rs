//! The one place that calls `pco`.

use super::CodecError;
use pco::ChunkConfig;
use pco::data_types::Number;
use pco::standalone::{simple_compress, simple_decompress_into};

/// `pco` must save at least one part in so many, or the encoding that decodes faster is kept.
pub(super) const SAVING_ASKED: usize = 16;

/// Compresses, if that takes less than `limit` bytes.
pub(super) fn encode<T: Number>(values: &[T], limit: usize) -> Option<Vec<u8>> {
    let config = ChunkConfig::default();
    simple_compress(values, &config)
        .ok()
        .filter(|bytes| bytes.len() < limit)
}

/// Decompresses exactly `n` numbers.
pub(super) fn decode<T: Number + Default>(bytes: &[u8], n: usize) -> Result<Vec<T>, CodecError> {
    let mut out = vec![T::default(); n];
    let progress = simple_decompress_into(bytes, &mut out)
        .map_err(|_| CodecError::Invalid("numbers packed with pco"))?;
    // `finished` cannot be asked for: with a full destination pco stops before it sees the end mark.
    if progress.n_processed != n {
        return Err(CodecError::Invalid("the count of numbers packed with pco"));
    }
    Ok(out)
}
