//! INSERT. Into a timeseries table: rows go straight from the text into the batch of their shard. Into a
//! rows table: a list of values per row.

use super::value::{self, Scalar};
use super::{Binder, Params};
use crate::ast::{CellKind, CellRef, Insert, Name};
use crate::lexer;
use crate::plan::Plan;
use crate::time;
use crate::types::{Datum, SqlType};
use hashbrown::HashSet;
use std::sync::Arc;
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::ids::ShardId;
use strandline_core::routing;
use strandline_core::schema::{ColumnDef, Family, Label, TableDef};
use strandline_core::stream::batch::StreamBatchBuilder;
use strandline_core::time::TIMESTAMP_END_MS;
use strandline_core::value::Value;
use strandline_core::xid::parse_hex_128;

/// Where a cell of a timeseries INSERT goes.
#[derive(Clone, Copy)]
enum Target<'a> {
    Entity,
    /// ts, or `$timestamp` when true.
    Ts(bool),
    Channel(&'a ColumnDef),
}

impl Target<'_> {
    fn ty(self) -> SqlType {
        match self {
            Target::Entity => SqlType::Text,
            Target::Ts(false) => SqlType::Int8,
            Target::Ts(true) => SqlType::Timestamptz,
            Target::Channel(c) => SqlType::of(c.label),
        }
    }
}

impl<'a> Binder<'a> {
    pub(super) fn insert(&self, insert: &Insert) -> Result<Plan> {
        let def = self.table(&insert.table)?;
        if let Some(at) = insert.on_conflict {
            let hint = match def.family {
                Family::Rows => {
                    "INSERT always makes a new row; UPDATE … WHERE xid = '…' AND x_rev = n writes an old one"
                }
                Family::Timeseries if def.options.mutable => {
                    "an INSERT always changes the state of its entity: the later value of each channel counts"
                }
                Family::Timeseries if def.options.dedup => {
                    "WITH (DEDUP) the later row of the same entity and ts counts"
                }
                Family::Timeseries => "timeseries tables are append-only: nothing conflicts",
            };
            return Err(self
                .unsupported(
                    at,
                    format!(
                        "ON CONFLICT is not possible on the {} table \"{}\"",
                        def.family.name(),
                        def.name
                    ),
                )
                .hint(hint));
        }
        match def.family {
            Family::Timeseries => self.insert_stream(def, insert),
            Family::Rows => self.insert_rows(def, insert),
        }
    }

    /// Names of an INSERT list must differ.
    fn check_distinct(&self, columns: &[Name]) -> Result<()> {
        let mut seen = HashSet::with_capacity(columns.len());
        for c in columns {
            if !seen.insert(c.text.as_str()) {
                return Err(self.error(
                    SqlState::DuplicateColumn,
                    c.at,
                    format!("column \"{}\" is named twice", c.text),
                ));
            }
        }
        Ok(())
    }

    /// How many columns a row without an INSERT list fills: as many as the rows have cells.
    fn width(&self, insert: &Insert, most: usize) -> usize {
        let first = insert.row_ends.first().copied().unwrap_or(0) as usize;
        first.min(most)
    }

    fn check_width(&self, insert: &Insert, row: &[CellRef], width: usize) -> Result<()> {
        if row.len() == width {
            return Ok(());
        }
        let (at, what) = if row.len() > width {
            (
                self.cell_at(insert, row[width]),
                "INSERT has more expressions than target columns",
            )
        } else {
            (
                row.last()
                    .map_or(insert.table.at, |c| self.cell_at(insert, *c)),
                "INSERT has more target columns than expressions",
            )
        };
        Err(self.error(SqlState::SyntaxError, at, what))
    }

    fn cell_at(&self, insert: &Insert, cell: CellRef) -> u32 {
        match cell.kind {
            CellKind::Param => cell.end,
            CellKind::Expr => insert
                .exprs
                .get(cell.start as usize)
                .map_or(insert.table.at, |e| e.at),
            _ => cell.start,
        }
    }

    /// Notes the types of all parameters and checks nothing else: for Describe.
    fn infer_cells(&self, insert: &Insert, types: &[SqlType]) -> Result<()> {
        let mut start = 0;
        for end in &insert.row_ends {
            let row = &insert.cells[start..*end as usize];
            self.check_width(insert, row, types.len())?;
            for (cell, ty) in row.iter().zip(types) {
                match cell.kind {
                    CellKind::Param => {
                        self.param(cell.start as usize, *ty);
                    }
                    CellKind::Expr => {
                        self.constant(&insert.exprs[cell.start as usize], *ty)?;
                    }
                    _ => {}
                }
            }
            start = *end as usize;
        }
        Ok(())
    }

    /// A cell, borrowed from the text or the parameters where it can be; `held` keeps what was computed.
    fn cell<'s>(
        &'s self,
        insert: &Insert,
        cell: CellRef,
        ty: SqlType,
        held: &'s mut Datum,
    ) -> Result<Scalar<'s>> {
        let raw = |c: CellRef| &self.text[c.start as usize..c.end as usize];
        Ok(match cell.kind {
            CellKind::Null => Scalar::Null,
            CellKind::True => Scalar::Bool(true),
            CellKind::False => Scalar::Bool(false),
            CellKind::Int => match raw(cell).parse::<i64>() {
                Ok(i) => Scalar::Int(i),
                Err(_) => Scalar::Float(fast_float2::parse(raw(cell)).unwrap_or(f64::INFINITY)),
            },
            CellKind::Decimal => {
                Scalar::Float(fast_float2::parse(raw(cell)).unwrap_or(f64::INFINITY))
            }
            CellKind::Str => {
                let quoted = raw(cell);
                Scalar::Text(quoted.get(1..quoted.len() - 1).unwrap_or_default(), true)
            }
            CellKind::Time => Scalar::Timestamp(
                time::parse_iso(raw(cell))
                    .map_err(|e| e.error(raw(cell)).at(self.position(cell.start)))?,
            ),
            CellKind::Param => match &self.params {
                Params::Values(values) => values
                    .get(cell.start as usize)
                    .map_or(Scalar::Null, Scalar::from),
                Params::Infer(_) => {
                    *held = self.param(cell.start as usize, ty);
                    Scalar::from(&*held)
                }
            },
            CellKind::Expr => {
                let e = insert
                    .exprs
                    .get(cell.start as usize)
                    .ok_or_else(|| Error::internal("a cell without its expression"))?;
                *held = self.constant(e, ty)?;
                Scalar::from(&*held)
            }
        })
    }

    /// Each row that names one long parameter has its own copy: together they may not be longer than a
    /// statement that spells them out.
    fn check_text(&self, bytes: usize) -> Result<()> {
        if bytes as u64 > self.cx.limits.statement_bytes {
            return Err(self.cx.limits.exceeded(
                "statement_bytes",
                SqlState::ProgramLimitExceeded,
                "the texts of the rows are too long together",
            ));
        }
        Ok(())
    }

    fn place(&self, def: &TableDef, column: &str) -> String {
        format!("column \"{column}\" of table \"{}\"", def.name)
    }

    fn insert_stream(&self, def: &'a TableDef, insert: &Insert) -> Result<Plan> {
        if let Some(r) = &insert.returning {
            return Err(self.wrong_family(
                def,
                r.at,
                "INSERT … RETURNING",
                "rows tables return the ids they mint; an observation has none",
            ));
        }
        let targets = self.stream_targets(def, insert)?;
        let required = |wanted: fn(&Target<'_>) -> bool, name: &str| {
            targets.iter().position(wanted).ok_or_else(|| {
                self.error(
                    SqlState::NotNullViolation,
                    insert.table.at,
                    format!("INSERT into table \"{}\" must name {name}", def.name),
                )
                .hint("INSERT INTO t (entity, ts, …)")
            })
        };
        let entity_index = required(|t| matches!(t, Target::Entity), "entity")?;
        let ts_index = required(|t| matches!(t, Target::Ts(_)), "ts")?;
        if self.describing() {
            let types: Vec<SqlType> = targets.iter().map(|t| t.ty()).collect();
            self.infer_cells(insert, &types)?;
            return Ok(Plan::InsertStream {
                table: def.id,
                batches: Vec::new(),
                rows: 0,
            });
        }
        let mut builders: Vec<Option<Builder>> = Vec::new();
        builders.resize_with(usize::from(self.cx.shards.max(1)), || None);
        let mut text_bytes = 0;
        let mut start = 0;
        for (n, end) in insert.row_ends.iter().enumerate() {
            let row = &insert.cells[start..*end as usize];
            start = *end as usize;
            self.check_width(insert, row, targets.len())?;
            let mut held = Datum::Null;
            let ts = self.row_ts(def, insert, row[ts_index], targets[ts_index].ty())?;
            let value = self.cell(insert, row[entity_index], SqlType::Text, &mut held)?;
            let at = self.cell_at(insert, row[entity_index]);
            let mut uuid = String::new();
            let entity = self.entity(def, value, at, &mut uuid)?;
            let hash = routing::hash64(entity.as_bytes());
            let shard = routing::shard_of_hash(hash, self.cx.shards.max(1));
            let slot = builders
                .get_mut(usize::from(shard.0))
                .ok_or_else(|| Error::internal("a row routed to no shard"))?;
            let builder = slot.get_or_insert_with(|| Builder::new(&targets));
            builder.batch.begin_row(entity, hash, ts);
            let mut channels = 0;
            let mut held = Datum::Null;
            for (i, cell) in row.iter().enumerate() {
                let Target::Channel(column) = targets[i] else {
                    continue;
                };
                if cell.kind == CellKind::Null {
                    continue;
                }
                let value = self.cell(insert, *cell, targets[i].ty(), &mut held)?;
                let misfit = |m: value::Misfit| {
                    m.error(
                        value,
                        column.label.name(),
                        &self.place(def, &column.name),
                        self.cx.limits,
                    )
                    .at(self.position(self.cell_at(insert, *cell)))
                };
                let put = match column.label {
                    Label::Text { max_chars } => value::text(value, max_chars, self.cx.limits)
                        .map_err(misfit)?
                        .map(|t| {
                            text_bytes += t.len();
                            self.check_text(text_bytes)?;
                            builder.batch.push_str(builder.slots[i], t);
                            Ok::<_, Error>(())
                        })
                        .transpose()?,
                    label => value::number(value, label, true, self.cx.now_ms)
                        .map_err(misfit)?
                        .map(|v| builder.batch.push_f64(builder.slots[i], v)),
                };
                channels += usize::from(put.is_some());
            }
            if channels == 0 {
                return Err(self
                    .error(
                        SqlState::NotNullViolation,
                        row.first()
                            .map_or(insert.table.at, |c| self.cell_at(insert, *c)),
                        format!("row {} for table \"{}\" has no channel", n + 1, def.name),
                    )
                    .hint("an observation needs a value for at least one channel"));
            }
        }
        let batches = builders
            .into_iter()
            .enumerate()
            .filter_map(|(i, b)| b.map(|mut b| (ShardId(i as u16), b.batch.finish())))
            .collect();
        Ok(Plan::InsertStream {
            table: def.id,
            batches,
            rows: insert.row_ends.len() as u64,
        })
    }

    fn stream_targets(&self, def: &'a TableDef, insert: &Insert) -> Result<Vec<Target<'a>>> {
        let Some(columns) = &insert.columns else {
            let all = [Target::Entity, Target::Ts(false)]
                .into_iter()
                .chain(def.columns.iter().map(Target::Channel));
            let width = self.width(insert, def.columns.len() + 2);
            return Ok(all.take(width).collect());
        };
        self.check_distinct(columns)?;
        let mut time_axis = None;
        let mut targets = Vec::with_capacity(columns.len());
        for c in columns {
            targets.push(match c.text.as_str() {
                "entity" => Target::Entity,
                "ts" | "$timestamp" => {
                    if let Some(other) = time_axis.replace(&c.text) {
                        return Err(self.error(
                            SqlState::DuplicateColumn,
                            c.at,
                            format!("\"{other}\" and \"{}\" are the same time axis", c.text),
                        ));
                    }
                    Target::Ts(c.text != "ts")
                }
                name => Target::Channel(
                    def.column(name)
                        .ok_or_else(|| self.unknown_column(def, c))?,
                ),
            });
        }
        Ok(targets)
    }

    fn row_ts(&self, def: &TableDef, insert: &Insert, cell: CellRef, ty: SqlType) -> Result<i64> {
        let mut held = Datum::Null;
        if let (CellKind::Expr, Some(e)) = (cell.kind, insert.exprs.get(cell.start as usize)) {
            self.check_time(e)?;
        }
        let value = self.cell(insert, cell, ty, &mut held)?;
        let name = if ty == SqlType::Int8 {
            "ts"
        } else {
            "$timestamp"
        };
        let at = self.cell_at(insert, cell);
        let misfit = |m: value::Misfit| {
            m.error(value, "TIMESTAMP", &self.place(def, name), self.cx.limits)
                .at(self.position(at))
        };
        match value::axis(value, self.cx.now_ms).map_err(misfit)? {
            Some(p) if (0..TIMESTAMP_END_MS).contains(&p.ms) => Ok(p.ms),
            Some(_) => Err(misfit(value::Misfit::TimeOutOfRange)),
            None => Err(self.null_value(def, name, at)),
        }
    }

    fn null_value(&self, def: &TableDef, column: &str, at: u32) -> Error {
        self.error(
            SqlState::NotNullViolation,
            at,
            format!("NULL in {}, which every row needs", self.place(def, column)),
        )
    }

    /// The stored name of an entity; `uuid` holds it when it had to be rewritten.
    fn entity<'s>(
        &self,
        def: &TableDef,
        value: Scalar<'s>,
        at: u32,
        uuid: &'s mut String,
    ) -> Result<&'s str> {
        let misfit = |m: value::Misfit| {
            m.error(value, "TEXT", &self.place(def, "entity"), self.cx.limits)
                .at(self.position(at))
        };
        let text = value::text(value, None, self.cx.limits)
            .map_err(misfit)?
            .ok_or_else(|| self.null_value(def, "entity", at))?;
        if def.entity_uuid {
            let id = parse_hex_128(text).ok_or_else(|| {
                misfit(value::Misfit::BadText)
                    .hint("the table is WITH (ENTITY UUID): an entity is a UUID")
            })?;
            *uuid = format!("{id:032x}");
            return Ok(uuid);
        }
        if text.len() as u64 > self.cx.limits.entity_bytes {
            let e = self.cx.limits.exceeded(
                "entity_bytes",
                SqlState::ProgramLimitExceeded,
                format_args!(
                    "an entity of {} bytes for table \"{}\"",
                    text.len(),
                    def.name
                ),
            );
            return Err(e.at(self.position(at)));
        }
        Ok(text)
    }

    /// Refuses columns that the engine writes itself.
    pub(super) fn check_writable(&self, def: &TableDef, name: &Name, verb: &str) -> Result<()> {
        if matches!(name.text.as_str(), "xid" | "x_rev" | "x_deleted") {
            return Err(self
                .error(
                    SqlState::GeneratedAlways,
                    name.at,
                    format!(
                        "{verb} must not name column \"{}\" of table \"{}\": the engine writes it",
                        name.text, def.name
                    ),
                )
                .hint("leave it out; INSERT answers the xid"));
        }
        Ok(())
    }

    fn insert_rows(&self, def: &'a Arc<TableDef>, insert: &Insert) -> Result<Plan> {
        let returning = insert
            .returning
            .as_ref()
            .map(|r| self.returning(def, &r.items))
            .transpose()?;
        let targets: Vec<&ColumnDef> = match &insert.columns {
            None => def
                .columns
                .iter()
                .take(self.width(insert, def.columns.len()))
                .collect(),
            Some(columns) => {
                self.check_distinct(columns)?;
                columns
                    .iter()
                    .map(|c| {
                        self.check_writable(def, c, "INSERT")?;
                        def.column(&c.text)
                            .ok_or_else(|| self.unknown_column(def, c))
                    })
                    .collect::<Result<_>>()?
            }
        };
        let mut rows = Vec::new();
        if self.describing() {
            let types: Vec<SqlType> = targets.iter().map(|c| SqlType::of(c.label)).collect();
            self.infer_cells(insert, &types)?;
        } else {
            rows.reserve(insert.row_ends.len());
            let mut text_bytes = 0;
            let mut start = 0;
            for end in &insert.row_ends {
                let cells = &insert.cells[start..*end as usize];
                start = *end as usize;
                self.check_width(insert, cells, targets.len())?;
                let mut row = Vec::with_capacity(targets.len());
                let mut held = Datum::Null;
                for (cell, column) in cells.iter().zip(&targets) {
                    let value = self.cell(insert, *cell, SqlType::of(column.label), &mut held)?;
                    let stored =
                        value::stored(value, column.label, true, self.cx.now_ms, self.cx.limits);
                    let stored = stored.map_err(|m| {
                        m.error(
                            value,
                            column.label.name(),
                            &self.place(def, &column.name),
                            self.cx.limits,
                        )
                        .at(lexer::position(self.text, self.cell_at(insert, *cell)))
                    })?;
                    if let Value::Str(text) = &stored {
                        text_bytes += text.len();
                        self.check_text(text_bytes)?;
                    }
                    row.push(stored);
                }
                rows.push(row);
            }
        }
        Ok(Plan::InsertRows {
            table: def.clone(),
            columns: targets.iter().map(|c| c.id).collect(),
            rows,
            returning,
        })
    }
}

/// The batch of one shard, and the slot of each target in it.
struct Builder {
    batch: StreamBatchBuilder,
    slots: Vec<usize>,
}

impl Builder {
    fn new(targets: &[Target<'_>]) -> Self {
        let mut batch = StreamBatchBuilder::default();
        let slots = targets
            .iter()
            .map(|t| match t {
                Target::Channel(c) => batch.slot(c.id, c.label.kind()),
                _ => 0,
            })
            .collect();
        Builder { batch, slots }
    }
}

#[cfg(test)]
mod tests {
    use crate::fuzz::with_context;
    use crate::parse;
    use crate::plan::Plan;
    use crate::types::Datum;
    use strandline_core::error::{Result, SqlState};

    /// One parameter of 10 MiB, named by so many rows.
    fn repeated(into: &str, row: &str, rows: usize) -> Result<Plan> {
        let sql = format!("INSERT INTO {into} VALUES {}", vec![row; rows].join(", "));
        let long = Datum::Text {
            text: "x".repeat(10 << 20),
            unknown: true,
        };
        with_context(|cx| parse(&sql, cx.limits)?.remove(0).bind(cx, &[long]))
    }

    #[test]
    fn a_long_parameter_is_not_multiplied_without_bound() {
        for (into, row) in [
            ("tele (entity, ts, event)", "('a', 1, $1)"),
            ("devices (name)", "($1)"),
        ] {
            repeated(into, row, 6).unwrap_or_else(|e| panic!("{into}: {e}"));
            let e = repeated(into, row, 7).expect_err("70 MiB of text");
            assert_eq!(e.state(), SqlState::ProgramLimitExceeded, "{e}");
            assert!(e.message().contains("statement_bytes"), "{e}");
        }
    }
}
