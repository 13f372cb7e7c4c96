//! Writing a segment: blocks in, one sealed file out. The file has a temporary name until all of it is on
//! stable storage, so a crash leaves a whole segment or none.

use super::{SegmentError, TMP_SUFFIX, file_name, io_error};
use std::rc::Rc;
use strandline_core::codec::{self, CodecError, Effort};
use strandline_core::error::{Error, Result};
use strandline_core::format::block::{
    Block, BlockColumn, BlockMeta, ChunkMeta, Presence, SegmentInfo,
};
use strandline_core::format::bloom::Bloom;
use strandline_core::format::segment::{chunk_stats, encode_tail, header};
use strandline_core::ids::SegmentId;
use strandline_core::io::{Env, File, FileMode};

/// Bytes gathered before they are written, and synced at once: the fdatasync of a commit waits for all that
/// the disk has not written yet, whoever wrote it, so one sync of a whole segment at its end would hold up
/// every commit of that moment for as long as the segment takes.
const WRITE_BYTES: usize = 256 << 10;

/// A segment on its way. Dropped before [`SegmentSink::finish`], it leaves a `.tmp` file, which the next
/// start removes.
pub struct SegmentSink {
    env: Env,
    id: SegmentId,
    dir: String,
    path: String,
    tmp_path: String,
    file: Rc<dyn File>,
    effort: Effort,
    /// Not yet written; begins at `written` in the file.
    buffer: Vec<u8>,
    written: u64,
    blocks: Vec<BlockMeta>,
    keys: Keys,
}

/// The hashes for the bloom filter, whose size must be known before the first goes in.
enum Keys {
    /// Until all are there: 8 bytes for each.
    Gathered(Vec<u64>),
    /// Straight into the filter; how many.
    Filter(Bloom, usize),
}

/// A finished segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Its number.
    pub id: SegmentId,
    /// Its length.
    pub bytes: u64,
}

impl SegmentSink {
    /// Begins the file in `dir`, which exists. Only the table of `info` counts here.
    ///
    /// # Errors
    /// `53100` or `58030` from the disk.
    pub async fn create(env: &Env, dir: &str, id: SegmentId, info: SegmentInfo) -> Result<Self> {
        let path = format!("{dir}/{}", file_name(id));
        let tmp_path = format!("{path}{TMP_SUFFIX}");
        let file = env
            .disk
            .create(&tmp_path, FileMode::Buffered)
            .await
            .map_err(|e| io_error("create", &tmp_path, &e))?;
        Ok(SegmentSink {
            env: env.clone(),
            id,
            dir: dir.to_string(),
            path,
            tmp_path,
            file,
            effort: Effort::Flush,
            buffer: header(id, info.table).to_vec(),
            written: 0,
            blocks: Vec::new(),
            keys: Keys::Gathered(Vec::new()),
        })
    }

    /// How much time the encodings may take; [`Effort::Flush`] unless set.
    #[must_use]
    pub fn with_effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Says that about `most` hashes or fewer will be added: they then need no memory of their own (8
    /// bytes each otherwise). More than that only makes the filter less sharp.
    #[must_use]
    pub fn with_key_bound(mut self, most: usize) -> Self {
        let mut filter = Bloom::with_at_most(most);
        let mut count = 0;
        if let Keys::Gathered(hashes) = &self.keys {
            hashes.iter().for_each(|&h| filter.add(h));
            count = hashes.len();
        }
        self.keys = Keys::Filter(filter, count);
        self
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Blocks so far.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a block: sections ascending, keys ascending within one. A column without cells is left out.
    ///
    /// # Errors
    /// `53100` or `58030` from the disk; `XX000` when rows, presence and cells do not fit each other, or a
    /// chunk holds over 1 GiB of text.
    pub async fn push(&mut self, block: Block) -> Result<()> {
        let Block {
            section,
            rows,
            first_key,
            last_key,
            range,
            mut columns,
        } = block;
        debug_assert!(first_key <= last_key);
        debug_assert!(self.blocks.last().is_none_or(
            |b| b.section < section || (b.section == section && b.last_key <= first_key)
        ));
        columns.retain(|c| !c.data.is_empty());
        columns.sort_by_key(|c| c.id);
        let mut chunks = Vec::with_capacity(columns.len());
        for column in &columns {
            chunks.push(self.encode(column, rows)?);
            self.env.breathe().await;
        }
        self.blocks.push(BlockMeta {
            section,
            rows,
            first_key,
            last_key,
            range,
            chunks,
        });
        if self.buffer.len() >= WRITE_BYTES {
            self.write_buffer().await?;
        }
        Ok(())
    }

    /// Adds a block of another segment as it is stored there: `bytes` are those that
    /// [`Segment::read_encoded`](super::Segment::read_encoded) gave for `meta`. Keys ascend as for
    /// [`SegmentSink::push`].
    ///
    /// # Errors
    /// `53100` or `58030` from the disk.
    pub async fn push_encoded(&mut self, meta: &BlockMeta, bytes: &[u8]) -> Result<()> {
        debug_assert!(self.blocks.last().is_none_or(|b| b.section < meta.section
            || (b.section == meta.section && b.last_key <= meta.first_key)));
        let mut meta = meta.clone();
        let mut offset = self.bytes();
        for chunk in &mut meta.chunks {
            chunk.offset = offset;
            offset += u64::from(chunk.len);
        }
        debug_assert_eq!(offset, self.bytes() + bytes.len() as u64);
        self.buffer.extend_from_slice(bytes);
        self.blocks.push(meta);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_buffer().await?;
        }
        Ok(())
    }

    fn encode(&mut self, column: &BlockColumn, rows: u32) -> Result<ChunkMeta> {
        let offset = self.bytes();
        let start = self.buffer.len();
        let refused = |e: CodecError| {
            Error::internal(format!(
                "cannot encode column {} of segment {}: {e}",
                column.id, self.path
            ))
        };
        codec::encode(
            &column.data,
            &column.presence,
            rows as usize,
            self.effort,
            &mut self.buffer,
        )
        .map_err(refused)?;
        let bytes = &self.buffer[start..];
        Ok(ChunkMeta {
            id: column.id,
            offset,
            len: u32::try_from(bytes.len()).map_err(|_| refused(CodecError::TooLarge))?,
            crc: crc32c::crc32c(bytes),
            count: match &column.presence {
                Presence::All => rows,
                Presence::Some(bits) => bits.count_ones() as u32,
            },
            stats: chunk_stats(&column.data),
            edges_ts: column.edges_ts,
        })
    }

    /// Adds the hash of a key or an entity to the bloom filter; the same one again does no harm.
    pub fn add_hash(&mut self, hash: u64) {
        match &mut self.keys {
            Keys::Gathered(hashes) => {
                if hashes.last() != Some(&hash) {
                    hashes.push(hash);
                }
            }
            Keys::Filter(filter, count) => {
                filter.add(hash);
                *count += 1;
            }
        }
    }

    /// Writes what is gathered, on stable storage when this returns.
    async fn write_buffer(&mut self) -> Result<()> {
        for piece in self.buffer.chunks(WRITE_BYTES) {
            self.file
                .write_at(self.written, piece)
                .await
                .map_err(|e| io_error("write", &self.tmp_path, &e))?;
            self.written += piece.len() as u64;
            self.file
                .sync()
                .await
                .map_err(|e| io_error("sync", &self.tmp_path, &e))?;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Seals the file: what `info` says is what [`Segment::info`](super::Segment::info) will say. When this
    /// returns, the segment is on stable storage under its final name.
    ///
    /// # Errors
    /// `53100` or `58030` from the disk, `XX000` for an index over 4 GiB. The segment is not there then.
    pub async fn finish(self, info: SegmentInfo) -> Result<SegmentFile> {
        let (disk, dir, path) = (self.env.disk.clone(), self.dir.clone(), self.path.clone());
        let file = self.finish_unnamed(info).await?;
        disk.sync_dir(&dir)
            .await
            .map_err(|e| io_error("sync the directory of", &path, &e))?;
        Ok(file)
    }

    /// As [`SegmentSink::finish`], but for the directory: the name lasts once the caller has synced that, for
    /// all files of one round together.
    ///
    /// # Errors
    /// As [`SegmentSink::finish`].
    pub async fn finish_unnamed(mut self, info: SegmentInfo) -> Result<SegmentFile> {
        let bloom = match std::mem::replace(&mut self.keys, Keys::Gathered(Vec::new())) {
            Keys::Gathered(hashes) => {
                let mut filter = Bloom::with_keys(hashes.len());
                for some in hashes.chunks(4096) {
                    some.iter().for_each(|&h| filter.add(h));
                    self.env.breathe().await;
                }
                filter
            }
            Keys::Filter(mut filter, count) => {
                filter.shrink_to(count);
                filter
            }
        };
        let tail =
            encode_tail(&info, &self.blocks, &bloom, self.bytes()).map_err(|e: SegmentError| {
                Error::internal(format!("cannot finish segment {}: {e}", self.path))
            })?;
        self.env.breathe().await;
        self.buffer.extend_from_slice(&tail);
        self.write_buffer().await?;
        let disk = &self.env.disk;
        disk.rename(&self.tmp_path, &self.path)
            .await
            .map_err(|e| io_error("rename", &self.tmp_path, &e))?;
        Ok(SegmentFile {
            id: self.id,
            bytes: self.written,
        })
    }
}
