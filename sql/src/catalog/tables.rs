//! The tables that questions are asked of, made for each statement from the catalog: PostgreSQL 15's names
//! and types of columns, and rows for what Strandline has. A table of PostgreSQL's that has nothing to say
//! here is empty.

use super::SystemContext;
use super::run::Runtime;
use super::value::{Ty, Val};
use std::rc::Rc;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::TableId;
use strandline_core::schema::{ColumnDef, Family, Label, TableDef};

/// `table kind oid column:type …`, one table a line; as PostgreSQL 15 lists them.
const PG_COLUMNS: &str = include_str!("columns_pg.txt");
const INFORMATION_COLUMNS: &str = include_str!("columns_info.txt");
/// `oid typname typlen typbyval typtype typcategory typdelim typelem typarray typalign typstorage
/// typcollation`, one type a line; as PostgreSQL 15 lists them.
const TYPES: &str = include_str!("types.txt");

/// The first oid of users' objects in PostgreSQL.
const FIRST_OID: i64 = 16_384;
/// Oids of what there is one of.
const OWNER: i64 = 10;
const PG_CATALOG: i64 = 11;
const PUBLIC: i64 = 2200;
const INFORMATION_SCHEMA: i64 = 13_000;
const SYS: i64 = 13_001;
const DATABASE: i64 = 5;
const TABLESPACE: i64 = 1663;
const HEAP: i64 = 2;

/// The schemas, by oid and name.
const SCHEMAS: [(i64, &str); 4] = [
    (PG_CATALOG, "pg_catalog"),
    (PUBLIC, "public"),
    (INFORMATION_SCHEMA, "information_schema"),
    (SYS, "$sys"),
];

/// Name and type of a column.
pub(super) type Columns = Vec<(Rc<str>, Ty)>;

/// A table that can be asked.
#[derive(Clone, Debug)]
pub(super) struct TableRef {
    /// `pg_catalog`, `information_schema`, `$sys`.
    pub schema: &'static str,
    pub name: Rc<str>,
    pub oid: i64,
    pub columns: Rc<Columns>,
}

struct Line<'a> {
    name: &'a str,
    kind: &'a str,
    oid: i64,
    columns: std::str::SplitAsciiWhitespace<'a>,
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        Some(Line {
            name: words.next()?,
            kind: words.next()?,
            oid: words.next()?.parse().ok()?,
            columns: words,
        })
    })
}

/// A table by name; without a schema it is pg_catalog's.
pub(super) fn find(cx: &SystemContext<'_>, schema: Option<&str>, name: &str) -> Option<TableRef> {
    let in_text = |text: &'static str, schema: &'static str| {
        let line = lines(text).find(|l| l.name == name)?;
        let columns = line.columns.filter_map(|c| {
            let (name, ty) = c.split_once(':')?;
            Some((name.into(), Ty::named(ty)?))
        });
        Some(TableRef {
            schema,
            name: name.into(),
            oid: line.oid,
            columns: Rc::new(columns.collect()),
        })
    };
    match schema {
        None | Some("pg_catalog") => in_text(PG_COLUMNS, "pg_catalog"),
        Some("information_schema") => in_text(INFORMATION_COLUMNS, "information_schema"),
        Some("$sys") => Some(TableRef {
            schema: "$sys",
            name: name.into(),
            oid: 0,
            columns: Rc::new(super::sys::columns(cx, name)?),
        }),
        Some(_) => None,
    }
}

fn class_oid(table: TableId) -> i64 {
    FIRST_OID + i64::from(table.0)
}

/// A column of a user's table as clients see it.
pub(super) struct Visible<'a> {
    pub name: &'a str,
    label: Label,
    /// The engine's own column of this role.
    pub role: &'static str,
    pub def: Option<&'a ColumnDef>,
}

impl Visible<'_> {
    fn type_oid(&self) -> i64 {
        match self.label {
            Label::Double => 701,
            Label::Int => 20,
            Label::Bool => 16,
            Label::Timestamp => 1184,
            Label::Text { max_chars: None } => 25,
            Label::Text { .. } => 1043,
        }
    }
    /// `atttypmod`: VARCHAR(n) is n + 4.
    fn typmod(&self) -> i64 {
        match self.label {
            Label::Text { max_chars: Some(n) } => i64::from(n) + 4,
            _ => -1,
        }
    }
    pub fn label_text(&self) -> String {
        match self.label {
            Label::Text { max_chars: Some(n) } => format!("VARCHAR({n})"),
            other => other.name().to_owned(),
        }
    }
    fn required(&self) -> bool {
        self.def.is_none()
    }
}

/// The columns that `SELECT *` answers, in its order.
pub(super) fn visible(def: &TableDef) -> Vec<Visible<'_>> {
    let own = |name, label, role| Visible {
        name,
        label,
        role,
        def: None,
    };
    let mut out = match def.family {
        Family::Timeseries => vec![
            own("entity", Label::TEXT, "entity"),
            own("ts", Label::Int, "time"),
        ],
        Family::Rows => vec![own("xid", Label::TEXT, "key")],
    };
    let role = match def.family {
        Family::Timeseries => "channel",
        Family::Rows => "value",
    };
    out.extend(def.columns.iter().map(|c| Visible {
        name: &c.name,
        label: c.label,
        role,
        def: Some(c),
    }));
    out
}

/// Makes rows by column name. A column that is not named takes what means nothing in it: false, 0, '', or
/// NULL where PostgreSQL has NULL.
pub(super) struct Maker {
    columns: Rc<Columns>,
    rows: Vec<Vec<Val>>,
    nullable: bool,
}

impl Maker {
    pub fn row(&mut self, cells: &[(&str, Val)]) {
        let row = self.columns.iter().map(|(name, ty)| {
            let given = cells.iter().find(|(n, _)| *n == &**name);
            given.map_or_else(
                || match ty {
                    _ if self.nullable => Val::Null,
                    Ty::Bool => Val::Bool(false),
                    t if t.is_int() => Val::Int(0),
                    Ty::Char | Ty::Name => Val::text(""),
                    _ => Val::Null,
                },
                |(_, v)| v.clone(),
            )
        });
        self.rows.push(row.collect());
    }
}

pub(super) fn t(s: impl AsRef<str>) -> Val {
    Val::text(s)
}

pub(super) fn n(i: impl Into<i64>) -> Val {
    Val::Int(i.into())
}

pub(super) fn count(i: usize) -> Val {
    Val::Int(i64::try_from(i).unwrap_or(i64::MAX))
}

fn yes(b: bool) -> Val {
    t(if b { "YES" } else { "NO" })
}

/// All rows of a table.
pub(super) fn rows(rt: &Runtime<'_>, table: &TableRef) -> Result<Vec<Vec<Val>>> {
    let cx = rt.cx;
    let mut m = Maker {
        columns: table.columns.clone(),
        rows: Vec::new(),
        nullable: table.schema == "information_schema",
    };
    match (table.schema, &*table.name) {
        ("pg_catalog", name) => pg_rows(rt, name, &mut m)?,
        ("information_schema", name) => information_rows(rt, name, &mut m)?,
        ("$sys", "columns") => super::sys::column_rows(rt, &mut m)?,
        ("$sys", "tables") => super::sys::table_rows(rt, &mut m)?,
        ("$sys", name) => {
            let given = if name == "shards" {
                &cx.shards
            } else {
                &cx.segments
            };
            rt.step(given.rows.len())?;
            m.rows = given
                .rows
                .iter()
                .map(|r| r.iter().map(Val::of).collect())
                .collect();
        }
        _ => {}
    }
    if table.schema == "pg_catalog" {
        // tableoid, which every table of PostgreSQL's has behind its columns.
        for row in &mut m.rows {
            row.push(n(table.oid));
        }
    }
    Ok(m.rows)
}

pub(super) fn tables<'a>(rt: &Runtime<'a>) -> Result<Vec<&'a Arc<TableDef>>> {
    rt.step(rt.cx.catalog.len())?;
    Ok(rt.cx.catalog.tables().collect())
}

fn pg_rows(rt: &Runtime<'_>, name: &str, m: &mut Maker) -> Result<()> {
    let cx = rt.cx;
    match name {
        "pg_class" => class_rows(rt, m)?,
        "pg_attribute" => attribute_rows(rt, m)?,
        "pg_namespace" => {
            for (oid, name) in SCHEMAS {
                m.row(&[
                    ("oid", n(oid)),
                    ("nspname", t(name)),
                    ("nspowner", n(OWNER)),
                ]);
            }
        }
        "pg_tables" => {
            for def in tables(rt)? {
                m.row(&[
                    ("schemaname", t("public")),
                    ("tablename", t(&def.name)),
                    ("tableowner", t(cx.user)),
                ]);
            }
        }
        "pg_stat_user_tables" => {
            for def in tables(rt)? {
                m.row(&[
                    ("relid", n(class_oid(def.id))),
                    ("schemaname", t("public")),
                    ("relname", t(&def.name)),
                ]);
            }
        }
        "pg_type" => {
            for line in TYPES.lines() {
                let w: Vec<&str> = line.split(' ').collect();
                let [
                    oid,
                    name,
                    len,
                    byval,
                    kind,
                    category,
                    delim,
                    elem,
                    array,
                    align,
                    storage,
                    collation,
                ] = w[..]
                else {
                    continue;
                };
                let int = |s: &str| n(s.parse::<i64>().unwrap_or(0));
                m.row(&[
                    ("oid", int(oid)),
                    ("typname", t(name)),
                    ("typnamespace", n(PG_CATALOG)),
                    ("typowner", n(OWNER)),
                    ("typlen", int(len)),
                    ("typbyval", Val::Bool(byval == "t")),
                    ("typtype", t(kind)),
                    ("typcategory", t(category)),
                    ("typisdefined", Val::Bool(true)),
                    ("typdelim", t(delim)),
                    ("typelem", int(elem)),
                    ("typarray", int(array)),
                    ("typalign", t(align)),
                    ("typstorage", t(storage)),
                    ("typtypmod", n(-1)),
                    ("typcollation", int(collation)),
                ]);
            }
        }
        "pg_database" => m.row(&[
            ("oid", n(DATABASE)),
            ("datname", t(cx.database)),
            ("datdba", n(OWNER)),
            ("encoding", n(6)),
            ("datlocprovider", t("c")),
            ("datallowconn", Val::Bool(true)),
            ("datconnlimit", n(-1)),
            ("dattablespace", n(TABLESPACE)),
            ("datcollate", t("C")),
            ("datctype", t("C")),
        ]),
        "pg_authid" | "pg_roles" => m.row(&[
            ("oid", n(OWNER)),
            ("rolname", t(cx.user)),
            ("rolsuper", Val::Bool(true)),
            ("rolinherit", Val::Bool(true)),
            ("rolcreaterole", Val::Bool(true)),
            ("rolcreatedb", Val::Bool(true)),
            ("rolcanlogin", Val::Bool(true)),
            ("rolreplication", Val::Bool(true)),
            ("rolbypassrls", Val::Bool(true)),
            ("rolconnlimit", n(-1)),
            (
                "rolpassword",
                if name == "pg_roles" {
                    t("********")
                } else {
                    Val::Null
                },
            ),
        ]),
        "pg_user" | "pg_shadow" => m.row(&[
            ("usename", t(cx.user)),
            ("usesysid", n(OWNER)),
            ("usecreatedb", Val::Bool(true)),
            ("usesuper", Val::Bool(true)),
            ("userepl", Val::Bool(true)),
            ("usebypassrls", Val::Bool(true)),
            (
                "passwd",
                if name == "pg_user" {
                    t("********")
                } else {
                    Val::Null
                },
            ),
        ]),
        "pg_am" => m.row(&[("oid", n(HEAP)), ("amname", t("heap")), ("amtype", t("t"))]),
        "pg_tablespace" => m.row(&[
            ("oid", n(TABLESPACE)),
            ("spcname", t("pg_default")),
            ("spcowner", n(OWNER)),
        ]),
        "pg_collation" => {
            for (oid, name, kind) in [(100, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")] {
                m.row(&[
                    ("oid", n(oid)),
                    ("collname", t(name)),
                    ("collnamespace", n(PG_CATALOG)),
                    ("collowner", n(OWNER)),
                    ("collprovider", t(kind)),
                    ("collisdeterministic", Val::Bool(true)),
                    ("collencoding", n(-1)),
                ]);
            }
        }
        "pg_settings" => {
            for (name, value, about) in &cx.settings {
                m.row(&[
                    ("name", t(name)),
                    ("setting", t(value)),
                    ("unit", Val::Null),
                    ("category", t("Strandline")),
                    ("short_desc", t(about)),
                    ("context", t("user")),
                    ("vartype", t("string")),
                    ("source", t("session")),
                    ("boot_val", t(value)),
                    ("reset_val", t(value)),
                ]);
            }
        }
        "pg_stat_activity" => m.row(&[
            ("datid", n(DATABASE)),
            ("datname", t(cx.database)),
            ("pid", n(cx.backend_pid)),
            ("usesysid", n(OWNER)),
            ("usename", t(cx.user)),
            (
                "application_name",
                t(setting(cx, "application_name").unwrap_or("")),
            ),
            ("state", t("active")),
            ("query_start", Val::Time(cx.now_ms)),
            ("backend_type", t("client backend")),
            ("leader_pid", Val::Null),
            ("backend_xid", Val::Null),
            ("backend_xmin", Val::Null),
        ]),
        // Of the others nothing is known.
        _ => {}
    }
    Ok(())
}

/// The value of a setting.
pub(super) fn setting<'a>(cx: &'a SystemContext<'_>, name: &str) -> Option<&'a str> {
    let found = cx
        .settings
        .iter()
        .find(|(n, ..)| n.eq_ignore_ascii_case(name));
    found.map(|(_, value, _)| value.as_str())
}

fn class_rows(rt: &Runtime<'_>, m: &mut Maker) -> Result<()> {
    for def in tables(rt)? {
        m.row(&[
            ("oid", n(class_oid(def.id))),
            ("relname", t(&def.name)),
            ("relnamespace", n(PUBLIC)),
            ("relowner", n(OWNER)),
            ("relam", n(HEAP)),
            ("reltuples", Val::Float(-1.0)),
            ("relpersistence", t("p")),
            ("relkind", t("r")),
            ("relnatts", count(visible(def).len())),
            ("relispopulated", Val::Bool(true)),
            ("relreplident", t("d")),
            ("reloptions", super::sys::reloptions(def)),
        ]);
    }
    for (text, schema) in system_lines() {
        for line in lines(text) {
            let table = line.kind == "r";
            m.row(&[
                ("oid", n(line.oid)),
                ("relname", t(line.name)),
                ("relnamespace", n(schema)),
                ("relowner", n(OWNER)),
                ("relam", n(if table { HEAP } else { 0 })),
                ("reltuples", Val::Float(-1.0)),
                ("relpersistence", t("p")),
                ("relkind", t(line.kind)),
                ("relnatts", count(line.columns.count())),
                ("relispopulated", Val::Bool(true)),
                ("relreplident", t("n")),
            ]);
        }
    }
    Ok(())
}

fn system_lines() -> [(&'static str, i64); 2] {
    [
        (PG_COLUMNS, PG_CATALOG),
        (INFORMATION_COLUMNS, INFORMATION_SCHEMA),
    ]
}

fn attribute(
    m: &mut Maker,
    class: i64,
    name: &str,
    position: usize,
    ty: i64,
    typmod: i64,
    required: bool,
) {
    let shape = type_line(ty);
    let word = |i: usize| shape.and_then(|s| s.split(' ').nth(i)).unwrap_or("");
    m.row(&[
        ("attrelid", n(class)),
        ("attname", t(name)),
        ("atttypid", n(ty)),
        ("attstattarget", n(-1)),
        ("attlen", n(word(2).parse::<i64>().unwrap_or(0))),
        ("attnum", count(position)),
        ("attcacheoff", n(-1)),
        ("atttypmod", n(typmod)),
        ("attbyval", Val::Bool(word(3) == "t")),
        ("attalign", t(word(9))),
        ("attstorage", t(word(10))),
        ("attnotnull", Val::Bool(required)),
        ("attislocal", Val::Bool(true)),
        ("attcollation", n(word(11).parse::<i64>().unwrap_or(0))),
    ]);
}

fn attribute_rows(rt: &Runtime<'_>, m: &mut Maker) -> Result<()> {
    for def in tables(rt)? {
        let columns = visible(def);
        rt.step(columns.len())?;
        for (i, c) in columns.iter().enumerate() {
            attribute(
                m,
                class_oid(def.id),
                c.name,
                i + 1,
                c.type_oid(),
                c.typmod(),
                c.required(),
            );
        }
    }
    for (text, _) in system_lines() {
        for line in lines(text) {
            for (i, c) in line.columns.enumerate() {
                let (name, ty) = c.split_once(':').unwrap_or((c, "text"));
                let ty = type_named(ty).unwrap_or(25);
                attribute(m, line.oid, name, i + 1, ty, -1, false);
            }
        }
    }
    Ok(())
}

fn information_rows(rt: &Runtime<'_>, name: &str, m: &mut Maker) -> Result<()> {
    let cx = rt.cx;
    match name {
        "schemata" => {
            for (_, name) in SCHEMAS {
                m.row(&[
                    ("catalog_name", t(cx.database)),
                    ("schema_name", t(name)),
                    ("schema_owner", t(cx.user)),
                ]);
            }
        }
        "tables" => {
            for def in tables(rt)? {
                m.row(&[
                    ("table_catalog", t(cx.database)),
                    ("table_schema", t("public")),
                    ("table_name", t(&def.name)),
                    ("table_type", t("BASE TABLE")),
                    ("is_insertable_into", yes(true)),
                    ("is_typed", yes(false)),
                ]);
            }
            for (text, schema) in system_lines() {
                for line in lines(text) {
                    m.row(&[
                        ("table_catalog", t(cx.database)),
                        ("table_schema", t(schema_name(schema).unwrap_or(""))),
                        ("table_name", t(line.name)),
                        (
                            "table_type",
                            t(if line.kind == "r" {
                                "BASE TABLE"
                            } else {
                                "VIEW"
                            }),
                        ),
                        ("is_insertable_into", yes(false)),
                        ("is_typed", yes(false)),
                    ]);
                }
            }
        }
        "columns" => {
            for def in tables(rt)? {
                let columns = visible(def);
                rt.step(columns.len())?;
                for (i, c) in columns.iter().enumerate() {
                    let oid = c.type_oid();
                    let bits = match oid {
                        20 => n(64),
                        701 => n(53),
                        _ => Val::Null,
                    };
                    m.row(&[
                        ("table_catalog", t(cx.database)),
                        ("table_schema", t("public")),
                        ("table_name", t(&def.name)),
                        ("column_name", t(c.name)),
                        ("ordinal_position", count(i + 1)),
                        ("is_nullable", yes(!c.required())),
                        ("data_type", t(format_type(oid, -1).unwrap_or_default())),
                        (
                            "character_maximum_length",
                            if c.typmod() > 4 {
                                n(c.typmod() - 4)
                            } else {
                                Val::Null
                            },
                        ),
                        (
                            "numeric_precision_radix",
                            if bits.is_null() { Val::Null } else { n(2) },
                        ),
                        ("numeric_precision", bits),
                        ("numeric_scale", if oid == 20 { n(0) } else { Val::Null }),
                        (
                            "datetime_precision",
                            if oid == 1184 { n(3) } else { Val::Null },
                        ),
                        ("udt_catalog", t(cx.database)),
                        ("udt_schema", t("pg_catalog")),
                        (
                            "udt_name",
                            t(type_line(oid)
                                .and_then(|l| l.split(' ').nth(1))
                                .unwrap_or("")),
                        ),
                        ("dtd_identifier", t((i + 1).to_string())),
                        ("is_self_referencing", yes(false)),
                        ("is_identity", yes(false)),
                        ("is_generated", t("NEVER")),
                        ("is_updatable", yes(def.family == Family::Rows)),
                    ]);
                }
            }
        }
        "information_schema_catalog_name" => m.row(&[("catalog_name", t(cx.database))]),
        _ => {}
    }
    Ok(())
}

/// A schema's name.
fn schema_name(oid: i64) -> Option<&'static str> {
    SCHEMAS.iter().find(|(o, _)| *o == oid).map(|(_, n)| *n)
}

fn type_line(oid: i64) -> Option<&'static str> {
    TYPES
        .lines()
        .find(|l| l.split(' ').next().and_then(|w| w.parse().ok()) == Some(oid))
}

/// A type by its name in `pg_type`.
fn type_named(name: &str) -> Option<i64> {
    let line = TYPES.lines().find(|l| l.split(' ').nth(1) == Some(name))?;
    line.split(' ').next()?.parse().ok()
}

/// A type's name as SQL writes it, with its length; `None` for oid 0.
pub(super) fn format_type(oid: i64, typmod: i64) -> Option<String> {
    if oid == 0 {
        return None;
    }
    let Some(name) = type_line(oid).and_then(|l| l.split(' ').nth(1)) else {
        return Some("???".to_owned());
    };
    let (name, list) = match name.strip_prefix('_') {
        Some(element) => (element, "[]"),
        None => (name, ""),
    };
    let long = match name {
        "bool" => "boolean",
        "int2" => "smallint",
        "int4" => "integer",
        "int8" => "bigint",
        "float4" => "real",
        "float8" => "double precision",
        "varchar" => "character varying",
        "bpchar" => "character",
        "timestamptz" => "timestamp with time zone",
        "timestamp" => "timestamp without time zone",
        "time" => "time without time zone",
        "char" => "\"char\"",
        other => other,
    };
    let length = match name {
        "varchar" | "bpchar" if typmod > 4 => format!("({})", typmod - 4),
        _ => String::new(),
    };
    Some(format!("{long}{length}{list}"))
}

/// Splits `schema.name` and folds what is not quoted.
fn split_name(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        let fresh = parts.len();
        let Some(part) = parts.last_mut() else { break };
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => part.push('"'),
            '"' => quoted = !quoted,
            '.' if !quoted && fresh < 4 => parts.push(String::new()),
            c if quoted => part.push(c),
            c => part.extend(c.to_lowercase()),
        }
    }
    parts
}

/// The oid that `'name'::regclass` and its like stand for.
pub(super) fn object(rt: &Runtime<'_>, text: &str, ty: Ty) -> Result<i64> {
    let parts = split_name(text);
    let (schema, name) = match &parts[..] {
        [name] => (None, name.as_str()),
        [schema, name] => (Some(schema.as_str()), name.as_str()),
        [database, schema, name] if database == rt.cx.database => {
            (Some(schema.as_str()), name.as_str())
        }
        _ => (Some(""), text),
    };
    if text == "-" {
        return Ok(0);
    }
    let missing = |state, what: &str| {
        Err(Error::new(
            state,
            format!("{what} \"{text}\" does not exist"),
        ))
    };
    match ty {
        Ty::Regclass => {
            let user = match schema {
                None | Some("public") => rt.cx.catalog.table(name),
                _ => None,
            };
            let system = || find(rt.cx, schema, name).map(|t| t.oid);
            match user.map(|d| class_oid(d.id)).or_else(system) {
                Some(oid) => Ok(oid),
                None => missing(SqlState::UndefinedTable, "relation"),
            }
        }
        Ty::Regtype => {
            let (element, list) = match name.strip_suffix("[]") {
                Some(element) => (element.trim(), true),
                None => (name, false),
            };
            let short = match element {
                "boolean" => "bool",
                "smallint" => "int2",
                "integer" | "int" => "int4",
                "bigint" => "int8",
                "real" => "float4",
                "double precision" => "float8",
                "character varying" => "varchar",
                "timestamp with time zone" => "timestamptz",
                "timestamp without time zone" => "timestamp",
                other => other,
            };
            let full = if list {
                format!("_{short}")
            } else {
                short.to_owned()
            };
            let found = match schema {
                None | Some("pg_catalog") => type_named(&full),
                _ => None,
            };
            found.map_or_else(|| missing(SqlState::UndefinedObject, "type"), Ok)
        }
        Ty::Regnamespace => match SCHEMAS.iter().find(|(_, s)| schema.is_none() && *s == name) {
            Some((oid, _)) => Ok(*oid),
            None => missing(SqlState::UndefinedObject, "schema"),
        },
        Ty::Regrole if schema.is_none() && name == rt.cx.user => Ok(OWNER),
        Ty::Regrole => missing(SqlState::UndefinedObject, "role"),
        _ => missing(SqlState::UndefinedFunction, "function"),
    }
}

/// The name that an oid of such a type is shown as; the number itself when nothing has it.
pub(super) fn object_name(rt: &Runtime<'_>, oid: i64, ty: Ty) -> String {
    let found = match ty {
        _ if oid == 0 => Some("-".to_owned()),
        Ty::Regclass => class_name(rt, oid).map(|(schema, name)| match schema {
            "information_schema" => format!("{schema}.{}", quote_ident(name)),
            _ => quote_ident(name),
        }),
        Ty::Regtype => type_line(oid).and_then(|_| format_type(oid, -1)),
        Ty::Regnamespace => schema_name(oid).map(quote_ident),
        Ty::Regrole => (oid == OWNER).then(|| quote_ident(rt.cx.user)),
        _ => None,
    };
    found.unwrap_or_else(|| oid.to_string())
}

/// Schema and name of a table.
fn class_name<'a>(rt: &Runtime<'a>, oid: i64) -> Option<(&'static str, &'a str)> {
    if let Ok(id) = u32::try_from(oid - FIRST_OID)
        && let Some(def) = rt.cx.catalog.table_by_id(TableId(id))
    {
        return Some(("public", &def.name));
    }
    system_lines().into_iter().find_map(|(text, schema)| {
        let line = lines(text).find(|l| l.oid == oid)?;
        Some((schema_name(schema)?, line.name))
    })
}

/// Whether a table can be named without its schema; `None`: there is no such table.
pub(super) fn is_visible(rt: &Runtime<'_>, oid: i64) -> Option<bool> {
    class_name(rt, oid).map(|(schema, _)| schema != "information_schema")
}

/// The role of an oid.
pub(super) fn role_name(rt: &Runtime<'_>, oid: i64) -> String {
    if oid == OWNER {
        rt.cx.user.to_owned()
    } else {
        format!("unknown (OID={oid})")
    }
}

/// A name as SQL needs it written.
pub(super) fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !crate::parser::is_reserved(name);
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn told_bytes(rt: &Runtime<'_>, name: Option<&str>) -> i64 {
    let told = &rt.cx.tables;
    let at = |name: &str| told.columns.iter().position(|(n, _)| n == name);
    let (Some(key), Some(bytes)) = (at("name"), at("segment_bytes")) else {
        return 0;
    };
    let rows = told.rows.iter().filter(|row| match (name, row.get(key)) {
        (Some(name), Some(crate::types::Datum::Text { text, .. })) => text == name,
        (None, _) => true,
        _ => false,
    });
    rows.filter_map(|row| row.get(bytes).map(Val::of)?.as_int())
        .fold(0, i64::saturating_add)
}

/// A table's bytes on disk; NULL when there is no such table, 0 when the session was not asked.
pub(super) fn size(rt: &Runtime<'_>, oid: i64) -> Val {
    match class_name(rt, oid) {
        Some(("public", name)) => Val::Int(told_bytes(rt, Some(name))),
        Some(_) => Val::Int(0),
        None => Val::Null,
    }
}

/// Bytes on disk of all tables.
pub(super) fn database_size(rt: &Runtime<'_>) -> Val {
    Val::Int(told_bytes(rt, None))
}
