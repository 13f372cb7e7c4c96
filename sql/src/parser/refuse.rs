//! Statements that are SQL, or Strandline's own, and that this version refuses by name.

use super::{Fail, Parser};

/// Verb, what to call it, what to do instead.
const VERBS: &[(&str, &str, &str)] = &[
    (
        "ANALYZE",
        "ANALYZE",
        "statistics are kept with every block; there is nothing to collect",
    ),
    (
        "BACKUP",
        "BACKUP",
        "stop the server and copy the data directory",
    ),
    ("CALL", "CALL", "there are no stored procedures"),
    (
        "CLOSE",
        "CLOSE of a cursor",
        "read with SELECT … LIMIT, or through a portal with a row limit",
    ),
    ("CLUSTER", "CLUSTER", "segments are kept in key order"),
    ("COMMENT", "COMMENT", ""),
    (
        "COPY",
        "COPY",
        "write with INSERT of many rows, or over line protocol",
    ),
    (
        "DECLARE",
        "DECLARE CURSOR",
        "read with SELECT … LIMIT, or through a portal with a row limit",
    ),
    ("DO", "DO", "there is no procedural language"),
    (
        "FETCH",
        "FETCH",
        "read with SELECT … LIMIT, or through a portal with a row limit",
    ),
    (
        "GRANT",
        "GRANT",
        "there are no users: whoever can connect may do everything",
    ),
    ("IMPORT", "IMPORT", ""),
    (
        "LISTEN",
        "LISTEN",
        "follow a table through its feed: WHERE x_rev > n",
    ),
    ("LOAD", "LOAD", ""),
    (
        "LOCK",
        "LOCK",
        "each statement commits by itself; compare and set on x_rev instead",
    ),
    (
        "MERGE",
        "MERGE",
        "UPDATE … WHERE xid = '…' AND x_rev = n compares and sets",
    ),
    (
        "MOVE",
        "MOVE",
        "read with SELECT … LIMIT, or through a portal with a row limit",
    ),
    (
        "NOTIFY",
        "NOTIFY",
        "follow a table through its feed: WHERE x_rev > n",
    ),
    ("REASSIGN", "REASSIGN", ""),
    ("REFRESH", "REFRESH", "there are no materialized views"),
    ("REINDEX", "REINDEX", "there are no indexes to rebuild"),
    (
        "RELEASE",
        "RELEASE SAVEPOINT",
        "each statement commits by itself",
    ),
    (
        "RESTORE",
        "RESTORE",
        "start a server on a copy of the data directory that was made while its own was stopped",
    ),
    (
        "REVOKE",
        "REVOKE",
        "there are no users: whoever can connect may do everything",
    ),
    ("SAVEPOINT", "SAVEPOINT", "each statement commits by itself"),
    ("SECURITY", "SECURITY LABEL", ""),
    (
        "TRIM",
        "TRIM TABLE",
        "segments are merged in the background",
    ),
    (
        "TRUNCATE",
        "TRUNCATE",
        "DROP TABLE and CREATE TABLE instead",
    ),
];

/// Objects that ALTER, CREATE and DROP know in other databases.
const OBJECTS: &[&str] = &[
    "ACCESS",
    "AGGREGATE",
    "CAST",
    "COLLATION",
    "CONVERSION",
    "DATABASE",
    "DOMAIN",
    "EVENT",
    "EXTENSION",
    "FOREIGN",
    "FUNCTION",
    "GLOBAL",
    "GROUP",
    "INDEX",
    "LANGUAGE",
    "LOCAL",
    "MATERIALIZED",
    "OPERATOR",
    "OR",
    "OWNED",
    "POLICY",
    "PROCEDURE",
    "PUBLICATION",
    "ROLE",
    "ROUTINE",
    "RULE",
    "SCHEMA",
    "SEQUENCE",
    "SERVER",
    "STATISTICS",
    "SUBSCRIPTION",
    "TABLESPACE",
    "TEMP",
    "TEMPORARY",
    "TEXT",
    "TRANSFORM",
    "TRIGGER",
    "TYPE",
    "UNIQUE",
    "UNLOGGED",
    "USER",
    "VIEW",
];

impl Parser<'_> {
    /// A statement whose first word is not one of ours.
    pub(super) fn refused_verb(&self, word: &str) -> Fail {
        match VERBS.iter().find(|v| v.0 == word) {
            Some((_, name, hint)) => {
                let at = self.tokens.first().map_or(0, |t| t.start);
                let e = self.unsupported(at, format!("{name} is not supported"));
                if hint.is_empty() { e } else { e.hint(*hint) }.into()
            }
            None => self.unexpected(),
        }
    }

    /// ALTER, CREATE or DROP of something that is not a table.
    pub(super) fn refused_object(&self, verb: &str, at: u32) -> Fail {
        let word = self.raw(self.peek()).to_ascii_uppercase();
        if !OBJECTS.contains(&word.as_str()) {
            return self.unexpected();
        }
        let hint = match (word.as_str(), verb) {
            ("DATABASE", _) => "there is one database, main",
            ("USER" | "ROLE" | "GROUP", _) => {
                "there are no users: whoever can connect may do everything"
            }
            (_, "ALTER") => "ALTER TABLE alters a table of any family",
            (_, "DROP") => "DROP TABLE drops a table of any family",
            _ => "CREATE TABLE makes a timeseries table, CREATE ROWS TABLE a registry",
        };
        self.unsupported(at, format!("{verb} {word} is not supported"))
            .hint(hint)
            .into()
    }
}
