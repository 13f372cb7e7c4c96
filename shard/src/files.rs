//! Small files that are replaced whole: the catalog, a shard's manifest, its fence. Written beside their
//! place, made durable, then renamed over it: a crash leaves the old one or the new one.

use serde::{Serialize, de::DeserializeOwned};
use strandline_core::error::{Error, Result};
use strandline_core::format::sealed;
use strandline_core::io::{Env, FileMode};

/// Longest small file that is read at all: past it something else stands in its place.
pub const SMALL_FILE_BYTES: u64 = 1 << 30;

/// Replaces `dir/name` with the sealed form of `value`. Durable when it returns.
///
/// # Errors
/// The old one is in place, or the new one, or a crash decides: see [`try_replace`].
pub async fn replace<T: Serialize>(
    env: &Env,
    dir: &str,
    name: &str,
    kind: &str,
    value: &T,
) -> Result<()> {
    replace_counted(env, dir, name, kind, value).await?;
    Ok(())
}

/// As [`replace`]; how many bytes it has.
///
/// # Errors
/// As [`replace`].
pub async fn replace_counted<T: Serialize>(
    env: &Env,
    dir: &str,
    name: &str,
    kind: &str,
    value: &T,
) -> Result<u64> {
    let done = try_replace(env, dir, name, kind, value).await;
    done.map_err(|failed| failed.error)
}

/// Why a small file was not replaced.
pub struct ReplaceFailed {
    /// Why.
    pub error: Error,
    /// The rename was tried: which of the two files a later start finds is not known.
    pub in_doubt: bool,
}

/// As [`replace`], for callers that must know what an error leaves behind. Answers the file's bytes.
pub async fn try_replace<T: Serialize>(
    env: &Env,
    dir: &str,
    name: &str,
    kind: &str,
    value: &T,
) -> std::result::Result<u64, ReplaceFailed> {
    let path = join(dir, name);
    let tmp = format!("{path}.tmp");
    let written = async {
        let bytes = sealed::seal(kind, value)?;
        let file = env.disk.create(&tmp, FileMode::Buffered).await?;
        file.write_at(0, &bytes).await?;
        file.sync().await?;
        Ok(bytes.len() as u64)
    };
    let failed = |in_doubt| move |error| ReplaceFailed { error, in_doubt };
    let bytes = written.await.map_err(failed(false))?;
    let renamed = async {
        env.disk.rename(&tmp, &path).await?;
        env.disk.sync_dir(dir).await?;
        Ok(bytes)
    };
    renamed.await.map_err(failed(true))
}

/// Reads `dir/name`; `None` when it is not there.
pub async fn read<T: DeserializeOwned>(
    env: &Env,
    dir: &str,
    name: &str,
    kind: &str,
) -> Result<Option<T>> {
    if !env.disk.list(dir).await?.iter().any(|n| n == name) {
        return Ok(None);
    }
    let path = join(dir, name);
    let file = env.disk.open(&path, FileMode::Buffered).await?;
    let size = file.size().await?;
    if size > SMALL_FILE_BYTES {
        return Err(Error::corrupted(format!(
            "{path} has {size} bytes, which is no {kind}"
        )));
    }
    let bytes = file.read_at(0, size as usize).await?;
    sealed::unseal(kind, &bytes, &path).map(Some)
}

/// `dir/name`, or `name` when `dir` is the root.
pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_string()
    } else {
        format!("{dir}/{name}")
    }
}
