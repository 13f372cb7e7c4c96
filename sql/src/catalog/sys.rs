//! `$sys.tables` and `$sys.columns`, and how a table's options are shown.

use super::run::Runtime;
use super::tables::{Columns, Maker, count, n, t, tables, visible};
use super::value::{Ty, Val};
use super::{SystemAnswer, SystemContext};
use strandline_core::error::Result;
use strandline_core::schema::{Family, Fill, TableDef};

/// Names and types of a table's columns.
pub(super) fn columns(cx: &SystemContext<'_>, name: &str) -> Option<Columns> {
    let told = |a: &SystemAnswer| -> Columns {
        a.columns
            .iter()
            .map(|(n, t)| (n.as_str().into(), Ty::from_sql(*t)))
            .collect()
    };
    let named = |list: &[(&str, Ty)]| list.iter().map(|(n, t)| ((*n).into(), *t)).collect();
    Some(match name {
        "shards" => told(&cx.shards),
        "segments" => told(&cx.segments),
        "tables" => named(&[
            ("name", Ty::Text),
            ("family", Ty::Text),
            ("columns", Ty::Int8),
            ("rows", Ty::Int8),
            ("bytes", Ty::Int8),
            ("segment_bytes", Ty::Int8),
            ("memtable_bytes", Ty::Int8),
            ("segments", Ty::Int8),
            ("partition_by", Ty::Text),
            ("retention", Ty::Text),
            ("mutable", Ty::Bool),
            ("dedup", Ty::Bool),
            ("entity_uuid", Ty::Bool),
            ("entity_tag", Ty::Text),
        ]),
        "columns" => named(&[
            ("table_name", Ty::Text),
            ("name", Ty::Text),
            ("type", Ty::Text),
            ("fill", Ty::Text),
            ("staleness", Ty::Text),
            ("role", Ty::Text),
            ("position", Ty::Int8),
        ]),
        _ => return None,
    })
}

/// One row per column of the user's tables.
pub(super) fn column_rows(rt: &Runtime<'_>, m: &mut Maker) -> Result<()> {
    for def in tables(rt)? {
        let columns = visible(def);
        rt.step(columns.len())?;
        for (i, c) in columns.iter().enumerate() {
            // Only channels have a fill.
            let channel = c.def.filter(|_| def.family == Family::Timeseries);
            let (fill, staleness) = match channel.map(|c| c.fill) {
                None => (Val::Null, Val::Null),
                Some(Fill::None) => (t("NONE"), Val::Null),
                Some(Fill::Hold { staleness_ms: None }) => (t("HOLD"), Val::Null),
                Some(Fill::Hold {
                    staleness_ms: Some(ms),
                }) => (t("HOLD"), t(duration(ms))),
            };
            let entity = c.role == "entity" && def.entity_uuid;
            m.row(&[
                ("table_name", t(&def.name)),
                ("name", t(c.name)),
                ("type", if entity { t("UUID") } else { t(c.label_text()) }),
                ("fill", fill),
                ("staleness", staleness),
                ("role", t(c.role)),
                ("position", count(i + 1)),
            ]);
        }
    }
    Ok(())
}

/// One row per table of the user.
pub(super) fn table_rows(rt: &Runtime<'_>, m: &mut Maker) -> Result<()> {
    let given = &rt.cx.tables;
    let at = |name: &str| given.columns.iter().position(|(n, _)| n == name);
    let key = at("name");
    let by_name: std::collections::BTreeMap<String, &Vec<crate::types::Datum>> = given
        .rows
        .iter()
        .filter_map(|row| match row.get(key?)? {
            crate::types::Datum::Text { text, .. } => Some((text.clone(), row)),
            _ => None,
        })
        .collect();
    for def in tables(rt)? {
        let told = by_name.get(&def.name);
        let value = |name: &str| {
            let cell = at(name).and_then(|i| told?.get(i));
            cell.map_or(Val::Null, Val::of)
        };
        let options = &def.options;
        let of_stream = |on| match def.family {
            Family::Timeseries => Val::Bool(on),
            Family::Rows => Val::Null,
        };
        let bytes = match (value("segment_bytes"), value("memtable_bytes")) {
            (Val::Int(a), Val::Int(b)) => n(a.saturating_add(b)),
            _ => Val::Null,
        };
        m.row(&[
            ("name", t(&def.name)),
            ("family", t(def.family.name())),
            ("columns", count(visible(def).len())),
            ("rows", value("rows")),
            ("bytes", bytes),
            ("segment_bytes", value("segment_bytes")),
            ("memtable_bytes", value("memtable_bytes")),
            ("segments", value("segments")),
            ("partition_by", Val::Null),
            (
                "retention",
                options.retention_ms.map_or(Val::Null, |ms| t(duration(ms))),
            ),
            ("mutable", of_stream(options.mutable)),
            ("dedup", of_stream(options.dedup)),
            ("entity_uuid", of_stream(def.entity_uuid)),
            (
                "entity_tag",
                options.entity_tag.as_ref().map_or(Val::Null, t),
            ),
        ]);
    }
    Ok(())
}

/// In the largest unit that leaves a whole number, as a statement would write it.
pub(super) fn duration(ms: i64) -> String {
    for (unit, size) in [
        ("day", 86_400_000),
        ("h", 3_600_000),
        ("min", 60_000),
        ("s", 1000),
    ] {
        if ms > 0 && ms % size == 0 {
            return format!("{} {unit}", ms / size);
        }
    }
    format!("{ms} ms")
}

/// The items of WITH, each as a statement would write it.
pub(crate) fn with_items(def: &TableDef) -> Vec<String> {
    let o = &def.options;
    let retention = o
        .retention_ms
        .map(|ms| format!("RETENTION {}", duration(ms)));
    let tag = (o.entity_tag.as_ref()).map(|tag| format!("ENTITY TAG {}", quoted(tag)));
    let words = [
        (o.mutable, "MUTABLE"),
        (o.dedup, "DEDUP"),
        (def.entity_uuid, "ENTITY UUID"),
    ];
    let words = words.iter().filter(|w| w.0).map(|w| w.1.to_owned());
    retention.into_iter().chain(words).chain(tag).collect()
}

/// A name as SQL takes it back.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !crate::parser::is_reserved(name)
    {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// The same as `pg_class.reloptions`, which psql's `\d+` shows; NULL when there are none.
pub(super) fn reloptions(def: &TableDef) -> Val {
    let o = &def.options;
    let on = |name: &str, on: bool| on.then(|| t(format!("{name}=true")));
    let list: Vec<Val> = [
        (o.retention_ms).map(|ms| t(format!("retention={}", duration(ms)))),
        on("mutable", o.mutable),
        on("dedup", o.dedup),
        on("entity_uuid", def.entity_uuid),
        (o.entity_tag.as_ref()).map(|tag| t(format!("entity_tag={tag}"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    match list.is_empty() {
        true => Val::Null,
        false => Val::List(list.into()),
    }
}
