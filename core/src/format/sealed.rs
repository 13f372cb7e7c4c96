//! Small files whose content is JSON for people's eyes under one line that guards it:
//!
//! ```text
//! strandline-<kind> v1 crc32c=<8 hex digits> len=<bytes of the body>\n
//! <JSON>
//! ```

use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Of the line and of what it promises about the body; the body's own format is its reader's business.
pub const SEALED_VERSION: u32 = 1;

/// The file's bytes. `kind` is one word, lower case.
///
/// # Errors
/// `XX000` when the body cannot be written as JSON (a map with keys that are no strings).
pub fn seal(kind: &str, body: &impl Serialize) -> Result<Vec<u8>> {
    let body = serde_json::to_vec_pretty(body)
        .map_err(|e| Error::internal(format!("cannot write a {kind} file: {e}")))?;
    let mut out = format!(
        "strandline-{kind} v{SEALED_VERSION} crc32c={:08x} len={}\n",
        crc32c::crc32c(&body),
        body.len()
    )
    .into_bytes();
    out.extend_from_slice(&body);
    Ok(out)
}

/// Back from [`seal`]. `name` is the file's name, for the error.
///
/// # Errors
/// `XX001`, naming the file, when it is damaged, of another kind or cut; `0A000` when a newer release wrote
/// it.
pub fn unseal<T: DeserializeOwned>(kind: &str, bytes: &[u8], name: &str) -> Result<T> {
    let damaged = |what: &str| Error::corrupted(format!("file {name} is damaged: {what}"));
    let end = bytes
        .iter()
        .position(|&b| b == b'\n')
        .ok_or_else(|| damaged("it has no header line"))?;
    let (line, body) = (&bytes[..end], &bytes[end + 1..]);
    let line = std::str::from_utf8(line).map_err(|_| damaged("its header line is not text"))?;
    let mut words = line.split(' ');
    let found = words
        .next()
        .and_then(|w| w.strip_prefix("strandline-"))
        .ok_or_else(|| damaged("its header line does not begin with \"strandline-\""))?;
    if found != kind {
        return Err(damaged(&format!("it is a {found} file, not a {kind} file")));
    }
    let version: u32 = words
        .next()
        .and_then(|w| w.strip_prefix('v'))
        .and_then(|w| w.parse().ok())
        .ok_or_else(|| damaged("its header line has no version"))?;
    if version > SEALED_VERSION {
        return Err(Error::unsupported(format!(
            "file {name} has format version {version}; this release reads up to {SEALED_VERSION}"
        ))
        .hint("open the database with the release that wrote it, or a later one"));
    }
    if version == 0 {
        return Err(damaged("its header line has no version"));
    }
    let crc = words
        .next()
        .and_then(|w| w.strip_prefix("crc32c="))
        .ok_or_else(|| damaged("its header line has no checksum"))?;
    let len: usize = words
        .next()
        .and_then(|w| w.strip_prefix("len="))
        .and_then(|w| w.parse().ok())
        .ok_or_else(|| damaged("its header line has no length"))?;
    if words.next().is_some() {
        return Err(damaged("its header line goes on too long"));
    }
    if body.len() != len {
        return Err(damaged(&format!(
            "{} bytes follow the header, not {len}",
            body.len()
        )));
    }
    // As text, so that there is one way only to write it and no flipped bit passes.
    if format!("{:08x}", crc32c::crc32c(body)) != crc {
        return Err(damaged("its checksum does not fit its content"));
    }
    serde_json::from_slice(body).map_err(|e| damaged(&e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlState;
    use std::collections::BTreeMap;

    fn body() -> BTreeMap<String, u64> {
        [("a".to_string(), 1), ("b".to_string(), u64::MAX)].into()
    }

    fn open(bytes: &[u8]) -> Result<BTreeMap<String, u64>> {
        unseal("manifest", bytes, "shard-0/manifest-7")
    }

    #[test]
    fn comes_back_and_reads_well() {
        let file = seal("manifest", &body()).unwrap();
        assert_eq!(open(&file).unwrap(), body());
        assert!(file.starts_with(b"strandline-manifest v1 crc32c="));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let file = seal("manifest", &body()).unwrap();
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut bad = file.clone();
                bad[at] ^= 1 << bit;
                let e = open(&bad).unwrap_err();
                assert!(e.message().contains("shard-0/manifest-7"), "{e:?}");
            }
            assert!(open(&file[..at]).is_err());
        }
        assert!(open(&[&file[..], b" "].concat()).is_err());
    }

    #[test]
    fn other_kinds_and_newer_versions_are_told_apart() {
        let other = open(&seal("catalog", &body()).unwrap()).unwrap_err();
        assert_eq!(other.state(), SqlState::DataCorrupted);
        assert!(
            other
                .message()
                .contains("catalog file, not a manifest file")
        );
        let newer = String::from_utf8(seal("manifest", &body()).unwrap())
            .unwrap()
            .replace(" v1 ", " v2 ");
        let newer = open(newer.as_bytes()).unwrap_err();
        assert_eq!(newer.state(), SqlState::FeatureNotSupported);
        assert!(newer.message().contains("version 2"));
    }
}
