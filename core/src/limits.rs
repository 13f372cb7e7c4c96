//! Every limit of the engine: its name, its default, and why it is that number. Each can be set under
//! `[limits]` in the file that `--config` names, is shown by `SHOW limits`, and is named by the error that
//! it causes ([`Limits::exceeded`]).

use crate::error::{Error, SqlState};

/// What one unit of a limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; the configuration also takes `512M`, `2G`.
    Bytes,
    /// A count.
    Count,
    /// Milliseconds.
    Millis,
}

/// How a limit is described.
#[derive(Clone, Copy, Debug)]
pub struct LimitInfo {
    /// Its name in the configuration and in errors.
    pub name: &'static str,
    /// Its default.
    pub default: u64,
    /// Smallest and largest value it may be given.
    pub range: (u64, u64),
    /// What it counts.
    pub unit: Unit,
    /// What it is for.
    pub doc: &'static str,
}

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $unit:ident = $default:expr, $min:expr, $max:expr;)+) => {
        /// The limits in force.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Default for Limits {
            fn default() -> Self { Limits { $($name: $default,)+ } }
        }

        impl Limits {
            /// All of them, in the order of this file.
            pub const ALL: &'static [LimitInfo] = &[$(LimitInfo {
                name: stringify!($name), default: $default, range: ($min, $max), unit: Unit::$unit,
                doc: concat!($($doc),+),
            },)+];

            /// The value of a limit, by name.
            pub fn get(&self, name: &str) -> Option<u64> {
                match name { $(stringify!($name) => Some(self.$name),)+ _ => None }
            }

            fn slot(&mut self, name: &str) -> Option<&mut u64> {
                match name { $(stringify!($name) => Some(&mut self.$name),)+ _ => None }
            }
        }

        // A default outside its own range would refuse the shipped configuration.
        $(const _: () = assert!($min <= $default && $default <= $max);)+
    };
}

const KIB: u64 = 1u64 << 10;
const MIB: u64 = 1u64 << 20;
const GIB: u64 = 1u64 << 30;

limits! {
    /// Memory for memtables, tails, entity names and caches of all shards together.
    memory_bytes: Bytes = 2 * GIB, 64 * MIB, 1u64 << 50;
    /// Percent of `memory_bytes` for tails, from which `LATEST ON` is answered: past it, those that were
    /// asked for least are given up, and their channels' newest samples are looked up in history.
    tails_percent: Count = 10, 0, 90;
    /// Percent of `memory_bytes` for names of entities: past it, new entities are refused.
    names_percent: Count = 20, 1, 90;
    /// PostgreSQL, HTTP and line-protocol connections, all together.
    connections: Count = 1000, 1, 1_000_000;
    /// A statement's text, and a protocol message.
    statement_bytes: Bytes = 64 * MIB, 64 * KIB, GIB;
    /// How deep expressions and parentheses may nest.
    nesting_depth: Count = 64, 8, 256;
    /// Parameters of one prepared statement; the protocol counts them in 16 bits.
    parameters: Count = 65_535, 1, 65_535;
    /// Prepared statements of one connection.
    prepared_statements: Count = 10_000, 1, 10_000_000;
    /// Text of the prepared statements of one connection, together.
    prepared_bytes: Bytes = 64 * MIB, 64 * KIB, GIB;
    /// Rows that an INSERT into a rows table puts on one shard as one log record: one run of xids.
    insert_run_rows: Count = 65_536, 1, 65_536;
    /// A name of a table or column (PostgreSQL cuts at 63; 127 are allowed here).
    name_bytes: Bytes = 127, 1, 127;
    /// An entity's name.
    entity_bytes: Bytes = 1024, 16, 64 * KIB;
    /// One text value.
    text_bytes: Bytes = 16 * MIB, KIB, 256 * MIB;
    /// Tables of one database.
    tables: Count = 10_000, 1, 1_000_000;
    /// Columns of one table.
    columns: Count = 10_000, 1, 100_000;
    /// Entities of one table on one shard, held by name in memory.
    entities: Count = 50_000_000, 1, 1u64 << 32;
    /// Buckets that one SAMPLE BY may answer.
    buckets: Count = 10_000_000, 1, 1_000_000_000;
    /// A result that must be held whole before it can be sent (sorted or gathered rows).
    result_bytes: Bytes = GIB, MIB, 1u64 << 40;
    /// Rows that one question of the catalog may look at, joins included: it runs without a break, so this
    /// bounds how long it holds its core.
    catalog_rows: Count = 2_000_000, 10_000, 1_000_000_000;
    /// One line of line protocol.
    ilp_line_bytes: Bytes = MIB, KIB, 64 * MIB;
    /// Fields of one line.
    ilp_fields: Count = 10_000, 1, 100_000;
    /// Bytes that one line-protocol connection may have parsed and not yet durable: past it, its socket is not read.
    ilp_in_flight_bytes: Bytes = 16 * MIB, 64 * KIB, GIB;
    /// The same, of all line-protocol connections and HTTP writes together: past it, each still gets 16 KiB.
    ilp_in_flight_total_bytes: Bytes = 256 * MIB, MIB, 1u64 << 40;
    /// Bad lines that are logged per second, all connections together; all are counted.
    ilp_log_lines_per_second: Count = 5, 0, 10_000;
    /// Bytes gathered for one commit of a shard's log before writers wait.
    log_pending_bytes: Bytes = 32 * MIB, MIB, GIB;
    /// One log file; they are written once with zeros and then recycled.
    log_file_bytes: Bytes = 64 * MIB, MIB, GIB;
    /// A shard's log past which the tables that hold it are flushed.
    log_bytes: Bytes = 512 * MIB, 4 * MIB, 1u64 << 40;
    /// Most rows of one block of a segment.
    block_rows: Count = 4096, 16, 65_536;
    /// Text and names of one block of a segment, past which it is cut; a row that is larger has its own block.
    block_bytes: Bytes = MIB, 64 * KIB, 256 * MIB;
    /// Segments of one table and shard of like size before they are merged.
    merge_fan_in: Count = 4, 2, 64;
    /// A segment that merging no longer makes larger.
    segment_bytes: Bytes = 2 * GIB, MIB, 1u64 << 40;
    /// Ranges of x_rev in flight per table; past it, writers wait. A connection has one in flight at a time,
    /// so this is four times `connections`; each costs 16 bytes for every rows table.
    ranges_in_flight: Count = 4096, 16, 1u64 << 24;
    /// Numbers of x_rev made durable at a time: the gap that a crash leaves.
    rev_reservation: Count = 1u64 << 20, 16, 1u64 << 32;
    /// HTTP request head.
    http_head_bytes: Bytes = 64 * KIB, KIB, MIB;
    /// HTTP request body, as it comes and unpacked. It is parsed as it comes, never held whole.
    http_body_bytes: Bytes = 4 * GIB, KIB, 1u64 << 40;
    /// A connection that has not finished its start-up message is closed after this.
    startup_ms: Millis = 30_000, 100, 3_600_000;
    /// SIGTERM waits this long for statements that run, then cancels them.
    drain_ms: Millis = 10_000, 0, 3_600_000;
}

impl Limits {
    /// Sets a limit from its configuration value: a whole number, or for bytes a number with K, M, G or T.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let info = Limits::ALL.iter().find(|i| i.name == name).ok_or_else(|| {
            Error::new(
                SqlState::UndefinedObject,
                format!("there is no limit named \"{name}\""),
            )
        })?;
        let parsed = match info.unit {
            Unit::Bytes => parse_size(value),
            Unit::Count | Unit::Millis => value.trim().parse().ok(),
        };
        let (low, high) = info.range;
        match parsed {
            Some(v) if (low..=high).contains(&v) => {
                if let Some(slot) = self.slot(name) {
                    *slot = v;
                }
                Ok(())
            }
            _ => Err(Error::new(
                SqlState::InvalidParameterValue,
                format!("limit {name} = \"{value}\" is not a number between {low} and {high}"),
            )),
        }
    }

    /// The error of a limit that is reached, naming it, its value and where it is set.
    pub fn exceeded(
        &self,
        name: &'static str,
        state: SqlState,
        what: impl std::fmt::Display,
    ) -> Error {
        let value = self.get(name).unwrap_or(0);
        Error::new(state, format!("{what}: over the limit {name} = {value}")).hint(format!(
            "raise {name} under [limits] in the configuration file"
        ))
    }
}

/// `512M`, `2G`, `64K`, `1T` (powers of 1024, an optional B behind), or plain bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], KIB),
        b'm' | b'M' => (&text[..text.len() - 1], MIB),
        b'g' | b'G' => (&text[..text.len() - 1], GIB),
        b't' | b'T' => (&text[..text.len() - 1], 1u64 << 40),
        _ => (text, 1),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512M"), Some(512 * MIB));
        assert_eq!(parse_size("2g"), Some(2 * GIB));
        assert_eq!(parse_size("17"), Some(17));
        assert_eq!(parse_size("1.5G"), None);
        assert_eq!(parse_size(""), None);
        assert_eq!(parse_size("99999999999T"), None);
    }

    #[test]
    fn every_limit_can_be_set_and_names_itself() {
        let mut limits = Limits::default();
        for info in Limits::ALL {
            limits.set(info.name, &info.range.0.to_string()).unwrap();
            assert_eq!(limits.get(info.name), Some(info.range.0));
            assert!(limits.set(info.name, "-1").is_err());
            let e = limits.exceeded(info.name, SqlState::ProgramLimitExceeded, "it");
            assert!(e.message().contains(info.name));
        }
        assert!(limits.set("no_such_limit", "1").is_err());
    }
}
