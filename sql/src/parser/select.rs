//! SELECT over one table of the user, with the clauses of telemetry: `RAW`, `IN RANGE`, `LATEST ON … PARTITION
//! BY`, `SAMPLE BY … FILL`.

use super::{Fail, PResult, Parsed, Parser};
use crate::ast::{
    AggregateCall, Expr, ExprKind, FillSpec, Item, ItemKind, KeyExpr, Name, OrderItem, Returning,
    Sample, Select,
};
use crate::lexer::{self, Kind};
use crate::time::{self, Unit};
use strandline_core::error::SqlState;
use strandline_core::scan::{AggregateFn, Quantile};
use strandline_core::time::Interval;

/// Words that begin a clause, and so are no alias of a table.
const CLAUSES: &[&str] = &[
    "RAW",
    "LATEST",
    "SAMPLE",
    "FILL",
    "VERSIONS",
    "ASOF",
    "CROSS",
    "TABLESAMPLE",
];

/// Percentiles stand with the median until their share is known.
const AGGREGATES: &[(&str, AggregateFn)] = &[
    ("count", AggregateFn::Count),
    ("sum", AggregateFn::Sum),
    ("avg", AggregateFn::Avg),
    ("min", AggregateFn::Min),
    ("max", AggregateFn::Max),
    ("first", AggregateFn::First),
    ("last", AggregateFn::Last),
    ("stddev", AggregateFn::StddevSamp),
    ("stddev_samp", AggregateFn::StddevSamp),
    ("stddev_pop", AggregateFn::StddevPop),
    ("variance", AggregateFn::VarSamp),
    ("var_samp", AggregateFn::VarSamp),
    ("var_pop", AggregateFn::VarPop),
    ("median", AggregateFn::Percentile(Quantile::HALF)),
    (PERCENTILE, AggregateFn::Percentile(Quantile::HALF)),
    (
        APPROX_PERCENTILE,
        AggregateFn::ApproxPercentile(Quantile::HALF),
    ),
];
const PERCENTILE: &str = "percentile_cont";
const APPROX_PERCENTILE: &str = "approx_percentile_cont";

impl Parser<'_> {
    /// SELECT, WITH, VALUES, TABLE: ours, the evaluator's, or refused.
    pub(super) fn query(&mut self) -> PResult<Parsed> {
        let Some(table) = self.own_table() else {
            return self.system_query();
        };
        match self.select() {
            Ok(select) => Ok(Parsed::Select(Box::new(select))),
            Err(Fail::General(mut general)) => {
                // The general parser has the last word on whether it is SQL.
                self.check_general(None)?;
                general.table = Some(table);
                Err(Fail::General(general))
            }
            // In a clause that is Strandline's own the general parser has nothing to say.
            Err(Fail::Error(e)) if self.in_own_clause => Err(Fail::Error(e)),
            Err(Fail::Error(e)) if e.state() == SqlState::SyntaxError => {
                self.check_general(Some(&e))?;
                let at = self.peek().start;
                let mut general = match self.general(at, "this form of SELECT") {
                    Fail::General(g) => g,
                    other => return Err(other),
                };
                general.table = Some(table);
                Err(Fail::General(general))
            }
            Err(e) => Err(e),
        }
    }

    /// The table behind the outermost FROM, when the statement begins with SELECT and the table is not one
    /// of the catalog's.
    fn own_table(&self) -> Option<Name> {
        if !self.is_word(0, "SELECT") {
            return None;
        }
        let mut depth = 0usize;
        let mut i = 1;
        loop {
            let t = self.peek_at(i);
            match t.kind {
                Kind::End => return None,
                Kind::LParen => depth += 1,
                Kind::RParen => depth = depth.saturating_sub(1),
                // `a IS DISTINCT FROM b` is no clause.
                Kind::Word
                    if depth == 0
                        && self.raw(t).eq_ignore_ascii_case("from")
                        && !self.is_word(i - 1, "DISTINCT") =>
                {
                    break;
                }
                _ => {}
            }
            i += 1;
        }
        let t = self.peek_at(i + 1);
        if !matches!(t.kind, Kind::Word | Kind::Quoted) || self.peek_at(i + 2).kind == Kind::LParen
        {
            // A subquery, a table function, or nothing that can be a table.
            return None;
        }
        let mut name = crate::lexer::identifier(self.text, t);
        let mut at = t.start;
        if name == "public" && self.peek_at(i + 2).kind == Kind::Dot {
            let t = self.peek_at(i + 3);
            name = crate::lexer::identifier(self.text, t);
            at = t.start;
        }
        (!super::system::is_system_name(&name)).then_some(Name { text: name, at })
    }

    fn select(&mut self) -> PResult<Select> {
        self.next();
        self.eat_word("ALL");
        if self.is_word(0, "DISTINCT") {
            return Err(self.general(self.peek().start, "DISTINCT"));
        }
        let items = self.items()?;
        if self.is_word(0, "INTO") {
            return Err(self.general(self.peek().start, "SELECT INTO"));
        }
        self.expect_word("FROM")?;
        let table = self.table_name()?;
        let named = self.eat_word("AS") || (self.is_name() && !self.is_any_word(CLAUSES));
        let alias = named.then(|| self.name()).transpose()?;
        let mut select = Select {
            items,
            table,
            alias,
            raw: None,
            in_range: None,
            filter: None,
            latest: None,
            sample: None,
            group_by: Vec::new(),
            group_at: 0,
            order: Vec::new(),
            limit: None,
            offset: None,
        };
        self.clauses(&mut select)?;
        self.done()?;
        Ok(select)
    }

    /// Items of a select list or of RETURNING.
    fn items(&mut self) -> PResult<Vec<Item>> {
        let spaced = std::mem::replace(&mut self.spaced_units, false);
        let mut items = vec![self.item()?];
        while self.eat(Kind::Comma) {
            items.push(self.item()?);
        }
        self.spaced_units = spaced;
        Ok(items)
    }

    fn item(&mut self) -> PResult<Item> {
        let t = self.peek();
        let at = t.start;
        if self.eat(Kind::Star) {
            return Ok(Item {
                what: ItemKind::Star(None),
                alias: None,
                at,
            });
        }
        if self.is_name() && self.peek_at(1).kind == Kind::Dot && self.peek_at(2).kind == Kind::Star
        {
            let table = self.name()?;
            self.at += 2;
            return Ok(Item {
                what: ItemKind::Star(Some(table)),
                alias: None,
                at,
            });
        }
        let what = match self.aggregate_call()? {
            Some(call) => {
                let next = self.peek();
                if self.is_any_word(&["OVER", "FILTER", "WITHIN"]) {
                    return Err(self.general(next.start, self.raw(next).to_ascii_uppercase()));
                }
                if matches!(
                    next.kind,
                    Kind::Plus | Kind::Minus | Kind::Star | Kind::Slash | Kind::Other | Kind::Cast
                ) {
                    return Err(
                        self.general(next.start, format!("the operator {}", self.raw(next)))
                    );
                }
                ItemKind::Aggregate(call)
            }
            None => {
                let e = self.expr()?;
                let next = self.peek();
                let compared = matches!(
                    next.kind,
                    Kind::Eq | Kind::Ne | Kind::Lt | Kind::Le | Kind::Gt | Kind::Ge
                ) || self
                    .is_any_word(&["AND", "OR", "IS", "IN", "BETWEEN", "LIKE", "ILIKE"]);
                if compared {
                    return Err(self.general(next.start, "a condition in the select list"));
                }
                ItemKind::Expr(e)
            }
        };
        let alias = if self.eat_word("AS") {
            // Behind AS any word is a name.
            if self.is(Kind::Word) && !self.is_name() {
                let t = self.next();
                Some(Name {
                    text: self.raw(t).to_ascii_lowercase(),
                    at: t.start,
                })
            } else {
                Some(self.name()?)
            }
        } else if self.is_name() {
            Some(self.name()?)
        } else {
            None
        };
        Ok(Item { what, alias, at })
    }

    fn aggregate_call(&mut self) -> PResult<Option<AggregateCall>> {
        let t = self.peek();
        if t.kind != Kind::Word || self.peek_at(1).kind != Kind::LParen {
            return Ok(None);
        }
        let known = AGGREGATES
            .iter()
            .find(|a| a.0.eq_ignore_ascii_case(self.raw(t)));
        let Some(&(name, func)) = known else {
            return Ok(None);
        };
        self.at += 2;
        let at = t.start;
        if self.is_word(0, "DISTINCT") {
            return Err(self.general(self.peek().start, format!("{}(DISTINCT …)", self.raw(t))));
        }
        self.eat_word("ALL");
        let mut share = None;
        let column = if func == AggregateFn::Count && self.eat(Kind::Star) {
            None
        } else {
            let mut e = self.expr()?;
            if matches!(name, PERCENTILE | APPROX_PERCENTILE) {
                (e, share) = self.percentile(name, e)?;
            }
            match e.kind {
                ExprKind::Column(c) => Some(c),
                // count(1) counts rows; NULL would count nothing, and is no one's intention.
                ExprKind::Int(_) | ExprKind::Text(_) if func == AggregateFn::Count => None,
                _ => return Err(self.general(e.at, "an aggregate of an expression")),
            }
        };
        if self.is(Kind::Comma) || self.is_word(0, "ORDER") {
            return Err(self.general(self.peek().start, "an aggregate of several values"));
        }
        self.require(Kind::RParen)?;
        Ok(Some(AggregateCall {
            func,
            name,
            column,
            share,
            at,
        }))
    }

    /// What a percentile is of, and its share: `(x, 0.9)`, or `(0.9) WITHIN GROUP (ORDER BY x)` up to the last
    /// parenthesis; its first argument already read.
    fn percentile(&mut self, name: &str, first: Expr) -> PResult<(Expr, Option<(Expr, bool)>)> {
        if name == APPROX_PERCENTILE && self.eat(Kind::Comma) {
            let share = self.expr()?;
            return Ok((first, Some((share, false))));
        }
        if !self.is(Kind::RParen) || !self.is_word(1, "WITHIN") {
            let how = if name == PERCENTILE {
                "percentile_cont(0.9) WITHIN GROUP (ORDER BY column)"
            } else {
                "approx_percentile_cont(column, 0.9)"
            };
            let at = self.peek().start;
            let e = self.error(
                SqlState::UndefinedFunction,
                at,
                format!("{name} needs a column and a share"),
            );
            return Err(e.hint(how).into());
        }
        self.next();
        self.next();
        self.expect_word("GROUP")?;
        self.require(Kind::LParen)?;
        self.expect_word("ORDER")?;
        self.expect_word("BY")?;
        let of = self.expr()?;
        let descending = self.eat_word("DESC");
        if !descending {
            self.eat_word("ASC");
        }
        Ok((of, Some((first, descending))))
    }

    fn clauses(&mut self, select: &mut Select) -> PResult<()> {
        // Clauses of a lower stage may not follow those of a higher.
        let mut stage = 0;
        loop {
            let t = self.peek();
            if t.kind == Kind::Comma {
                return Err(self.general(t.start, "a join"));
            }
            if t.kind != Kind::Word {
                return Ok(());
            }
            let word = self.raw(t).to_ascii_uppercase();
            let next = match word.as_str() {
                "RAW" | "IN" | "WHERE" | "LATEST" => 1,
                "SAMPLE" => 2,
                "GROUP" => 3,
                "ORDER" => 4,
                "LIMIT" | "OFFSET" => 5,
                "JOIN" | "INNER" | "LEFT" | "RIGHT" | "FULL" | "CROSS" | "NATURAL" | "ASOF" => {
                    return Err(self.general(t.start, "a join"));
                }
                "HAVING" | "WINDOW" | "FETCH" | "UNION" | "INTERSECT" | "EXCEPT" | "FOR"
                | "VERSIONS" | "TABLESAMPLE" => return Err(self.general(t.start, word)),
                _ => return Ok(()),
            };
            if next < stage {
                return Err(self.unexpected());
            }
            stage = next;
            let twice = match word.as_str() {
                "RAW" => select.raw.is_some(),
                "IN" => select.in_range.is_some(),
                "WHERE" => select.filter.is_some(),
                "LATEST" => select.latest.is_some(),
                "SAMPLE" => select.sample.is_some(),
                "GROUP" => !select.group_by.is_empty(),
                "ORDER" => !select.order.is_empty(),
                "LIMIT" => select.limit.is_some(),
                _ => select.offset.is_some(),
            };
            if twice {
                return Err(self.unexpected());
            }
            self.next();
            match word.as_str() {
                "RAW" => select.raw = Some(t.start),
                "IN" => {
                    let at = self.peek().start;
                    self.expect_word("RANGE")?;
                    select.in_range = Some(self.in_own(|p| p.in_range(at))?);
                }
                "WHERE" => select.filter = Some(self.condition()?),
                "LATEST" => {
                    self.in_own(|p| p.latest(t.start))?;
                    select.latest = Some(t.start);
                }
                "SAMPLE" => select.sample = Some(self.in_own(|p| p.sample(t.start))?),
                "GROUP" => {
                    self.expect_word("BY")?;
                    select.group_at = t.start;
                    select.group_by.push(self.key("GROUP BY")?);
                    while self.eat(Kind::Comma) {
                        select.group_by.push(self.key("GROUP BY")?);
                    }
                }
                "ORDER" => {
                    self.expect_word("BY")?;
                    select.order.push(self.order_item()?);
                    while self.eat(Kind::Comma) {
                        select.order.push(self.order_item()?);
                    }
                }
                "LIMIT" => {
                    if !self.eat_word("ALL") {
                        select.limit = Some(self.count()?);
                    }
                    if self.is(Kind::Comma) {
                        return Err(self.general(self.peek().start, "LIMIT with two numbers"));
                    }
                }
                _ => {
                    select.offset = Some(self.count()?);
                    let _ = self.eat_word("ROWS") || self.eat_word("ROW");
                }
            }
        }
    }

    fn count(&mut self) -> PResult<Expr> {
        let spaced = std::mem::replace(&mut self.spaced_units, false);
        let e = self.expr();
        self.spaced_units = spaced;
        e
    }

    /// Reads a clause that is no SQL but Strandline's own: a syntax error in it is final.
    fn in_own<T>(&mut self, read: impl FnOnce(&mut Self) -> PResult<T>) -> PResult<T> {
        self.in_own_clause = true;
        let read = read(self)?;
        self.in_own_clause = false;
        Ok(read)
    }

    /// `ON ts PARTITION BY entity`, LATEST already read.
    fn latest(&mut self, at: u32) -> PResult<()> {
        self.expect_word("ON")?;
        let axis = self.column()?;
        if !matches!(axis.column.text.as_str(), "ts" | "$timestamp") {
            return Err(self
                .unsupported(
                    axis.column.at,
                    "LATEST ON takes the time axis: LATEST ON ts",
                )
                .into());
        }
        self.expect_word("PARTITION")?;
        self.expect_word("BY")?;
        let by = self.column()?;
        if by.column.text != "entity" || self.is(Kind::Comma) {
            return Err(self
                .unsupported(at, "LATEST is by entity: LATEST ON ts PARTITION BY entity")
                .into());
        }
        Ok(())
    }

    /// `BY 5 m [FILL(…)]`, SAMPLE already read.
    fn sample(&mut self, at: u32) -> PResult<Sample> {
        self.expect_word("BY")?;
        let t = self.peek();
        self.check_units()?;
        let interval = match self.months() {
            Some(months) => Interval::Months(months),
            None => Interval::Ms(self.duration()?),
        };
        if let Interval::Ms(..1) | Interval::Months(..1) = interval {
            return Err(self
                .error(
                    SqlState::InvalidParameterValue,
                    t.start,
                    "SAMPLE BY needs at least 1 ms",
                )
                .into());
        }
        if self.is_word(0, "ALIGN") {
            return Err(self
                .unsupported(self.peek().start, "ALIGN is not supported")
                .hint("buckets begin at multiples of the interval from the epoch, UTC")
                .into());
        }
        let fill = if self.eat_word("FILL") {
            self.require(Kind::LParen)?;
            let fill = if self.eat_word("PREV") {
                Some(FillSpec::Prev)
            } else if self.eat_word("NULL") {
                Some(FillSpec::Null)
            } else if self.eat_word("LINEAR") {
                Some(FillSpec::Linear)
            } else if self.eat_word("NONE") {
                None
            } else {
                let e = self.expr()?;
                if matches!(e.kind, ExprKind::Column(_)) {
                    return Err(self
                        .error(
                            SqlState::SyntaxError,
                            e.at,
                            "FILL takes PREV, NULL, LINEAR or a number",
                        )
                        .into());
                }
                Some(FillSpec::Number(e))
            };
            if self.is(Kind::Comma) {
                return Err(self
                    .unsupported(
                        self.peek().start,
                        "FILL takes one policy for all aggregates",
                    )
                    .into());
            }
            self.require(Kind::RParen)?;
            fill
        } else {
            None
        };
        Ok(Sample { interval, fill, at })
    }

    /// `1 month`, `3mon`, `1y 6 months`: a width of calendar months.
    fn months(&mut self) -> Option<i64> {
        let mut total = None;
        while self.peek().kind == Kind::Int
            && self.peek_at(1).kind == Kind::Word
            && let Some(Unit::Months(scale)) = time::unit(self.raw(self.peek_at(1)))
        {
            let number = self.next();
            self.next();
            let n: i64 = self.raw(number).parse().unwrap_or(i64::MAX);
            let months = n.saturating_mul(scale);
            total = Some(i64::saturating_add(total.unwrap_or(0), months));
        }
        total
    }

    /// Refuses a width of calendar and of fixed units together: it would have no one length.
    fn check_units(&self) -> PResult<()> {
        let (mut months, mut fixed) = (false, false);
        let mut n = 0;
        while matches!(self.peek_at(n).kind, Kind::Int | Kind::Decimal)
            && self.peek_at(n + 1).kind == Kind::Word
            && let Some(unit) = time::unit(self.raw(self.peek_at(n + 1)))
        {
            let number = self.peek_at(n);
            let wrong = |message: &str| {
                let e = lexer::syntax(self.text, number.start, message);
                Err(e
                    .hint("SAMPLE BY 1 month, SAMPLE BY 1 y 6 months, SAMPLE BY 5 d")
                    .into())
            };
            if self.raw(self.peek_at(n + 1)) == "M" {
                return wrong("M is a minute here and a month elsewhere: write m or month");
            }
            match unit {
                Unit::Months(_) if number.kind == Kind::Decimal => {
                    return wrong("SAMPLE BY takes whole months and years");
                }
                Unit::Months(_) => months = true,
                Unit::Fixed(_) => fixed = true,
            }
            if months && fixed {
                return wrong(
                    "SAMPLE BY takes calendar units (months, years) or fixed ones, not both",
                );
            }
            n += 2;
        }
        Ok(())
    }

    fn key(&mut self, clause: &str) -> PResult<KeyExpr> {
        let t = self.peek();
        if t.kind == Kind::Int {
            return Ok(KeyExpr::Ordinal(self.unsigned()?, t.start));
        }
        if let Some(call) = self.aggregate_call()? {
            return Ok(KeyExpr::Aggregate(call));
        }
        match self.expr()?.kind {
            ExprKind::Column(c) => Ok(KeyExpr::Column(c)),
            _ => Err(self.general(t.start, format!("an expression in {clause}"))),
        }
    }

    fn order_item(&mut self) -> PResult<OrderItem> {
        let key = self.key("ORDER BY")?;
        let descending = self.eat_word("DESC");
        if !descending {
            self.eat_word("ASC");
        }
        if self.is_word(0, "USING") {
            return Err(self.general(self.peek().start, "ORDER BY … USING"));
        }
        let nulls_first = if self.eat_word("NULLS") {
            let first = self.eat_word("FIRST");
            if !first {
                self.expect_word("LAST")?;
            }
            Some(first)
        } else {
            None
        };
        Ok(OrderItem {
            key,
            descending,
            nulls_first,
        })
    }

    /// `RETURNING …`, when it stands there.
    pub(super) fn returning(&mut self) -> PResult<Option<Returning>> {
        let at = self.peek().start;
        if !self.eat_word("RETURNING") {
            return Ok(None);
        }
        Ok(Some(Returning {
            items: self.items()?,
            at,
        }))
    }
}
