//! Questions as SQL text, and the text of answers as rows that can be compared.

use crate::questions::Question;
use crate::reference::Answered;
use strandline_core::ids::ColumnId;
use strandline_core::scan::{
    Aggregate, AggregateFn, BucketFill, CmpOp, Entities, Predicate, StreamAggregate, TsRange,
};
use strandline_core::schema::{Fill, TableDef};
use strandline_core::time::Interval;
use strandline_core::value::{Kind, Value};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

/// A text literal.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A value as a literal.
pub fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::F64(x) => x.to_string(),
        Value::Str(s) => quoted(s),
    }
}

/// The policy as it is declared.
pub fn fill(fill: Fill) -> String {
    match fill {
        Fill::None => "FILL NONE".into(),
        Fill::Hold { staleness_ms: None } => "FILL HOLD".into(),
        Fill::Hold {
            staleness_ms: Some(ms),
        } => format!("FILL HOLD STALENESS {ms} ms"),
    }
}

fn name(def: &TableDef, column: ColumnId) -> &str {
    let found = def.column_by_id(column);
    &found.expect("a question names columns that are there").name
}

fn conditions(entities: &Entities, range: TsRange, more: Option<String>) -> String {
    let mut list = Vec::new();
    match entities {
        Entities::All => {}
        Entities::In(names) if names.len() == 1 => {
            list.push(format!("entity = {}", quoted(&names[0])));
        }
        Entities::In(names) => {
            let names: Vec<String> = names.iter().map(|n| quoted(n)).collect();
            list.push(format!("entity IN ({})", names.join(", ")));
        }
    }
    match (range.from, range.to) {
        (i64::MIN, i64::MAX) => {}
        (i64::MIN, to) => list.push(format!("ts <= {to}")),
        (from, i64::MAX) => list.push(format!("ts >= {from}")),
        (from, to) => list.push(format!("ts BETWEEN {from} AND {to}")),
    }
    list.extend(more);
    match list.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", list.join(" AND ")),
    }
}

fn predicate(p: &Predicate, name: &dyn Fn(usize) -> String) -> String {
    let join = |list: &[Predicate], word: &str| {
        let parts: Vec<String> = list.iter().map(|p| predicate(p, name)).collect();
        format!("({})", parts.join(word))
    };
    match p {
        Predicate::Const(b) => b.map_or("NULL".into(), |b| b.to_string()),
        Predicate::IsNull { channel, negated } => {
            let not = if *negated { "NOT " } else { "" };
            format!("{} IS {not}NULL", name(*channel))
        }
        Predicate::Compare { channel, op, value } => {
            let op = match op {
                CmpOp::Eq => "=",
                CmpOp::Ne => "<>",
                CmpOp::Lt => "<",
                CmpOp::Le => "<=",
                CmpOp::Gt => ">",
                CmpOp::Ge => ">=",
            };
            format!("{} {op} {}", name(*channel), literal(value))
        }
        Predicate::In { channel, values } => {
            let values: Vec<String> = values.iter().map(literal).collect();
            format!("{} IN ({})", name(*channel), values.join(", "))
        }
        Predicate::Like { channel, pattern } => {
            let word = if pattern.folds() { "ILIKE" } else { "LIKE" };
            format!("{} {word} {}", name(*channel), quoted(pattern.text()))
        }
        Predicate::And(list) => join(list, " AND "),
        Predicate::Or(list) => join(list, " OR "),
        Predicate::Not(p) => format!("NOT ({})", predicate(p, name)),
    }
}

fn item(def: &TableDef, a: &Aggregate) -> String {
    let Some((column, _)) = a.column else {
        return "count(*)".into();
    };
    let c = name(def, column);
    let named = match a.func {
        AggregateFn::Count => "count",
        AggregateFn::Sum => "sum",
        AggregateFn::Avg => "avg",
        AggregateFn::Min => "min",
        AggregateFn::Max => "max",
        AggregateFn::First => "first",
        AggregateFn::Last => "last",
        AggregateFn::StddevSamp => "stddev",
        AggregateFn::StddevPop => "stddev_pop",
        AggregateFn::VarSamp => "variance",
        AggregateFn::VarPop => "var_pop",
        AggregateFn::Percentile(q) => {
            let desc = if q.descending { " DESC" } else { "" };
            return format!(
                "percentile_cont({}) WITHIN GROUP (ORDER BY {c}{desc})",
                q.share()
            );
        }
        AggregateFn::ApproxPercentile(q) => {
            return format!("approx_percentile_cont({c}, {})", q.share());
        }
    };
    format!("{named}({c})")
}

fn aggregate(def: &TableDef, q: &StreamAggregate) -> String {
    let mut items = Vec::new();
    items.extend(q.by_entity.then(|| "entity".to_string()));
    items.extend(q.sample.map(|_| "ts".to_string()));
    items.extend(q.aggregates.iter().map(|a| item(def, a)));
    let more = q.filter.as_ref().map(|f| {
        let name = |c: usize| name(def, f.channels[c].0).to_string();
        predicate(&f.predicate, &name)
    });
    let mut sql = format!(
        "SELECT {} FROM {}{}",
        items.join(", "),
        def.name,
        conditions(&q.entities, q.range, more)
    );
    match q.sample {
        Some(sample) => {
            let interval = match sample.interval {
                Interval::Ms(ms) => format!("{ms} ms"),
                Interval::Months(n) => format!("{n} months"),
            };
            let fill = sample.fill.map_or(String::new(), |f| match f {
                BucketFill::Null => " FILL(NULL)".into(),
                BucketFill::Prev => " FILL(PREV)".into(),
                BucketFill::Linear => " FILL(LINEAR)".into(),
                BucketFill::Number(x) => format!(" FILL({x})"),
            });
            sql.push_str(&format!(" SAMPLE BY {interval}{fill}"));
        }
        None if q.by_entity => sql.push_str(" GROUP BY entity"),
        None => {}
    }
    sql
}

/// The question as a statement. Channels that only its condition names stand only there.
pub fn sql(def: &TableDef, question: &Question) -> String {
    let columns = |ids: &mut dyn Iterator<Item = ColumnId>| {
        let mut items = vec!["entity".to_string(), "ts".to_string()];
        items.extend(ids.map(|id| name(def, id).to_string()));
        items.join(", ")
    };
    match question {
        Question::Scan(q) => {
            let shown = columns(&mut q.channels[..q.output].iter().map(|c| c.column));
            let name = |c: usize| name(def, q.channels[c].column).to_string();
            let more = q.predicate.as_ref().map(|p| predicate(p, &name));
            let raw = if q.filled { "" } else { " RAW" };
            let limit = q.limit.map_or(String::new(), |n| format!(" LIMIT {n}"));
            let conditions = conditions(&q.entities, q.range, more);
            format!("SELECT {shown} FROM {}{raw}{conditions}{limit}", def.name)
        }
        Question::Latest(q) => {
            let range = TsRange {
                from: q.from,
                to: q.until,
            };
            format!(
                "SELECT {} FROM {}{} LATEST ON ts PARTITION BY entity",
                columns(&mut q.channels.iter().map(|c| c.column)),
                def.name,
                conditions(&q.entities, range, None)
            )
        }
        Question::Aggregate(q) => aggregate(def, q),
    }
}

/// Which columns stand before the cells of an answer, and the kinds of the cells.
fn shape(question: &Question) -> (bool, bool, Vec<Kind>) {
    match question {
        Question::Scan(q) => {
            let kinds = q.channels[..q.output].iter().map(|c| c.kind);
            (true, true, kinds.collect())
        }
        Question::Latest(q) => (true, true, q.channels.iter().map(|c| c.kind).collect()),
        Question::Aggregate(q) => {
            let kind = |a: &Aggregate| match (a.func, a.column) {
                (AggregateFn::Count, _) | (_, None) => Kind::F64,
                (_, Some((_, kind))) => kind,
            };
            let kinds = q.aggregates.iter().map(kind).collect();
            (q.by_entity, q.sample.is_some(), kinds)
        }
    }
}

fn cell(text: Option<&str>, kind: Kind) -> Result<Value, String> {
    match (text, kind) {
        (None, _) => Ok(Value::Null),
        (Some(text), Kind::Str) => Ok(Value::str(text)),
        (Some("t"), Kind::F64) => Ok(Value::F64(1.0)),
        (Some("f"), Kind::F64) => Ok(Value::F64(0.0)),
        (Some(text), Kind::F64) => {
            let x = text.parse().map_err(|_| format!("{text} is no number"));
            x.map(Value::F64)
        }
    }
}

/// The rows of an answer, by entity and then ts; rows of one (entity, ts) stay in their order.
pub fn answered(question: &Question, rows: &[SimpleQueryRow]) -> Result<Vec<Answered>, String> {
    let (has_entity, has_ts, kinds) = shape(question);
    let mut out = Vec::new();
    for row in rows {
        let mut at = 0..row.len();
        let mut next = || at.next().and_then(|i| row.get(i));
        let entity = has_entity.then(&mut next).flatten().unwrap_or_default();
        let ts = match has_ts.then(&mut next).flatten() {
            Some(text) => text.parse().map_err(|_| format!("{text} is no ts"))?,
            None => 0,
        };
        let cells = kinds.iter().map(|&kind| cell(next(), kind));
        out.push((entity.to_string(), ts, cells.collect::<Result<_, _>>()?));
    }
    out.sort_by(|a: &Answered, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    Ok(out)
}

/// The rows of one statement.
///
/// # Errors
/// The statement and what the server said.
pub async fn rows(client: &Client, sql: &str) -> Result<Vec<SimpleQueryRow>, String> {
    let messages = client.simple_query(sql).await.map_err(|e| {
        let e = e.as_db_error().map_or(e.to_string(), ToString::to_string);
        format!("{sql}: {e}")
    })?;
    let row = |m| match m {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}

/// Asks a server.
///
/// # Errors
/// As [`rows`]; and an answer that cannot be read.
pub async fn ask(
    client: &Client,
    def: &TableDef,
    question: &Question,
) -> Result<Vec<Answered>, String> {
    answered(question, &rows(client, &sql(def, question)).await?)
}
