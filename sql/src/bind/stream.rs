//! SELECT on a timeseries table: rows, the device shadow, or aggregates.

use super::Binder;
use super::eval::{has_column, type_of};
use super::filter::{Channels, StreamColumn, StreamFilter};
use crate::ast::{ExprKind, FillSpec, Item, ItemKind, KeyExpr, Name, OrderItem, Sample, Select};
use crate::plan::{OutputColumn, OutputSource, Plan, Shape, SortKey, Source};
use crate::types::{Datum, SqlType, check_width};
use strandline_core::error::{Error, Result, SqlState};
use strandline_core::scan::{
    Aggregate, BucketFill, Entities, LatestScan, Predicate, RowFilter, SampleBy, StreamAggregate,
    StreamScan, TsRange,
};
use strandline_core::schema::TableDef;

/// Columns of the engine's batch before the channels.
const ENTITY: usize = 0;
const TS: usize = 1;
const FIRST_CHANNEL: usize = 2;

fn column(name: impl Into<String>, ty: SqlType, index: usize) -> OutputColumn {
    OutputColumn {
        name: name.into(),
        ty,
        source: OutputSource::Column(index),
    }
}

fn ts_type(timestamptz: bool) -> SqlType {
    if timestamptz {
        SqlType::Timestamptz
    } else {
        SqlType::Int8
    }
}

/// The plan of a scan whose first `output` channels are shown.
pub(super) fn stream_scan(
    def: &TableDef,
    filter: StreamFilter,
    (channels, output): (Channels, usize),
    filled: bool,
    shape: Shape,
) -> Plan {
    // A sort has to see all rows.
    let limit = match (shape.order.is_empty(), shape.limit) {
        (true, Some(n)) => Some(n.saturating_add(shape.offset)),
        _ => None,
    };
    Plan::Select {
        source: Source::Stream(StreamScan {
            floor: i64::MIN,
            table: def.id,
            entities: filter.entities,
            range: filter.range,
            channels: channels.list,
            output,
            filled,
            predicate: filter.predicate,
            limit,
        }),
        shape,
    }
}

impl<'a> Binder<'a> {
    pub(super) fn select_stream(&self, def: &'a TableDef, select: &Select) -> Result<Plan> {
        let aggregates = select
            .items
            .iter()
            .any(|i| matches!(i.what, ItemKind::Aggregate(_)));
        if def.options.mutable {
            self.check_mutable(def, select)?;
        }
        if let (Some(at), true) = (select.latest, aggregates || select.sample.is_some()) {
            return Err(self.not_answered(def, at, "LATEST ON with aggregates"));
        }
        if aggregates || select.sample.is_some() || !select.group_by.is_empty() {
            return self.select_aggregates(def, select);
        }
        if def.options.mutable {
            return self.select_state(def, select);
        }
        let mut channels = Channels::default();
        let columns = self.stream_items(def, select, &mut channels)?;
        let mut output = channels.list.len();
        let filter = self.stream_filter(def, select, &mut channels)?;
        let order = self.stream_order(def, select, &columns, &channels, &mut output)?;
        let mut shape = Shape {
            columns,
            order,
            limit: self.limit(select)?,
            offset: self.offset(select)?,
        };
        if let Some(at) = select.latest {
            return self.latest(def, select, at, filter, channels, shape);
        }
        // Rows of one entity come by ts: asking for that order is asking for nothing.
        let one_entity = matches!(&filter.entities, Entities::In(list) if list.len() <= 1);
        let by_ts = |k: &SortKey| k.column == TS && !k.descending;
        let constant = |k: &SortKey| k.column == ENTITY;
        if one_entity && shape.order.iter().find(|k| !constant(k)).is_none_or(by_ts) {
            shape.order.clear();
        }
        let filled = select.raw.is_none();
        Ok(stream_scan(def, filter, (channels, output), filled, shape))
    }

    fn latest(
        &self,
        def: &TableDef,
        select: &Select,
        at: u32,
        filter: StreamFilter,
        mut channels: Channels,
        shape: Shape,
    ) -> Result<Plan> {
        if let Some(raw) = select.raw {
            return Err(self.not_answered(def, raw, "RAW with LATEST ON"));
        }
        let mut entities = filter.entities;
        match filter.predicate {
            None | Some(Predicate::Const(Some(true))) => {}
            Some(Predicate::Const(_)) => entities = Entities::In(Vec::new()),
            Some(_) => {
                return Err(self.not_answered(def, at, "a condition on channels with LATEST ON"));
            }
        }
        if channels.list.is_empty() {
            // `SELECT entity, ts`: the newest sample of any channel.
            for c in &def.columns {
                channels.index(c);
            }
        }
        Ok(Plan::Select {
            source: Source::Latest(LatestScan {
                floor: i64::MIN,
                table: def.id,
                entities,
                until: filter.range.to,
                from: filter.range.from,
                channels: channels.list,
            }),
            shape,
        })
    }

    pub(super) fn limit(&self, select: &Select) -> Result<Option<u64>> {
        Ok(select
            .limit
            .as_ref()
            .map(|e| self.row_count(e, "LIMIT"))
            .transpose()?
            .flatten())
    }

    pub(super) fn offset(&self, select: &Select) -> Result<u64> {
        let offset = select
            .offset
            .as_ref()
            .map(|e| self.row_count(e, "OFFSET"))
            .transpose()?;
        Ok(offset.flatten().unwrap_or(0))
    }

    /// The table before `*`, when one stands there, must be the one of FROM.
    pub(super) fn check_star(&self, select: &Select, table: Option<&Name>) -> Result<()> {
        match table {
            Some(t) if t.text != select.alias.as_ref().unwrap_or(&select.table).text => Err(self
                .error(
                    SqlState::UndefinedTable,
                    t.at,
                    format!("missing FROM-clause entry for table \"{}\"", t.text),
                )),
            _ => Ok(()),
        }
    }

    /// A constant of a select list.
    pub(super) fn constant_item(&self, def: &TableDef, item: &Item) -> Result<OutputColumn> {
        let ItemKind::Expr(e) = &item.what else {
            return Err(self.not_answered(def, item.at, "this item of the select list"));
        };
        if has_column(e) {
            return Err(self.not_answered(def, e.at, "an expression over columns"));
        }
        let value = self.constant(e, SqlType::Text)?;
        let name = item.alias.as_ref().map_or("?column?", |a| &a.text);
        let ty = match &e.kind {
            ExprKind::Cast(_, ty) => *ty,
            _ => type_of(&value),
        };
        Ok(OutputColumn {
            name: name.to_owned(),
            ty,
            source: OutputSource::Const(value),
        })
    }

    pub(super) fn stream_items(
        &self,
        def: &'a TableDef,
        select: &Select,
        channels: &mut Channels,
    ) -> Result<Vec<OutputColumn>> {
        let mut out = Vec::with_capacity(select.items.len());
        for item in &select.items {
            match &item.what {
                ItemKind::Star(table) => {
                    self.check_star(select, table.as_ref())?;
                    out.push(column("entity", SqlType::Text, ENTITY));
                    out.push(column("ts", SqlType::Int8, TS));
                    for c in &def.columns {
                        let index = FIRST_CHANNEL + channels.index(c);
                        out.push(column(c.name.as_str(), SqlType::of(c.label), index));
                    }
                }
                ItemKind::Expr(e) => {
                    let ExprKind::Column(name) = &e.kind else {
                        out.push(self.constant_item(def, item)?);
                        continue;
                    };
                    let (ty, index) = match self.stream_column(def, select, name)? {
                        StreamColumn::Entity => (SqlType::Text, ENTITY),
                        StreamColumn::Ts(t) => (ts_type(t), TS),
                        StreamColumn::Channel(c) => {
                            (SqlType::of(c.label), FIRST_CHANNEL + channels.index(c))
                        }
                    };
                    let shown = item.alias.as_ref().unwrap_or(&name.column);
                    out.push(column(shown.text.as_str(), ty, index));
                }
                ItemKind::Aggregate(call) => {
                    return Err(self.not_answered(def, call.at, "this aggregate"));
                }
            }
            check_width(out.len())?;
        }
        Ok(out)
    }

    /// The answer's column that a key names by ordinal or alias.
    pub(super) fn key_of_output<'c>(
        &self,
        key: &KeyExpr,
        columns: &'c [OutputColumn],
    ) -> Result<Option<&'c OutputColumn>> {
        match key {
            KeyExpr::Ordinal(n, at) => usize::try_from(*n)
                .ok()
                .and_then(|n| columns.get(n.checked_sub(1)?))
                .map(Some)
                .ok_or_else(|| {
                    self.error(
                        SqlState::InvalidColumnReference,
                        *at,
                        format!("position {n} is not in the select list"),
                    )
                }),
            KeyExpr::Column(c) if c.table.is_none() => {
                Ok(columns.iter().find(|o| o.name == c.column.text))
            }
            _ => Ok(None),
        }
    }

    fn sort_key(item: &OrderItem, column: usize) -> SortKey {
        SortKey {
            column,
            descending: item.descending,
            // As in PostgreSQL: NULL is larger than everything.
            nulls_first: item.nulls_first.unwrap_or(item.descending),
        }
    }

    pub(super) fn stream_order(
        &self,
        def: &'a TableDef,
        select: &Select,
        columns: &[OutputColumn],
        channels: &Channels,
        output: &mut usize,
    ) -> Result<Vec<SortKey>> {
        let mut keys = Vec::with_capacity(select.order.len());
        for item in &select.order {
            let index = match (self.key_of_output(&item.key, columns)?, &item.key) {
                (
                    Some(OutputColumn {
                        source: OutputSource::Column(i),
                        ..
                    }),
                    _,
                ) => *i,
                // Every row has the same.
                (Some(_), _) => continue,
                (None, KeyExpr::Column(name)) => match self.stream_column(def, select, name)? {
                    StreamColumn::Entity => ENTITY,
                    StreamColumn::Ts(_) => TS,
                    StreamColumn::Channel(c) => {
                        // A channel that is only sorted by must not decide which rows there are.
                        let i = channels.find(c.id).ok_or_else(|| {
                            self.not_answered(
                                def,
                                name.column.at,
                                "ORDER BY a channel that is not selected",
                            )
                        })?;
                        *output = (*output).max(i + 1);
                        FIRST_CHANNEL + i
                    }
                },
                (None, KeyExpr::Aggregate(call)) => {
                    return Err(self.not_answered(def, call.at, "ORDER BY an aggregate of rows"));
                }
                (None, KeyExpr::Ordinal(..)) => continue,
            };
            keys.push(Self::sort_key(item, index));
        }
        Ok(keys)
    }

    fn select_aggregates(&self, def: &'a TableDef, select: &Select) -> Result<Plan> {
        let mut channels = Channels::default();
        let filter = self.stream_filter(def, select, &mut channels)?;
        let mut entities = filter.entities;
        let filter_rows = match filter.predicate {
            None | Some(Predicate::Const(Some(true))) => None,
            Some(Predicate::Const(_)) => {
                entities = Entities::In(Vec::new());
                None
            }
            Some(predicate) => Some(RowFilter {
                channels: channels.list.iter().map(|c| (c.column, c.kind)).collect(),
                predicate,
            }),
        };
        let by_entity = self.groups_by_entity(def, select)?;
        let fill = self.bucket_fill(def, select, filter.range)?;
        let base = usize::from(by_entity) + usize::from(select.sample.is_some());
        let mut aggregates: Vec<Aggregate> = Vec::new();
        let mut columns = Vec::with_capacity(select.items.len());
        for item in &select.items {
            check_width(columns.len() + 1)?;
            let (name, ty, index) = match &item.what {
                ItemKind::Star(_) => {
                    return Err(self.outside_aggregates(item.at, "*"));
                }
                ItemKind::Aggregate(call) => {
                    let (aggregate, ty) = self.aggregate(def, select, call, fill)?;
                    let n = aggregates
                        .iter()
                        .position(|a| *a == aggregate)
                        .unwrap_or_else(|| {
                            aggregates.push(aggregate);
                            aggregates.len() - 1
                        });
                    (call.name.to_owned(), ty, base + n)
                }
                ItemKind::Expr(e) => {
                    let ExprKind::Column(name) = &e.kind else {
                        columns.push(self.constant_item(def, item)?);
                        continue;
                    };
                    let shown = name.column.text.clone();
                    match self.stream_column(def, select, name)? {
                        StreamColumn::Entity if by_entity => (shown, SqlType::Text, 0),
                        StreamColumn::Ts(t) if select.sample.is_some() => {
                            (shown, ts_type(t), usize::from(by_entity))
                        }
                        StreamColumn::Entity => {
                            return Err(self
                                .outside_aggregates(name.column.at, &shown)
                                .hint("add GROUP BY entity"));
                        }
                        StreamColumn::Ts(_) => {
                            return Err(self
                                .outside_aggregates(name.column.at, &shown)
                                .hint("add SAMPLE BY, such as SAMPLE BY 5 m"));
                        }
                        StreamColumn::Channel(_) => {
                            return Err(self
                                .outside_aggregates(name.column.at, &shown)
                                .hint("take it in an aggregate, such as last() or avg()"));
                        }
                    }
                }
            };
            let name = item.alias.as_ref().map_or(name, |a| a.text.clone());
            columns.push(column(name, ty, index));
        }
        if aggregates.is_empty() {
            let at = select.sample.as_ref().map_or(select.group_at, |s| s.at);
            let clause = if select.sample.is_some() {
                "SAMPLE BY"
            } else {
                "GROUP BY"
            };
            return Err(self.not_answered(def, at, &format!("{clause} without an aggregate")));
        }
        let order =
            self.aggregate_order(def, select, &columns, &aggregates, base, by_entity, fill)?;
        Ok(Plan::Select {
            source: Source::Aggregate(StreamAggregate {
                floor: i64::MIN,
                table: def.id,
                entities,
                range: filter.range,
                filter: filter_rows,
                aggregates,
                sample: select.sample.as_ref().map(|s| SampleBy {
                    interval: s.interval,
                    fill,
                }),
                by_entity,
            }),
            shape: Shape {
                columns,
                order,
                limit: self.limit(select)?,
                offset: self.offset(select)?,
            },
        })
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one pass over the parts of one statement"
    )]
    fn aggregate_order(
        &self,
        def: &'a TableDef,
        select: &Select,
        columns: &[OutputColumn],
        aggregates: &[Aggregate],
        base: usize,
        by_entity: bool,
        fill: Option<BucketFill>,
    ) -> Result<Vec<SortKey>> {
        let mut keys = Vec::with_capacity(select.order.len());
        for item in &select.order {
            let index = match (self.key_of_output(&item.key, columns)?, &item.key) {
                (
                    Some(OutputColumn {
                        source: OutputSource::Column(i),
                        ..
                    }),
                    _,
                ) => *i,
                (Some(_), _) => continue,
                (None, KeyExpr::Column(name)) => match self.stream_column(def, select, name)? {
                    StreamColumn::Entity if by_entity => 0,
                    StreamColumn::Ts(_) if select.sample.is_some() => usize::from(by_entity),
                    _ => return Err(self.outside_aggregates(name.column.at, &name.column.text)),
                },
                (None, KeyExpr::Aggregate(call)) => {
                    let (wanted, _) = self.aggregate(def, select, call, fill)?;
                    let n = aggregates
                        .iter()
                        .position(|a| *a == wanted)
                        .ok_or_else(|| {
                            self.not_answered(
                                def,
                                call.at,
                                "ORDER BY an aggregate that is not selected",
                            )
                        })?;
                    base + n
                }
                (None, KeyExpr::Ordinal(..)) => continue,
            };
            keys.push(Self::sort_key(item, index));
        }
        // Groups come by (entity, bucket): a prefix of that needs no sort.
        let natural = keys
            .iter()
            .enumerate()
            .all(|(i, k)| k.column == i && i < base && !k.descending);
        if natural {
            keys.clear();
        }
        Ok(keys)
    }

    fn outside_aggregates(&self, at: u32, name: &str) -> Error {
        self.error(
            SqlState::GroupingError,
            at,
            format!("\"{name}\" must appear in GROUP BY or be used in an aggregate"),
        )
    }

    /// GROUP BY may say what SAMPLE BY means anyway: by entity, by bucket.
    fn groups_by_entity(&self, def: &'a TableDef, select: &Select) -> Result<bool> {
        let is_entity = |name| {
            Ok::<bool, Error>(matches!(
                self.stream_column(def, select, name)?,
                StreamColumn::Entity
            ))
        };
        let mut by_entity = false;
        if select.sample.is_some() {
            for item in &select.items {
                if let ItemKind::Expr(e) = &item.what
                    && let ExprKind::Column(name) = &e.kind
                {
                    by_entity |= is_entity(name)?;
                }
            }
        }
        for key in &select.group_by {
            let name = match key {
                KeyExpr::Column(name) => {
                    // An alias of the select list stands for its column.
                    let aliased = select.items.iter().find_map(|i| match (&i.alias, &i.what) {
                        (Some(a), ItemKind::Expr(e))
                            if name.table.is_none() && a.text == name.column.text =>
                        {
                            Some(&e.kind)
                        }
                        _ => None,
                    });
                    match aliased {
                        Some(ExprKind::Column(c)) => Some(c),
                        Some(_) => None,
                        None => Some(name),
                    }
                }
                KeyExpr::Ordinal(n, _) => {
                    let item = usize::try_from(*n)
                        .ok()
                        .and_then(|n| select.items.get(n.checked_sub(1)?));
                    match item.map(|i| &i.what) {
                        Some(ItemKind::Expr(e)) => match &e.kind {
                            ExprKind::Column(c) => Some(c),
                            _ => None,
                        },
                        _ => None,
                    }
                }
                KeyExpr::Aggregate(_) => None,
            };
            match name
                .map(|n| self.stream_column(def, select, n))
                .transpose()?
            {
                Some(StreamColumn::Entity) => by_entity = true,
                Some(StreamColumn::Ts(_)) if select.sample.is_some() => {}
                _ => {
                    return Err(self.not_answered(
                        def,
                        select.group_at,
                        "GROUP BY other than entity",
                    ));
                }
            }
        }
        Ok(by_entity)
    }

    fn bucket_fill(
        &self,
        def: &TableDef,
        select: &Select,
        range: TsRange,
    ) -> Result<Option<BucketFill>> {
        let Some(Sample {
            interval,
            fill: Some(fill),
            at,
        }) = &select.sample
        else {
            return Ok(None);
        };
        let open = range.from == i64::MIN || range.to == i64::MAX;
        if open && !self.describing() {
            return Err(self
                .unsupported(
                    *at,
                    format!(
                        "FILL on table \"{}\" needs a range bounded on both sides",
                        def.name
                    ),
                )
                .hint("WHERE ts BETWEEN a AND b, or IN RANGE (a, b)"));
        }
        if !open && !range.is_empty() {
            let buckets = interval
                .bucket(range.to)
                .abs_diff(interval.bucket(range.from));
            if buckets >= self.cx.limits.buckets {
                let e = self.cx.limits.exceeded(
                    "buckets",
                    SqlState::ProgramLimitExceeded,
                    format_args!(
                        "{} buckets of table \"{}\"",
                        buckets.saturating_add(1),
                        def.name
                    ),
                );
                return Err(e.at(self.position(*at)));
            }
        }
        Ok(Some(match fill {
            FillSpec::Prev => BucketFill::Prev,
            FillSpec::Null => BucketFill::Null,
            FillSpec::Linear => BucketFill::Linear,
            FillSpec::Number(e) => match self.constant(e, SqlType::Float8)? {
                Datum::Int(i) => BucketFill::Number(i as f64),
                Datum::Float(f) if f.is_finite() => BucketFill::Number(f),
                Datum::Null if self.describing() => BucketFill::Null,
                _ => {
                    return Err(self.error(
                        SqlState::DatatypeMismatch,
                        e.at,
                        "FILL takes PREV, NULL, LINEAR or a finite number",
                    ));
                }
            },
        }))
    }
}
