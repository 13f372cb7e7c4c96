//! EXPLAIN: a plan as lines of text. Without ANALYZE only footers and lists of sources are looked at; with it
//! the statement is run, and its rows are counted instead of sent.

use super::rows::{open, row_limits};
use super::sort::Sorter;
use super::{Answer, Rows, Tag, columns, text};
use std::fmt::Write;
use std::rc::Rc;
use strandline_core::error::{Error, Result};
use strandline_core::ids::{ColumnId, TableId};
use strandline_core::io::Tasks;
use strandline_core::profile::ScanCounters;
use strandline_core::scan::{
    Aggregate, AggregateFn, BucketFill, CmpOp, Entities, FeedRange, KeyedColumn, KeyedFilter,
    KeyedScan, LatestScan, Predicate, ReadQuery, StreamAggregate, StreamScan, TsRange,
};
use strandline_core::schema::TableDef;
use strandline_core::time::{Interval, format_ms};
use strandline_core::value::Value;
use strandline_shard::api::Engine;
use strandline_sql::plan::{Plan, Shape, Source};
use strandline_sql::types::SqlType;

/// Entities, values of a list, and characters of a text that are shown.
const SHOWN: usize = 5;
const SHOWN_CHARS: usize = 60;

/// Carries out EXPLAIN.
pub async fn run(
    engine: &Rc<dyn Engine>,
    tasks: &Rc<dyn Tasks>,
    analyze: bool,
    plan: Plan,
) -> Result<Answer> {
    let mut out = Lines::default();
    match plan {
        Plan::Select { source, shape } => {
            select(engine, tasks, analyze, source, shape, &mut out).await?;
        }
        Plan::System(_) => {
            out.title("Catalog question".to_owned());
            out.line("reads lists in memory, no table of the user");
        }
        plan => write(engine, &plan, &mut out)?,
    }
    let columns = columns([("QUERY PLAN", SqlType::Text)]);
    let rows = out.0.into_iter().map(|l| vec![text(l)]).collect();
    Ok(Answer::rows(
        Rows::datums(columns, rows),
        Tag::Words("EXPLAIN"),
    ))
}

#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn title(&mut self, text: String) {
        self.0.push(text);
    }
    fn line(&mut self, text: impl AsRef<str>) {
        self.0.push(format!("  {}", text.as_ref()));
    }
}

/// Names of a plan's columns.
struct Names<'a>(Option<&'a TableDef>);

impl Names<'_> {
    fn table(&self, id: TableId) -> String {
        self.0
            .map_or_else(|| format!("table {id}"), |t| t.name.clone())
    }
    fn column(&self, id: ColumnId) -> String {
        if id == ColumnId::ENTITY {
            return "entity".to_owned();
        }
        if id == ColumnId::TS {
            return "ts".to_owned();
        }
        let known = self.0.and_then(|t| t.column_by_id(id));
        known.map_or_else(|| format!("column {id}"), |c| c.name.clone())
    }
}

async fn select(
    engine: &Rc<dyn Engine>,
    tasks: &Rc<dyn Tasks>,
    analyze: bool,
    source: Source,
    shape: Shape,
    out: &mut Lines,
) -> Result<()> {
    let catalog = engine.catalog();
    let (table, read) = match &source {
        Source::Stream(s) => (s.table, ReadQuery::Stream(s.clone())),
        Source::Latest(s) => (s.table, ReadQuery::Latest(s.clone())),
        Source::Aggregate(q) => (q.table, ReadQuery::Aggregate(q.clone())),
        Source::Keyed(s) => (s.table, ReadQuery::Keyed(s.clone())),
    };
    let def = catalog.table_by_id(table);
    let names = Names(def.map(|d| &**d));
    let planned = engine.explain(read).await?;
    match &source {
        Source::Stream(scan) => stream(scan, &names, out),
        Source::Latest(scan) => latest(scan, &names, planned.tails > 0, out),
        Source::Aggregate(query) => aggregate(query, &names, out),
        Source::Keyed(scan) => keyed(scan, &names, out),
    }
    shape_lines(&shape, out);
    let keyed = matches!(source, Source::Keyed(_));
    let all_shards = u64::from(engine.shards());
    if !analyze {
        counters(&planned, None, all_shards, out);
        return Ok(());
    }
    let begin = engine.monotonic_ns();
    let (rows, looked_at) = run_counting(engine, tasks, source, shape).await?;
    let took = engine.monotonic_ns().saturating_sub(begin);
    // Rows tables are read by keys: footers tell all there is to tell.
    let ran = (!keyed).then_some(&looked_at);
    counters(&planned, ran, all_shards, out);
    out.line(format!("Rows: {rows}"));
    out.line(format!("Execution Time: {:.3} ms", took as f64 / 1e6));
    Ok(())
}

/// Runs a SELECT to its end: how many rows it answers, and what was looked at.
async fn run_counting(
    engine: &Rc<dyn Engine>,
    tasks: &Rc<dyn Tasks>,
    source: Source,
    shape: Shape,
) -> Result<(u64, ScanCounters)> {
    let mut stream = open(engine, source).await?;
    let keep = shape.limit.map(|l| l.saturating_add(shape.offset));
    let mut sorter = (!shape.order.is_empty())
        .then(|| Sorter::new(shape.order.clone(), keep, engine.limits(), tasks));
    let mut rows = 0;
    while let Some(batch) = stream.next().await? {
        rows += batch.rows as u64;
        if let Some(sorter) = &mut sorter {
            sorter.push(batch).await?;
        }
    }
    if let Some(sorter) = &mut sorter {
        sorter.finish();
        while sorter.next().await.is_some() {}
    }
    Ok((row_limits(rows, &shape), stream.looked_at()))
}

fn stream(scan: &StreamScan, names: &Names<'_>, out: &mut Lines) {
    let mutable = names.0.is_some_and(|t| t.options.mutable);
    out.title(match (mutable, scan.filled) {
        (true, _) => format!(
            "Current state of {} (newest samples)",
            names.table(scan.table)
        ),
        (false, true) => format!("Scan of {} (filled rows)", names.table(scan.table)),
        (false, false) => format!("Scan of {} (stored rows)", names.table(scan.table)),
    });
    let channels: Vec<ColumnId> = scan.channels.iter().map(|c| c.column).collect();
    channel_line(&channels, names, out);
    range_lines(&scan.entities, scan.range, out);
    if let Some(p) = &scan.predicate {
        out.line(format!("Filter: {}", condition(p, &channels, names)));
    }
    if let Some(limit) = scan.limit {
        out.line(format!("Each shard stops after {limit} rows"));
    }
}

fn latest(scan: &LatestScan, names: &Names<'_>, tails: bool, out: &mut Lines) {
    let how = if tails || scan.until == i64::MAX {
        "newest samples, kept in memory"
    } else {
        "newest samples of a range"
    };
    out.title(format!(
        "Latest rows of {} ({how})",
        names.table(scan.table)
    ));
    let channels: Vec<ColumnId> = scan.channels.iter().map(|c| c.column).collect();
    channel_line(&channels, names, out);
    let range = TsRange {
        from: scan.from,
        to: scan.until,
    };
    range_lines(&scan.entities, range, out);
}

fn aggregate(query: &StreamAggregate, names: &Names<'_>, out: &mut Lines) {
    let mutable = names.0.is_some_and(|t| t.options.mutable);
    let of = if mutable {
        "current state"
    } else {
        "stored rows"
    };
    out.title(format!("Aggregate of {} ({of})", names.table(query.table)));
    let list: Vec<String> = (query.aggregates.iter())
        .map(|a| aggregate_text(a, names))
        .collect();
    out.line(format!("Aggregates: {}", list.join(", ")));
    let mut groups = Vec::new();
    if query.by_entity {
        groups.push("entity".to_owned());
    }
    if let Some(sample) = &query.sample {
        groups.push(match sample.interval {
            Interval::Ms(ms) => format!("every {ms} ms"),
            Interval::Months(1) => "every calendar month".to_owned(),
            Interval::Months(n) => format!("every {n} calendar months"),
        });
    }
    if !groups.is_empty() {
        out.line(format!("Group by: {}", groups.join(", ")));
    }
    match query.sample.and_then(|s| s.fill) {
        None => {}
        Some(BucketFill::Prev) => out.line("Fill: PREV"),
        Some(BucketFill::Null) => out.line("Fill: NULL"),
        Some(BucketFill::Linear) => out.line("Fill: LINEAR"),
        Some(BucketFill::Number(n)) => out.line(format!("Fill: {n}")),
    }
    range_lines(&query.entities, query.range, out);
    if let Some(f) = &query.filter {
        let channels: Vec<ColumnId> = f.channels.iter().map(|c| c.0).collect();
        out.line(format!(
            "Filter: {}",
            condition(&f.predicate, &channels, names)
        ));
    }
}

fn aggregate_text(a: &Aggregate, names: &Names<'_>) -> String {
    let column = (a.column).map_or_else(|| "*".to_owned(), |(id, _)| names.column(id));
    let name = match a.func {
        AggregateFn::Count => "count",
        AggregateFn::Sum => "sum",
        AggregateFn::Avg => "avg",
        AggregateFn::Min => "min",
        AggregateFn::Max => "max",
        AggregateFn::First => "first",
        AggregateFn::Last => "last",
        AggregateFn::StddevSamp => "stddev_samp",
        AggregateFn::StddevPop => "stddev_pop",
        AggregateFn::VarSamp => "var_samp",
        AggregateFn::VarPop => "var_pop",
        AggregateFn::Percentile(q) => {
            let down = if q.descending { " DESC" } else { "" };
            let share = q.share();
            return format!("percentile_cont({share}) WITHIN GROUP (ORDER BY {column}{down})");
        }
        AggregateFn::ApproxPercentile(q) => {
            return format!("approx_percentile_cont({column}, {})", q.share());
        }
    };
    format!("{name}({column})")
}

fn keyed(scan: &KeyedScan, names: &Names<'_>, out: &mut Lines) {
    let table = names.table(scan.table);
    out.title(match (&scan.feed, &scan.filter) {
        (Some(_), _) => format!("Feed of {table} (in order of x_rev, up to the watermark)"),
        (None, Some(KeyedFilter::XidEq(_))) => format!("Row of {table} by xid"),
        (None, None) if scan.count => format!("Count of {table} (from the footers)"),
        (None, _) => format!("Scan of {table} (by xid)"),
    });
    if scan.count {
        out.line("Aggregates: count(*)");
    } else {
        let list: Vec<String> = (scan.columns.iter())
            .map(|c| keyed_column(*c, names))
            .collect();
        out.line(format!("Columns: {}", list.join(", ")));
    }
    if let Some(feed) = &scan.feed {
        out.line(format!("Filter: {}", feed_text(feed)));
    }
    match &scan.filter {
        None => {}
        Some(KeyedFilter::XidEq(xid)) => out.line(format!("Filter: xid = '{xid}'")),
        Some(KeyedFilter::Compare { column, op, value }) => out.line(format!(
            "Filter: {} {} {}",
            names.column(*column),
            operator(*op),
            value_text(value)
        )),
        Some(KeyedFilter::IsNull { column, negated }) => out.line(format!(
            "Filter: {} IS {}NULL",
            names.column(*column),
            if *negated { "NOT " } else { "" }
        )),
        Some(KeyedFilter::Nothing) => out.line("Filter: nothing can match"),
    }
    if !scan.order.is_empty() {
        let keys: Vec<String> = (scan.order.iter())
            .map(|o| sort_text(&keyed_column(o.column, names), o.descending))
            .collect();
        out.line(format!("Sort: {}", keys.join(", ")));
    }
    limit_line(scan.limit, scan.offset, out);
}

fn feed_text(feed: &FeedRange) -> String {
    let mut parts = Vec::new();
    if feed.after_given {
        parts.push(format!("x_rev > {}", feed.after.0));
    }
    if feed.until.0 < u64::MAX {
        parts.push(format!("x_rev <= {}", feed.until.0));
    }
    if let Some(deleted) = feed.deleted {
        parts.push(format!("x_deleted = {deleted}"));
    }
    if parts.is_empty() {
        parts.push("every row, deleted ones too".to_owned());
    }
    parts.join(" AND ")
}

fn keyed_column(column: KeyedColumn, names: &Names<'_>) -> String {
    match column {
        KeyedColumn::Xid => "xid".to_owned(),
        KeyedColumn::Rev => "x_rev".to_owned(),
        KeyedColumn::Deleted => "x_deleted".to_owned(),
        KeyedColumn::User(id, _) => names.column(id),
    }
}

fn channel_line(channels: &[ColumnId], names: &Names<'_>, out: &mut Lines) {
    let list: Vec<String> = channels.iter().map(|&c| names.column(c)).collect();
    if list.is_empty() {
        out.line("Channels: any");
    } else {
        out.line(format!("Channels: {}", list.join(", ")));
    }
}

fn range_lines(entities: &Entities, range: TsRange, out: &mut Lines) {
    match entities {
        Entities::All => out.line("Entities: all"),
        Entities::In(list) if list.is_empty() => out.line("Entities: none"),
        Entities::In(list) => {
            let shown: Vec<String> = list.iter().take(SHOWN).map(|e| quoted(e)).collect();
            let more = list.len().saturating_sub(SHOWN);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            out.line(format!("Entities: {}{more}", shown.join(", ")));
        }
    }
    let from = (range.from > i64::MIN).then(|| format_ms(range.from));
    let to = (range.to < i64::MAX).then(|| format_ms(range.to));
    match (from, to) {
        _ if range.is_empty() => out.line("Time: nothing"),
        (None, None) => out.line("Time: all"),
        (Some(from), None) => out.line(format!("Time: from {from}")),
        (None, Some(to)) => out.line(format!("Time: to {to}")),
        (Some(from), Some(to)) => out.line(format!("Time: {from} to {to}")),
    }
}

fn shape_lines(shape: &Shape, out: &mut Lines) {
    if !shape.order.is_empty() {
        let name = |index: usize| {
            let of = |c: &&strandline_sql::plan::OutputColumn| matches!(c.source, strandline_sql::plan::OutputSource::Column(i) if i == index);
            let shown = shape.columns.iter().find(of);
            shown.map_or_else(
                || "a column that is not shown".to_owned(),
                |c| c.name.clone(),
            )
        };
        let keys: Vec<String> = (shape.order.iter())
            .map(|k| sort_text(&name(k.column), k.descending))
            .collect();
        out.line(format!("Sort: {}", keys.join(", ")));
    }
    limit_line(shape.limit, shape.offset, out);
}

fn limit_line(limit: Option<u64>, offset: u64, out: &mut Lines) {
    let mut line = limit.map(|n| format!("Limit: {n}")).unwrap_or_default();
    if offset > 0 {
        let gap = if line.is_empty() { "" } else { ", " };
        let _ = write!(line, "{gap}Offset: {offset}");
    }
    if !line.is_empty() {
        out.line(line);
    }
}

fn sort_text(name: &str, descending: bool) -> String {
    if descending {
        format!("{name} DESC")
    } else {
        name.to_owned()
    }
}

/// What is looked at, of how much: planned, or as it went.
fn counters(planned: &ScanCounters, ran: Option<&ScanCounters>, all_shards: u64, out: &mut Lines) {
    let c = ran.unwrap_or(planned);
    out.line(format!("Shards: {} of {all_shards}", planned.shards));
    if planned.tails > 0 {
        out.line(format!("Entities in memory: {}", planned.tails));
        return;
    }
    out.line(format!(
        "Segments: {} of {}",
        c.segments_visited, c.segments_total
    ));
    let mut blocks = format!("Blocks: {} of {}", c.blocks_visited, c.blocks_total);
    let mut parts = Vec::new();
    if c.blocks_from_statistics > 0 {
        parts.push(format!("{} by their statistics", c.blocks_from_statistics));
    }
    if c.blocks_ruled_out > 0 {
        parts.push(format!("{} ruled out by statistics", c.blocks_ruled_out));
    }
    if ran.is_some() {
        parts.push(format!("{} decoded", c.blocks_decoded));
    }
    if !parts.is_empty() {
        let _ = write!(blocks, " ({})", parts.join(", "));
    }
    out.line(blocks);
    out.line(format!("Sorted runs in memory: {}", c.runs));
    if ran.is_some() {
        if c.merged_stretches > 0 {
            out.line(format!(
                "Merged where sources overlap: {}",
                c.merged_stretches
            ));
        }
        out.line(format!("Rows read: {}", c.rows_read));
    }
}

fn write(engine: &Rc<dyn Engine>, plan: &Plan, out: &mut Lines) -> Result<()> {
    let catalog = engine.catalog();
    let name = |id: TableId| Names(catalog.table_by_id(id).map(|d| &**d)).table(id);
    match plan {
        Plan::InsertStream {
            table,
            batches,
            rows,
        } => {
            out.title(format!("Insert into {}", name(*table)));
            out.line(format!("Rows: {rows}"));
            out.line(format!("Shards: {} of {}", batches.len(), engine.shards()));
        }
        Plan::InsertRows { table, rows, .. } => {
            out.title(format!("Insert into {}", table.name));
            out.line(format!("Rows: {}", rows.len()));
        }
        Plan::UpdateRow {
            table,
            xid,
            expected,
            set,
            ..
        } => {
            out.title(format!("Update of {}", table.name));
            key_lines(xid.map(|x| x.to_string()), *expected, out);
            let names = Names(Some(table));
            let list: Vec<String> = set.iter().map(|s| names.column(s.0)).collect();
            out.line(format!("Sets: {}", list.join(", ")));
        }
        Plan::DeleteRow {
            table,
            xid,
            expected,
            ..
        } => {
            out.title(format!("Delete from {}", table.name));
            key_lines(xid.map(|x| x.to_string()), *expected, out);
        }
        Plan::DeleteEntity { table, entity } => {
            out.title(format!("Delete from {}", name(*table)));
            match entity {
                Some(entity) => out.line(format!("Filter: entity = {}", quoted(entity))),
                None => out.line("Filter: nothing can match"),
            }
        }
        _ => return Err(Error::internal("EXPLAIN of a plan that has no text")),
    }
    Ok(())
}

fn key_lines(xid: Option<String>, expected: Option<strandline_core::ids::Rev>, out: &mut Lines) {
    match (xid, expected) {
        (None, _) => out.line("Filter: nothing can match"),
        (Some(xid), None) => out.line(format!("Filter: xid = '{xid}'")),
        (Some(xid), Some(rev)) => {
            out.line(format!("Filter: xid = '{xid}' AND x_rev = {}", rev.0));
        }
    }
}

fn operator(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Eq => "=",
        CmpOp::Ne => "<>",
        CmpOp::Lt => "<",
        CmpOp::Le => "<=",
        CmpOp::Gt => ">",
        CmpOp::Ge => ">=",
    }
}

fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("'{}'", shown.replace('\'', "''"))
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::F64(x) => x.to_string(),
        Value::Str(s) => quoted(s),
    }
}

/// A condition as SQL. It nests no deeper than the statement did.
fn condition(p: &Predicate, channels: &[ColumnId], names: &Names<'_>) -> String {
    let name = |channel: &usize| {
        let id = channels.get(*channel);
        id.map_or_else(|| "?".to_owned(), |&id| names.column(id))
    };
    let list = |list: &[Predicate], word: &str, empty: &str| {
        let parts: Vec<String> = (list.iter())
            .map(|p| match p {
                Predicate::And(inner) | Predicate::Or(inner) if inner.len() > 1 => {
                    format!("({})", condition(p, channels, names))
                }
                p => condition(p, channels, names),
            })
            .collect();
        if parts.is_empty() {
            empty.to_owned()
        } else {
            parts.join(word)
        }
    };
    match p {
        Predicate::Compare { channel, op, value } => {
            format!("{} {} {}", name(channel), operator(*op), value_text(value))
        }
        Predicate::IsNull { channel, negated } => {
            let not = if *negated { "NOT " } else { "" };
            format!("{} IS {not}NULL", name(channel))
        }
        Predicate::In { channel, values } => {
            let shown: Vec<String> = values.iter().take(SHOWN).map(value_text).collect();
            let more = if values.len() > SHOWN { ", …" } else { "" };
            format!("{} IN ({}{more})", name(channel), shown.join(", "))
        }
        Predicate::Like { channel, pattern } => {
            let word = if pattern.folds() { "ILIKE" } else { "LIKE" };
            format!("{} {word} {}", name(channel), quoted(pattern.text()))
        }
        Predicate::Const(Some(b)) => b.to_string(),
        Predicate::Const(None) => "NULL".to_owned(),
        Predicate::And(all) => list(all, " AND ", "true"),
        Predicate::Or(any) => list(any, " OR ", "false"),
        Predicate::Not(inner) => format!("NOT ({})", condition(inner, channels, names)),
    }
}
