//! The functions that a question may call: a table of names, arguments and results. What is not in it is
//! `42883`.

use super::run::Runtime;
use super::tables;
use super::value::{Ty, Val};
use std::fmt;
use strandline_core::error::{Error, Result, SqlState};

type Run = fn(&Runtime<'_>, &[Val], &[Ty]) -> Result<Val>;

/// A function.
pub(super) struct Function {
    name: &'static str,
    /// A letter per argument: `t` text, `i` a whole number, `o` an oid, `f` a number, `b` a condition, `l` a
    /// list of texts, `z` a time, `a` anything. Those behind `|` may be missing; `*` repeats the last.
    args: &'static str,
    result: Answer,
    /// NULL when an argument is NULL.
    pub strict: bool,
    pub run: Run,
}

enum Answer {
    Is(Ty),
    First,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        f.write_str(self.args)
    }
}

impl Function {
    fn letter(&self, i: usize) -> Option<u8> {
        let letters: Vec<u8> = self.args.bytes().filter(|b| *b != b'|').collect();
        match letters.get(i) {
            Some(b'*') | None if letters.last() == Some(&b'*') => letters
                .len()
                .checked_sub(2)
                .and_then(|l| letters.get(l))
                .copied(),
            found => found.copied(),
        }
    }
    fn fits(&self, given: &[Ty]) -> bool {
        let required = self.args.bytes().take_while(|b| !b"|*".contains(b)).count();
        given.len() >= required
            && given.iter().enumerate().all(|(i, ty)| {
                let ty = *ty;
                ty == Ty::Unknown && self.letter(i).is_some()
                    || match self.letter(i) {
                        Some(b't') => ty.is_text(),
                        Some(b'i' | b'o') => ty.is_int(),
                        Some(b'f') => ty.is_number(),
                        Some(b'b') => ty == Ty::Bool,
                        Some(b'l') => ty.is_list(),
                        Some(b'z') => ty == Ty::Time,
                        Some(b'a') => true,
                        _ => false,
                    }
            })
    }
    /// What an argument is cast to.
    pub fn takes(&self, i: usize, given: Ty) -> Ty {
        match self.letter(i) {
            Some(b't') => Ty::Text,
            Some(b'i') => Ty::Int8,
            Some(b'o') => Ty::Oid,
            Some(b'f') => Ty::Float8,
            Some(b'b') => Ty::Bool,
            Some(b'l') if given == Ty::Unknown => Ty::TextList,
            Some(b'z') => Ty::Time,
            _ if given == Ty::Unknown => Ty::Text,
            _ => given,
        }
    }
    /// The type of the result.
    pub fn answers(&self, given: &[Ty]) -> Ty {
        match self.result {
            Answer::Is(ty) => ty,
            Answer::First => given.first().copied().unwrap_or(Ty::Text),
        }
    }
}

/// `42883`.
pub(super) fn unknown(name: &str, given: &[Ty]) -> Error {
    let types: Vec<&str> = given.iter().map(|t| t.name()).collect();
    Error::new(
        SqlState::UndefinedFunction,
        format!("function {name}({}) does not exist", types.join(", ")),
    )
}

/// The function of that name that takes such arguments.
pub(super) fn find(name: &str, given: &[Ty]) -> Result<&'static Function> {
    FUNCTIONS
        .iter()
        .find(|f| f.name == name && f.fits(given))
        .ok_or_else(|| unknown(name, given))
}

fn text(v: Option<&Val>) -> &str {
    v.and_then(Val::as_text).unwrap_or("")
}

fn int(v: Option<&Val>) -> i64 {
    v.and_then(Val::as_int).unwrap_or(0)
}

fn float(v: Option<&Val>) -> f64 {
    v.and_then(Val::as_float).unwrap_or(0.0)
}

fn t(s: impl AsRef<str>) -> Result<Val> {
    Ok(Val::text(s))
}

fn yes(_: &Runtime<'_>, _: &[Val], _: &[Ty]) -> Result<Val> {
    Ok(Val::Bool(true))
}

fn no(_: &Runtime<'_>, _: &[Val], _: &[Ty]) -> Result<Val> {
    Ok(Val::Bool(false))
}

fn null(_: &Runtime<'_>, _: &[Val], _: &[Ty]) -> Result<Val> {
    Ok(Val::Null)
}

fn chars(n: usize) -> Val {
    Val::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// The schemas that a name without one is looked for in.
fn schemas(v: &[Val]) -> Val {
    let implicit = matches!(v.first(), Some(Val::Bool(true)));
    let mut list = vec![Val::text("public")];
    if implicit {
        list.insert(0, Val::text("pg_catalog"));
    }
    Val::List(list.into())
}

fn substring(v: &[Val]) -> Result<Val> {
    let s = text(v.first());
    let start = int(v.get(1));
    let end = match v.get(2) {
        Some(length) => {
            let length = int(Some(length));
            if length < 0 {
                return Err(Error::new(
                    SqlState::InvalidParameterValue,
                    "negative substring length not allowed",
                ));
            }
            start.saturating_add(length)
        }
        None => i64::MAX,
    };
    let skip = usize::try_from(start.saturating_sub(1).max(0)).unwrap_or(usize::MAX);
    let take = usize::try_from(end.saturating_sub(start.max(1)).max(0)).unwrap_or(usize::MAX);
    t(s.chars().skip(skip).take(take).collect::<String>())
}

/// LEFT and RIGHT: a negative length counts from the other end.
fn end_of(s: &str, n: i64, left: bool) -> String {
    let length = s.chars().count();
    let size = usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
    let keep = if n < 0 {
        length.saturating_sub(size)
    } else {
        size.min(length)
    };
    if left {
        s.chars().take(keep).collect()
    } else {
        s.chars().skip(length - keep).collect()
    }
}

fn trim(v: &[Val], left: bool, right: bool) -> Result<Val> {
    let mut s = text(v.first());
    let set = v.get(1).map_or(" ", |v| text(Some(v)));
    if left {
        s = s.trim_start_matches(|c| set.contains(c));
    }
    if right {
        s = s.trim_end_matches(|c| set.contains(c));
    }
    t(s)
}

fn quote_literal(s: &str) -> String {
    let quoted = s.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

fn list(v: Option<&Val>) -> &[Val] {
    match v {
        Some(Val::List(l)) => l,
        _ => &[],
    }
}

fn joined(rt: &Runtime<'_>, v: &[Val], ty: Option<&Ty>) -> Result<Val> {
    let (separator, null) = (text(v.get(1)), v.get(2).and_then(Val::as_text));
    let element = ty.map_or(Ty::Text, |t| t.element());
    let mut items = Vec::new();
    for item in list(v.first()) {
        match (item, null) {
            (Val::Null, None) => {}
            (Val::Null, Some(null)) => items.push(null.to_owned()),
            (item, _) => items.push(rt.shown(item, element)),
        }
    }
    bounded(rt, separator, items.len() as i64)?;
    t(items.join(separator))
}

/// Bytes that a result of repeating or padding may have.
fn bounded(rt: &Runtime<'_>, s: &str, times: i64) -> Result<usize> {
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    let bytes = s.len().max(1).saturating_mul(times);
    rt.check_text(bytes)?;
    Ok(times)
}

fn pad(rt: &Runtime<'_>, v: &[Val], left: bool) -> Result<Val> {
    let s = text(v.first());
    let fill = v.get(2).map_or(" ", |v| text(Some(v)));
    let width = bounded(rt, "aaaa", int(v.get(1)))?;
    let length = s.chars().count();
    if length >= width || fill.is_empty() {
        return t(s.chars().take(width).collect::<String>());
    }
    let padding: String = fill.chars().cycle().take(width - length).collect();
    if left {
        t(padding + s)
    } else {
        t(s.to_owned() + &padding)
    }
}

/// `format()` with `%s`, `%I`, `%L` and `%%`.
fn format(rt: &Runtime<'_>, v: &[Val], types: &[Ty]) -> Result<Val> {
    let mut out = String::new();
    let mut next = 1;
    let mut source = text(v.first()).chars();
    while let Some(c) = source.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let kind = source.next();
        if kind == Some('%') {
            out.push('%');
            continue;
        }
        let (Some(value), Some(kind @ ('s' | 'I' | 'L'))) = (v.get(next), kind) else {
            return Err(Error::new(
                SqlState::InvalidParameterValue,
                "format() takes %s, %I, %L and %%, with an argument for each",
            ));
        };
        let shown = rt.shown(value, types.get(next).copied().unwrap_or(Ty::Text));
        next += 1;
        match kind {
            'I' => out.push_str(&tables::quote_ident(&shown)),
            'L' if value.is_null() => out.push_str("NULL"),
            'L' => out.push_str(&quote_literal(&shown)),
            _ => out.push_str(&shown),
        }
    }
    t(out)
}

fn json_text(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `json_build_object(name, value, …)`, spaced as PostgreSQL does.
fn json_object(rt: &Runtime<'_>, v: &[Val], types: &[Ty]) -> Result<Val> {
    let wrong = |what: &str| Error::new(SqlState::InvalidParameterValue, what);
    let mut members = Vec::with_capacity(v.len() / 2);
    for (pair, types) in v.chunks(2).zip(types.chunks(2)) {
        let ([name, value], [name_ty, ty]) = (pair, types) else {
            return Err(wrong("argument list must have even number of elements"));
        };
        if name.is_null() {
            return Err(wrong("null value not allowed for object key"));
        }
        let shown = match value {
            Val::Null => "null".to_owned(),
            Val::Bool(b) => b.to_string(),
            Val::Float(_) => rt.shown(value, *ty),
            Val::Int(_) if matches!(ty, Ty::Int2 | Ty::Int4 | Ty::Int8) => rt.shown(value, *ty),
            Val::List(_) => return Err(wrong("json_build_object() takes no lists here")),
            _ => json_text(&rt.shown(value, *ty)),
        };
        members.push(format!(
            "{} : {shown}",
            json_text(&rt.shown(name, *name_ty))
        ));
    }
    t(format!("{{{}}}", members.join(", ")))
}

fn size_pretty(bytes: i64) -> String {
    let mut size = bytes;
    let mut units = ["bytes", "kB", "MB", "GB", "TB", "PB"]
        .into_iter()
        .peekable();
    while let Some(unit) = units.next() {
        if size.unsigned_abs() < 10 * 1024 || units.peek().is_none() {
            return format!("{size} {unit}");
        }
        size = (size + 512) / 1024;
    }
    format!("{bytes} bytes")
}

/// The value of a setting.
fn setting(rt: &Runtime<'_>, v: &[Val]) -> Result<Val> {
    let name = text(v.first());
    match tables::setting(rt.cx, name) {
        Some(value) => t(value),
        None if matches!(v.get(1), Some(Val::Bool(true))) => Ok(Val::Null),
        None => Err(Error::new(
            SqlState::UndefinedObject,
            format!("unrecognized configuration parameter \"{name}\""),
        )),
    }
}

fn rounded(v: &[Val]) -> f64 {
    let x = float(v.first());
    match v.get(1) {
        None => x.round_ties_even(),
        Some(digits) => {
            let scale = 10f64.powi(int(Some(digits)).clamp(-300, 300) as i32);
            let scaled = x * scale;
            if scaled.is_finite() && scale > 0.0 {
                scaled.round() / scale
            } else {
                x
            }
        }
    }
}

/// GREATEST and LEAST pass NULLs over.
fn extreme(v: &[Val], greatest: bool) -> Val {
    let values = v.iter().filter(|v| !v.is_null());
    let found = if greatest {
        values.max_by(|a, b| a.order(b))
    } else {
        values.min_by(|a, b| a.order(b))
    };
    found.cloned().unwrap_or(Val::Null)
}

macro_rules! functions {
    ($($name:literal $args:literal $result:ident $strict:literal = $run:expr;)+) => {
        static FUNCTIONS: &[Function] = &[$(Function {
            name: $name,
            args: $args,
            result: functions!(@ $result),
            strict: $strict,
            run: $run,
        }),+];
    };
    (@ First) => { Answer::First };
    (@ $ty:ident) => { Answer::Is(Ty::$ty) };
}

functions! {
    // Of the session.
    "version" "" Text true = |rt, _, _| t(rt.cx.version);
    "current_database" "" Name true = |rt, _, _| t(rt.cx.database);
    "current_catalog" "" Name true = |rt, _, _| t(rt.cx.database);
    "current_schema" "" Name true = |_, _, _| t("public");
    "current_schemas" "b" TextList true = |_, v, _| Ok(schemas(v));
    "current_user" "" Name true = |rt, _, _| t(rt.cx.user);
    "current_role" "" Name true = |rt, _, _| t(rt.cx.user);
    "session_user" "" Name true = |rt, _, _| t(rt.cx.user);
    "user" "" Name true = |rt, _, _| t(rt.cx.user);
    "pg_backend_pid" "" Int4 true = |rt, _, _| Ok(Val::Int(rt.cx.backend_pid.into()));
    "current_setting" "t|b" Text true = |rt, v, _| setting(rt, v);
    "pg_is_in_recovery" "" Bool true = no;
    "pg_my_temp_schema" "" Oid true = |_, _, _| Ok(Val::Int(0));
    "pg_is_other_temp_schema" "o" Bool true = no;
    "inet_server_addr" "" Text true = null;
    "inet_server_port" "" Int4 true = null;
    "inet_client_addr" "" Text true = null;
    // What asyncpg's pool asks when it takes a connection back; there are no such locks.
    "pg_advisory_unlock_all" "" Text true = |_, _, _| t("");
    "txid_current" "" Int8 true = |_, _, _| Ok(Val::Int(0));
    // Times.
    "now" "" Time true = |rt, _, _| Ok(Val::Time(rt.cx.now_ms));
    "current_timestamp" "|i" Time true = |rt, _, _| Ok(Val::Time(rt.cx.now_ms));
    "localtimestamp" "|i" Time true = |rt, _, _| Ok(Val::Time(rt.cx.now_ms));
    "transaction_timestamp" "" Time true = |rt, _, _| Ok(Val::Time(rt.cx.now_ms));
    "statement_timestamp" "" Time true = |rt, _, _| Ok(Val::Time(rt.cx.now_ms));
    "clock_timestamp" "" Time true = |rt, _, _| Ok(Val::Time(rt.cx.now_ms));
    "to_timestamp" "f" Time true = |_, v, _| {
        let ms = float(v.first()) * 1000.0;
        if !(-6.2e13..2.6e14).contains(&ms) {
            return Err(Error::new(SqlState::DatetimeOverflow, "timestamp out of range"));
        }
        Ok(Val::Time(ms.round() as i64))
    };
    // Texts.
    "textcat" "tt" Text true = |_, v, _| t(format!("{}{}", text(v.first()), text(v.get(1))));
    "concat" "a*" Text false = |rt, v, ty| {
        let shown: Vec<String> = v.iter().zip(ty).map(|(v, ty)| rt.shown(v, *ty)).collect();
        t(shown.concat())
    };
    "concat_ws" "ta*" Text false = |rt, v, ty| {
        let items = v.iter().zip(ty).skip(1).filter(|(v, _)| !v.is_null());
        let shown: Vec<String> = items.map(|(v, ty)| rt.shown(v, *ty)).collect();
        bounded(rt, text(v.first()), shown.len() as i64)?;
        t(shown.join(text(v.first())))
    };
    "format" "t|a*" Text false = format;
    "json_build_object" "a*" Text false = json_object;
    "lower" "t" Text true = |_, v, _| t(text(v.first()).to_lowercase());
    "upper" "t" Text true = |_, v, _| t(text(v.first()).to_uppercase());
    "length" "t" Int4 true = |_, v, _| Ok(chars(text(v.first()).chars().count()));
    "char_length" "t" Int4 true = |_, v, _| Ok(chars(text(v.first()).chars().count()));
    "character_length" "t" Int4 true = |_, v, _| Ok(chars(text(v.first()).chars().count()));
    "octet_length" "t" Int4 true = |_, v, _| Ok(chars(text(v.first()).len()));
    "substring" "ti|i" Text true = |_, v, _| substring(v);
    "substring" "tt" Text true = |rt, v, _| {
        let regex = rt.regex(text(v.get(1)), false)?;
        let found = regex.captures(text(v.first()));
        let part = found.and_then(|c| c.get(1).or_else(|| c.get(0)));
        Ok(part.map_or(Val::Null, |m| Val::text(m.as_str())))
    };
    "substr" "ti|i" Text true = |_, v, _| substring(v);
    "left" "ti" Text true = |_, v, _| t(end_of(text(v.first()), int(v.get(1)), true));
    "right" "ti" Text true = |_, v, _| t(end_of(text(v.first()), int(v.get(1)), false));
    "btrim" "t|t" Text true = |_, v, _| trim(v, true, true);
    "ltrim" "t|t" Text true = |_, v, _| trim(v, true, false);
    "rtrim" "t|t" Text true = |_, v, _| trim(v, false, true);
    "lpad" "ti|t" Text true = |rt, v, _| pad(rt, v, true);
    "rpad" "ti|t" Text true = |rt, v, _| pad(rt, v, false);
    "repeat" "ti" Text true = |rt, v, _| {
        let times = bounded(rt, text(v.first()), int(v.get(1)))?;
        t(text(v.first()).repeat(times))
    };
    "replace" "ttt" Text true = |rt, v, _| {
        let (s, from, to) = (text(v.first()), text(v.get(1)), text(v.get(2)));
        if from.is_empty() {
            return t(s);
        }
        bounded(rt, to, i64::try_from(s.matches(from).count()).unwrap_or(i64::MAX))?;
        t(s.replace(from, to))
    };
    "regexp_replace" "ttt|t" Text true = |rt, v, _| {
        let flags = text(v.get(3));
        let regex = rt.regex(text(v.get(1)), flags.contains('i'))?;
        // PostgreSQL writes groups as \1.
        let to = text(v.get(2)).replace('$', "$$").replace("\\", "$");
        let limit = usize::from(!flags.contains('g'));
        let s = text(v.first());
        let times = match limit {
            0 => regex.find_iter(s).count(),
            n => n,
        };
        // What the groups hold is part of the matches, which together are no longer than the text.
        let groups = if to.contains('$') { s.len() } else { 0 };
        bounded(rt, &to, (times + groups) as i64)?;
        t(regex.replacen(text(v.first()), limit, to.as_str()))
    };
    "split_part" "tti" Text true = |_, v, _| {
        let n = usize::try_from(int(v.get(2)).saturating_sub(1)).unwrap_or(usize::MAX);
        t(text(v.first()).split(text(v.get(1))).nth(n).unwrap_or(""))
    };
    "strpos" "tt" Int4 true = |_, v, _| {
        let s = text(v.first());
        let at = s.find(text(v.get(1)));
        Ok(chars(at.map_or(0, |i| s.get(..i).map_or(0, |p| p.chars().count()) + 1)))
    };
    "starts_with" "tt" Bool true = |_, v, _| {
        Ok(Val::Bool(text(v.first()).starts_with(text(v.get(1)))))
    };
    "reverse" "t" Text true = |_, v, _| t(text(v.first()).chars().rev().collect::<String>());
    "ascii" "t" Int4 true = |_, v, _| {
        Ok(Val::Int(text(v.first()).chars().next().map_or(0, |c| i64::from(u32::from(c)))))
    };
    "quote_ident" "t" Text true = |_, v, _| t(tables::quote_ident(text(v.first())));
    "quote_literal" "a" Text true = |rt, v, ty| match (v.first(), ty.first()) {
        (Some(v), Some(ty)) => t(quote_literal(&rt.shown(v, *ty))),
        _ => Ok(Val::Null),
    };
    "quote_nullable" "a" Text false = |rt, v, ty| match (v.first(), ty.first()) {
        (Some(Val::Null), _) | (None, _) | (_, None) => t("NULL"),
        (Some(v), Some(ty)) => t(quote_literal(&rt.shown(v, *ty))),
    };
    // Numbers.
    "abs" "i" Int8 true = |_, v, _| Ok(Val::Int(int(v.first()).saturating_abs()));
    "abs" "f" Float8 true = |_, v, _| Ok(Val::Float(float(v.first()).abs()));
    "round" "f|i" Float8 true = |_, v, _| Ok(Val::Float(rounded(v)));
    "floor" "f" Float8 true = |_, v, _| Ok(Val::Float(float(v.first()).floor()));
    "ceil" "f" Float8 true = |_, v, _| Ok(Val::Float(float(v.first()).ceil()));
    "ceiling" "f" Float8 true = |_, v, _| Ok(Val::Float(float(v.first()).ceil()));
    "trunc" "f" Float8 true = |_, v, _| Ok(Val::Float(float(v.first()).trunc()));
    "sign" "f" Float8 true = |_, v, _| {
        let f = float(v.first());
        Ok(Val::Float(if f == 0.0 { 0.0 } else { f.signum() }))
    };
    "mod" "ii" Int8 true = |_, v, _| match int(v.get(1)) {
        0 => Err(Error::new(SqlState::DivisionByZero, "division by zero")),
        b => Ok(Val::Int(int(v.first()).checked_rem(b).unwrap_or(0))),
    };
    "greatest" "a*" First false = |_, v, _| Ok(extreme(v, true));
    "least" "a*" First false = |_, v, _| Ok(extreme(v, false));
    // Lists.
    "array_to_string" "lt|t" Text false = |rt, v, ty| match (v.first(), v.get(1)) {
        (Some(Val::List(_)), Some(Val::Text(_))) => joined(rt, v, ty.first()),
        _ => Ok(Val::Null),
    };
    "string_to_array" "tt" TextList true = |_, v, _| {
        let (s, by) = (text(v.first()), text(v.get(1)));
        Ok(Val::List(match (s, by) {
            ("", _) => Vec::new().into(),
            (s, "") => vec![Val::text(s)].into(),
            (s, by) => s.split(by).map(Val::text).collect(),
        }))
    };
    "array_upper" "li" Int4 true = |_, v, _| match list(v.first()).len() {
        0 => Ok(Val::Null),
        n => Ok(chars(n)),
    };
    "array_lower" "li" Int4 true = |_, v, _| match list(v.first()).len() {
        0 => Ok(Val::Null),
        _ => Ok(Val::Int(1)),
    };
    "array_length" "li" Int4 true = |_, v, _| match list(v.first()).len() {
        0 => Ok(Val::Null),
        n => Ok(chars(n)),
    };
    "cardinality" "l" Int4 true = |_, v, _| Ok(chars(list(v.first()).len()));
    "array_cat" "ll" First false = |_, v, _| match (v.first(), v.get(1)) {
        (Some(Val::List(a)), Some(Val::List(b))) => {
            Ok(Val::List(a.iter().chain(b.iter()).cloned().collect()))
        }
        (Some(Val::Null), Some(b)) => Ok(b.clone()),
        (Some(a), _) => Ok(a.clone()),
        _ => Ok(Val::Null),
    };
    "array_position" "la" Int4 false = |_, v, _| {
        let at = v.get(1).and_then(|x| list(v.first()).iter().position(|i| i.order(x).is_eq()));
        Ok(at.map_or(Val::Null, |i| chars(i + 1)))
    };
    "array_remove" "la" First false = |_, v, _| match (v.first(), v.get(1)) {
        (Some(Val::List(l)), Some(x)) => {
            Ok(Val::List(l.iter().filter(|i| i.order(x).is_ne()).cloned().collect()))
        }
        _ => Ok(Val::Null),
    };
    // Of the catalog.
    "format_type" "oi" Text false = |_, v, _| {
        let oid = v.first().and_then(Val::as_int);
        let typmod = v.get(1).and_then(Val::as_int).unwrap_or(-1);
        let shown = oid.and_then(|oid| tables::format_type(oid, typmod));
        Ok(shown.map_or(Val::Null, Val::text))
    };
    "pg_get_userbyid" "o" Name true = |rt, v, _| t(tables::role_name(rt, int(v.first())));
    "pg_table_is_visible" "o" Bool true = |rt, v, _| {
        Ok(tables::is_visible(rt, int(v.first())).map_or(Val::Null, Val::Bool))
    };
    "pg_type_is_visible" "o" Bool true = yes;
    "pg_function_is_visible" "o" Bool true = yes;
    "pg_operator_is_visible" "o" Bool true = yes;
    "pg_opclass_is_visible" "o" Bool true = yes;
    "pg_opfamily_is_visible" "o" Bool true = yes;
    "pg_collation_is_visible" "o" Bool true = yes;
    "pg_conversion_is_visible" "o" Bool true = yes;
    "pg_statistics_obj_is_visible" "o" Bool true = yes;
    "pg_ts_config_is_visible" "o" Bool true = yes;
    "pg_ts_dict_is_visible" "o" Bool true = yes;
    "pg_ts_parser_is_visible" "o" Bool true = yes;
    "pg_ts_template_is_visible" "o" Bool true = yes;
    "pg_get_expr" "to|b" Text true = null;
    "pg_get_constraintdef" "o|b" Text true = null;
    "pg_get_indexdef" "o|ib" Text true = null;
    "pg_get_viewdef" "a|b" Text true = null;
    "pg_get_ruledef" "o|b" Text true = null;
    "pg_get_triggerdef" "o|b" Text true = null;
    "pg_get_partkeydef" "o" Text true = null;
    "pg_get_partition_constraintdef" "o" Text true = null;
    "pg_get_functiondef" "o" Text true = null;
    "pg_get_function_result" "o" Text true = null;
    "pg_get_function_arguments" "o" Text true = null;
    "pg_get_function_identity_arguments" "o" Text true = null;
    "pg_get_function_sqlbody" "o" Text true = null;
    "pg_get_statisticsobjdef_columns" "o" Text true = null;
    "pg_get_statisticsobjdef" "o" Text true = null;
    "pg_get_serial_sequence" "tt" Text true = null;
    "pg_relation_is_publishable" "o" Bool true = no;
    "pg_relation_is_updatable" "ob" Int4 true = |_, _, _| Ok(Val::Int(0));
    "obj_description" "o|t" Text true = null;
    "shobj_description" "ot" Text true = null;
    "col_description" "oi" Text true = null;
    "pg_encoding_to_char" "i" Name true = |_, v, _| t(match int(v.first()) {
        6 => "UTF8",
        0 => "SQL_ASCII",
        _ => "",
    });
    "getdatabaseencoding" "" Name true = |_, _, _| t("UTF8");
    "pg_client_encoding" "" Name true = |_, _, _| t("UTF8");
    "pg_char_to_encoding" "t" Int4 true = |_, v, _| {
        Ok(Val::Int(if text(v.first()).eq_ignore_ascii_case("utf8") { 6 } else { -1 }))
    };
    "pg_tablespace_location" "o" Text true = |_, _, _| t("");
    "pg_size_pretty" "f" Text true = |_, v, _| t(size_pretty(float(v.first()) as i64));
    "pg_table_size" "o" Int8 true = |rt, v, _| Ok(tables::size(rt, int(v.first())));
    "pg_relation_size" "o|t" Int8 true = |rt, v, _| Ok(tables::size(rt, int(v.first())));
    "pg_total_relation_size" "o" Int8 true = |rt, v, _| Ok(tables::size(rt, int(v.first())));
    "pg_indexes_size" "o" Int8 true = |_, _, _| Ok(Val::Int(0));
    "pg_database_size" "a" Int8 true = |rt, _, _| Ok(tables::database_size(rt));
    "to_regclass" "t" Regclass true = |rt, v, _| {
        Ok(tables::object(rt, text(v.first()), Ty::Regclass).map_or(Val::Null, Val::Int))
    };
    "to_regtype" "t" Regtype true = |rt, v, _| {
        Ok(tables::object(rt, text(v.first()), Ty::Regtype).map_or(Val::Null, Val::Int))
    };
    "to_regnamespace" "t" Regnamespace true = |rt, v, _| {
        Ok(tables::object(rt, text(v.first()), Ty::Regnamespace).map_or(Val::Null, Val::Int))
    };
    "has_table_privilege" "aa|t" Bool true = yes;
    "has_column_privilege" "aaa|t" Bool true = yes;
    "has_any_column_privilege" "aa|t" Bool true = yes;
    "has_schema_privilege" "aa|t" Bool true = yes;
    "has_database_privilege" "aa|t" Bool true = yes;
    "has_function_privilege" "aa|t" Bool true = yes;
    "has_sequence_privilege" "aa|t" Bool true = yes;
    "has_tablespace_privilege" "aa|t" Bool true = yes;
    "has_type_privilege" "aa|t" Bool true = yes;
    "has_language_privilege" "aa|t" Bool true = yes;
    "pg_has_role" "aa|t" Bool true = yes;
    "row_security_active" "a" Bool true = no;
    "pg_typeof" "a" Regtype false = |rt, _, ty| {
        let name = ty.first().map_or("unknown", |t| t.name());
        Ok(tables::object(rt, name, Ty::Regtype).map_or(Val::Null, Val::Int))
    };
}
