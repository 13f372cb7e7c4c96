//! What the server is started with. Each setting comes from the first place that has it: the flag, the
//! environment variable, the file that `--config` names, the default. All three speak of the same names:
//! `--node-id`, `STRANDLINE_NODE_ID`, `node_id = "00a1"`.

use clap::Args;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::limits::{Limits, parse_size};

/// What turns a listener off.
const OFF: &str = "off";

/// Everything that the server needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The data directory.
    pub data: PathBuf,
    /// Where PostgreSQL clients connect; `None`: nowhere.
    pub pg: Option<String>,
    /// Where line protocol comes in.
    pub ilp: Option<String>,
    /// Where HTTP is answered.
    pub http: Option<String>,
    /// Shards of a database that is made now; `None`: one per core.
    pub shards: Option<u16>,
    /// The node id in xids.
    pub node_id: u16,
    /// The tag of a line that names its entity.
    pub ilp_entity_tag: String,
    /// Tags that no table declares become TEXT channels.
    pub ilp_store_tags: bool,
    /// Trust every address, not only this machine's.
    pub insecure: bool,
    /// Start although the log is damaged.
    pub accept_loss: bool,
    /// The limits.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            data: "strandline-data".into(),
            pg: Some("127.0.0.1:5433".into()),
            ilp: Some("127.0.0.1:9009".into()),
            http: Some("127.0.0.1:9000".into()),
            shards: None,
            node_id: 0,
            ilp_entity_tag: "entity".into(),
            ilp_store_tags: false,
            insecure: false,
            accept_loss: false,
            limits: Limits::default(),
        }
    }
}

/// The flags of `serve`, and their environment variables. Those that are absent stay `None`, so that the
/// file can have its say.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// The data directory; made when it is not there [default: ./strandline-data]
    #[arg(long, value_name = "DIR", env = "STRANDLINE_DATA")]
    pub data: Option<PathBuf>,
    /// Where PostgreSQL clients connect, or `off`; port 0 picks a free one [default: 127.0.0.1:5433]
    #[arg(long, value_name = "HOST:PORT", env = "STRANDLINE_PG")]
    pub pg: Option<String>,
    /// Where line protocol comes in, or `off` [default: 127.0.0.1:9009]
    #[arg(long, value_name = "HOST:PORT", env = "STRANDLINE_ILP")]
    pub ilp: Option<String>,
    /// Where writes, /health, /ready and /metrics are answered over HTTP, or `off` [default: 127.0.0.1:9000]
    #[arg(long, value_name = "HOST:PORT", env = "STRANDLINE_HTTP")]
    pub http: Option<String>,
    /// Shards of a new database, fixed for its life [default: one per core]
    #[arg(long, value_name = "N", env = "STRANDLINE_SHARDS")]
    pub shards: Option<u16>,
    /// Memory for memtables, tails and caches: `512M`, `2G` or bytes [default: 2G]
    #[arg(long, value_name = "SIZE", env = "STRANDLINE_MEMORY")]
    pub memory: Option<String>,
    /// Four hex digits that end every xid made here; give each server of a fleet its own [default: 0000]
    #[arg(long, value_name = "HEX4", env = "STRANDLINE_NODE_ID")]
    pub node_id: Option<String>,
    /// The tag of a line that names its entity, where the table has no ENTITY TAG of its own [default: entity]
    #[arg(long, value_name = "TAG", env = "STRANDLINE_ILP_ENTITY_TAG")]
    pub ilp_entity_tag: Option<String>,
    /// What becomes of a line's other tags: `store` makes TEXT channels of them, `ignore` takes only those that
    /// the table declares [default: ignore]
    #[arg(long, value_name = "store|ignore", env = "STRANDLINE_ILP_TAGS")]
    pub ilp_tags: Option<String>,
    /// Listen off loopback too, trusting everybody who can connect
    #[arg(long, env = "STRANDLINE_INSECURE", value_parser = clap::builder::BoolishValueParser::new())]
    pub insecure: bool,
    /// Start once although log records are damaged or missing, or the index of a segment is, going on
    /// without them; what is lost is reported, counted and noted in the data directory
    #[arg(long)]
    pub accept_loss: bool,
    /// A TOML file with these settings, and a table [limits]
    #[arg(long, value_name = "FILE", env = "STRANDLINE_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The file.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    data: Option<PathBuf>,
    pg: Option<String>,
    ilp: Option<String>,
    http: Option<String>,
    shards: Option<u16>,
    memory: Option<Number>,
    node_id: Option<String>,
    ilp_entity_tag: Option<String>,
    ilp_tags: Option<String>,
    insecure: Option<bool>,
    limits: BTreeMap<String, Number>,
}

/// `67108864` or `"64M"`.
#[derive(Deserialize, Debug)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Text(String),
}

impl Number {
    fn text(self) -> String {
        match self {
            Number::Whole(n) => n.to_string(),
            Number::Text(t) => t,
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(SqlState::InvalidParameterValue, message)
}

impl Config {
    /// The configuration that flags, environment and file make together.
    ///
    /// # Errors
    /// `22023` (or `42704` for a limit that does not exist), naming the setting and its file.
    pub fn load(flags: &Flags) -> Result<Config> {
        let file = match &flags.config {
            Some(path) => read(path)?,
            None => File::default(),
        };
        Config::merge(flags, file).map_err(|e| match &flags.config {
            Some(path) => {
                let text = format!("{}, or a flag over it: {}", path.display(), e.message());
                Error::new(e.state(), text)
            }
            None => e,
        })
    }

    fn merge(flags: &Flags, file: File) -> Result<Config> {
        let default = Config::default();
        let address = |name: &str, flag: &Option<String>, file: Option<String>, default| match flag
            .clone()
            .or(file)
        {
            None => Ok(default),
            Some(a) if a.eq_ignore_ascii_case(OFF) => Ok(None),
            Some(a)
                if a.rsplit_once(':')
                    .is_some_and(|(_, p)| p.parse::<u16>().is_ok()) =>
            {
                Ok(Some(a))
            }
            Some(a) => Err(invalid(format!(
                "{name} = \"{a}\" is not HOST:PORT, and not off"
            ))),
        };
        let mut limits = Limits::default();
        for (name, value) in file.limits {
            limits.set(&name, &value.text())?;
        }
        if let Some(size) = flags.memory.clone().or(file.memory.map(Number::text)) {
            if parse_size(&size).is_none() {
                return Err(invalid(format!(
                    "memory = \"{size}\" is not a size such as 512M, 2G or a number of bytes"
                )));
            }
            limits.set("memory_bytes", &size)?;
        }
        let node_id = match flags.node_id.clone().or(file.node_id) {
            None => default.node_id,
            Some(hex) => match u16::from_str_radix(&hex, 16) {
                Ok(id) if hex.len() == 4 && !hex.starts_with('+') => id,
                _ => {
                    return Err(invalid(format!(
                        "node_id = \"{hex}\" is not four hexadecimal digits"
                    )));
                }
            },
        };
        let shards = flags.shards.or(file.shards);
        if shards == Some(0) {
            return Err(invalid(
                "shards = 0: a database has at least one shard".into(),
            ));
        }
        let ilp_entity_tag = flags.ilp_entity_tag.clone().or(file.ilp_entity_tag);
        if ilp_entity_tag.as_ref().is_some_and(String::is_empty) {
            return Err(invalid("ilp_entity_tag is empty".into()));
        }
        let ilp_store_tags = match flags.ilp_tags.clone().or(file.ilp_tags).as_deref() {
            None => default.ilp_store_tags,
            Some("store") => true,
            Some("ignore") => false,
            Some(other) => {
                return Err(invalid(format!(
                    "ilp_tags = \"{other}\" is neither store nor ignore"
                )));
            }
        };
        Ok(Config {
            data: flags.data.clone().or(file.data).unwrap_or(default.data),
            pg: address("pg", &flags.pg, file.pg, default.pg)?,
            ilp: address("ilp", &flags.ilp, file.ilp, default.ilp)?,
            http: address("http", &flags.http, file.http, default.http)?,
            shards,
            node_id,
            ilp_entity_tag: ilp_entity_tag.unwrap_or(default.ilp_entity_tag),
            ilp_store_tags,
            insecure: flags.insecure || file.insecure.unwrap_or(false),
            accept_loss: flags.accept_loss,
            limits,
        })
    }
}

fn read(path: &Path) -> Result<File> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Error::new(
            SqlState::IoError,
            format!("cannot read the configuration {}: {e}", path.display()),
        )
    })?;
    toml::from_str(&text).map_err(|e| {
        // What is wrong and where, on one line.
        let line = e.span().map_or(0, |s| {
            text[..s.start.min(text.len())].matches('\n').count() + 1
        });
        invalid(format!(
            "{}, line {line}: {}",
            path.display(),
            e.message().replace('\n', " ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> File {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn flags_stand_over_the_file_and_the_file_over_defaults() {
        let file = parse(
            "pg = '127.0.0.1:1'\nilp = 'off'\nmemory = 134217728\nnode_id = '00a1'\n[limits]\nbuckets = 5\nblock_rows = '64'",
        );
        let flags = Flags {
            pg: Some("127.0.0.1:2".into()),
            shards: Some(3),
            ..Flags::default()
        };
        let c = Config::merge(&flags, file).unwrap();
        assert_eq!(c.pg.as_deref(), Some("127.0.0.1:2"));
        assert_eq!((c.ilp, c.http.as_deref()), (None, Some("127.0.0.1:9000")));
        assert_eq!((c.shards, c.node_id), (Some(3), 0xa1));
        assert_eq!(c.limits.memory_bytes, 128 << 20);
        assert_eq!((c.limits.buckets, c.limits.block_rows), (5, 64));
        assert_eq!(
            Config::merge(&Flags::default(), File::default()).unwrap(),
            Config::default()
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let message = |flags: Flags, file: &str| {
            Config::merge(&flags, parse(file))
                .unwrap_err()
                .message()
                .to_owned()
        };
        let flags = || Flags::default();
        for (file, word) in [
            ("pg = 'nowhere'", "pg"),
            ("http = '127.0.0.1:70000'", "http"),
            ("node_id = 'xyz0'", "node_id"),
            ("node_id = '+00a'", "node_id"),
            ("node_id = '1'", "node_id"),
            ("memory = 'lots'", "memory"),
            ("memory = '1K'", "memory_bytes"),
            ("shards = 0", "shards"),
            ("ilp_entity_tag = ''", "ilp_entity_tag"),
            ("ilp_tags = 'some'", "ilp_tags"),
            ("[limits]\nnone_such = 1", "none_such"),
            ("[limits]\nblock_rows = 1", "block_rows"),
        ] {
            assert!(message(flags(), file).contains(word), "{file}");
        }
        assert!(toml::from_str::<File>("no_such = 1").is_err());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none.toml");
        let e = Config::load(&Flags {
            config: Some(path),
            ..flags()
        })
        .unwrap_err();
        assert!(e.message().contains("none.toml"), "{e}");
    }
}
