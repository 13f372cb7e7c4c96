//! Reading and writing the small fields inside a chunk. Everything read is bounded by the bytes that are
//! there.

use super::CodecError;

/// What is left of a chunk.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }
    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], CodecError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }
    pub(super) fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(self.take(1)?[0])
    }
    pub(super) fn u64(&mut self) -> Result<u64, CodecError> {
        let mut le = [0; 8];
        le.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(le))
    }
    /// LEB128, at most ten bytes.
    pub(super) fn varint(&mut self) -> Result<u64, CodecError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = (byte & 0x7F) as u64;
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(CodecError::Invalid("a varint"))
    }
    pub(super) fn signed(&mut self) -> Result<i64, CodecError> {
        self.varint().map(unzigzag)
    }
    /// A length of bytes that follow in this chunk.
    pub(super) fn prefixed(&mut self) -> Result<&'a [u8], CodecError> {
        let n = usize::try_from(self.varint()?).map_err(|_| CodecError::Truncated)?;
        self.take(n)
    }
    /// What is there, without taking it.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Bytes that nobody asked for are damage too.
    pub(super) fn end(&self) -> Result<(), CodecError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(CodecError::Invalid("bytes behind the end"))
        }
    }
}

pub(super) fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

pub(super) fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

pub(super) fn put_varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

pub(super) fn put_signed(v: i64, out: &mut Vec<u8>) {
    put_varint(zigzag(v), out);
}

pub(super) fn put_prefixed(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Bytes that [`put_varint`] takes.
pub(super) fn varint_len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}
