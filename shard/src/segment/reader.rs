//! Reading a segment: the index is in memory from the start, blocks come by column through the cache.

use super::cache::Key;
use super::{BlockCache, DecodedBlock, DecodedColumn, damaged, file_name, io_error, layout_error};
use crate::signal::Signal;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use strandline_core::codec;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::format::block::{BlockMeta, ChunkMeta, SegmentInfo};
use strandline_core::format::bloom::Bloom;
use strandline_core::format::segment::{
    SEGMENT_HEADER_LEN, SEGMENT_TRAILER_LEN, check_header, decode_index, decode_trailer,
};
use strandline_core::ids::{ColumnId, SegmentId};
use strandline_core::io::{Env, File, FileMode};

/// Read from the end at open: most indexes fit, and one read is all it takes.
const TAIL_BYTES: u64 = 64 << 10;
/// Chunks of one block with at most so many bytes between them are read in one go.
const GAP_BYTES: u64 = 16 << 10;

/// An opened segment, shared as `Rc`. Its file never changes; it may be removed once only its owner holds it.
pub struct Segment {
    env: Env,
    id: SegmentId,
    path: String,
    bytes: u64,
    info: SegmentInfo,
    blocks: Vec<BlockMeta>,
    bloom: Bloom,
    memory_bytes: usize,
    file: Rc<dyn File>,
    cache: Rc<BlockCache>,
    cache_number: u64,
    damage: RefCell<Option<Error>>,
    /// Where its file's path goes when the last of its readers is through; see [`Segment::doom`].
    trash: RefCell<Option<Rc<Trash>>>,
}

/// Files that nobody reads any more. Whoever waits for the signal removes them.
#[derive(Default)]
pub struct Trash {
    /// Paths, relative to the disk's root.
    pub paths: RefCell<Vec<String>>,
    /// A path has come.
    pub signal: Signal,
    /// Segments that readers still hold.
    pub held: Cell<u64>,
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(trash) = self.trash.take() {
            trash.held.set(trash.held.get() - 1);
            trash
                .paths
                .borrow_mut()
                .push(std::mem::take(&mut self.path));
            trash.signal.ring();
        }
    }
}

impl Segment {
    /// Opens a segment of `dir` and checks its header and index.
    ///
    /// # Errors
    /// `XX001` naming the file when it is damaged, cut or another segment's; `0A000` when a newer release
    /// wrote it; `58030` from the disk.
    pub async fn open(
        env: &Env,
        dir: &str,
        id: SegmentId,
        cache: Rc<BlockCache>,
    ) -> Result<Rc<Segment>> {
        let path = format!("{dir}/{}", file_name(id));
        let file = env
            .disk
            .open(&path, FileMode::Buffered)
            .await
            .map_err(|e| io_error("open", &path, &e))?;
        let bytes = file.size().await.map_err(|e| io_error("open", &path, &e))?;
        let trailer_offset = bytes
            .checked_sub(SEGMENT_TRAILER_LEN as u64)
            .filter(|&at| at >= SEGMENT_HEADER_LEN as u64)
            .ok_or_else(|| damaged(&path, bytes, &"it is too short to be a segment"))?;

        let head = read_exact(&*file, &path, 0, SEGMENT_HEADER_LEN as u64).await?;
        let table = check_header(&head, id).map_err(|e| layout_error(&path, 0, e))?;
        let tail_offset = bytes.saturating_sub(TAIL_BYTES);
        let tail = read_exact(&*file, &path, tail_offset, bytes - tail_offset).await?;
        let index_end = tail.len() - SEGMENT_TRAILER_LEN;
        let trailer = decode_trailer(&tail[index_end..], bytes)
            .map_err(|e| layout_error(&path, trailer_offset, e))?;
        let at = trailer.bloom_offset;
        let index = if at >= tail_offset {
            decode_index(&tail[(at - tail_offset) as usize..index_end], &trailer)
        } else {
            let index = read_exact(&*file, &path, at, trailer_offset - at).await?;
            decode_index(&index, &trailer)
        }
        .map_err(|e| layout_error(&path, at, e))?;
        env.breathe().await;
        if index.info.table != table {
            return Err(damaged(
                &path,
                at,
                &"header and footer name different tables",
            ));
        }
        let memory_bytes = std::mem::size_of::<Segment>()
            + index.bloom.memory_bytes()
            + index.blocks.iter().map(meta_bytes).sum::<usize>();
        Ok(Rc::new(Segment {
            env: env.clone(),
            id,
            path,
            bytes,
            info: index.info,
            blocks: index.blocks,
            bloom: index.bloom,
            memory_bytes,
            file,
            trash: RefCell::new(None),
            cache_number: cache.register(),
            damage: RefCell::default(),
            cache,
        }))
    }

    /// It is no longer part of a table, and the manifest says so: once nobody holds it, its file can go.
    pub fn doom(&self, trash: &Rc<Trash>) {
        if self.trash.replace(Some(trash.clone())).is_none() {
            trash.held.set(trash.held.get() + 1);
        }
    }

    /// Its number.
    pub fn id(&self) -> SegmentId {
        self.id
    }
    /// What its writer said of it.
    pub fn info(&self) -> &SegmentInfo {
        &self.info
    }
    /// Length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// The file, relative to the disk's root.
    pub fn path(&self) -> &str {
        &self.path
    }
    /// Memory that its index takes while it is open.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
    /// The blocks of a section, in key order.
    pub fn blocks(&self, section: u8) -> &[BlockMeta] {
        &self.blocks[self.first_block(section)..self.blocks_end(section)]
    }
    fn first_block(&self, section: u8) -> usize {
        self.blocks.partition_point(|b| b.section < section)
    }
    fn blocks_end(&self, section: u8) -> usize {
        self.blocks.partition_point(|b| b.section <= section)
    }
    /// False: no key of this hash was added. True: probably one was.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.bloom.may_contain(hash)
    }

    /// Columns of a block (counted within its section). Those that no row of it has a cell of are left out.
    ///
    /// # Errors
    /// `XX001` naming file and offset when a chunk is not what was written; `58030` from the disk; `XX000`
    /// when there is no such block.
    pub async fn read(
        &self,
        section: u8,
        block: usize,
        columns: &[ColumnId],
    ) -> Result<DecodedBlock> {
        let read = self.read_columns(section, block, columns).await;
        read.inspect_err(|e| self.note_damage(e))
    }

    /// The first damage that a read of it met since the start.
    pub fn damage(&self) -> Option<Error> {
        self.damage.borrow().clone()
    }

    fn note_damage(&self, e: &Error) {
        if e.state() == SqlState::DataCorrupted {
            self.damage.borrow_mut().get_or_insert_with(|| e.clone());
        }
    }

    async fn read_columns(
        &self,
        section: u8,
        block: usize,
        columns: &[ColumnId],
    ) -> Result<DecodedBlock> {
        let Some(meta) = self.blocks(section).get(block) else {
            return Err(Error::internal(format!(
                "segment {} has no block {block} in section {section}",
                self.path
            )));
        };
        let number = (self.first_block(section) + block) as u32;
        let key = |column| Key {
            segment: self.cache_number,
            block: number,
            column,
        };
        let mut found = Vec::with_capacity(columns.len());
        let mut missing: Vec<&ChunkMeta> = Vec::new();
        for &id in columns {
            let Some(chunk) = meta.chunk(id) else {
                continue;
            };
            match self.cache.get(&key(id)) {
                Some(column) => found.push((id, column)),
                None => missing.push(chunk),
            }
        }
        missing.sort_by_key(|c| c.offset);
        missing.dedup_by_key(|c| c.id);
        let near = |a: &&ChunkMeta, b: &&ChunkMeta| {
            b.offset.saturating_sub(a.offset + a.len as u64) <= GAP_BYTES
        };
        for group in missing.chunk_by(near) {
            let start = group[0].offset;
            let end = group[group.len() - 1].offset + group[group.len() - 1].len as u64;
            let bytes = read_exact(&*self.file, &self.path, start, end - start).await?;
            for chunk in group {
                let at = (chunk.offset - start) as usize;
                let column = self.decode(chunk, &bytes[at..at + chunk.len as usize], meta)?;
                self.cache.put(key(chunk.id), column.clone());
                found.push((chunk.id, column));
                self.env.breathe().await;
            }
        }
        Ok(DecodedBlock::new(meta.rows as usize, found))
    }

    /// All columns of a block as they are stored, after a look at their checksums.
    ///
    /// # Errors
    /// As [`Segment::read`].
    pub async fn read_encoded(&self, section: u8, block: usize) -> Result<Vec<u8>> {
        let read = self.read_stored(section, block).await;
        read.inspect_err(|e| self.note_damage(e))
    }

    async fn read_stored(&self, section: u8, block: usize) -> Result<Vec<u8>> {
        let Some(meta) = self.blocks(section).get(block) else {
            return Err(Error::internal(format!(
                "segment {} has no block {block} in section {section}",
                self.path
            )));
        };
        let start = meta.chunks.first().map_or(0, |c| c.offset);
        // The footer gives chunks no offsets, only lengths: they stand end to end.
        let len = meta.chunks.iter().map(|c| u64::from(c.len)).sum();
        let bytes = read_exact(&*self.file, &self.path, start, len).await?;
        for chunk in &meta.chunks {
            let at = (chunk.offset - start) as usize;
            if crc32c::crc32c(&bytes[at..at + chunk.len as usize]) != chunk.crc {
                let what = format_args!("column {}: its checksum does not fit", chunk.id);
                return Err(damaged(&self.path, chunk.offset, &what));
            }
        }
        Ok(bytes)
    }

    fn decode(
        &self,
        chunk: &ChunkMeta,
        bytes: &[u8],
        block: &BlockMeta,
    ) -> Result<Rc<DecodedColumn>> {
        let bad = |what: &dyn std::fmt::Display| {
            let column = chunk.id;
            damaged(
                &self.path,
                chunk.offset,
                &format_args!("column {column}: {what}"),
            )
        };
        if crc32c::crc32c(bytes) != chunk.crc {
            return Err(bad(&"its checksum does not fit"));
        }
        let (presence, data) = codec::decode(bytes, block.rows as usize).map_err(|e| bad(&e))?;
        if data.len() != chunk.count as usize {
            return Err(bad(&"its count of cells is not what the footer says"));
        }
        Ok(Rc::new(DecodedColumn::new(presence, data)))
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment")
            .field("path", &self.path)
            .field("bytes", &self.bytes)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

fn meta_bytes(block: &BlockMeta) -> usize {
    std::mem::size_of::<BlockMeta>()
        + block.first_key.len()
        + block.last_key.len()
        + block.chunks.capacity() * std::mem::size_of::<ChunkMeta>()
}

/// All of the bytes asked for; a file that ends before them is damaged.
async fn read_exact(file: &dyn File, path: &str, offset: u64, len: u64) -> Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| damaged(path, offset, &"it is too long"))?;
    let bytes = file
        .read_at(offset, len)
        .await
        .map_err(|e| io_error("read", path, &e))?;
    if bytes.len() != len {
        let end = offset + bytes.len() as u64;
        return Err(damaged(path, end, &"the file ends here, too early"));
    }
    Ok(bytes)
}
