//! The list of the log's files: what there must be at a start. A directory alone cannot tell a log that ends
//! from one whose last file somebody removed or cut.
//!
//! A file is in the list from before its first commit until its records are needless. The list also says how
//! far the log had come when it was written: at each rotation, at each file that is given back, at each start.
//! What the newest file got since then is proven by nothing but itself.

use super::Inner;
use super::files::Directory;
use super::recover::io_error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strandline_core::error::{Error, Result, SqlState};

/// Its name in the log's directory.
pub(super) const NAME: &str = "files";
/// The kind that seals it.
pub(super) const KIND: &str = "log-files";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileList {
    /// Bytes of each file, by number.
    pub(super) files: BTreeMap<u64, u64>,
    /// The last commit that was durable; 0: none.
    pub(super) commit: u64,
    /// Numbers of records up to it are used, or given up.
    pub(super) lsn: u64,
}

/// What a start knows of the list.
pub(super) enum Found {
    /// There is one.
    List(FileList),
    /// There is none. Older releases wrote none.
    None,
    /// It is damaged.
    Damaged(Error),
}

/// Reads it.
///
/// # Errors
/// `0A000` when a newer release wrote it; `58030` from the disk.
pub(super) async fn read(files: &Directory) -> Result<Found> {
    match crate::files::read::<FileList>(&files.env, &files.dir, NAME, KIND).await {
        Ok(found) => Ok(found.map_or(Found::None, Found::List)),
        Err(e) if e.state() == SqlState::DataCorrupted => Ok(Found::Damaged(e)),
        Err(e) => Err(e),
    }
}

/// An error of [`Inner::change_list`].
pub(super) struct ListError {
    pub(super) error: Error,
    /// Whether the disk has the new list or the old one is not known.
    pub(super) in_doubt: bool,
}

impl Inner {
    /// Changes which files the list names, durably. `add`: number and bytes of a file that is on the disk;
    /// `remove`: numbers of files that are about to go.
    pub(super) async fn change_list(
        &self,
        add: Option<(u64, u64)>,
        remove: &[u64],
    ) -> std::result::Result<(), ListError> {
        let _one = self.listing.lock().await;
        let list = {
            let state = self.state.borrow();
            let mut files = state.listed.clone();
            files.extend(add);
            files.retain(|number, _| !remove.contains(number));
            FileList {
                files,
                commit: state.next_commit - 1,
                lsn: state.durable_lsn,
            }
        };
        let Directory { env, dir } = &self.files;
        let written = crate::files::try_replace(env, dir, NAME, KIND, &list).await;
        let failed = written.err().map(|e| ListError {
            error: Error::new(
                e.error.state(),
                format!(
                    "the list of log files {dir}/{NAME} could not be written: {}",
                    e.error.message()
                ),
            ),
            in_doubt: e.in_doubt,
        });
        let mut state = self.state.borrow_mut();
        match failed {
            None => {
                state.listed = list.files;
                Ok(())
            }
            Some(e) => {
                if e.in_doubt {
                    // Whichever list is there: the next one must name every file that either may name.
                    state.listed.extend(add);
                }
                Err(e)
            }
        }
    }
}

/// The path of the list, for people.
pub(super) fn path(files: &Directory) -> String {
    files.path(NAME)
}

/// Whether a file that the list names is there as it should be; what is wrong with it.
pub(super) async fn fault(
    files: &Directory,
    number: u64,
    listed: u64,
    there: bool,
) -> Result<Option<String>> {
    use strandline_core::io::FileMode;
    let path = files.log(number);
    if !there {
        return Ok(Some(format!("log file {path} is missing")));
    }
    let size = async {
        let file = files.env.disk.open(&path, FileMode::Direct).await?;
        file.size().await
    };
    let size = size.await.map_err(|e| io_error(&path, &e))?;
    Ok((size < listed)
        .then(|| format!("log file {path} ends at offset {size}; it had {listed} bytes")))
}
