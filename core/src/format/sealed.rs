//! Small files whose content is JSON for people's eyes under one line that guards it:
//!
//! ```text
//! strandline-<kind> v2 crc32c=<8 hex digits> len=<bytes of the body>\n
//! <JSON>
//! ```

use crate::error::{Error, Result, SqlState};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Of the line and of what it promises about the body; the body's own format is its reader's business.
///
/// 2: a catalog or a manifest may name a file of edits beside it, and tables have options, which version 1 did not
/// know of and would have passed over.
pub const SEALED_VERSION: u32 = 2;

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

/// Back from bodies that were sealed and appended to one file, each durable before the next: all that are whole.
/// What follows the last was never acknowledged.
///
/// # Errors
/// `XX001`, naming the file and the offset, when one is damaged before another that is whole; `0A000` when a
/// newer release wrote one.
pub fn unseal_all<T: DeserializeOwned>(kind: &str, bytes: &[u8], name: &str) -> Result<Vec<T>> {
    let mut bodies = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match first(kind, &bytes[at..], name) {
            Ok((body, len)) => {
                bodies.push(body);
                at += len;
            }
            Err(e) if e.state() == SqlState::FeatureNotSupported => return Err(e),
            Err(_) => {
                let (begin, rest) = (format!("strandline-{kind} v"), &bytes[at + 1..]);
                // A whole one's first line ends in a newline, which no text inside JSON holds as it is.
                let starts = (0..rest.len()).filter(|&i| rest[i..].starts_with(begin.as_bytes()));
                if { starts }.any(|i| first::<T>(kind, &rest[i..], name).is_ok()) {
                    return Err(Error::corrupted(format!(
                        "file {name} is damaged at offset {at}: a change is not whole, and others follow"
                    ))
                    .hint("the way back is a snapshot as a whole"));
                }
                break;
            }
        }
    }
    Ok(bodies)
}

/// The body at the beginning of `bytes`, and where it ends.
fn first<T: DeserializeOwned>(kind: &str, bytes: &[u8], name: &str) -> Result<(T, usize)> {
    // "strandline-", the kind and three numbers; longer lines are none.
    let head = &bytes[..bytes.len().min(kind.len() + 96)];
    let line = head.iter().position(|&b| b == b'\n');
    let len = line.and_then(|line| {
        let text = std::str::from_utf8(&head[..line]).ok()?;
        let len: usize = text.rsplit_once("len=")?.1.parse().ok()?;
        (line + 1).checked_add(len)
    });
    let whole = len.and_then(|len| bytes.get(..len));
    let whole = whole.ok_or_else(|| Error::corrupted(format!("file {name} is cut")))?;
    Ok((unseal(kind, whole, name)?, whole.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(file.starts_with(b"strandline-manifest v2 crc32c="));
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
            .replace(" v2 ", " v3 ");
        let newer = open(newer.as_bytes()).unwrap_err();
        assert_eq!(newer.state(), SqlState::FeatureNotSupported);
        assert!(newer.message().contains("version 3"));
    }

    #[test]
    fn of_appended_bodies_only_the_last_may_be_cut() {
        let bodies: Vec<_> = (0..4u64)
            .map(|n| BTreeMap::from([("a".to_string(), n)]))
            .collect();
        let mut file = Vec::new();
        let mut ends = vec![0];
        for body in &bodies {
            file.extend(seal("edit", body).unwrap());
            ends.push(file.len());
        }
        let open = |bytes: &[u8]| unseal_all::<BTreeMap<String, u64>>("edit", bytes, "edits-1");
        for cut in 0..=file.len() {
            for behind in [
                &b""[..],
                &[0; 40],
                b"strandline-edit v1 crc32c=00000000 len=0\n",
            ] {
                let bytes = [&file[..cut], behind].concat();
                let whole = ends.iter().filter(|&&e| e > 0 && e <= cut).count();
                assert_eq!(open(&bytes).unwrap(), bodies[..whole], "cut at {cut}");
            }
        }
        for at in 0..ends[3] {
            let mut bytes = file.clone();
            bytes[at] ^= 4;
            let e = open(&bytes).unwrap_err();
            assert!(e.message().contains("edits-1"), "{e}");
            let newer = e.state() == SqlState::FeatureNotSupported;
            assert!(newer || e.state() == SqlState::DataCorrupted, "{e}");
        }
    }
}
