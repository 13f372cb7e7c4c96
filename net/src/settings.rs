//! Session settings: what SET, SHOW, RESET and the start-up packet can name, and which of them a client is
//! told about. Names and defaults are PostgreSQL's; `insert_returns` is ours.

use crate::glue::Notice;
use crate::pg::params::parse_bool;
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};

/// The version that clients see: a PostgreSQL 15 number, the product's own behind it.
pub const SERVER_VERSION: &str = concat!("15.0 (Strandline ", env!("CARGO_PKG_VERSION"), ")");

/// What a setting takes.
#[derive(Clone, Copy, Debug)]
enum Check {
    /// Nothing: it cannot be changed.
    Fixed,
    /// Any text.
    Any,
    /// UTF8.
    Encoding,
    /// ISO.
    DateStyle,
    Bool,
    /// On alone.
    On,
    Int(i64, i64),
    /// Whole ms, or a number with a unit.
    Duration,
    OneOf(&'static [&'static str]),
}

struct Known {
    name: &'static str,
    default: &'static str,
    check: Check,
    /// ParameterStatus tells the client.
    reported: bool,
    doc: &'static str,
}

const fn known(
    name: &'static str,
    default: &'static str,
    check: Check,
    reported: bool,
    doc: &'static str,
) -> Known {
    Known {
        name,
        default,
        check,
        reported,
        doc,
    }
}

const ISOLATION: Check = Check::OneOf(&[
    "read committed",
    "read uncommitted",
    "repeatable read",
    "serializable",
]);
const LEVELS: &[&str] = &[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice", "warning",
    "error",
];

/// Their order means nothing; answers sort by name.
#[rustfmt::skip]
static KNOWN: &[Known] = &[
    known("application_name", "", Check::Any, true, "the client's name for itself"),
    known("bytea_output", "hex", Check::OneOf(&["hex", "escape"]), false, "accepted; there is no bytea"),
    known("check_function_bodies", "on", Check::Bool, false, "accepted; there are no functions"),
    known("client_encoding", "UTF8", Check::Encoding, true, "UTF8 alone"),
    known("client_min_messages", "notice", Check::OneOf(LEVELS), false, "the least severe message that is sent"),
    known("DateStyle", "ISO, MDY", Check::DateStyle, true, "ISO alone"),
    known("default_table_access_method", "heap", Check::Any, false, "accepted"),
    known("default_tablespace", "", Check::Any, false, "accepted"),
    known("default_transaction_deferrable", "off", Check::Bool, false, "accepted; each statement commits by itself"),
    known("default_transaction_isolation", "read committed", ISOLATION, false, "accepted; each statement commits by itself"),
    known("default_transaction_read_only", "off", Check::Bool, true, "refuses writes"),
    known("escape_string_warning", "on", Check::Bool, false, "accepted"),
    known("extra_float_digits", "1", Check::Int(-15, 3), false, "accepted; floats are always the shortest exact text"),
    known("idle_in_transaction_session_timeout", "0", Check::Duration, false, "accepted; a block holds nothing"),
    known("idle_session_timeout", "0", Check::Duration, false, "accepted"),
    known("in_hot_standby", "off", Check::Fixed, true, "this is no standby"),
    known("insert_returns", "xid", Check::OneOf(&["xid", "none"]), false, "what INSERT into a rows table answers without RETURNING"),
    known("integer_datetimes", "on", Check::Fixed, true, "binary times are whole microseconds"),
    known("IntervalStyle", "postgres", Check::OneOf(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]), true, "accepted; there are no intervals in answers"),
    known("jit", "off", Check::Bool, false, "accepted"),
    known("lc_collate", "C", Check::Fixed, false, "text sorts by its bytes"),
    known("lc_ctype", "C", Check::Fixed, false, "text sorts by its bytes"),
    known("lc_messages", "C", Check::Any, false, "accepted"),
    known("lc_monetary", "C", Check::Any, false, "accepted"),
    known("lc_numeric", "C", Check::Any, false, "accepted"),
    known("lc_time", "C", Check::Any, false, "accepted"),
    known("lock_timeout", "0", Check::Duration, false, "accepted; there are no locks to wait for"),
    known("max_identifier_length", "127", Check::Fixed, false, "bytes of a name"),
    known("quote_all_identifiers", "off", Check::Bool, false, "accepted"),
    known("role", "none", Check::Any, false, "accepted"),
    known("row_security", "on", Check::Bool, false, "accepted; there are no row policies"),
    known("search_path", "\"$user\", public", Check::Any, false, "accepted; tables stand in schema public"),
    known("server_encoding", "UTF8", Check::Fixed, true, "UTF8"),
    known("server_version", SERVER_VERSION, Check::Fixed, true, "PostgreSQL's number and the product's own"),
    known("server_version_num", "150000", Check::Fixed, false, "PostgreSQL's number"),
    known("session_authorization", "", Check::Fixed, true, "the user"),
    known("ssl", "off", Check::Fixed, false, "whether the server speaks TLS"),
    known("standard_conforming_strings", "on", Check::On, true, "backslashes are plain characters in '…'"),
    known("statement_timeout", "0", Check::Duration, false, "ends a statement after this many ms; 0: never"),
    known("synchronize_seqscans", "on", Check::Bool, false, "accepted"),
    known("synchronous_commit", "on", Check::OneOf(&["on", "off", "local", "remote_write", "remote_apply"]), false, "accepted; every write is durable before its tag"),
    known("TimeZone", "UTC", Check::Any, true, "accepted; times are rendered in UTC"),
    known("transaction_deferrable", "off", Check::Bool, false, "accepted; each statement commits by itself"),
    known("transaction_isolation", "read committed", ISOLATION, false, "accepted; each statement commits by itself"),
    known("transaction_read_only", "off", Check::Bool, false, "refuses writes in this block"),
    known("work_mem", "4MB", Check::Any, false, "accepted; see SHOW limits"),
    known("is_superuser", "on", Check::Fixed, true, "every user may do everything in its database"),
    known("xmloption", "content", Check::Any, false, "accepted"),
];

type Cell = Option<Rc<str>>;

/// The settings of one session. Three layers: the default, what the start-up packet said (to which RESET
/// goes back), and what SET said; a block adds what to go back to.
#[derive(Clone, Debug)]
pub struct Settings {
    start: Vec<Cell>,
    session: Vec<Cell>,
    /// As the session was when the open block first changed something: ROLLBACK goes back to it.
    at_begin: Option<Vec<Cell>>,
    /// SET LOCAL: undone at the end of the block, however it ends.
    local: Vec<(usize, Cell)>,
    told: Vec<Cell>,
    changed: bool,
    statement_timeout_ms: u64,
    insert_returns_none: bool,
    read_only: bool,
    least_level: usize,
}

fn find(name: &str) -> Result<usize> {
    let name = match name {
        "time zone" => "timezone",
        "transaction isolation level" => "transaction_isolation",
        "session authorization" => "session_authorization",
        "names" => "client_encoding",
        other => other,
    };
    KNOWN
        .iter()
        .position(|k| k.name.eq_ignore_ascii_case(name))
        .ok_or_else(|| {
            Error::new(
                SqlState::UndefinedObject,
                format!("unrecognized configuration parameter \"{name}\""),
            )
            .hint("SHOW ALL lists the settings there are")
        })
}

impl Settings {
    /// Defaults, for a user.
    pub fn new(user: &str) -> Self {
        let mut start = vec![None; KNOWN.len()];
        if let Ok(i) = find("session_authorization") {
            start[i] = Some(user.into());
        }
        let mut settings = Settings {
            session: start.clone(),
            start,
            at_begin: None,
            local: Vec::new(),
            told: vec![None; KNOWN.len()],
            changed: true,
            statement_timeout_ms: 0,
            insert_returns_none: false,
            read_only: false,
            least_level: 0,
        };
        settings.derive();
        settings
    }

    fn value(&self, i: usize) -> &str {
        let local = self.local.iter().rev().find(|(at, _)| *at == i);
        let cell = match local {
            Some((_, cell)) => cell,
            None => self.session.get(i).unwrap_or(&None),
        };
        cell.as_deref().unwrap_or(KNOWN[i].default)
    }

    fn named(&self, name: &str) -> &str {
        find(name).map_or("", |i| self.value(i))
    }

    /// Keeps the few settings that statements look at as plain values.
    fn derive(&mut self) {
        self.changed = true;
        self.statement_timeout_ms = duration_ms(self.named("statement_timeout")).unwrap_or(0);
        self.insert_returns_none = self.named("insert_returns") == "none";
        self.read_only = self.named("transaction_read_only") == "on"
            || self.named("default_transaction_read_only") == "on";
        let level = self.named("client_min_messages");
        self.least_level = LEVELS.iter().position(|&l| l == level).unwrap_or(0);
    }

    /// A setting of the start-up packet, to which RESET will go back.
    pub fn set_at_start(&mut self, name: &str, value: &str) -> Result<()> {
        let i = find(&name.to_ascii_lowercase())?;
        let cell = check(i, value)?;
        self.start[i] = Some(cell.clone());
        self.session[i] = Some(cell);
        self.derive();
        Ok(())
    }

    /// SET (`None`: TO DEFAULT). `in_block`: a block is open.
    pub fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        local: bool,
        in_block: bool,
    ) -> Result<Option<Notice>> {
        let i = find(name)?;
        let cell = match value {
            // `SET SESSION AUTHORIZATION` and `SET ROLE` to what already is.
            Some(v) if v == self.value(i) => self.session[i].clone(),
            Some(v) => Some(check(i, v)?),
            None => self.start[i].clone(),
        };
        // These last for the block alone, however they are set.
        let of_block = KNOWN[i].name.starts_with("transaction_");
        if local || of_block {
            if !in_block {
                let what = if of_block {
                    "SET TRANSACTION"
                } else {
                    "SET LOCAL"
                };
                return Ok(Some(Notice::warning(
                    "25P01",
                    format!("{what} can only be used in transaction blocks"),
                )));
            }
            self.local.push((i, cell));
        } else {
            if in_block && self.at_begin.is_none() {
                self.at_begin = Some(self.session.clone());
            }
            self.local.retain(|(at, _)| *at != i);
            self.session[i] = cell;
        }
        self.derive();
        Ok(None)
    }

    /// RESET ALL.
    pub fn reset_all(&mut self, in_block: bool) {
        if in_block && self.at_begin.is_none() {
            self.at_begin = Some(self.session.clone());
        }
        self.local.clear();
        self.session.clone_from(&self.start);
        self.derive();
    }

    /// The block ends: SET LOCAL is undone, and after a ROLLBACK every SET of the block.
    pub fn end_block(&mut self, commit: bool) {
        let saved = self.at_begin.take();
        if self.local.is_empty() && (commit || saved.is_none()) {
            return;
        }
        self.local.clear();
        if let (false, Some(saved)) = (commit, saved) {
            self.session = saved;
        }
        self.derive();
    }

    /// SHOW: the name as PostgreSQL spells it, and the value.
    pub fn show(&self, name: &str) -> Result<(&'static str, &str)> {
        let i = find(name)?;
        Ok((KNOWN[i].name, self.value(i)))
    }

    /// SHOW ALL and `pg_settings`: name, value, description; sorted by name.
    pub fn all(&self) -> Vec<(String, String, String)> {
        let mut all: Vec<_> = KNOWN
            .iter()
            .enumerate()
            .map(|(i, k)| (k.name.into(), self.value(i).into(), k.doc.into()))
            .collect();
        all.sort_by_cached_key(|(name, _, _): &(String, _, _)| name.to_ascii_lowercase());
        all
    }

    /// Reported settings whose value the client does not know yet; it does after this.
    pub fn untold(&mut self, mut tell: impl FnMut(&'static str, &str)) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        for (i, k) in KNOWN.iter().enumerate().filter(|(_, k)| k.reported) {
            let now: Rc<str> = self.value(i).into();
            if self.told[i].as_ref() != Some(&now) {
                tell(k.name, &now);
                self.told[i] = Some(now);
            }
        }
    }

    /// `statement_timeout`, ms; 0: none.
    pub fn statement_timeout_ms(&self) -> u64 {
        self.statement_timeout_ms
    }
    /// `insert_returns = none`.
    pub fn insert_returns_none(&self) -> bool {
        self.insert_returns_none
    }
    /// Writes are refused.
    pub fn read_only(&self) -> bool {
        self.read_only
    }
    /// Whether a notice is severe enough for `client_min_messages`.
    pub fn wants(&self, notice: &Notice) -> bool {
        let level = notice.severity.name().to_ascii_lowercase();
        // INFO always goes out, as in PostgreSQL.
        level == "info" || LEVELS.iter().position(|&l| l == level) >= Some(self.least_level)
    }
}

/// The value as it is kept.
fn check(i: usize, value: &str) -> Result<Rc<str>> {
    let k = &KNOWN[i];
    let invalid = || {
        Error::new(
            SqlState::InvalidParameterValue,
            format!("invalid value for parameter \"{}\": \"{value}\"", k.name),
        )
    };
    let lower = value.trim().to_ascii_lowercase();
    Ok(match k.check {
        Check::Fixed => {
            return Err(Error::new(
                SqlState::CantChangeRuntimeParam,
                format!("parameter \"{}\" cannot be changed", k.name),
            ));
        }
        Check::Any => value.replace('\0', "").into(),
        // As PostgreSQL reads names of encodings: letters and digits alone, so that `'utf-8'` with its quotes,
        // as asyncpg says it, is one.
        Check::Encoding => match lower
            .replace(|c: char| !c.is_ascii_alphanumeric(), "")
            .as_str()
        {
            "utf8" | "unicode" => "UTF8".into(),
            _ => return Err(invalid().hint("the only encoding is UTF8")),
        },
        Check::DateStyle => {
            let mut parts = lower.split(',').map(str::trim);
            if !parts.all(|p| matches!(p, "iso" | "mdy" | "dmy" | "ymd" | "us" | "euro" | "")) {
                return Err(invalid().hint("the only style is ISO"));
            }
            let order = ["dmy", "ymd"].into_iter().find(|o| lower.contains(o));
            format!("ISO, {}", order.unwrap_or("mdy").to_ascii_uppercase()).into()
        }
        Check::Bool => match parse_bool(&lower) {
            Some(true) => "on".into(),
            Some(false) => "off".into(),
            None => return Err(invalid().hint("the values are on and off")),
        },
        Check::On => match parse_bool(&lower) {
            Some(true) => "on".into(),
            _ => return Err(invalid().hint("it is always on")),
        },
        Check::Int(low, high) => match lower.parse::<i64>() {
            Ok(n) if (low..=high).contains(&n) => lower.into(),
            _ => return Err(invalid().hint(format!("a whole number from {low} to {high}"))),
        },
        Check::Duration => match duration_ms(&lower) {
            Some(0) => "0".into(),
            Some(ms) => format_duration(ms).into(),
            None => {
                return Err(invalid().hint("milliseconds, or a number with us, ms, s, min, h or d"));
            }
        },
        Check::OneOf(values) => {
            let plain = lower.replace('-', " ");
            match values.iter().find(|&&v| v == lower || v == plain) {
                Some(&v) => v.into(),
                None => {
                    return Err(invalid().hint(format!("the values are {}", values.join(", "))));
                }
            }
        }
    })
}

/// PostgreSQL's time settings: bare numbers are ms; at most 2^31 − 1 ms.
fn duration_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "ms" => 1.0,
        "us" => 0.001,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let ms = (number.parse::<f64>().ok()? * factor).round();
    (0.0..=f64::from(i32::MAX))
        .contains(&ms)
        .then_some(ms as u64)
}

/// In the largest unit that divides it, as SHOW writes it.
fn format_duration(ms: u64) -> String {
    for (unit, factor) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("min", 60_000),
        ("s", 1000),
    ] {
        if ms.is_multiple_of(factor) {
            return format!("{}{unit}", ms / factor);
        }
    }
    format!("{ms}ms")
}

/// The start-up option `options`: `-c name=value`, `-cname=value`, `--name=value`, with `\` before blanks
/// that belong to a value.
pub fn parse_options(text: &str) -> Result<Vec<(String, String)>> {
    let mut words = vec![];
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word
                .get_or_insert_default()
                .push(chars.next().unwrap_or('\\')),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let mut options = vec![];
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let assignment = if word == "-c" {
            words.next()
        } else {
            word.strip_prefix("--")
                .or_else(|| word.strip_prefix("-c"))
                .map(str::to_owned)
        };
        match assignment.as_deref().and_then(|a| a.split_once('=')) {
            // PostgreSQL reads dashes in names given here as underscores.
            Some((name, value)) => options.push((name.replace('-', "_"), value.to_owned())),
            None => {
                return Err(Error::new(
                    SqlState::SyntaxError,
                    format!("invalid command-line argument for server process: {word}"),
                )
                .hint("options take the form -c name=value"));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(s: &mut Settings) -> Vec<(String, String)> {
        let mut all = vec![];
        s.untold(|n, v| all.push((n.to_owned(), v.to_owned())));
        all
    }

    #[test]
    fn the_client_is_told_once() {
        let mut s = Settings::new("ann");
        let first = told(&mut s);
        assert!(first.contains(&("session_authorization".into(), "ann".into())));
        assert!(first.contains(&("server_version".into(), SERVER_VERSION.into())));
        assert_eq!(first.len(), 13);
        assert!(told(&mut s).is_empty());
        s.set("timezone", Some("Europe/Berlin"), false, false)
            .unwrap();
        s.set("extra_float_digits", Some("3"), false, false)
            .unwrap();
        assert_eq!(told(&mut s), [("TimeZone".into(), "Europe/Berlin".into())]);
    }

    #[test]
    fn values_are_checked() {
        let mut s = Settings::new("u");
        let mut state = |name: &str, value: &str| {
            s.set(name, Some(value), false, false)
                .map_err(|e| e.state())
                .err()
        };
        assert_eq!(state("no_such", "1"), Some(SqlState::UndefinedObject));
        assert_eq!(
            state("client_encoding", "LATIN1"),
            Some(SqlState::InvalidParameterValue)
        );
        assert_eq!(state("client_encoding", "utf-8"), None);
        assert_eq!(state("client_encoding", "'utf-8'"), None);
        assert_eq!(
            state("datestyle", "German"),
            Some(SqlState::InvalidParameterValue)
        );
        assert_eq!(state("datestyle", "ISO, DMY"), None);
        assert_eq!(
            state("server_version", "1"),
            Some(SqlState::CantChangeRuntimeParam)
        );
        assert_eq!(
            state("extra_float_digits", "4"),
            Some(SqlState::InvalidParameterValue)
        );
        assert_eq!(
            state("standard_conforming_strings", "off"),
            Some(SqlState::InvalidParameterValue)
        );
        assert_eq!(state("standard_conforming_strings", "on"), None);
        assert_eq!(
            state("insert_returns", "all"),
            Some(SqlState::InvalidParameterValue)
        );
        assert_eq!(state("insert_returns", "NONE"), None);
        assert_eq!(
            state("statement_timeout", "-1"),
            Some(SqlState::InvalidParameterValue)
        );
        assert_eq!(
            state("statement_timeout", "1y"),
            Some(SqlState::InvalidParameterValue)
        );
        assert_eq!(state("statement_timeout", "1.5s"), None);
        assert_eq!(s.statement_timeout_ms(), 1500);
        assert_eq!(s.show("statement_timeout").unwrap().1, "1500ms");
        assert_eq!(s.show("datestyle").unwrap(), ("DateStyle", "ISO, DMY"));
        assert!(s.insert_returns_none());
        s.reset_all(false);
        assert!(!s.insert_returns_none() && s.statement_timeout_ms() == 0);
    }

    #[test]
    fn blocks_and_local() {
        let mut s = Settings::new("u");
        assert!(
            s.set("insert_returns", Some("none"), true, false)
                .unwrap()
                .is_some()
        );
        assert!(!s.insert_returns_none());
        s.set("insert_returns", Some("none"), true, true).unwrap();
        s.set("statement_timeout", Some("5"), false, true).unwrap();
        assert!(s.insert_returns_none());
        s.end_block(true);
        assert!(!s.insert_returns_none());
        assert_eq!(s.statement_timeout_ms(), 5);
        s.set("statement_timeout", Some("7"), false, true).unwrap();
        s.set("transaction_read_only", Some("on"), false, true)
            .unwrap();
        assert!(s.read_only());
        s.end_block(false);
        assert_eq!(s.statement_timeout_ms(), 5);
        assert!(!s.read_only());
        s.set("application_name", Some("x"), false, false).unwrap();
        s.set("application_name", None, false, false).unwrap();
        assert_eq!(s.show("application_name").unwrap().1, "");
    }

    #[test]
    fn start_options() {
        let parsed =
            parse_options(r"-c insert_returns=none --statement-timeout=5s -csearch_path=a\ b");
        let expected = [
            ("insert_returns", "none"),
            ("statement_timeout", "5s"),
            ("search_path", "a b"),
        ];
        assert_eq!(
            parsed.unwrap(),
            expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        assert!(parse_options("-x").is_err());
        assert!(parse_options("-c").is_err());
        let mut s = Settings::new("u");
        s.set_at_start("Insert_Returns", "none").unwrap();
        s.set("insert_returns", Some("xid"), false, false).unwrap();
        s.set("insert_returns", None, false, false).unwrap();
        assert!(s.insert_returns_none());
        assert!(s.set_at_start("no_such", "").is_err());
    }

    #[test]
    fn notices_below_the_level_stay_here() {
        let mut s = Settings::new("u");
        let warning = Notice::warning("01000", "w");
        let notice = Notice::plain("n");
        assert!(s.wants(&warning) && s.wants(&notice));
        s.set("client_min_messages", Some("warning"), false, false)
            .unwrap();
        assert!(s.wants(&warning) && !s.wants(&notice));
    }
}
