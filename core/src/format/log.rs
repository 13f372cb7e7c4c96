//! How a shard's log looks on disk, and a scanner that reads it without ever trusting it. The byte tables
//! are in `docs/format.md`; a test holds the two together.
//!
//! A log is a row of files, each one header block and then frames. A frame is one commit: a header, the
//! records of the commit, zeros up to the next block. Every checksum is salted with a random number of the
//! file, so that what a recycled file held before never reads as a frame.
//!
//! ```text
//! │ file header │ frame: header, record, record, … 0 │ frame │ zeros, or frames of an earlier life │
//! 0             4096                                 multiples of 4096
//! ```

use crate::io::DIRECT_ALIGN;

/// Frames start on multiples of this, and files end on one.
pub const BLOCK_BYTES: usize = DIRECT_ALIGN as usize;
/// First bytes of a log file.
pub const FILE_MAGIC: [u8; 8] = *b"STRNDLOG";
/// First bytes of a frame.
pub const FRAME_MAGIC: [u8; 4] = *b"SLFR";
/// First bytes of the note of accepted losses.
pub const GAPS_MAGIC: [u8; 8] = *b"STRNDGAP";
/// Version of all of it.
pub const VERSION: u32 = 1;
/// Bytes of a file header; the rest of its block is zeros.
pub const FILE_HEADER_BYTES: usize = 36;
/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 40;
/// Bytes of a record header.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Bytes of the note's header, in front of its pairs of 16 bytes.
pub const GAPS_HEADER_BYTES: usize = 20;
/// All records of a frame, at most. A commit is at most what was pending, which has a limit of its own.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(FILE_HEADER_BYTES <= BLOCK_BYTES && FRAME_HEADER_BYTES <= BLOCK_BYTES);

/// What is wrong with bytes that should be a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Not a log file, or its header is damaged.
    #[error("the file header is damaged")]
    FileHeader,
    /// Written by a newer version.
    #[error("log format version {0} is newer than this server knows ({VERSION})")]
    Version(u32),
    /// A frame whose checksum is right and whose records do not add up.
    #[error("a record does not fit its frame")]
    Record,
    /// More than [`PAYLOAD_BYTES_MAX`] in one commit.
    #[error("a commit of the log would be over {PAYLOAD_BYTES_MAX} bytes")]
    TooLarge,
    /// The note of accepted losses is damaged.
    #[error("the note of accepted losses is damaged")]
    Gaps,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// What stands at the start of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The file's place in the row, from 1.
    pub number: u64,
    /// Goes into every checksum of the file's frames.
    pub salt: u64,
}

impl FileHeader {
    /// The file's first block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        block.extend_from_slice(&FILE_MAGIC);
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&0_u32.to_le_bytes());
        block.extend_from_slice(&self.number.to_le_bytes());
        block.extend_from_slice(&self.salt.to_le_bytes());
        block.extend_from_slice(&crc32c::crc32c(&block).to_le_bytes());
        block.resize(BLOCK_BYTES, 0);
        block
    }

    /// Reads the file's first block.
    pub fn decode(block: &[u8]) -> Result<FileHeader, LogError> {
        let bad = LogError::FileHeader;
        if !block.starts_with(&FILE_MAGIC) {
            return Err(bad);
        }
        let crc = u32_at(block, 32).ok_or(bad)?;
        if crc32c::crc32c(&block[..32]) != crc {
            return Err(bad);
        }
        let version = u32_at(block, 8).ok_or(bad)?;
        if version != VERSION {
            return Err(LogError::Version(version));
        }
        Ok(FileHeader {
            number: u64_at(block, 16).ok_or(bad)?,
            salt: u64_at(block, 24).ok_or(bad)?,
        })
    }
}

fn salted(salt: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

/// What stands at the start of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of its records.
    pub payload_bytes: u32,
    /// Their salted checksum.
    pub payload_crc: u32,
    /// Number of records, at least 1.
    pub records: u32,
    /// The commit's number, from 1, without gaps across files.
    pub commit: u64,
    /// Lsn of its first record; the others follow without gaps.
    pub first_lsn: u64,
    /// So many lsns before the first were given out and refused, because no file could be made for them.
    pub refused: u32,
}

impl FrameHeader {
    fn encode(&self, salt: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[..4].copy_from_slice(&FRAME_MAGIC);
        out[8..12].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[16..20].copy_from_slice(&self.records.to_le_bytes());
        out[20..24].copy_from_slice(&self.refused.to_le_bytes());
        out[24..32].copy_from_slice(&self.commit.to_le_bytes());
        out[32..40].copy_from_slice(&self.first_lsn.to_le_bytes());
        let crc = salted(salt, &out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a frame's header; `None` when there is no intact one of this file.
    pub fn decode(bytes: &[u8], salt: u64) -> Option<FrameHeader> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        if !bytes.starts_with(&FRAME_MAGIC) || salted(salt, &bytes[8..]) != u32_at(bytes, 4)? {
            return None;
        }
        let header = FrameHeader {
            payload_bytes: u32_at(bytes, 8)?,
            payload_crc: u32_at(bytes, 12)?,
            records: u32_at(bytes, 16)?,
            refused: u32_at(bytes, 20)?,
            commit: u64_at(bytes, 24)?,
            first_lsn: u64_at(bytes, 32)?,
        };
        let fits = header.payload_bytes as usize <= PAYLOAD_BYTES_MAX
            && header.records > 0
            && u64::from(header.refused) < header.first_lsn
            && header.end_lsn() < u64::MAX / 2
            && header.commit < u64::MAX / 2;
        fits.then_some(header)
    }

    /// Bytes of the whole frame, a multiple of [`BLOCK_BYTES`].
    pub fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES as u64 + u64::from(self.payload_bytes))
            .next_multiple_of(BLOCK_BYTES as u64)
    }

    /// The first lsn that it accounts for: of its first record, or of the first that was refused before it.
    pub fn begin_lsn(&self) -> u64 {
        self.first_lsn.saturating_sub(u64::from(self.refused))
    }

    /// One past its last record's lsn.
    pub fn end_lsn(&self) -> u64 {
        self.first_lsn.saturating_add(u64::from(self.records))
    }
}

/// Puts the records of one commit together.
#[derive(Debug, Default)]
pub struct FrameBuilder {
    bytes: Vec<u8>,
    records: u32,
}

impl FrameBuilder {
    /// Adds a record, whose bytes `encode` appends to what it is given.
    ///
    /// # Errors
    /// [`LogError::TooLarge`]; the frame is as before.
    pub fn push(&mut self, kind: u8, encode: &mut dyn FnMut(&mut Vec<u8>)) -> Result<(), LogError> {
        if self.bytes.is_empty() {
            self.bytes.resize(FRAME_HEADER_BYTES, 0);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        encode(&mut self.bytes);
        let len = self.bytes.len() - start - RECORD_HEADER_BYTES;
        if self.bytes.len() - FRAME_HEADER_BYTES > PAYLOAD_BYTES_MAX {
            self.bytes.truncate(start);
            return Err(LogError::TooLarge);
        }
        self.bytes[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
        self.bytes[start + 4] = kind;
        self.records += 1;
        Ok(())
    }

    /// Number of records so far.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that [`FrameBuilder::finish`] will give, a multiple of [`BLOCK_BYTES`].
    pub fn frame_bytes(&self) -> u64 {
        (self.bytes.len().max(FRAME_HEADER_BYTES) as u64).next_multiple_of(BLOCK_BYTES as u64)
    }

    /// The frame, ready to write. At least one record was pushed.
    pub fn finish(&mut self, salt: u64, commit: u64, first_lsn: u64, refused: u32) -> &[u8] {
        debug_assert!(self.records > 0);
        let padded = self.frame_bytes() as usize;
        let payload = self.bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            payload_crc: salted(salt, payload),
            records: self.records,
            commit,
            first_lsn,
            refused,
        };
        self.bytes.resize(padded, 0);
        self.bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode(salt));
        &self.bytes
    }

    /// Empties it; keeps up to `keep` bytes of its memory.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.records = 0;
    }
}

/// The records of a frame's payload: kind and bytes.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Records<'a> {
    /// Of the payload that belongs to `header`.
    pub fn new(header: &FrameHeader, payload: &'a [u8]) -> Records<'a> {
        Records {
            rest: payload,
            left: header.records,
        }
    }

    fn take(&mut self) -> Option<(u8, &'a [u8])> {
        let len = u32_at(self.rest, 0)? as usize;
        let (head, rest) = self.rest.split_at_checked(RECORD_HEADER_BYTES)?;
        let (record, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        self.left -= 1;
        Some((head[4], record))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(u8, &'a [u8]), LogError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            if self.rest.is_empty() {
                return None;
            }
            self.rest = &[];
            return Some(Err(LogError::Record));
        }
        let taken = self.take();
        if taken.is_none() {
            (self.rest, self.left) = (&[], 0);
        }
        Some(taken.ok_or(LogError::Record))
    }
}

/// What a [`Scanner`] finds next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// It needs these bytes of the file: call again with a window that begins at `offset` and holds at least
    /// `bytes`.
    Need {
        /// Where they begin.
        offset: u64,
        /// How many; they end within the file.
        bytes: u64,
    },
    /// An intact frame.
    Frame {
        /// Where it begins.
        offset: u64,
        /// Its header.
        header: FrameHeader,
        /// Its records.
        payload: &'a [u8],
    },
    /// No intact frame here, though one could begin here. The scanner goes on to search the file for frames
    /// behind it, and says this again only where it meets a header that is intact.
    Broken {
        /// Where.
        offset: u64,
        /// The header, when that is intact and the records are not.
        header: Option<FrameHeader>,
    },
    /// The end of the file.
    End,
}

/// Walks the frames of one file. It does no reading of its own: it is given windows of the file, which may be
/// any bytes at all.
#[derive(Clone, Debug)]
pub struct Scanner {
    salt: u64,
    size: u64,
    at: u64,
    searching: bool,
}

impl Scanner {
    /// Of a file of `size` bytes, from behind its header block.
    pub fn new(salt: u64, size: u64) -> Scanner {
        Scanner {
            salt,
            size,
            at: BLOCK_BYTES as u64,
            searching: false,
        }
    }

    /// The next find. `window` holds the file's bytes from `start` on. It always ends: each answer other than
    /// [`Step::Need`] moves on by a block at least.
    pub fn step<'w>(&mut self, start: u64, window: &'w [u8]) -> Step<'w> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        loop {
            let left = self.size.saturating_sub(self.at);
            if left < BLOCK {
                return Step::End;
            }
            let offset = self.at;
            let part = offset
                .checked_sub(start)
                .and_then(|skip| window.get(usize::try_from(skip).ok()?..))
                .unwrap_or_default();
            if part.len() < BLOCK_BYTES {
                return Step::Need {
                    offset,
                    bytes: BLOCK,
                };
            }
            let header = FrameHeader::decode(part, self.salt).filter(|h| h.frame_bytes() <= left);
            if let Some(header) = header {
                let payload_end = FRAME_HEADER_BYTES + header.payload_bytes as usize;
                let Some(payload) = part.get(FRAME_HEADER_BYTES..payload_end) else {
                    return Step::Need {
                        offset,
                        bytes: header.frame_bytes(),
                    };
                };
                if salted(self.salt, payload) == header.payload_crc {
                    self.at += header.frame_bytes();
                    self.searching = false;
                    return Step::Frame {
                        offset,
                        header,
                        payload,
                    };
                }
            }
            self.at += BLOCK;
            let first = !std::mem::replace(&mut self.searching, true);
            if first || header.is_some() {
                return Step::Broken { offset, header };
            }
        }
    }
}

/// Losses that an operator has accepted, as pairs of commit numbers: where the log broke off, and where it
/// goes on. A break before the first commit that is there counts from 0.
pub type Gaps = Vec<(u64, u64)>;

/// The note that makes an accepted loss stay accepted.
pub fn encode_gaps(gaps: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(GAPS_HEADER_BYTES + 16 * gaps.len());
    out.extend_from_slice(&GAPS_MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(gaps.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for (from, to) in gaps {
        out.extend_from_slice(&from.to_le_bytes());
        out.extend_from_slice(&to.to_le_bytes());
    }
    let crc = crc32c::crc32c(&out);
    out[16..20].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Reads the note.
///
/// # Errors
/// [`LogError::Gaps`], [`LogError::Version`].
pub fn decode_gaps(bytes: &[u8]) -> Result<Gaps, LogError> {
    let bad = LogError::Gaps;
    let crc = u32_at(bytes, 16).ok_or(bad)?;
    let mut zeroed = bytes.to_vec();
    zeroed[16..20].fill(0);
    if !bytes.starts_with(&GAPS_MAGIC) || crc32c::crc32c(&zeroed) != crc {
        return Err(bad);
    }
    match u32_at(bytes, 8) {
        Some(VERSION) => {}
        Some(other) => return Err(LogError::Version(other)),
        None => return Err(bad),
    }
    let pairs = bytes.get(GAPS_HEADER_BYTES..).unwrap_or_default();
    let count = u32_at(bytes, 12).ok_or(bad)? as usize;
    if pairs.len() != count.saturating_mul(16) {
        return Err(bad);
    }
    let pair = |p: &[u8]| Some((u64_at(p, 0)?, u64_at(p, 8)?));
    pairs.chunks_exact(16).map(|p| pair(p).ok_or(bad)).collect()
}

/// Walks a whole file that is in memory: what fuzzing calls, and what a tool that looks at a log needs. How
/// many frames and records are intact, and how many bytes of them.
pub fn survey(file: &[u8]) -> Result<Survey, LogError> {
    let header = FileHeader::decode(file)?;
    let mut scanner = Scanner::new(header.salt, file.len() as u64);
    let mut found = Survey::default();
    loop {
        match scanner.step(0, file) {
            // All that is asked for is in the window, so this is the end of a file that is cut short.
            Step::Need { .. } | Step::End => return Ok(found),
            Step::Broken { .. } => found.broken += 1,
            Step::Frame {
                header, payload, ..
            } => {
                found.frames += 1;
                for record in Records::new(&header, payload) {
                    found.record_bytes += record?.1.len() as u64;
                    found.records += 1;
                }
            }
        }
    }
}

/// What [`survey`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Intact frames.
    pub frames: u64,
    /// Their records.
    pub records: u64,
    /// Bytes of the records, without headers.
    pub record_bytes: u64,
    /// Places where a frame should be and is not; 1 in a file that is not full.
    pub broken: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(salt: u64, commit: u64, lsn: u64, records: &[&[u8]]) -> Vec<u8> {
        let mut builder = FrameBuilder::default();
        for (kind, record) in records.iter().enumerate() {
            let mut encode = |out: &mut Vec<u8>| out.extend_from_slice(record);
            builder.push(kind as u8, &mut encode).unwrap();
        }
        builder.finish(salt, commit, lsn, 2).to_vec()
    }

    fn file(salt: u64) -> Vec<u8> {
        let mut file = FileHeader { number: 3, salt }.encode();
        file.extend(frame(salt, 7, 70, &[b"one", b"", &[9; 5000]]));
        file.extend(frame(salt, 8, 73, &[b"two"]));
        file.resize(file.len() + 3 * BLOCK_BYTES, 0);
        file
    }

    #[test]
    fn frames_come_back() {
        let bytes = file(5);
        assert_eq!(FileHeader::decode(&bytes).unwrap().number, 3);
        let found = survey(&bytes).unwrap();
        assert_eq!((found.frames, found.records, found.broken), (2, 4, 1));
        assert_eq!(found.record_bytes, 3 + 5000 + 3);
        let mut scanner = Scanner::new(5, bytes.len() as u64);
        let Step::Frame {
            header, payload, ..
        } = scanner.step(0, &bytes)
        else {
            panic!("no frame")
        };
        assert_eq!(
            (header.commit, header.first_lsn, header.end_lsn()),
            (7, 70, 73)
        );
        let records: Vec<_> = Records::new(&header, payload).map(Result::unwrap).collect();
        assert_eq!(records[0], (0, &b"one"[..]));
        assert_eq!(records[2].1.len(), 5000);
    }

    #[test]
    fn another_salt_reads_nothing() {
        let bytes = file(5);
        let mut scanner = Scanner::new(6, bytes.len() as u64);
        let broken = scanner.step(0, &bytes);
        assert!(matches!(broken, Step::Broken { header: None, .. }));
        assert_eq!(scanner.step(0, &bytes), Step::End);
    }

    #[test]
    fn a_frame_behind_damage_is_found() {
        let mut bytes = file(5);
        bytes[BLOCK_BYTES + 100] ^= 1;
        let found = survey(&bytes).unwrap();
        assert_eq!((found.frames, found.records), (1, 1));
    }

    #[test]
    fn gaps_come_back() {
        for gaps in [vec![], vec![(0, 5), (7, 9)]] {
            let note = encode_gaps(&gaps);
            assert_eq!(decode_gaps(&note).unwrap(), gaps);
            for at in 0..note.len() {
                let mut bad = note.clone();
                bad[at] ^= 4;
                assert!(decode_gaps(&bad).is_err(), "byte {at}");
                assert!(decode_gaps(&note[..at]).is_err());
            }
        }
    }

    #[test]
    fn the_byte_tables_agree() {
        let doc = include_str!("../../../docs/format.md");
        let log = &doc[doc.find("## Log").expect("a Log section")..];
        for line in [
            format!("Log format version {VERSION}."),
            format!("multiples of {BLOCK_BYTES}"),
            format!("File header, {FILE_HEADER_BYTES} bytes"),
            format!("Frame header, {FRAME_HEADER_BYTES} bytes"),
            format!("Record header, {RECORD_HEADER_BYTES} bytes"),
            format!("Note of accepted losses, {GAPS_HEADER_BYTES} bytes"),
        ] {
            assert!(log.contains(&line), "docs/format.md lacks: {line}");
        }
        // Each row of a table names bytes; the encoders must put there what the row says.
        let check = |title: &str, bytes: &[u8], fields: &[(&str, &[u8])]| {
            let table = &log[log.find(title).expect(title)..];
            let mut at = 0;
            for (name, value) in fields {
                let row = format!("| {at} | {} | {name}", value.len());
                assert!(table.contains(&row), "{title}: docs/format.md lacks: {row}");
                assert_eq!(&bytes[at..at + value.len()], *value, "{title}: {name}");
                at += value.len();
            }
            at
        };
        let number = 0x0102_0304_0506_0708_u64;
        let salt = 0x1112_1314_1516_1718_u64;
        let block = FileHeader { number, salt }.encode();
        let crc = crc32c::crc32c(&block[..32]).to_le_bytes();
        let version = VERSION.to_le_bytes();
        let end = check(
            "File header",
            &block,
            &[
                ("magic", &FILE_MAGIC),
                ("version", &version),
                ("zero", &[0; 4]),
                ("number", &number.to_le_bytes()),
                ("salt", &salt.to_le_bytes()),
                ("crc", &crc),
            ],
        );
        assert_eq!(end, FILE_HEADER_BYTES);

        let bytes = frame(salt, number, 9, &[b"abc"]);
        let payload = &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + RECORD_HEADER_BYTES + 3];
        let end = check(
            "Frame header",
            &bytes,
            &[
                ("magic", &FRAME_MAGIC),
                ("crc", &salted(salt, &bytes[8..40]).to_le_bytes()),
                ("payload bytes", &11_u32.to_le_bytes()),
                ("payload crc", &salted(salt, payload).to_le_bytes()),
                ("records", &1_u32.to_le_bytes()),
                ("refused", &2_u32.to_le_bytes()),
                ("commit", &number.to_le_bytes()),
                ("first lsn", &9_u64.to_le_bytes()),
            ],
        );
        assert_eq!(end, FRAME_HEADER_BYTES);
        let end = check(
            "Record header",
            payload,
            &[
                ("bytes", &3_u32.to_le_bytes()),
                ("kind", &[0]),
                ("zero", &[0; 3]),
            ],
        );
        assert_eq!(end, RECORD_HEADER_BYTES);

        let note = encode_gaps(&[(4, 6)]);
        let end = check(
            "Note of accepted losses",
            &note,
            &[
                ("magic", &GAPS_MAGIC),
                ("version", &version),
                ("count", &1_u32.to_le_bytes()),
                ("crc", &note[16..20]),
                ("from", &4_u64.to_le_bytes()),
                ("to", &6_u64.to_le_bytes()),
            ],
        );
        assert_eq!(end, GAPS_HEADER_BYTES + 16);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_no_harm(
            salt in any::<u64>(),
            commits in 1_u64..4,
            noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            junk in proptest::collection::vec(any::<u8>(), 0..9000),
        ) {
            let _ = survey(&junk);
            let _ = decode_gaps(&junk);
            let mut bytes = FileHeader { number: 1, salt }.encode();
            for commit in 0..commits {
                bytes.extend(frame(salt, commit + 1, commit + 3, &[&junk, b"x"]));
            }
            let intact = survey(&bytes).unwrap();
            prop_assert_eq!(intact.records, 2 * commits);
            prop_assert_eq!(intact.broken, 0);
            for (at, byte) in noise {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(found) = survey(&bytes) {
                prop_assert!(found.records <= 2 * commits);
            }
        }

        #[test]
        fn records_of_any_payload_end(payload in proptest::collection::vec(any::<u8>(), 0..200), records in 1_u32..9) {
            let header = FrameHeader { payload_bytes: payload.len() as u32, payload_crc: 0, records, commit: 1, first_lsn: 1, refused: 0 };
            prop_assert!(Records::new(&header, &payload).count() <= 201);
        }
    }
}
