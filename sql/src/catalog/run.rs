//! Carries a plan out: joins by nested loops (by key where a condition is an equality), groups, sorts. Every
//! row that is looked at counts against `catalog_rows`, and what is made of them against `result_bytes`, so that
//! no question runs away with a core or with the memory.

use super::SystemContext;
use super::plan::{
    Agg, AggKind, Body, From, Item, Join, Node, Op, Plan, Row, Select, SetOp, Sort, Source,
};
use super::tables;
use super::value::{Key, Ty, Val, cast, in_range, show};
use regex::Regex;
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};

/// Regular expressions kept by one question.
const MAX_REGEXES: usize = 1000;
/// Bytes that a compiled regular expression may take.
const REGEX_BYTES: usize = 1 << 20;

/// One run of a question.
pub(super) struct Runtime<'a> {
    pub cx: &'a SystemContext<'a>,
    pub params: Vec<Val>,
    steps: Cell<u64>,
    made: Cell<u64>,
    regexes: RefCell<BTreeMap<(String, bool), Rc<Regex>>>,
    loaded: RefCell<BTreeMap<i64, Rc<Vec<Row>>>>,
}

/// The row at hand, and those of the questions around it.
#[derive(Clone, Copy)]
pub(super) struct Frame<'f> {
    pub row: &'f [Val],
    pub outer: Option<&'f Frame<'f>>,
}

impl<'a> Runtime<'a> {
    pub fn new(cx: &'a SystemContext<'a>, params: Vec<Val>) -> Self {
        Runtime {
            cx,
            params,
            steps: Cell::new(0),
            made: Cell::new(0),
            regexes: RefCell::default(),
            loaded: RefCell::default(),
        }
    }

    /// So many rows are looked at.
    pub fn step(&self, rows: usize) -> Result<()> {
        /// Steps between two looks at whether somebody wants it to stop.
        const LOOK: u64 = 1024;
        let before = self.steps.get();
        let steps = before.saturating_add(rows as u64);
        self.steps.set(steps);
        if steps / LOOK > before / LOOK
            && let Some(stop) = self.cx.stop.0
        {
            stop()?;
        }
        if steps > self.cx.limits.catalog_rows {
            return Err(self.cx.limits.exceeded(
                "catalog_rows",
                SqlState::ProgramLimitExceeded,
                "the question looks at too many rows of the catalog",
            ));
        }
        Ok(())
    }

    /// So many bytes of rows and texts are made or handed to a function. What is let go again counts too: it
    /// has cost its time.
    pub fn charge(&self, bytes: usize) -> Result<()> {
        let made = self.made.get().saturating_add(bytes as u64);
        self.made.set(made);
        if made > self.cx.limits.result_bytes {
            return Err(self.cx.limits.exceeded(
                "result_bytes",
                SqlState::ProgramLimitExceeded,
                "the question makes too many texts and rows",
            ));
        }
        Ok(())
    }

    /// A text of so many bytes is about to be made.
    pub fn check_text(&self, bytes: usize) -> Result<()> {
        if bytes as u64 > self.cx.limits.text_bytes {
            return Err(self.cx.limits.exceeded(
                "text_bytes",
                SqlState::ProgramLimitExceeded,
                "the text is too long",
            ));
        }
        Ok(())
    }

    fn charge_row(&self, row: &Row) -> Result<()> {
        self.charge(size_of::<Row>() + row.len() * size_of::<Val>())
    }

    /// The rows of a question.
    pub fn plan(&self, plan: &Plan, outer: Option<&Frame<'_>>) -> Result<Rc<Vec<Row>>> {
        let keep = plan.reach.get() == 0;
        if keep && let Some(rows) = &*plan.kept.borrow() {
            return Ok(rows.clone());
        }
        let mut rows = match &plan.body {
            Body::Select(select) => self.select(select, outer)?,
            Body::Values(list) => {
                let frame = Frame { row: &[], outer };
                let mut rows = Vec::new();
                for cells in list {
                    self.step(1)?;
                    let row: Result<Row> = cells.iter().map(|n| self.eval(n, &frame)).collect();
                    let row = row?;
                    self.charge_row(&row)?;
                    rows.push(row);
                }
                rows
            }
            Body::Set {
                left,
                right,
                op,
                all,
            } => {
                let (left, right) = (self.plan(left, outer)?, self.plan(right, outer)?);
                self.step(left.len() + right.len())?;
                for row in left.iter().chain(right.iter()) {
                    self.charge_row(row)?;
                }
                set_operation(&left, &right, *op, *all)
            }
        };
        sort(&mut rows, &plan.order);
        let frame = Frame { row: &[], outer };
        let skip = self
            .count(plan.offset.as_ref(), &frame, "OFFSET")?
            .unwrap_or(0);
        let take = self.count(plan.limit.as_ref(), &frame, "LIMIT")?;
        if skip > 0 {
            rows.drain(..skip.min(rows.len()));
        }
        if let Some(take) = take {
            rows.truncate(take);
        }
        if rows.first().is_some_and(|r| r.len() > plan.columns.len()) {
            for row in &mut rows {
                row.truncate(plan.columns.len());
            }
        }
        let rows = Rc::new(rows);
        if keep {
            *plan.kept.borrow_mut() = Some(rows.clone());
        }
        Ok(rows)
    }

    fn count(&self, node: Option<&Node>, frame: &Frame<'_>, what: &str) -> Result<Option<usize>> {
        let Some(node) = node else { return Ok(None) };
        match self.eval(node, frame)? {
            Val::Null => Ok(None),
            Val::Int(n) if n >= 0 => Ok(Some(usize::try_from(n).unwrap_or(usize::MAX))),
            _ => Err(Error::new(
                SqlState::InvalidParameterValue,
                format!("{what} must not be negative"),
            )),
        }
    }

    fn select(&self, select: &Select, outer: Option<&Frame<'_>>) -> Result<Vec<Row>> {
        let (rows, rest) = self.from(&select.from, &select.filter, outer)?;
        let mut kept = Vec::new();
        for row in rows {
            let frame = Frame { row: &row, outer };
            if self.all(&rest, &frame)? {
                kept.push(row);
            }
        }
        if let Some((keys, aggs)) = &select.group {
            kept = self.group(kept, keys, aggs, select.from.width(), outer)?;
        }
        let mut out = Vec::with_capacity(kept.len());
        let mut seen = BTreeSet::new();
        for row in &kept {
            let frame = Frame { row, outer };
            if let Some(having) = &select.having
                && !self.eval(having, &frame)?.is_true()
            {
                continue;
            }
            if !select.distinct_on.is_empty() {
                let key: Result<Row> = select
                    .distinct_on
                    .iter()
                    .map(|n| self.eval(n, &frame))
                    .collect();
                if !seen.insert(Key(key?)) {
                    continue;
                }
            }
            let row: Result<Row> = select.output.iter().map(|n| self.eval(n, &frame)).collect();
            let row = row?;
            self.charge_row(&row)?;
            if !select.distinct || seen.insert(Key(row.clone())) {
                out.push(row);
            }
        }
        Ok(out)
    }

    fn all(&self, conditions: &[&Node], frame: &Frame<'_>) -> Result<bool> {
        for c in conditions {
            if !self.eval(c, frame)?.is_true() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The rows of FROM. Conditions of WHERE are applied as soon as their columns are there; those that
    /// could not be are handed back.
    fn from<'n>(
        &self,
        from: &From,
        filter: &'n [Node],
        outer: Option<&Frame<'_>>,
    ) -> Result<(Vec<Row>, Vec<&'n Node>)> {
        // A row that a RIGHT or FULL JOIN makes must not be filtered before it is made.
        let early = !from
            .items
            .iter()
            .any(|i| matches!(i.join, Join::Right | Join::Full));
        let mut waiting: Vec<(Option<usize>, &Node)> = filter
            .iter()
            .map(|n| {
                let past = n.reads().map(|c| c.into_iter().max().map_or(0, |m| m + 1));
                (past.filter(|_| early), n)
            })
            .collect();
        let mut rows: Vec<Row> = vec![Vec::new()];
        let mut width = 0;
        for item in &from.items {
            let past = width + item.width;
            let (now, later): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|(p, _)| p.is_some_and(|p| p <= past));
            waiting = later;
            let mut now: Vec<&Node> = now.into_iter().map(|(_, n)| n).collect();
            let mut on: Vec<&Node> = item.on.iter().collect();
            if item.join == Join::Inner {
                on.append(&mut now);
            }
            rows = self.join(&rows, width, item, &on, outer)?;
            width = past;
            if !now.is_empty() {
                let mut kept = Vec::new();
                for row in rows {
                    if self.all(&now, &Frame { row: &row, outer })? {
                        kept.push(row);
                    }
                }
                rows = kept;
            }
        }
        Ok((rows, waiting.into_iter().map(|(_, n)| n).collect()))
    }

    fn source(&self, source: &Source, frame: &Frame<'_>) -> Result<Rc<Vec<Row>>> {
        Ok(match source {
            Source::Table(table) => {
                if table.oid != 0
                    && let Some(rows) = self.loaded.borrow().get(&table.oid)
                {
                    return Ok(rows.clone());
                }
                let rows = Rc::new(tables::rows(self, table)?);
                if table.oid != 0 {
                    self.loaded.borrow_mut().insert(table.oid, rows.clone());
                }
                rows
            }
            Source::Plan(plan) => self.plan(plan, Some(frame))?,
            Source::Nested(from) => Rc::new(self.from(from, &[], frame.outer)?.0),
            Source::Unnest(node) => match self.eval(node, frame)? {
                Val::List(items) => {
                    self.step(items.len())?;
                    Rc::new(items.iter().map(|v| vec![v.clone()]).collect())
                }
                _ => Rc::default(),
            },
            Source::Series(args) => {
                let values: Result<Vec<Val>> = args.iter().map(|n| self.eval(n, frame)).collect();
                let values = values?;
                let int = |i: usize| values.get(i).map_or(Some(1), Val::as_int);
                let (Some(from), Some(to), Some(step)) = (int(0), int(1), int(2)) else {
                    return Ok(Rc::default());
                };
                if step == 0 {
                    return Err(Error::new(
                        SqlState::InvalidParameterValue,
                        "step size cannot equal zero",
                    ));
                }
                let mut rows = Vec::new();
                let mut at = Some(from);
                while let Some(i) = at.filter(|i| if step > 0 { *i <= to } else { *i >= to }) {
                    self.step(1)?;
                    rows.push(vec![Val::Int(i)]);
                    at = i.checked_add(step);
                }
                Rc::new(rows)
            }
            Source::Nothing => Rc::default(),
        })
    }

    fn join(
        &self,
        left: &[Row],
        width: usize,
        item: &Item,
        on: &[&Node],
        outer: Option<&Frame<'_>>,
    ) -> Result<Vec<Row>> {
        let mut out = Vec::new();
        let nulls = |n: usize| std::iter::repeat_n(Val::Null, n);
        let fixed = if item.lateral {
            None
        } else {
            Some(self.source(&item.source, &Frame { row: &[], outer })?)
        };
        // `left.a = right.b` finds its rows by key.
        let keys: Vec<(&Node, usize)> = on.iter().filter_map(|n| equality(n, width)).collect();
        let index = match &fixed {
            Some(rows) if !keys.is_empty() => {
                self.step(rows.len())?;
                let mut index: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
                for (i, row) in rows.iter().enumerate() {
                    let key: Option<Row> = keys
                        .iter()
                        .map(|(_, at)| row.get(at - width).filter(|v| !v.is_null()).cloned())
                        .collect();
                    if let Some(key) = key {
                        index.entry(Key(key)).or_default().push(i);
                    }
                }
                Some(index)
            }
            _ => None,
        };
        let mut matched = vec![false; fixed.as_ref().map_or(0, |r| r.len())];
        for l in left {
            let frame = Frame { row: l, outer };
            let right = match &fixed {
                Some(rows) => rows.clone(),
                None => self.source(&item.source, &frame)?,
            };
            let found: Option<&[usize]> = match &index {
                Some(index) => {
                    let key: Result<Row> = keys.iter().map(|(n, _)| self.eval(n, &frame)).collect();
                    Some(index.get(&Key(key?)).map_or(&[][..], Vec::as_slice))
                }
                None => None,
            };
            let candidates = found.map_or(right.len(), <[usize]>::len);
            self.step(candidates.max(1))?;
            let mut any = false;
            for c in 0..candidates {
                let i = found.and_then(|f| f.get(c).copied()).unwrap_or(c);
                let Some(r) = right.get(i) else { continue };
                let mut row = Vec::with_capacity(width + item.width);
                row.extend_from_slice(l);
                row.extend_from_slice(r);
                if self.all(on, &Frame { row: &row, outer })? {
                    any = true;
                    if let Some(m) = matched.get_mut(i) {
                        *m = true;
                    }
                    self.charge_row(&row)?;
                    out.push(row);
                }
            }
            if !any && matches!(item.join, Join::Left | Join::Full) {
                let mut row = l.clone();
                row.extend(nulls(item.width));
                self.charge_row(&row)?;
                out.push(row);
            }
        }
        if matches!(item.join, Join::Right | Join::Full)
            && let Some(rows) = &fixed
        {
            for (r, _) in rows.iter().zip(&matched).filter(|(_, m)| !**m) {
                let mut row: Row = nulls(width).collect();
                row.extend_from_slice(r);
                self.charge_row(&row)?;
                out.push(row);
            }
        }
        Ok(out)
    }

    fn group(
        &self,
        rows: Vec<Row>,
        keys: &[Node],
        aggs: &[Agg],
        width: usize,
        outer: Option<&Frame<'_>>,
    ) -> Result<Vec<Row>> {
        let mut groups: BTreeMap<Key, Vec<Row>> = BTreeMap::new();
        if keys.is_empty() {
            groups.insert(Key(Vec::new()), Vec::new());
        }
        for row in rows {
            let frame = Frame { row: &row, outer };
            let key: Result<Row> = keys.iter().map(|n| self.eval(n, &frame)).collect();
            groups.entry(Key(key?)).or_default().push(row);
        }
        let mut out = Vec::with_capacity(groups.len());
        for members in groups.into_values() {
            self.step(1)?;
            let values: Result<Row> = aggs
                .iter()
                .map(|a| self.aggregate(a, &members, outer))
                .collect();
            let mut row = members.into_iter().next().unwrap_or_default();
            row.resize(width, Val::Null);
            row.extend(values?);
            out.push(row);
        }
        Ok(out)
    }

    fn aggregate(&self, agg: &Agg, rows: &[Row], outer: Option<&Frame<'_>>) -> Result<Val> {
        let mut members: Vec<(Row, Val, Val)> = Vec::new();
        let mut seen = BTreeSet::new();
        for row in rows {
            let frame = Frame { row, outer };
            if let Some(filter) = &agg.filter
                && !self.eval(filter, &frame)?.is_true()
            {
                continue;
            }
            let value = match &agg.arg {
                Some(node) => self.eval(node, &frame)?,
                None => Val::Bool(true),
            };
            if value.is_null() && agg.kind != AggKind::Gather {
                continue;
            }
            if agg.distinct && !seen.insert(Key(vec![value.clone()])) {
                continue;
            }
            let order: Result<Row> = agg
                .order
                .iter()
                .map(|(n, ..)| self.eval(n, &frame))
                .collect();
            let separator = match &agg.separator {
                Some(node) => self.eval(node, &frame)?,
                None => Val::Null,
            };
            members.push((order?, value, separator));
        }
        let sorts: Vec<Sort> = agg
            .order
            .iter()
            .enumerate()
            .map(|(column, (_, descending, nulls_first))| Sort {
                column,
                descending: *descending,
                nulls_first: *nulls_first,
            })
            .collect();
        if !sorts.is_empty() {
            members.sort_by(|a, b| by_keys(&a.0, &b.0, &sorts));
        }
        let values = members.iter().map(|(_, v, _)| v);
        Ok(match agg.kind {
            AggKind::Count => Val::Int(i64::try_from(members.len()).unwrap_or(i64::MAX)),
            AggKind::Min => values
                .min_by(|a, b| a.order(b))
                .cloned()
                .unwrap_or(Val::Null),
            AggKind::Max => values
                .max_by(|a, b| a.order(b))
                .cloned()
                .unwrap_or(Val::Null),
            _ if members.is_empty() => Val::Null,
            AggKind::Sum if agg.ty == Ty::Int8 => {
                let sum = values
                    .filter_map(Val::as_int)
                    .try_fold(0i64, i64::checked_add);
                Val::Int(sum.ok_or_else(|| out_of_range(Ty::Int8))?)
            }
            AggKind::Sum => Val::Float(values.filter_map(Val::as_float).sum()),
            AggKind::Avg => {
                let sum: f64 = values.filter_map(Val::as_float).sum();
                Val::Float(sum / members.len() as f64)
            }
            AggKind::Join => {
                let mut text = String::new();
                for (i, (_, value, separator)) in members.iter().enumerate() {
                    if i > 0 {
                        text.push_str(separator.as_text().unwrap_or(""));
                    }
                    text.push_str(value.as_text().unwrap_or(""));
                    self.check_text(text.len())?;
                }
                self.charge(text.len())?;
                Val::text(text)
            }
            AggKind::Gather => {
                self.charge(members.len() * size_of::<Val>())?;
                Val::List(values.cloned().collect())
            }
            AggKind::Every => Val::Bool(members.iter().all(|(_, v, _)| v.is_true())),
            AggKind::Some => Val::Bool(members.iter().any(|(_, v, _)| v.is_true())),
        })
    }

    /// The value of an expression.
    pub fn eval(&self, node: &Node, frame: &Frame<'_>) -> Result<Val> {
        Ok(match node {
            Node::Const(v) => v.clone(),
            Node::Param(i) => self.params.get(*i).cloned().unwrap_or(Val::Null),
            Node::Column { up, at } => {
                let mut frame = frame;
                for _ in 0..*up {
                    match frame.outer {
                        Some(outer) => frame = outer,
                        None => return Err(Error::internal("a column of no question around this")),
                    }
                }
                frame.row.get(*at).cloned().unwrap_or(Val::Null)
            }
            Node::Cast { node, from, to } => cast(self, &self.eval(node, frame)?, *from, *to)?,
            Node::Not(n) => match self.eval(n, frame)? {
                Val::Bool(b) => Val::Bool(!b),
                _ => Val::Null,
            },
            Node::And(list) => self.logic(list, frame, false)?,
            Node::Or(list) => self.logic(list, frame, true)?,
            Node::IsNull { node, negated } => {
                Val::Bool(self.eval(node, frame)?.is_null() != *negated)
            }
            Node::IsBool {
                node,
                value,
                negated,
            } => Val::Bool((self.eval(node, frame)? == Val::Bool(*value)) != *negated),
            Node::Compare { op, left, right } => {
                self.compare(*op, &self.eval(left, frame)?, &self.eval(right, frame)?)?
            }
            Node::Each {
                op,
                left,
                list,
                all,
            } => self.each(*op, left, list, *all, frame)?,
            Node::Math { .. } => self.math(node, frame)?,
            Node::Neg(n) => match self.eval(n, frame)? {
                Val::Int(i) => Val::Int(i.checked_neg().ok_or_else(|| out_of_range(Ty::Int8))?),
                Val::Float(f) => Val::Float(-f),
                _ => Val::Null,
            },
            Node::Case {
                branches,
                otherwise,
            } => {
                for (when, then) in branches {
                    if self.eval(when, frame)?.is_true() {
                        return self.eval(then, frame);
                    }
                }
                match otherwise {
                    Some(n) => self.eval(n, frame)?,
                    None => Val::Null,
                }
            }
            Node::Coalesce(list) => {
                for n in list {
                    let v = self.eval(n, frame)?;
                    if !v.is_null() {
                        return Ok(v);
                    }
                }
                Val::Null
            }
            Node::Call {
                function,
                args,
                types,
            } => {
                let values: Result<Vec<Val>> = args.iter().map(|n| self.eval(n, frame)).collect();
                let values = values?;
                if function.strict && values.iter().any(Val::is_null) {
                    return Ok(Val::Null);
                }
                self.charge(values.iter().map(Val::bytes).sum())?;
                let made = (function.run)(self, &values, types)?;
                if let Val::Text(text) = &made {
                    self.check_text(text.len())?;
                }
                self.charge(made.bytes())?;
                made
            }
            Node::List(list) => {
                self.charge(list.len() * size_of::<Val>())?;
                let values: Result<Vec<Val>> = list.iter().map(|n| self.eval(n, frame)).collect();
                Val::List(values?.into())
            }
            Node::Index { list, index } => {
                match (self.eval(list, frame)?, self.eval(index, frame)?) {
                    (Val::List(l), Val::Int(i)) => {
                        let at = i.checked_sub(1).and_then(|i| usize::try_from(i).ok());
                        at.and_then(|i| l.get(i).cloned()).unwrap_or(Val::Null)
                    }
                    _ => Val::Null,
                }
            }
            Node::Scalar(plan) => {
                let rows = self.plan(plan, Some(frame))?;
                if rows.len() > 1 {
                    return Err(Error::new(
                        SqlState::ProgramLimitExceeded,
                        "more than one row returned by a subquery used as an expression",
                    ));
                }
                let row = rows.first().and_then(|r| r.first());
                row.cloned().unwrap_or(Val::Null)
            }
            Node::ListOf(plan) => {
                let rows = self.plan(plan, Some(frame))?;
                self.charge(rows.len() * size_of::<Val>())?;
                Val::List(rows.iter().filter_map(|r| r.first().cloned()).collect())
            }
            Node::Exists(plan) => Val::Bool(!self.plan(plan, Some(frame))?.is_empty()),
        })
    }

    /// AND (`ends` false) and OR (`ends` true) of three-valued logic.
    fn logic(&self, list: &[Node], frame: &Frame<'_>, ends: bool) -> Result<Val> {
        let mut unknown = false;
        for n in list {
            match self.eval(n, frame)? {
                Val::Bool(b) if b == ends => return Ok(Val::Bool(ends)),
                Val::Bool(_) => {}
                _ => unknown = true,
            }
        }
        Ok(if unknown { Val::Null } else { Val::Bool(!ends) })
    }

    fn each(&self, op: Op, left: &Node, list: &Node, all: bool, frame: &Frame<'_>) -> Result<Val> {
        let left = self.eval(left, frame)?;
        let Val::List(items) = self.eval(list, frame)? else {
            return Ok(Val::Null);
        };
        self.step(items.len())?;
        let mut unknown = false;
        for item in items.iter() {
            match self.compare(op, &left, item)? {
                Val::Bool(b) if b != all => return Ok(Val::Bool(b)),
                Val::Bool(_) => {}
                _ => unknown = true,
            }
        }
        Ok(if unknown { Val::Null } else { Val::Bool(all) })
    }

    fn compare(&self, op: Op, left: &Val, right: &Val) -> Result<Val> {
        match op {
            Op::Distinct => return Ok(Val::Bool(left.order(right).is_ne())),
            Op::NotDistinct => return Ok(Val::Bool(left.order(right).is_eq())),
            _ if left.is_null() || right.is_null() => return Ok(Val::Null),
            _ => {}
        }
        let order = left.order(right);
        Ok(Val::Bool(match op {
            Op::Eq => order.is_eq(),
            Op::Ne => order.is_ne(),
            Op::Lt => order.is_lt(),
            Op::Le => order.is_le(),
            Op::Gt => order.is_gt(),
            Op::Ge => order.is_ge(),
            Op::Distinct | Op::NotDistinct => return Ok(Val::Null),
            Op::Like {
                insensitive,
                negated,
            } => {
                let pattern = like_regex(right.as_text().unwrap_or(""))?;
                self.matches(left, &pattern, insensitive)? != negated
            }
            Op::Regex {
                insensitive,
                negated,
            } => {
                let pattern = right.as_text().unwrap_or("");
                self.matches(left, pattern, insensitive)? != negated
            }
        }))
    }

    fn matches(&self, text: &Val, pattern: &str, insensitive: bool) -> Result<bool> {
        let regex = self.regex(pattern, insensitive)?;
        Ok(regex.is_match(text.as_text().unwrap_or("")))
    }

    /// A pattern, compiled once.
    pub fn regex(&self, pattern: &str, insensitive: bool) -> Result<Rc<Regex>> {
        let key = (pattern.to_owned(), insensitive);
        if let Some(regex) = self.regexes.borrow().get(&key) {
            return Ok(regex.clone());
        }
        let regex = regex::RegexBuilder::new(pattern)
            .case_insensitive(insensitive)
            .size_limit(REGEX_BYTES)
            .build()
            .map_err(|_| {
                let shown: String = pattern.chars().take(60).collect();
                Error::new(
                    SqlState::InvalidParameterValue,
                    format!("invalid regular expression: \"{shown}\""),
                )
            })?;
        let regex = Rc::new(regex);
        let mut kept = self.regexes.borrow_mut();
        if kept.len() < MAX_REGEXES {
            kept.insert(key, regex.clone());
        }
        Ok(regex)
    }

    fn math(&self, node: &Node, frame: &Frame<'_>) -> Result<Val> {
        use super::plan::Math;
        let Node::Math {
            op,
            left,
            right,
            ty,
        } = node
        else {
            return Ok(Val::Null);
        };
        let (left, right) = (self.eval(left, frame)?, self.eval(right, frame)?);
        let zero = || Error::new(SqlState::DivisionByZero, "division by zero");
        match (left, right) {
            (Val::Int(a), Val::Int(b)) if *ty != Ty::Float8 => {
                if b == 0 && matches!(op, Math::Div | Math::Rem) {
                    return Err(zero());
                }
                let r = match op {
                    Math::Add => a.checked_add(b),
                    Math::Sub => a.checked_sub(b),
                    Math::Mul => a.checked_mul(b),
                    Math::Div => a.checked_div(b),
                    Math::Rem => Some(a.checked_rem(b).unwrap_or(0)),
                    Math::And => Some(a & b),
                    Math::Or => Some(a | b),
                };
                in_range(r.ok_or_else(|| out_of_range(*ty))?, *ty)
            }
            (Val::Null, _) | (_, Val::Null) => Ok(Val::Null),
            (a, b) => {
                let (Some(a), Some(b)) = (a.as_float(), b.as_float()) else {
                    return Ok(Val::Null);
                };
                if b == 0.0 && matches!(op, Math::Div | Math::Rem) {
                    return Err(zero());
                }
                let r = match op {
                    Math::Add => a + b,
                    Math::Sub => a - b,
                    Math::Mul => a * b,
                    Math::Div => a / b,
                    Math::Rem => a % b,
                    Math::And | Math::Or => return Ok(Val::Null),
                };
                if r.is_finite() {
                    Ok(Val::Float(r))
                } else {
                    Err(out_of_range(*ty))
                }
            }
        }
    }

    /// A value as text, for functions.
    pub fn shown(&self, v: &Val, ty: Ty) -> String {
        show(self, v, ty)
    }
}

fn out_of_range(ty: Ty) -> Error {
    Error::new(
        SqlState::NumericOutOfRange,
        format!("{} out of range", ty.name()),
    )
}

/// `left = right column` as the node of the left and the column, when the condition is one.
fn equality(node: &Node, width: usize) -> Option<(&Node, usize)> {
    let Node::Compare {
        op: Op::Eq,
        left,
        right,
    } = node
    else {
        return None;
    };
    let side = |key: &Node, other: &Node| match key {
        Node::Column { up: 0, at } if *at >= width => {
            let before = other.reads()?.into_iter().all(|c| c < width);
            before.then_some(*at)
        }
        _ => None,
    };
    side(right, left)
        .map(|at| (&**left, at))
        .or_else(|| side(left, right).map(|at| (&**right, at)))
}

/// LIKE's pattern as a regular expression over the whole text.
fn like_regex(pattern: &str) -> Result<String> {
    let mut out = String::from("(?s)^");
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '%' => {
                out.push_str(".*");
                continue;
            }
            '_' => {
                out.push('.');
                continue;
            }
            '\\' => chars.next().ok_or_else(|| {
                Error::new(
                    SqlState::InvalidParameterValue,
                    "LIKE pattern must not end with escape character",
                )
            })?,
            c => c,
        };
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
    out.push('$');
    Ok(out)
}

fn by_keys(a: &[Val], b: &[Val], order: &[Sort]) -> Ordering {
    for s in order {
        let (Some(a), Some(b)) = (a.get(s.column), b.get(s.column)) else {
            continue;
        };
        let o = match (a.is_null(), b.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if s.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if s.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ if s.descending => b.order(a),
            _ => a.order(b),
        };
        if o.is_ne() {
            return o;
        }
    }
    Ordering::Equal
}

fn sort(rows: &mut [Row], order: &[Sort]) {
    if !order.is_empty() {
        rows.sort_by(|a, b| by_keys(a, b, order));
    }
}

fn set_operation(left: &[Row], right: &[Row], op: SetOp, all: bool) -> Vec<Row> {
    let mut counts: BTreeMap<Key, usize> = BTreeMap::new();
    for row in right {
        *counts.entry(Key(row.clone())).or_default() += 1;
    }
    let mut seen = BTreeSet::new();
    let mut fresh = |row: &Row| all || seen.insert(Key(row.clone()));
    match op {
        SetOp::Union => left
            .iter()
            .chain(right)
            .filter(|r| fresh(r))
            .cloned()
            .collect(),
        SetOp::Except | SetOp::Intersect => {
            let mut out = Vec::new();
            for row in left {
                let there = counts.get_mut(&Key(row.clone())).filter(|n| **n > 0);
                let hit = there.is_some();
                if let Some(n) = there.filter(|_| all) {
                    *n -= 1;
                }
                if hit == (op == SetOp::Intersect) && fresh(row) {
                    out.push(row.clone());
                }
            }
            out
        }
    }
}
