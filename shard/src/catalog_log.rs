//! The catalog on disk: a sealed file with all of it, and a log of the edits made since. An edit
//! costs its own bytes and one sync, however many tables there are; when the log has become as long as the file,
//! the file is written anew and a new log begins.
//!
//! The file names its log by number ([`CatalogFile::log`]), and the log is there before a file names it. An edit
//! is acknowledged once it is synced, one at a time. So at a start an edit that is not whole ends the log when
//! no whole one follows (it was never acknowledged), and is damage otherwise.
//!
//! ```text
//! catalog           the whole, sealed; names the number of its log
//! catalog-7.log     sealed edits, end to end
//! ```

use crate::files::{self, ReplaceFailed};
use crate::shared::{CATALOG_KIND, CATALOG_NAME, CatalogFile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result};
use strandline_core::format::sealed;
use strandline_core::ids::TableId;
use strandline_core::io::{Env, File, FileMode};
use strandline_core::schema::{TableDef, TableRevisions};

/// The kind that seals an edit.
pub const EDIT_KIND: &str = "catalog-edit";

/// A log may grow to this, or to the size of its file if that is more.
const MIN_LOG_BYTES: u64 = 1 << 20;

/// What all names of logs begin with.
const PREFIX: &str = "catalog-";
const SUFFIX: &str = ".log";

/// The name of a log.
pub fn name(number: u64) -> String {
    format!("{PREFIX}{number}{SUFFIX}")
}

/// What one commit changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    version: u64,
    next_table: TableId,
    /// Tables that are new or changed, whole.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        with = "crate::shared::arcs"
    )]
    tables: Vec<Arc<TableDef>>,
    /// Tables that are gone, with their revisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<TableId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    revisions: BTreeMap<TableId, TableRevisions>,
}

impl Edit {
    /// What makes `to` out of `from`. Tables of both are in order of their numbers.
    pub fn between(from: &CatalogFile, to: &CatalogFile) -> Self {
        let mut edit = Edit {
            version: to.version,
            next_table: to.next_table,
            ..Edit::default()
        };
        let mut old = from.tables.iter().peekable();
        for table in &to.tables {
            while let Some(gone) = old.next_if(|o| o.id < table.id) {
                edit.gone.push(gone.id);
            }
            let same = old
                .next_if(|o| o.id == table.id)
                .is_some_and(|o| Arc::ptr_eq(o, table) || o == table);
            if !same {
                edit.tables.push(table.clone());
            }
        }
        edit.gone.extend(old.map(|o| o.id));
        let news = (to.revisions.iter()).filter(|(t, r)| from.revisions.get(t) != Some(*r));
        edit.revisions = news.map(|(&t, &r)| (t, r)).collect();
        edit
    }

    /// Makes it.
    pub fn apply(self, file: &mut CatalogFile) {
        file.version = self.version;
        file.next_table = self.next_table;
        for id in self.gone {
            if let Ok(at) = file.tables.binary_search_by_key(&id, |t| t.id) {
                file.tables.remove(at);
            }
            file.revisions.remove(&id);
        }
        for table in self.tables {
            match file.tables.binary_search_by_key(&table.id, |t| t.id) {
                Ok(at) => file.tables[at] = table,
                Err(at) => file.tables.insert(at, table),
            }
        }
        file.revisions.extend(self.revisions);
    }
}

/// A log that takes edits.
struct Open {
    file: Rc<dyn File>,
    number: u64,
    end: u64,
    /// Bytes past which the catalog file is written anew.
    limit: u64,
}

/// Writes the catalog. One commit at a time.
pub struct CatalogWriter {
    env: Env,
    /// `None`: the next commit writes the file. So it is after a start, and after a failure: nothing is
    /// appended behind bytes of which it is not known whether they are there.
    log: Option<Open>,
    /// The highest number that a log has or had.
    last_number: u64,
}

impl CatalogWriter {
    /// Goes on from the file that a start has read.
    pub fn new(env: Env, file: &CatalogFile) -> Self {
        CatalogWriter {
            env,
            log: None,
            last_number: file.log,
        }
    }

    /// Makes `next` durable, whose `log` is set. `current` is what the disk has.
    pub async fn commit(
        &mut self,
        current: &CatalogFile,
        next: &mut CatalogFile,
    ) -> std::result::Result<(), ReplaceFailed> {
        match self.log.take() {
            Some(mut log) if log.end < log.limit => {
                next.log = log.number;
                log.append(&Edit::between(current, next)).await?;
                self.log = Some(log);
                Ok(())
            }
            _ => self.rewrite(next).await,
        }
    }

    /// Writes the whole file, and begins its log.
    async fn rewrite(&mut self, next: &mut CatalogFile) -> std::result::Result<(), ReplaceFailed> {
        let number = self.last_number + 1;
        let begun = Open::begin(&self.env, number).await;
        let mut log = begun.map_err(|error| ReplaceFailed {
            error,
            in_doubt: false,
        })?;
        // Also when the file is then not written: a number that a file may name stands for one log.
        self.last_number = number;
        next.log = number;
        let bytes = files::try_replace(&self.env, "", CATALOG_NAME, CATALOG_KIND, next).await?;
        log.limit = bytes.max(MIN_LOG_BYTES);
        self.log = Some(log);
        self.remove_others(&name(number)).await;
        Ok(())
    }

    /// The end: the file alone, without a log.
    pub async fn close(&mut self, last: &CatalogFile) -> Result<()> {
        self.log = None;
        let alone = CatalogFile {
            log: 0,
            ..last.clone()
        };
        files::replace(&self.env, "", CATALOG_NAME, CATALOG_KIND, &alone).await?;
        self.remove_others("").await;
        Ok(())
    }

    /// Removes logs that no file names. One that stays is never read again.
    async fn remove_others(&self, but: &str) {
        for there in self.env.disk.list("").await.unwrap_or_default() {
            if there.starts_with(PREFIX) && there.ends_with(SUFFIX) && there != but {
                let _ = self.env.disk.remove(&there).await;
            }
        }
    }
}

impl Open {
    async fn begin(env: &Env, number: u64) -> Result<Open> {
        let file = env.disk.create(&name(number), FileMode::Buffered).await?;
        // What a file of this number held before is gone for good before the number is named again.
        file.sync().await?;
        env.disk.sync_dir("").await?;
        Ok(Open {
            file,
            number,
            end: 0,
            limit: MIN_LOG_BYTES,
        })
    }

    async fn append(&mut self, edit: &Edit) -> std::result::Result<(), ReplaceFailed> {
        let failed = |in_doubt| move |error: Error| ReplaceFailed { error, in_doubt };
        let bytes = sealed::seal(EDIT_KIND, edit).map_err(failed(false))?;
        // An edit that is not written to its end is not whole.
        let written = self.file.write_at(self.end, &bytes).await;
        written.map_err(|e| failed(false)(e.into()))?;
        let synced = self.file.sync().await;
        synced.map_err(|e| failed(true)(e.into()))?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

/// Reads the log of a catalog file and makes its edits.
///
/// # Errors
/// `XX001` when it is missing, or damaged before an intact edit; `0A000` when a newer release wrote it.
pub async fn read_into(env: &Env, file: &mut CatalogFile) -> Result<()> {
    if file.log == 0 {
        return Ok(());
    }
    let name = name(file.log);
    if !env.disk.list("").await?.contains(&name) {
        return Err(Error::corrupted(format!(
            "file {name} is missing: the catalog's last changes are in it"
        ))
        .hint("the way back is a snapshot as a whole"));
    }
    let log = env.disk.open(&name, FileMode::Buffered).await?;
    let size = log.size().await?;
    if size > files::SMALL_FILE_BYTES {
        return Err(Error::corrupted(format!(
            "{name} has {size} bytes, which is no log of a catalog"
        )));
    }
    let bytes = log.read_at(0, size as usize).await?;
    for edit in sealed::unseal_all::<Edit>(EDIT_KIND, &bytes, &name)? {
        edit.apply(file);
    }
    Ok(())
}

/// The error of a catalog that was not written.
pub(crate) fn not_written(failed: ReplaceFailed) -> ReplaceFailed {
    let e = &failed.error;
    let words = format!("the catalog could not be written: {}", e.message());
    ReplaceFailed {
        error: Error::new(e.state(), words),
        ..failed
    }
}
