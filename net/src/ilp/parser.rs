//! Lines → batches. One pass over each line; nothing of a line is stored before all of it is known to be
//! good. The parser never waits: where it needs the engine (a new table, a new channel, a wider label) it
//! says so and stays before that line.

use super::bad::{BadLine, Checked, Reason, bad};
use super::buffer::{LineBuffer, too_long};
use super::fields::{fields, new_fields, new_tag, too_many_fields};
use super::label;
use super::number::whole_number;
use super::precision::Precision;
use super::table::{NONE, Series, SeriesCache, ShardWrite, Table};
use super::text::{self, Key, line_end, skip_spaces};
use hashbrown::HashTable;
use memchr::{memchr, memchr2};
use std::ops::Range;
use std::sync::Arc;
use strandline_core::limits::Limits;
use strandline_core::routing::hash64;
use strandline_core::schema::{Catalog, ColumnSpec, Family, Label, TableDef, is_reserved_table};

/// Lines of one [`Parser::step`]: well under 100 µs.
const STEP_LINES: usize = 128;
/// Rows after which a batch is handed over.
const BATCH_ROWS: usize = 65_536;
/// Bytes of lines after which a batch is handed over.
const BATCH_BYTES: usize = 4 << 20;
/// Tables that a quiet connection remembers.
const TABLES_AT_REST: usize = 32;
/// How often one line may ask the engine for something before it is given up.
const MAX_ASKS: u32 = 3;

/// Why [`Parser::step`] returned.
#[derive(Debug)]
pub enum Step {
    /// Every whole line is parsed: read more.
    Drained,
    /// There are more lines; others may run first.
    More,
    /// A batch is large enough: take it, then go on.
    Full,
    /// The engine has to make a table, channels or wider labels: then [`Parser::install`] the answer, or
    /// [`Parser::refuse`] the line.
    Needs {
        /// Table by stored name.
        table: String,
        /// Channels that are missing or too narrow.
        columns: Vec<ColumnSpec>,
    },
}

/// What a listener is told about its lines.
#[derive(Clone, Debug)]
pub struct IlpOptions {
    /// The tag that names the entity, where the table has no `ENTITY TAG` of its own.
    pub entity_tag: String,
    /// Tags other than the entity's become TEXT channels. Else they are stored only where the table declares
    /// a TEXT channel of their name.
    pub store_tags: bool,
    /// The unit of timestamps.
    pub precision: Precision,
}

impl Default for IlpOptions {
    fn default() -> Self {
        IlpOptions {
            entity_tag: "entity".into(),
            store_tags: false,
            precision: Precision::default(),
        }
    }
}

/// The parser of one connection.
#[derive(Debug)]
pub struct Parser {
    cx: Context,
    /// The engine's catalog as it was seen last.
    seen: Arc<Catalog>,
    /// The same, with the answers that came since.
    catalog: Arc<Catalog>,
    tables: Vec<Table>,
    by_name: HashTable<u32>,
    series: SeriesCache,
    last_series: u32,
    line: Scratch,
    /// Rows of tables that have changed meanwhile.
    outbox: Vec<ShardWrite>,
    rows: usize,
    bytes: usize,
    asks: u32,
    refusal: Option<BadLine>,
    lines: u64,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub limits: Arc<Limits>,
    options: IlpOptions,
    shards: u16,
    batch_bytes: usize,
}

/// A line while it is read.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    key: Key,
    pub cells: Vec<Parsed>,
    pub missing: Vec<ColumnSpec>,
    pub unescaped: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    pub field: u32,
    pub value: ParsedValue,
}

#[derive(Clone, Debug)]
pub(crate) enum ParsedValue {
    Number(f64),
    /// A range of the region.
    Text(Range<usize>),
    /// A range of `Scratch::unescaped`.
    Unescaped(Range<usize>),
}

enum Line {
    Row {
        end: usize,
    },
    Empty {
        end: usize,
    },
    Needs {
        table: String,
        columns: Vec<ColumnSpec>,
    },
    Bad(BadLine),
    Open,
}

/// Where the row of a line goes.
enum Target {
    Series(u32),
    /// A table that is there and lacks a channel for a tag.
    Incomplete(u32),
    NewTable(String),
}

impl Parser {
    /// For one connection. `shards` is the engine's.
    pub fn new(
        limits: Arc<Limits>,
        options: IlpOptions,
        shards: u16,
        catalog: Arc<Catalog>,
    ) -> Self {
        let batch_bytes = BATCH_BYTES.min(limits.ilp_in_flight_bytes as usize / 4);
        Parser {
            cx: Context {
                limits,
                options,
                shards,
                batch_bytes,
            },
            seen: catalog.clone(),
            catalog,
            tables: Vec::new(),
            by_name: HashTable::new(),
            series: SeriesCache::default(),
            last_series: NONE,
            line: Scratch::default(),
            outbox: Vec::new(),
            rows: 0,
            bytes: 0,
            asks: 0,
            refusal: None,
            lines: 0,
        }
    }

    /// Rows that are parsed and not taken yet.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of lines that are parsed and not taken yet.
    pub fn gathered_bytes(&self) -> usize {
        self.bytes
    }

    /// Remembers no more than its share among so many streams.
    pub(crate) fn bound(&mut self, streams: u64) {
        self.series.bound(streams);
    }

    /// Gives memory back while there are no rows: what is remembered of tables only makes the next line
    /// cheaper.
    pub(crate) fn rest(&mut self) {
        if self.tables.len() > TABLES_AT_REST {
            self.forget();
        }
        self.tables.iter_mut().for_each(Table::rest);
    }

    /// Lines that have ended, counted as an editor counts them: a string may run over some.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Takes the parsed rows, in the order in which they have to be written.
    pub fn take(&mut self) -> Vec<ShardWrite> {
        let mut out = std::mem::take(&mut self.outbox);
        self.tables.iter_mut().for_each(|t| t.take(&mut out));
        self.rows = 0;
        self.bytes = 0;
        out
    }

    /// Takes note of the tables as they are now.
    pub fn sync(&mut self, catalog: &Arc<Catalog>) {
        if Arc::ptr_eq(catalog, &self.seen) {
            return;
        }
        self.seen = catalog.clone();
        self.catalog = catalog.clone();
        let same = self.tables.iter().all(|t| {
            catalog
                .table(&t.def.name)
                .is_some_and(|now| Arc::ptr_eq(now, &t.def) || **now == *t.def)
        });
        if !same {
            self.forget();
        }
    }

    /// The engine's answer to [`Step::Needs`].
    pub fn install(&mut self, def: Arc<TableDef>) {
        if self.tables.iter().any(|t| t.def.name == def.name) {
            self.forget();
        }
        let mut catalog = (*self.catalog).clone();
        catalog.put(def.clone());
        self.catalog = Arc::new(catalog);
        self.add_table(def);
    }

    /// The engine's refusal of [`Step::Needs`]: the line is bad.
    pub fn refuse(&mut self, message: impl std::fmt::Display) {
        self.refusal = Some(bad(Reason::Refused, message));
    }

    /// Forgets tables and series, not the rows.
    fn forget(&mut self) {
        for table in &mut self.tables {
            table.take(&mut self.outbox);
        }
        self.tables.clear();
        self.by_name.clear();
        self.series.clear();
        self.last_series = NONE;
    }

    fn add_table(&mut self, def: Arc<TableDef>) -> u32 {
        let number = self.tables.len() as u32;
        let hash = hash64(def.name.as_bytes());
        self.tables.push(Table::new(def, self.cx.shards));
        let tables = &self.tables;
        self.by_name.insert_unique(hash, number, |&t| {
            hash64(tables[t as usize].def.name.as_bytes())
        });
        number
    }

    /// Parses some of the lines that have come. `now_ms` stamps lines without a timestamp; `report` gets
    /// each bad line with its bytes.
    pub fn step(
        &mut self,
        input: &mut LineBuffer,
        now_ms: i64,
        report: &mut dyn FnMut(&BadLine, &[u8]),
    ) -> Step {
        for _ in 0..STEP_LINES {
            if self.rows >= BATCH_ROWS || self.bytes >= self.cx.batch_bytes {
                return Step::Full;
            }
            let (region, start) = (input.region(), input.start());
            if start >= region.len() {
                let lines = &mut self.lines;
                input.drop_long_line(&mut |mut e, line| {
                    *lines += 1;
                    e.line = *lines;
                    report(&e, line);
                });
                return Step::Drained;
            }
            let outcome = self.parse(region, start, now_ms, input.is_clean(), input.line_bytes());
            let end = match outcome {
                Line::Row { end } => {
                    self.rows += 1;
                    self.bytes += end - start;
                    end
                }
                Line::Empty { end } => end,
                Line::Needs { table, columns } => {
                    if let Some(error) = self.refusal.take() {
                        self.bad(region, start, input.line_bytes(), error, report)
                    } else if self.asks >= MAX_ASKS {
                        let error = bad(
                            Reason::Refused,
                            format_args!(
                                "the channels of table {table} keep changing under the line"
                            ),
                        );
                        self.bad(region, start, input.line_bytes(), error, report)
                    } else {
                        self.asks += 1;
                        return Step::Needs { table, columns };
                    }
                }
                Line::Bad(error) => self.bad(region, start, input.line_bytes(), error, report),
                Line::Open if input.can_grow() => return Step::Drained,
                Line::Open => {
                    let error = bad(Reason::Syntax, "a string has no closing quote");
                    self.bad(region, start, input.line_bytes(), error, report)
                }
            };
            self.asks = 0;
            self.refusal = None;
            self.lines += 1;
            input.advance(end);
        }
        Step::More
    }

    /// A bad line ends at its first newline, also where a string seemed to go on behind it.
    #[cold]
    fn bad(
        &mut self,
        region: &[u8],
        start: usize,
        line_bytes: usize,
        mut error: BadLine,
        report: &mut dyn FnMut(&BadLine, &[u8]),
    ) -> usize {
        let length = memchr(b'\n', &region[start..]).unwrap_or(region.len() - start - 1);
        if length >= line_bytes {
            error = too_long(line_bytes);
        }
        error.line = self.lines + 1;
        report(&error, &region[start..start + length]);
        start + length + 1
    }

    fn parse(
        &mut self,
        region: &[u8],
        start: usize,
        now_ms: i64,
        clean: bool,
        line_bytes: usize,
    ) -> Line {
        let mut at = start;
        loop {
            match region[at] {
                b' ' | b'\t' => at += 1,
                b'\r' if region.get(at + 1) == Some(&b'\n') => at += 1,
                b'\n' => return end_of_nothing(start, at, line_bytes),
                b'#' => {
                    let length = memchr(b'\n', &region[at..]).unwrap_or_default();
                    return end_of_nothing(start, at + length, line_bytes);
                }
                0xEF if region[at..].starts_with(b"\xEF\xBB\xBF") => at += 3,
                _ => break,
            }
        }
        let parsed = self.parse_line(region, at, now_ms);
        let (target, ts, end) = match parsed {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Line::Open,
            Err(error) => {
                // A line that is not text is bad as such, whatever else is wrong with it.
                let length = memchr(b'\n', &region[start..]).unwrap_or_default();
                if !clean && !is_text(&region[start..start + length]) {
                    return Line::Bad(text::not_text());
                }
                return Line::Bad(error);
            }
        };
        if end - start > line_bytes {
            return Line::Bad(too_long(line_bytes));
        }
        if !clean && !is_text(&region[start..end]) {
            return Line::Bad(text::not_text());
        }
        let table = match target {
            Target::Series(series) if self.line.missing.is_empty() => {
                self.commit(region, series, ts);
                return Line::Row { end };
            }
            Target::Series(series) => self.name_of(self.series.list[series as usize].table),
            Target::Incomplete(table) => self.name_of(table),
            Target::NewTable(table) => table,
        };
        Line::Needs {
            table,
            columns: std::mem::take(&mut self.line.missing),
        }
    }

    fn name_of(&self, table: u32) -> String {
        self.tables[table as usize].def.name.clone()
    }

    /// Reads a line to its end and checks it. `None`: a string in it is still open.
    fn parse_line(
        &mut self,
        region: &[u8],
        start: usize,
        now_ms: i64,
    ) -> Checked<Option<(Target, i64, usize)>> {
        self.line.cells.clear();
        self.line.missing.clear();
        self.line.unescaped.clear();
        let (target, mut at) = self.target(region, start)?;
        at = skip_spaces(region, at);
        let (cx, line) = (&self.cx, &mut self.line);
        let known = match &target {
            Target::Series(series) => self.series.list[*series as usize].table,
            Target::Incomplete(table) => *table,
            Target::NewTable(_) => NONE,
        };
        let after = match (self.tables.get_mut(known as usize), &target) {
            (None, Target::NewTable(name)) => new_fields(cx, name, line, region, at)?,
            (Some(table), _) => fields(cx, table, line, region, at)?,
            (None, _) => None,
        };
        let Some(after) = after else {
            return Ok(None);
        };
        let (ts, end) = timestamp(region, after, now_ms, cx.options.precision)?;
        Ok(Some((target, ts, end)))
    }

    /// Reads table and tags: where the row goes, and where its fields begin.
    #[inline]
    fn target(&mut self, region: &[u8], start: usize) -> Checked<(Target, usize)> {
        let line = &region[start..];
        let guess = self
            .series
            .list
            .get(self.last_series as usize)
            .map_or(NONE, |s| s.next);
        if let Some(length) = self.series.prefix_of(guess, line) {
            self.last_series = guess;
            return Ok((Target::Series(guess), start + length));
        }
        let (target, end) = self.target_by_search(region, start)?;
        if let Target::Series(now) = target {
            if let Some(last) = self.series.list.get_mut(self.last_series as usize) {
                last.next = now;
            }
            self.last_series = now;
        }
        Ok((target, end))
    }

    fn target_by_search(&mut self, region: &[u8], start: usize) -> Checked<(Target, usize)> {
        // The key ends at the first space that no backslash stands before.
        let mut at = start;
        while let Some(found) = memchr2(b' ', b'\n', &region[at..]) {
            at += found;
            if region[at] == b'\n' {
                break;
            }
            if at > start && region[at - 1] != b'\\' {
                match self.series.find(&region[start..=at]) {
                    Some(series) => return Ok((Target::Series(series), at + 1)),
                    None => break,
                }
            }
            at += 1;
        }
        let mut key = std::mem::take(&mut self.line.key);
        let target = text::key(region, start, &mut key)
            .and_then(|()| self.target_of_key(region, start, &key));
        let end = key.end;
        self.line.key = key;
        Ok((target?, end))
    }

    fn target_of_key(&mut self, region: &[u8], start: usize, key: &Key) -> Checked<Target> {
        let name = text::unescape(&region[key.table.clone()], text::TABLE_ESCAPES);
        let name = text::utf8(&name)?;
        check_name(&self.cx, "table", name)?;
        let found = self
            .by_name
            .find(hash64(name.as_bytes()), |&t| {
                self.tables[t as usize].def.name == name
            })
            .copied();
        let found = match found {
            Some(table) => Some(table),
            None => match self.catalog.table(name) {
                Some(def) if def.family == Family::Timeseries => Some(self.add_table(def.clone())),
                Some(def) => {
                    return Err(bad(
                        Reason::Family,
                        format_args!(
                            "{name} is a {} table; line protocol writes timeseries tables only: use INSERT",
                            def.family.name()
                        ),
                    ));
                }
                None if is_reserved_table(name) => {
                    return Err(bad(
                        Reason::Reserved,
                        format_args!(
                            "{name} cannot be a table: names that begin with pg_ or $ are the system's"
                        ),
                    ));
                }
                None => None,
            },
        };
        let def = found.map(|t| self.tables[t as usize].def.clone());
        let wanted = def
            .as_ref()
            .and_then(|d| d.options.entity_tag.as_ref())
            .unwrap_or(&self.cx.options.entity_tag);
        let uuid = def.as_ref().is_some_and(|d| d.entity_uuid);
        if self.cx.options.store_tags && key.tags.len() as u64 > self.cx.limits.ilp_fields {
            return Err(too_many_fields(&self.cx));
        }
        let entity = self.entity(region, key, name, wanted, uuid)?;
        let (cx, line) = (&self.cx, &mut self.line);
        let Some(number) = found else {
            for (tag, value) in &key.tags {
                let tag = text::unescape(&region[tag.clone()], text::NAME_ESCAPES);
                if cx.options.store_tags && *tag != *wanted.as_bytes() {
                    new_tag(cx, name, line, text::utf8(&tag)?, &region[value.clone()])?;
                }
            }
            return Ok(Target::NewTable(name.to_owned()));
        };
        let table = &mut self.tables[number as usize];
        let mut series = Series::new(number, entity, cx.shards);
        let mut tags = Vec::new();
        for (tag, value) in &key.tags {
            let tag_name = text::unescape(&region[tag.clone()], text::NAME_ESCAPES);
            if *tag_name == *wanted.as_bytes() {
                continue;
            }
            let columns = &table.def.columns;
            let column = columns.iter().position(|c| {
                c.name.as_bytes() == &*tag_name
                    && (cx.options.store_tags
                        || c.declared && matches!(c.label, Label::Text { .. }))
            });
            let Some(column) = column else {
                if cx.options.store_tags {
                    let tag_name = text::utf8(&tag_name)?;
                    new_tag(cx, name, line, tag_name, &region[value.clone()])?;
                }
                continue;
            };
            let value = text::unescape(&region[value.clone()], text::NAME_ESCAPES);
            let value = text::utf8(&value)?;
            let text_bytes = cx.limits.text_bytes;
            label::text(&table.def, &columns[column], value, text_bytes)?;
            let raw = &region[tag.start..=tag.end];
            let field = table.find(raw).unwrap_or_else(|| table.add(raw, column));
            tags.push((field, value.into()));
        }
        if !line.missing.is_empty() {
            // Remembered without them it would go on without them.
            return Ok(Target::Incomplete(number));
        }
        series.tags = tags.into();
        let series = self.series.add(&region[start..key.end], series);
        Ok(Target::Series(series))
    }

    fn entity(
        &self,
        region: &[u8],
        key: &Key,
        table: &str,
        wanted: &str,
        uuid: bool,
    ) -> Checked<Box<str>> {
        let mut tags = key.tags.iter().filter(|(tag, _)| {
            *text::unescape(&region[tag.clone()], text::NAME_ESCAPES) == *wanted.as_bytes()
        });
        let Some((_, value)) = tags.next() else {
            return Err(bad(
                Reason::Entity,
                format_args!("a line for {table} has no tag {wanted}, which names the entity"),
            ));
        };
        if tags.next().is_some() {
            return Err(bad(
                Reason::Entity,
                format_args!("a line for {table} has the tag {wanted} twice"),
            ));
        }
        let entity = text::unescape(&region[value.clone()], text::NAME_ESCAPES);
        let entity = text::utf8(&entity)?;
        let limit = self.cx.limits.entity_bytes;
        if entity.len() as u64 > limit {
            return Err(bad(
                Reason::Entity,
                format_args!(
                    "an entity of {} bytes for {table}: over the limit entity_bytes = {limit}",
                    entity.len()
                ),
            ));
        }
        if !uuid {
            return Ok(entity.into());
        }
        text::normalise_uuid(entity).map(Into::into).ok_or_else(|| {
            bad(
                Reason::Entity,
                format_args!(
                    "entity '{}' is not a UUID, which {table} asks for",
                    super::bad::excerpt(entity.as_bytes(), 60)
                ),
            )
        })
    }

    /// Puts the row of a good line into its batch.
    fn commit(&mut self, region: &[u8], series: u32, ts: i64) {
        let series = &mut self.series.list[series as usize];
        let table = &mut self.tables[series.table as usize];
        let shard = series.shard;
        let mut row = table.begin_row(shard, &mut series.number, &series.entity, series.hash, ts);
        for (field, value) in &series.tags {
            row.text(*field, value);
        }
        for cell in &self.line.cells {
            let text = match &cell.value {
                ParsedValue::Number(value) => {
                    row.number(cell.field, *value);
                    continue;
                }
                // The line was found to be UTF-8 before, and a quote cuts no character.
                ParsedValue::Text(range) => {
                    std::str::from_utf8(&region[range.clone()]).unwrap_or_default()
                }
                ParsedValue::Unescaped(range) => &self.line.unescaped[range.clone()],
            };
            self.lines += memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
            row.text(cell.field, text);
        }
    }
}

fn end_of_nothing(start: usize, newline: usize, line_bytes: usize) -> Line {
    if newline + 1 - start > line_bytes {
        return Line::Bad(too_long(line_bytes));
    }
    Line::Empty { end: newline + 1 }
}

fn is_text(line: &[u8]) -> bool {
    memchr(0, line).is_none() && std::str::from_utf8(line).is_ok()
}

pub(crate) fn check_name(cx: &Context, what: &str, name: &str) -> Checked<()> {
    let limit = cx.limits.name_bytes;
    if name.len() as u64 > limit {
        return Err(bad(
            Reason::Name,
            format_args!(
                "a {what} name of {} bytes: over the limit name_bytes = {limit}",
                name.len()
            ),
        ));
    }
    Ok(())
}

/// Reads the timestamp behind the fields, and the end of the line.
#[inline]
fn timestamp(
    region: &[u8],
    after: usize,
    now_ms: i64,
    precision: Precision,
) -> Checked<(i64, usize)> {
    if let Some(end) = line_end(region, after) {
        return Ok((now_ms, end));
    }
    let at = skip_spaces(region, after);
    if let Some(end) = line_end(region, at) {
        return Ok((now_ms, end));
    }
    whole_number(region, at)
        .and_then(|(time, after)| {
            let end = line_end(region, skip_spaces(region, after))?;
            Some((precision.to_ms(time)?, end))
        })
        .ok_or_else(|| {
            let (token, _) = text::value_token(region, at);
            bad(
                Reason::Timestamp,
                format_args!(
                    "'{}' is no timestamp in whole {} from 1970 to 2262",
                    super::bad::excerpt(token, 40),
                    precision.name()
                ),
            )
        })
}

#[cfg(test)]
impl Parser {
    /// Series that the next lines may find again.
    pub(crate) fn remembered_series(&self) -> usize {
        self.series.list.len()
    }
}
