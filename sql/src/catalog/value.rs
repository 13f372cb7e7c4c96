//! Values and types of the evaluator, and the way from one type to another. A value knows less than its
//! type: an oid, a regclass and a count are all whole numbers, and the type says how they are shown.

use super::run::Runtime;
use super::tables;
use crate::bind::value::parse_bool;
use crate::time;
use crate::types::{Datum, SqlType};
use std::cmp::Ordering;
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Unix ms.
    Time(i64),
    Text(Rc<str>),
    List(Rc<[Val]>),
}

impl Val {
    /// What it takes besides its place in a row.
    pub fn bytes(&self) -> usize {
        match self {
            Val::Text(text) => text.len(),
            Val::List(list) => list.iter().map(|v| size_of::<Val>() + v.bytes()).sum(),
            _ => 0,
        }
    }
}

/// What a value is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    /// A quoted literal or parameter that takes the type of where it stands.
    Unknown,
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float8,
    Text,
    Name,
    Char,
    Time,
    Regclass,
    Regtype,
    Regnamespace,
    Regproc,
    Regrole,
    TextList,
    IntList,
}

impl Ty {
    /// Of a column or a cast, by PostgreSQL's name for it.
    pub fn named(name: &str) -> Option<Ty> {
        Some(match name {
            "bool" | "boolean" => Ty::Bool,
            "int2" | "smallint" => Ty::Int2,
            "int4" | "int" | "integer" => Ty::Int4,
            "int8" | "bigint" => Ty::Int8,
            "oid" | "xid" | "cid" => Ty::Oid,
            "float4" | "float8" | "real" | "double precision" | "double" | "numeric"
            | "decimal" | "float" => Ty::Float8,
            "name" => Ty::Name,
            "char" => Ty::Char,
            "timestamptz"
            | "timestamp"
            | "timestamp with time zone"
            | "timestamp without time zone" => Ty::Time,
            "regclass" => Ty::Regclass,
            "regtype" => Ty::Regtype,
            "regnamespace" => Ty::Regnamespace,
            "regproc" | "regprocedure" | "regoper" | "regoperator" => Ty::Regproc,
            "regrole" => Ty::Regrole,
            "text" | "varchar" | "character varying" | "bpchar" | "character" | "pg_node_tree"
            | "bytea" | "inet" | "cstring" | "json" | "jsonb" => Ty::Text,
            "_text" | "_name" | "_char" | "_varchar" => Ty::TextList,
            "_oid" | "_int2" | "_int4" | "_int8" | "int2vector" | "oidvector" => Ty::IntList,
            _ => return None,
        })
    }

    /// As PostgreSQL's messages and `format_type` call it.
    pub fn name(self) -> &'static str {
        match self {
            Ty::Unknown => "unknown",
            Ty::Bool => "boolean",
            Ty::Int2 => "smallint",
            Ty::Int4 => "integer",
            Ty::Int8 => "bigint",
            Ty::Oid => "oid",
            Ty::Float8 => "double precision",
            Ty::Text => "text",
            Ty::Name => "name",
            Ty::Char => "\"char\"",
            Ty::Time => "timestamp with time zone",
            Ty::Regclass => "regclass",
            Ty::Regtype => "regtype",
            Ty::Regnamespace => "regnamespace",
            Ty::Regproc => "regproc",
            Ty::Regrole => "regrole",
            Ty::TextList => "text[]",
            Ty::IntList => "bigint[]",
        }
    }

    /// What the client is told.
    pub fn sql(self) -> SqlType {
        match self {
            Ty::Bool => SqlType::Bool,
            Ty::Int2 => SqlType::Int2,
            Ty::Int4 => SqlType::Int4,
            Ty::Int8 => SqlType::Int8,
            Ty::Oid => SqlType::Oid,
            Ty::Float8 => SqlType::Float8,
            Ty::Name => SqlType::Name,
            Ty::Char => SqlType::Char,
            Ty::Time => SqlType::Timestamptz,
            Ty::TextList | Ty::IntList => SqlType::TextArray,
            // The names that regclass and its like stand for go out as text.
            _ => SqlType::Text,
        }
    }

    /// From what a table or parameter says.
    pub fn from_sql(ty: SqlType) -> Ty {
        match ty {
            SqlType::Float8 => Ty::Float8,
            SqlType::Int8 => Ty::Int8,
            SqlType::Bool => Ty::Bool,
            SqlType::Timestamptz => Ty::Time,
            SqlType::Text => Ty::Text,
            SqlType::Int4 => Ty::Int4,
            SqlType::Int2 => Ty::Int2,
            SqlType::Oid => Ty::Oid,
            SqlType::Name => Ty::Name,
            SqlType::Char => Ty::Char,
            SqlType::Regtype => Ty::Regtype,
            SqlType::TextArray => Ty::TextList,
        }
    }

    /// Stored as a whole number.
    pub fn is_int(self) -> bool {
        matches!(self, Ty::Int2 | Ty::Int4 | Ty::Int8 | Ty::Oid) || self.is_reg()
    }
    /// Shown as the name of what it numbers.
    pub fn is_reg(self) -> bool {
        matches!(
            self,
            Ty::Regclass | Ty::Regtype | Ty::Regnamespace | Ty::Regproc | Ty::Regrole
        )
    }
    pub fn is_number(self) -> bool {
        self == Ty::Float8 || self.is_int()
    }
    pub fn is_text(self) -> bool {
        matches!(self, Ty::Text | Ty::Name | Ty::Char)
    }
    pub fn is_list(self) -> bool {
        matches!(self, Ty::TextList | Ty::IntList)
    }
    /// Of a list's elements.
    pub fn element(self) -> Ty {
        match self {
            Ty::TextList => Ty::Text,
            Ty::IntList => Ty::Int8,
            other => other,
        }
    }
    /// Of a list of these.
    pub fn list(self) -> Ty {
        if self.is_int() {
            Ty::IntList
        } else {
            Ty::TextList
        }
    }
    fn class(self) -> u8 {
        match self {
            t if t.is_number() => 1,
            t if t.is_text() => 2,
            Ty::Bool => 3,
            Ty::Time => 4,
            t if t.is_list() => 5,
            _ => 0,
        }
    }
    /// Whether values of both can be compared.
    pub fn comparable(self, other: Ty) -> bool {
        self.class() == other.class() || self == Ty::Unknown || other == Ty::Unknown
    }

    /// The type that holds both; `None` when there is none.
    pub fn unify(self, other: Ty) -> Option<Ty> {
        let rank = |t: Ty| match t {
            Ty::Int2 => 1,
            Ty::Int4 => 2,
            Ty::Int8 => 3,
            Ty::Oid => 4,
            Ty::Float8 => 5,
            _ => 0,
        };
        Some(match (self, other) {
            (a, b) if a == b => a,
            (Ty::Unknown, b) => b,
            (a, Ty::Unknown) => a,
            (a, b) if rank(a) > 0 && rank(b) > 0 => {
                if rank(a) > rank(b) {
                    a
                } else {
                    b
                }
            }
            (a, b) if a.is_int() && b.is_int() => Ty::Oid,
            (a, b) if a.is_text() && b.is_text() => Ty::Text,
            (a, b) if a.is_list() && b.is_list() => Ty::TextList,
            _ => return None,
        })
    }
}

impl Val {
    pub fn text(s: impl AsRef<str>) -> Val {
        Val::Text(s.as_ref().into())
    }
    pub fn of(d: &Datum) -> Val {
        match d {
            Datum::Null => Val::Null,
            Datum::Bool(b) => Val::Bool(*b),
            Datum::Int(i) => Val::Int(*i),
            Datum::Float(f) => Val::Float(*f),
            Datum::Timestamp(t) => Val::Time(*t),
            Datum::Text { text, .. } => Val::text(text),
        }
    }
    pub fn is_null(&self) -> bool {
        matches!(self, Val::Null)
    }
    /// A condition holds.
    pub fn is_true(&self) -> bool {
        matches!(self, Val::Bool(true))
    }
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Val::Int(i) => Some(*i),
            _ => None,
        }
    }
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Val::Int(i) => Some(*i as f64),
            Val::Float(f) => Some(*f),
            _ => None,
        }
    }
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Val::Text(s) => Some(s),
            _ => None,
        }
    }
    fn rank(&self) -> u8 {
        match self {
            Val::Bool(_) => 0,
            Val::Int(_) | Val::Float(_) => 1,
            Val::Time(_) => 2,
            Val::Text(_) => 3,
            Val::List(_) => 4,
            Val::Null => 5,
        }
    }
    /// A total order: NULLs last, kinds apart.
    pub fn order(&self, other: &Val) -> Ordering {
        match (self, other) {
            (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
            (Val::Int(a), Val::Int(b)) | (Val::Time(a), Val::Time(b)) => a.cmp(b),
            (Val::Text(a), Val::Text(b)) => a.cmp(b),
            (Val::List(a), Val::List(b)) => a
                .iter()
                .zip(b.iter())
                .map(|(a, b)| a.order(b))
                .find(|o| o.is_ne())
                .unwrap_or(a.len().cmp(&b.len())),
            (a, b) => match (a.as_float(), b.as_float()) {
                // -0 and 0 are one number.
                (Some(a), Some(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
                _ => a.rank().cmp(&b.rank()),
            },
        }
    }
}

/// Values as a key of a map.
#[derive(Clone, Debug)]
pub(super) struct Key(pub Vec<Val>);

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Key {}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        let mut pairs = self.0.iter().zip(&other.0).map(|(a, b)| a.order(b));
        pairs.find(|o| o.is_ne()).unwrap_or(lengths)
    }
}

fn bad_text(text: &str, to: Ty) -> Error {
    let shown: String = text.chars().take(60).collect();
    Error::new(
        SqlState::InvalidTextRepresentation,
        format!("invalid input syntax for type {}: \"{shown}\"", to.name()),
    )
}

fn no_cast(from: &str, to: Ty) -> Error {
    Error::new(
        SqlState::DatatypeMismatch,
        format!("cannot cast {from} to {}", to.name()),
    )
}

/// The whole number, if the type holds it.
pub(super) fn in_range(i: i64, to: Ty) -> Result<Val> {
    let fits = match to {
        Ty::Int2 => i16::try_from(i).is_ok(),
        Ty::Int4 => i32::try_from(i).is_ok(),
        Ty::Int8 => true,
        _ => u32::try_from(i).is_ok(),
    };
    if fits {
        Ok(Val::Int(i))
    } else {
        Err(Error::new(
            SqlState::NumericOutOfRange,
            format!("{} out of range", to.name()),
        ))
    }
}

/// A value of one type as one of another.
pub(super) fn cast(rt: &Runtime<'_>, value: &Val, from: Ty, to: Ty) -> Result<Val> {
    Ok(match (value, to) {
        (Val::Null, _) => Val::Null,
        (v, Ty::Unknown) => v.clone(),
        (v, Ty::Text) => Val::text(show(rt, v, from)),
        (v, Ty::Name) => Val::text(prefix(&show(rt, v, from), 127)),
        (Val::Text(s), Ty::Char) => Val::text(s.chars().take(1).collect::<String>()),
        (Val::Bool(_), Ty::Bool) | (Val::Time(_), Ty::Time) => value.clone(),
        (Val::Int(i), Ty::Bool) if !from.is_reg() => Val::Bool(*i != 0),
        (Val::Text(s), Ty::Bool) => Val::Bool(parse_bool(s.trim()).ok_or_else(|| bad_text(s, to))?),
        (Val::Int(i), to) if to.is_int() => in_range(*i, to)?,
        (Val::Int(i), Ty::Float8) => Val::Float(*i as f64),
        (Val::Float(_), Ty::Float8) => value.clone(),
        (Val::Float(f), to) if to.is_int() => {
            let whole = f.round_ties_even();
            if !(-9.2e18..9.2e18).contains(&whole) {
                return Err(Error::new(
                    SqlState::NumericOutOfRange,
                    format!("{} out of range", to.name()),
                ));
            }
            in_range(whole as i64, to)?
        }
        (Val::Bool(b), Ty::Int4) => Val::Int(i64::from(*b)),
        (Val::Text(s), to) if to.is_reg() && !s.chars().all(|c| c.is_ascii_digit()) => {
            Val::Int(tables::object(rt, s, to)?)
        }
        (Val::Text(s), to) if to.is_int() => match s.trim().parse::<i64>() {
            Ok(i) => in_range(i, to)?,
            Err(_) => return Err(bad_text(s, to)),
        },
        (Val::Text(s), Ty::Float8) => match s.trim().parse::<f64>() {
            Ok(f) => Val::Float(f),
            Err(_) => return Err(bad_text(s, to)),
        },
        (Val::Text(s), Ty::Time) => {
            Val::Time(time::parse_text(s, rt.cx.now_ms).map_err(|e| e.error(s))?)
        }
        (Val::List(items), Ty::TextList | Ty::IntList) => {
            let (from, to) = (from.element(), to.element());
            let items: Result<Vec<Val>> = items.iter().map(|v| cast(rt, v, from, to)).collect();
            Val::List(items?.into())
        }
        (Val::Text(s), Ty::TextList | Ty::IntList) => {
            let items = parse_list(s).ok_or_else(|| bad_text(s, to))?;
            let element = to.element();
            let items: Result<Vec<Val>> = items
                .into_iter()
                .map(|v| cast(rt, &v, Ty::Text, element))
                .collect();
            Val::List(items?.into())
        }
        _ => return Err(no_cast(from.name(), to)),
    })
}

/// At most so many bytes of a text, whole characters.
fn prefix(s: &str, bytes: usize) -> &str {
    let mut end = s.len().min(bytes);
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    &s[..end]
}

/// A value as text; NULL is empty.
pub(super) fn show(rt: &Runtime<'_>, value: &Val, ty: Ty) -> String {
    match value {
        Val::Null => String::new(),
        Val::Bool(b) => if *b { "true" } else { "false" }.to_owned(),
        Val::Int(i) if ty.is_reg() => tables::object_name(rt, *i, ty),
        Val::Int(i) => i.to_string(),
        Val::Float(f) => float_text(*f),
        Val::Time(ms) => {
            let iso = strandline_core::time::format_ms(*ms);
            match iso.strip_suffix('Z').and_then(|s| s.split_once('T')) {
                Some((day, clock)) => {
                    let clock = match clock.split_once('.') {
                        Some((whole, part)) => match part.trim_end_matches('0') {
                            "" => whole.to_owned(),
                            part => format!("{whole}.{part}"),
                        },
                        None => clock.to_owned(),
                    };
                    format!("{day} {clock}+00")
                }
                None => iso,
            }
        }
        Val::Text(s) => s.to_string(),
        Val::List(items) => {
            let element = ty.element();
            let shown: Vec<String> = items
                .iter()
                .map(|v| match v {
                    Val::Null => "NULL".to_owned(),
                    Val::Bool(b) => if *b { "t" } else { "f" }.to_owned(),
                    v => quote_element(&show(rt, v, element)),
                })
                .collect();
            format!("{{{}}}", shown.join(","))
        }
    }
}

/// Plain digits where they are few, as PostgreSQL does.
fn float_text(f: f64) -> String {
    let m = f.abs();
    if f.is_nan() {
        "NaN".to_owned()
    } else if f.is_infinite() {
        if f > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else if m == 0.0 || (1e-4..1e15).contains(&m) {
        f.to_string()
    } else {
        let s = format!("{f:e}");
        match s.split_once('e') {
            Some((digits, exponent)) => {
                let (sign, exponent) = match exponent.strip_prefix('-') {
                    Some(e) => ('-', e),
                    None => ('+', exponent),
                };
                format!("{digits}e{sign}{exponent:0>2}")
            }
            None => s,
        }
    }
}

fn quote_element(s: &str) -> String {
    let plain = !s.is_empty()
        && !s.eq_ignore_ascii_case("null")
        && !s.contains(|c: char| "{}\",\\".contains(c) || c.is_whitespace());
    if plain {
        s.to_owned()
    } else {
        format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// The items of `{a,"b c",NULL}`.
fn parse_list(text: &str) -> Option<Vec<Val>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    let mut chars = inner.chars().peekable();
    while chars.peek().is_some() {
        let mut item = String::new();
        let quoted = chars.next_if_eq(&'"').is_some();
        loop {
            match chars.next() {
                Some('\\') => item.push(chars.next()?),
                Some('"') if quoted => {
                    if !matches!(chars.next(), None | Some(',')) {
                        return None;
                    }
                    break;
                }
                Some(',') if !quoted => break,
                None if quoted => return None,
                None => break,
                Some('{' | '}' | '"') if !quoted => return None,
                Some(c) => item.push(c),
            }
        }
        items.push(if !quoted && item.eq_ignore_ascii_case("null") {
            Val::Null
        } else {
            Val::text(item)
        });
    }
    Some(items)
}

/// A value for the client.
pub(super) fn datum(rt: &Runtime<'_>, value: Val, ty: Ty) -> Datum {
    let text = |text: String| Datum::Text {
        text,
        unknown: false,
    };
    match value {
        Val::Null => Datum::Null,
        Val::Bool(b) if ty == Ty::Bool => Datum::Bool(b),
        Val::Int(i) if ty.is_int() && !ty.is_reg() => Datum::Int(i),
        Val::Int(i) if ty == Ty::Float8 => Datum::Float(i as f64),
        Val::Float(f) if ty == Ty::Float8 => Datum::Float(f),
        Val::Time(t) if ty == Ty::Time => Datum::Timestamp(t),
        v => text(show(rt, &v, ty)),
    }
}
