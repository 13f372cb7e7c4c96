//! The manifest on disk: the whole of it in one file, and edits appended to another, so that a change costs
//! what it changes, however many tables there are.
//!
//! ```text
//! shard-0000/manifest            the whole, sealed; names the number of its edits
//! shard-0000/edits-0000000007    sealed edits, end to end, each durable before it counts
//! ```
//!
//! Once the edits are longer than the whole, it is written anew under the next number. Of an edit that was
//! being written when the process ended nothing or all counts; the next start cuts it. After an append that
//! failed nothing is known about the end of the file: the next change writes the whole.

use crate::files;
use crate::manifest::{self, Manifest, TableManifest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;
use strandline_core::error::{Error, Result};
use strandline_core::format::sealed;
use strandline_core::ids::{Lsn, TableId};
use strandline_core::io::{Env, File, FileMode};

/// The kind that seals an edit.
const KIND: &str = "edit";
/// The name of a file of edits begins with it.
const PREFIX: &str = "edits-";
/// Edits of at most so many bytes are never worth writing the whole.
const FEW_BYTES: u64 = 64 << 10;
/// Longest header line of an edit that is looked for.
const LINE_BYTES: usize = 128;

/// What one change changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Edit {
    /// Tables as they are now; null: gone.
    tables: BTreeMap<TableId, Option<TableManifest>>,
    next_segment: u64,
    max_xid: String,
    log_after: Lsn,
    log_listed: bool,
    void: Vec<(Lsn, Lsn)>,
}

impl Edit {
    fn between(old: &Manifest, new: &Manifest) -> Edit {
        let mut tables = BTreeMap::new();
        for (&id, table) in &new.tables {
            if old.tables.get(&id) != Some(table) {
                tables.insert(id, Some(table.clone()));
            }
        }
        for &id in old.tables.keys() {
            if !new.tables.contains_key(&id) {
                tables.insert(id, None);
            }
        }
        Edit {
            tables,
            next_segment: new.next_segment,
            max_xid: new.max_xid.clone(),
            log_after: new.log_after,
            log_listed: new.log_listed,
            void: new.void.clone(),
        }
    }

    fn apply(self, m: &mut Manifest) {
        for (id, table) in self.tables {
            match table {
                Some(table) => m.tables.insert(id, table),
                None => m.tables.remove(&id),
            };
        }
        m.next_segment = self.next_segment;
        m.max_xid = self.max_xid;
        m.log_after = self.log_after;
        m.log_listed = self.log_listed;
        m.void = self.void;
    }
}

fn edits_name(number: u64) -> String {
    format!("{PREFIX}{number:010}")
}

/// Where edits are appended.
struct Edits {
    file: Rc<dyn File>,
    bytes: u64,
}

/// A shard's manifest and where it stands.
pub struct ManifestFile {
    env: Env,
    dir: String,
    current: Manifest,
    /// The number that the whole names, or one above it when writing it failed.
    number: u64,
    edits: Option<Edits>,
    /// What is at the end of the edits, or which whole stands, is not known.
    in_doubt: bool,
    whole_bytes: u64,
    edit_bytes: u64,
    changes: u64,
}

impl ManifestFile {
    /// Reads the manifest of a shard's directory; `None` when there is none.
    ///
    /// # Errors
    /// `XX001` naming the file that is damaged, `0A000` when a newer release wrote it, `58030` from the disk.
    pub async fn read(env: &Env, dir: &str) -> Result<Option<Manifest>> {
        let whole: Option<Manifest> = files::read(env, dir, manifest::NAME, manifest::KIND).await?;
        let Some(mut m) = whole else { return Ok(None) };
        let name = edits_name(m.edits);
        if env.disk.list(dir).await?.contains(&name) {
            let path = files::join(dir, &name);
            let file = env.disk.open(&path, FileMode::Buffered).await?;
            let size = file.size().await?;
            let bytes = file.read_at(0, size as usize).await?;
            for edit in parse(&bytes, &path)? {
                edit.apply(&mut m);
                env.breathe().await;
            }
        }
        Ok(Some(m))
    }

    /// Writes a manifest whole, as the start of a shard does.
    ///
    /// # Errors
    /// `53100` or `58030` from the disk: the old one is in place, or the new one.
    pub async fn begin(env: &Env, dir: &str, manifest: Manifest) -> Result<ManifestFile> {
        let mut file = ManifestFile {
            env: env.clone(),
            dir: dir.to_string(),
            number: manifest.edits,
            current: Manifest::default(),
            edits: None,
            in_doubt: true,
            whole_bytes: 0,
            edit_bytes: 0,
            changes: 0,
        };
        let names = env.disk.list(dir).await?;
        let (old, stray): (Vec<_>, Vec<_>) = names
            .iter()
            .filter(|n| n.starts_with(PREFIX))
            .partition(|n| **n == edits_name(file.number));
        // First those that the new one could take for its own.
        for name in &stray {
            env.disk.remove(&files::join(dir, name)).await?;
        }
        if !stray.is_empty() {
            env.disk.sync_dir(dir).await?;
        }
        file.replace(manifest).await?;
        for name in &old {
            env.disk.remove(&files::join(dir, name)).await?;
        }
        Ok(file)
    }

    /// The manifest that is on disk.
    pub fn current(&self) -> &Manifest {
        &self.current
    }

    /// Bytes written so far: as whole manifests, and as edits.
    pub fn written_bytes(&self) -> (u64, u64) {
        (self.whole_bytes, self.edit_bytes)
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Makes `next` the manifest, durably.
    ///
    /// # Errors
    /// `53100` or `58030` from the disk. The manifest is as it was; what a start would find is not known until
    /// the next change.
    pub async fn change(&mut self, next: Manifest) -> Result<()> {
        self.changes += 1;
        let edit = sealed::seal(KIND, &Edit::between(&self.current, &next))?;
        let so_far = self.edits.as_ref().map_or(0, |e| e.bytes);
        let few = FEW_BYTES.max(self.whole_bytes_now());
        if self.in_doubt || so_far + edit.len() as u64 > few {
            return self.replace(next).await;
        }
        self.in_doubt = true;
        self.append(&edit).await?;
        self.in_doubt = false;
        self.current = Manifest {
            edits: self.number,
            ..next
        };
        Ok(())
    }

    /// Bytes of the whole as it would be written, roughly: a look at each table's list, not at its text.
    fn whole_bytes_now(&self) -> u64 {
        let tables = self.current.tables.values();
        tables.map(|t| 64 + 16 * t.segments.len() as u64).sum()
    }

    async fn append(&mut self, edit: &[u8]) -> Result<()> {
        if self.edits.is_none() {
            let path = files::join(&self.dir, &edits_name(self.number));
            let file = self.env.disk.create(&path, FileMode::Buffered).await?;
            file.write_and_sync(0, edit).await?;
            self.env.disk.sync_dir(&self.dir).await?;
            self.edits = Some(Edits { file, bytes: 0 });
        } else if let Some(edits) = &self.edits {
            edits.file.write_and_sync(edits.bytes, edit).await?;
        }
        if let Some(edits) = &mut self.edits {
            edits.bytes += edit.len() as u64;
        }
        self.edit_bytes += edit.len() as u64;
        Ok(())
    }

    async fn replace(&mut self, next: Manifest) -> Result<()> {
        self.in_doubt = true;
        let old = self.edits.take().map(|_| edits_name(self.number));
        // Never a number that was tried before: edits behind a whole that may not stand would be lost.
        self.number += 1;
        let next = Manifest {
            edits: self.number,
            ..next
        };
        let (name, kind) = (manifest::NAME, manifest::KIND);
        let bytes = files::replace_counted(&self.env, &self.dir, name, kind, &next).await?;
        self.whole_bytes += bytes;
        self.current = next;
        self.in_doubt = false;
        if let Some(name) = old {
            // Nothing reads it any more; the next start tries again.
            let _ = self.env.disk.remove(&files::join(&self.dir, &name)).await;
        }
        Ok(())
    }
}

/// The edits of a file. One that is not whole ends them, unless a whole one follows.
fn parse(bytes: &[u8], path: &str) -> Result<Vec<Edit>> {
    let mut edits = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match one(&bytes[at..], path) {
            Ok((edit, len)) => {
                edits.push(edit);
                at += len;
            }
            Err(e) if e.state() == strandline_core::error::SqlState::FeatureNotSupported => {
                return Err(e);
            }
            Err(_) => {
                let begin = format!("strandline-{KIND} v");
                let rest = &bytes[at + 1..];
                let starts = (0..rest.len()).filter(|&i| rest[i..].starts_with(begin.as_bytes()));
                if starts.into_iter().any(|i| one(&rest[i..], path).is_ok()) {
                    return Err(Error::corrupted(format!(
                        "file {path} is damaged at offset {at}: an edit is not whole, and others follow"
                    ))
                    .hint("the way back is a snapshot as a whole"));
                }
                break;
            }
        }
    }
    Ok(edits)
}

/// The edit at the beginning of `bytes`, and its length.
fn one(bytes: &[u8], path: &str) -> Result<(Edit, usize)> {
    let cut = || Error::corrupted(format!("file {path} is damaged: an edit is cut"));
    let line = bytes.iter().take(LINE_BYTES).position(|&b| b == b'\n');
    let line = line.ok_or_else(cut)?;
    let text = std::str::from_utf8(&bytes[..line]).map_err(|_| cut())?;
    let len = text
        .rsplit("len=")
        .next()
        .and_then(|n| n.parse::<usize>().ok());
    let end = (line + 1)
        .checked_add(len.ok_or_else(cut)?)
        .ok_or_else(cut)?;
    let whole = bytes.get(..end).ok_or_else(cut)?;
    Ok((sealed::unseal(KIND, whole, path)?, end))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // damage is made behind the engine's back
mod tests {
    use super::*;
    use crate::testing::{block_on, env};
    use strandline_core::error::SqlState;
    use strandline_core::ids::SegmentId;

    fn with(tables: u32, segments: u64) -> Manifest {
        let table = |t: u32| {
            let segments = (0..segments)
                .map(|s| SegmentId(u64::from(t) * 1000 + s))
                .collect();
            let flushed = Lsn(segments_of(t));
            (TableId(t), TableManifest { flushed, segments })
        };
        Manifest {
            tables: (1..=tables).map(table).collect(),
            next_segment: 7,
            ..Manifest::default()
        }
    }

    fn segments_of(t: u32) -> u64 {
        u64::from(t) * 3
    }

    fn same(found: Option<Manifest>, wanted: &Manifest) -> bool {
        found.map(|m| Manifest { edits: 0, ..m })
            == Some(Manifest {
                edits: 0,
                ..wanted.clone()
            })
    }

    #[test]
    fn a_change_costs_what_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            let env = env(dir.path());
            let mut m = with(5_000, 4);
            let mut file = ManifestFile::begin(&env, "", m.clone()).await.unwrap();
            let whole = file.written_bytes().0;
            for n in 0..2_000u32 {
                let t = m.tables.get_mut(&TableId(n % 5_000 + 1)).unwrap();
                t.segments.push(SegmentId(u64::from(n) + 1_000_000));
                file.change(m.clone()).await.unwrap();
            }
            let (wholes, edits) = file.written_bytes();
            assert!(
                wholes - whole <= 2 * edits + whole,
                "{wholes} of {whole}, {edits}"
            );
            assert!(edits < 2_000 * 600, "{edits}");
            assert!(same(ManifestFile::read(&env, "").await.unwrap(), &m));
            // It begins anew with one file.
            let found = ManifestFile::read(&env, "").await.unwrap().unwrap();
            ManifestFile::begin(&env, "", found).await.unwrap();
            let names = env.disk.list("").await.unwrap();
            assert_eq!(names, ["manifest"]);
            assert!(same(ManifestFile::read(&env, "").await.unwrap(), &m));
        });
    }

    #[test]
    fn a_cut_edit_is_none_and_a_damaged_one_before_others_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        block_on(async {
            let env = env(dir.path());
            let (mut m, mut states) = (with(2, 1), Vec::new());
            let mut file = ManifestFile::begin(&env, "", m.clone()).await.unwrap();
            let mut ends = vec![0];
            states.push(m.clone());
            for n in 0..4 {
                match n {
                    2 => drop(m.tables.remove(&TableId(1))),
                    n => m
                        .tables
                        .entry(TableId(n + 5))
                        .or_default()
                        .segments
                        .push(SegmentId(9)),
                }
                m.log_after = Lsn(u64::from(n));
                file.change(m.clone()).await.unwrap();
                ends.push(file.edits.as_ref().unwrap().bytes as usize);
                states.push(m.clone());
            }
            let path = edits_name(file.number);
            let whole = std::fs::read(dir.path().join(&path)).unwrap();
            for cut in 0..=whole.len() {
                for zeros in [0, 40] {
                    let bytes = [&whole[..cut], &vec![0; zeros]].concat();
                    std::fs::write(dir.path().join(&path), bytes).unwrap();
                    let n = ends.iter().filter(|&&e| e > 0 && e <= cut).count();
                    let found = ManifestFile::read(&env, "").await.unwrap();
                    assert!(same(found, &states[n]), "cut at {cut}");
                }
            }
            for at in 0..ends[3] {
                let mut bytes = whole.clone();
                bytes[at] ^= 4;
                std::fs::write(dir.path().join(&path), bytes).unwrap();
                let e = ManifestFile::read(&env, "").await.unwrap_err();
                let newer = e.state() == SqlState::FeatureNotSupported;
                assert!(newer || e.state() == SqlState::DataCorrupted, "{e:?}");
                assert!(e.message().contains(&path), "{e:?}");
            }
        });
    }
}
