//! Types of the parameters of a catalog question. The evaluator takes any value, so what a client is told is
//! only a help for its encoder: the cast behind a parameter, or the kind of column it is compared with.

use crate::lexer::{self, Kind, Token};
use crate::types::SqlType;
use strandline_core::limits::Limits;

/// Fills the types that are still open and can be told from the text.
pub(super) fn infer(text: &str, limits: &Limits, types: &mut [Option<SqlType>]) {
    let Ok(tokens) = lexer::tokenize(text, limits) else {
        return;
    };
    let raw = |t: &Token| &text[t.start as usize..t.end as usize];
    for (i, t) in tokens.iter().enumerate() {
        if t.kind != Kind::Param {
            continue;
        }
        let n: Option<usize> = raw(t)[1..].parse().ok();
        let Some(slot) = n.and_then(|n| types.get_mut(n.checked_sub(1)?)) else {
            continue;
        };
        if slot.is_some() {
            continue;
        }
        let word = |at: Option<usize>| {
            let t = tokens.get(at?)?;
            matches!(t.kind, Kind::Word | Kind::Quoted).then(|| lexer::identifier(text, *t))
        };
        let cast = tokens.get(i + 1).is_some_and(|t| {
            t.kind == Kind::Cast || (t.kind == Kind::Word && raw(t).eq_ignore_ascii_case("as"))
        });
        if cast {
            // `$1::pg_catalog.oid` as well as `$1::oid`.
            let schema = tokens.get(i + 3).is_some_and(|t| t.kind == Kind::Dot);
            let at = if schema { i + 4 } else { i + 2 };
            let array = tokens.get(at + 1).is_some_and(|t| raw(t) == "[");
            *slot = word(Some(at)).and_then(|w| named(&w, array));
            continue;
        }
        let before = i.checked_sub(1).and_then(|b| tokens.get(b));
        *slot = match before.map(|t| t.kind) {
            Some(Kind::Eq) => word(i.checked_sub(2)).and_then(|w| of_column(&w)),
            Some(Kind::Word)
                if before.is_some_and(|t| {
                    ["limit", "offset"]
                        .iter()
                        .any(|w| raw(t).eq_ignore_ascii_case(w))
                }) =>
            {
                Some(SqlType::Int8)
            }
            _ => None,
        };
    }
}

fn named(word: &str, array: bool) -> Option<SqlType> {
    if array {
        return Some(SqlType::TextArray);
    }
    Some(match word {
        "oid" => SqlType::Oid,
        "int2" | "smallint" => SqlType::Int2,
        "int" | "integer" | "int4" => SqlType::Int4,
        "int8" | "bigint" => SqlType::Int8,
        "float8" | "double" | "numeric" | "real" | "float4" => SqlType::Float8,
        "bool" | "boolean" => SqlType::Bool,
        "timestamp" | "timestamptz" | "date" => SqlType::Timestamptz,
        "name" => SqlType::Name,
        "text" | "varchar" | "regclass" | "regtype" | "regproc" | "regnamespace" => SqlType::Text,
        _ => return None,
    })
}

/// Columns of `pg_catalog` that hold oids end so.
fn of_column(name: &str) -> Option<SqlType> {
    let oid = [
        "oid",
        "relid",
        "namespace",
        "typelem",
        "typarray",
        "typbasetype",
    ]
    .iter()
    .any(|end| name.ends_with(end));
    match name {
        "attnum" => Some(SqlType::Int2),
        _ if oid => Some(SqlType::Oid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_and_columns() {
        let mut types = vec![None; 8];
        types[7] = Some(SqlType::Bool);
        infer(
            "SELECT $1::int, CAST($2 AS name), $3::pg_catalog.oid[] FROM pg_class c \
             WHERE c.oid = $4 AND relname = $5 AND $6::regclass IS NULL AND $8::int = 1 LIMIT $7",
            &Limits::default(),
            &mut types,
        );
        use SqlType::*;
        assert_eq!(
            types,
            [
                Some(Int4),
                Some(Name),
                Some(TextArray),
                Some(Oid),
                None,
                Some(Text),
                Some(Int8),
                Some(Bool)
            ]
        );
    }
}
