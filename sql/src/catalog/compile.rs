//! Looks up the names of a question: `sqlparser`'s tree becomes a [`Plan`] over positions. Whatever it does
//! not know is refused by name.

use super::from::alias_columns;
use super::plan::{Body, From, Item, Join, Node, Plan, Select, SetOp, Sort, Source};
use super::tables::{self, TableRef};
use super::value::{Ty, Val};
use super::{Compiler, fold};
use crate::types::check_width;
use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, LimitClause, ObjectName, OrderBy, OrderByExpr, OrderByKind, Query,
    Select as SqlSelect, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, SetOperator,
    SetQuantifier, TableAlias, Value,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};

/// A column in sight.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Its table's alias.
    pub table: Rc<str>,
    pub name: Rc<str>,
    pub ty: Ty,
    /// Not of `*`, and not found without its table: `tableoid`, the second column of USING.
    pub hidden: bool,
}

/// The columns in sight of an expression, and those of the questions around it.
pub(super) struct Scope<'s> {
    pub columns: Vec<Seen>,
    pub outer: Option<&'s Scope<'s>>,
}

/// An error that names what is refused.
pub(super) fn refuse(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("{what} is not supported in catalog questions"))
}

/// The parts of a name, folded.
pub(super) fn parts(name: &ObjectName) -> Result<Vec<String>> {
    let part = |p: &sqlparser::ast::ObjectNamePart| p.as_ident().map(fold);
    let parts: Option<Vec<String>> = name.0.iter().map(part).collect();
    parts.ok_or_else(|| refuse(format_args!("the name {name}")))
}

/// What an expression's column is called when it has no alias, as in PostgreSQL.
fn default_name(expr: &Expr) -> String {
    let name = |n: &ObjectName| {
        let last = n.0.last().and_then(|p| p.as_ident());
        last.map_or_else(String::new, fold)
    };
    match expr {
        Expr::Identifier(i) => fold(i),
        Expr::CompoundIdentifier(list) => list.last().map_or_else(String::new, fold),
        Expr::Function(f) => name(&f.name),
        Expr::Cast {
            expr, data_type, ..
        } => match default_name(expr).as_str() {
            "?column?" => super::expr::type_word(data_type),
            inner => inner.to_owned(),
        },
        Expr::TypedString(t) => super::expr::type_word(&t.data_type),
        Expr::Nested(e) | Expr::Collate { expr: e, .. } => default_name(e),
        Expr::CompoundFieldAccess { root, .. } => default_name(root),
        Expr::Case { else_result, .. } => {
            match else_result.as_deref().map(default_name).as_deref() {
                None | Some("?column?") => "case".to_owned(),
                Some(other) => other.to_owned(),
            }
        }
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Substring { .. } => "substring".to_owned(),
        Expr::Trim { .. } => "btrim".to_owned(),
        Expr::Position { .. } => "position".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        Expr::Value(v) if matches!(v.value, Value::Boolean(_)) => "bool".to_owned(),
        Expr::Subquery(q) => match &*q.body {
            SetExpr::Select(s) => match s.projection.first() {
                Some(SelectItem::UnnamedExpr(e)) => default_name(e),
                Some(SelectItem::ExprWithAlias { alias, .. }) => fold(alias),
                _ => "?column?".to_owned(),
            },
            _ => "?column?".to_owned(),
        },
        _ => "?column?".to_owned(),
    }
}

impl Compiler<'_> {
    /// A question with what stands around it in sight.
    pub fn query(&self, q: &Query, outer: Option<&Scope<'_>>) -> Result<Rc<Plan>> {
        let depth = self.depth.get();
        if depth > self.cx.limits.nesting_depth {
            return Err(self.cx.limits.exceeded(
                "nesting_depth",
                SqlState::StatementTooComplex,
                "the question is nested too deep",
            ));
        }
        self.depth.set(depth + 1);
        let with = self.with.borrow().len();
        let saved = self.reach.replace(0);
        let aggregates = self.aggregates.replace(None);
        let result = self.query_inner(q, outer);
        self.aggregates.replace(aggregates);
        self.with.borrow_mut().truncate(with);
        self.depth.set(depth);
        // What this question reads further out, the one around it reads too.
        let reach = self.reach.get();
        self.reach.set(saved.max(reach.saturating_sub(1)));
        let plan = result?;
        plan.reach.set(reach);
        Ok(Rc::new(plan))
    }

    fn query_inner(&self, q: &Query, outer: Option<&Scope<'_>>) -> Result<Plan> {
        if let Some(with) = &q.with {
            if with.recursive {
                return Err(refuse("WITH RECURSIVE"));
            }
            for cte in &with.cte_tables {
                let plan = self.query(&cte.query, outer)?;
                let plan = renamed(plan, &cte.alias)?;
                self.with
                    .borrow_mut()
                    .push((fold(&cte.alias.name), plan, self.depth.get()));
            }
        }
        for (there, what) in [
            (q.for_clause.is_some(), "FOR XML"),
            (
                q.settings.is_some() || q.format_clause.is_some(),
                "SETTINGS",
            ),
            (!q.pipe_operators.is_empty(), "|>"),
        ] {
            if there {
                return Err(refuse(what));
            }
        }
        let empty = Vec::new();
        let order = match &q.order_by {
            None => &empty,
            Some(OrderBy {
                kind: OrderByKind::Expressions(list),
                ..
            }) => list,
            Some(_) => return Err(refuse("ORDER BY ALL")),
        };
        let mut plan = self.body(&q.body, order, outer)?;
        let scope = Scope {
            columns: Vec::new(),
            outer,
        };
        let number = |e: &Expr| -> Result<Node> {
            let (node, ty) = self.expr(e, &scope)?;
            self.coerce(node, ty, Ty::Int8)
        };
        match &q.limit_clause {
            None => {}
            Some(LimitClause::LimitOffset {
                limit,
                offset,
                limit_by,
            }) => {
                if !limit_by.is_empty() {
                    return Err(refuse("LIMIT BY"));
                }
                plan.limit = limit.as_ref().map(number).transpose()?;
                plan.offset = offset.as_ref().map(|o| number(&o.value)).transpose()?;
            }
            Some(LimitClause::OffsetCommaLimit { .. }) => return Err(refuse("LIMIT n, m")),
        }
        if let Some(fetch) = &q.fetch {
            if fetch.with_ties || fetch.percent || plan.limit.is_some() {
                return Err(refuse("this form of FETCH"));
            }
            plan.limit = Some(match &fetch.quantity {
                Some(e) => number(e)?,
                None => Node::Const(Val::Int(1)),
            });
        }
        Ok(plan)
    }

    fn body(
        &self,
        body: &SetExpr,
        order: &[OrderByExpr],
        outer: Option<&Scope<'_>>,
    ) -> Result<Plan> {
        match body {
            SetExpr::Select(s) => self.select(s, order, outer),
            SetExpr::Query(q) if order.is_empty() => {
                let inner = self.query_inner(q, outer)?;
                if inner.limit.is_none() && inner.offset.is_none() {
                    return Ok(inner);
                }
                Ok(self.over(inner))
            }
            SetExpr::Query(q) => {
                let mut plan = self.query_inner(q, outer)?;
                if plan.limit.is_some() || plan.offset.is_some() {
                    plan = self.over(plan);
                }
                plan.order = sort_keys(&plan, order)?;
                Ok(plan)
            }
            SetExpr::Values(values) => {
                let scope = Scope {
                    columns: Vec::new(),
                    outer,
                };
                let mut rows: Vec<Vec<(Node, Ty)>> = Vec::new();
                for row in &values.rows {
                    let cells = row.content.iter().map(|e| self.expr(e, &scope));
                    rows.push(cells.collect::<Result<_>>()?);
                }
                let width = rows.first().map_or(0, Vec::len);
                if rows.iter().any(|r| r.len() != width) {
                    return Err(Error::new(
                        SqlState::SyntaxError,
                        "VALUES lists must all be the same length",
                    ));
                }
                let mut columns = Vec::new();
                let mut nodes: Vec<Vec<Node>> = vec![Vec::new(); rows.len()];
                for c in 0..width {
                    let cells = rows.iter().filter_map(|r| r.get(c).cloned()).collect();
                    let (cells, ty) = self.unify(cells, "VALUES")?;
                    columns.push((format!("column{}", c + 1).into(), ty));
                    for (row, cell) in nodes.iter_mut().zip(cells) {
                        row.push(cell);
                    }
                }
                let mut plan = plan(columns, Body::Values(nodes));
                plan.order = sort_keys(&plan, order)?;
                Ok(plan)
            }
            SetExpr::SetOperation {
                left,
                op,
                set_quantifier,
                right,
            } => {
                let op = match op {
                    SetOperator::Union => SetOp::Union,
                    SetOperator::Except | SetOperator::Minus => SetOp::Except,
                    SetOperator::Intersect => SetOp::Intersect,
                };
                let all = match set_quantifier {
                    SetQuantifier::All => true,
                    SetQuantifier::None | SetQuantifier::Distinct => false,
                    other => return Err(refuse(other)),
                };
                let (left, right) = (self.body(left, &[], outer)?, self.body(right, &[], outer)?);
                if left.columns.len() != right.columns.len() {
                    return Err(Error::new(
                        SqlState::SyntaxError,
                        "each side of a set operation must have the same number of columns",
                    ));
                }
                let mut columns = Vec::new();
                for ((name, a), (_, b)) in left.columns.iter().zip(&right.columns) {
                    let ty = a.unify(*b).ok_or_else(|| mismatch("UNION", *a, *b))?;
                    columns.push((name.clone(), ty));
                }
                let types: Vec<Ty> = columns.iter().map(|(_, t)| *t).collect();
                let (left, right) = (self.casts(left, &types)?, self.casts(right, &types)?);
                let (left, right) = (self.reaching(left), self.reaching(right));
                let mut plan = plan(
                    columns,
                    Body::Set {
                        left,
                        right,
                        op,
                        all,
                    },
                );
                plan.order = sort_keys(&plan, order)?;
                Ok(plan)
            }
            SetExpr::Table(t) => {
                let name = t.table_name.clone().unwrap_or_default();
                let table = self.table(t.schema_name.as_deref(), &name)?;
                let columns = table.columns.as_ref().clone();
                let output = (0..columns.len())
                    .map(|at| Node::Column { up: 0, at })
                    .collect();
                let width = columns.len() + usize::from(table.schema == "pg_catalog");
                let item = item(Source::Table(table), width);
                let select = select_of(From { items: vec![item] }, output);
                Ok(plan(columns, Body::Select(Box::new(select))))
            }
            _ => Err(refuse("writing")),
        }
    }

    /// Parts of a set operation stand in the same question: they read as far out as it does.
    fn reaching(&self, plan: Plan) -> Rc<Plan> {
        plan.reach.set(self.reach.get());
        Rc::new(plan)
    }

    /// A question whose rows are those of another, which has its own order and limit.
    fn over(&self, inner: Plan) -> Plan {
        let columns = inner.columns.clone();
        let output = (0..columns.len())
            .map(|at| Node::Column { up: 0, at })
            .collect();
        // One level further out now, where the frame of this question stands between.
        let reach = self.reach.get();
        let inner = Rc::new(inner);
        inner.reach.set(if reach == 0 { 0 } else { reach + 1 });
        let mut item = item(Source::Plan(inner), columns.len());
        item.lateral = false;
        let select = select_of(From { items: vec![item] }, output);
        plan(columns, Body::Select(Box::new(select)))
    }

    /// The same rows with their columns cast.
    pub fn casts(&self, mut plan: Plan, types: &[Ty]) -> Result<Plan> {
        let from: Vec<Ty> = plan.columns.iter().map(|(_, t)| *t).collect();
        if from == types {
            return Ok(plan);
        }
        match &mut plan.body {
            Body::Select(select) => {
                for ((node, from), to) in select.output.iter_mut().zip(&from).zip(types) {
                    *node = self.coerce(node.clone(), *from, *to)?;
                }
            }
            Body::Values(rows) => {
                for row in rows {
                    for ((node, from), to) in row.iter_mut().zip(&from).zip(types) {
                        *node = self.coerce(node.clone(), *from, *to)?;
                    }
                }
            }
            Body::Set { .. } => {
                let over = self.over(plan);
                return self.casts(over, types);
            }
        }
        for ((_, ty), to) in plan.columns.iter_mut().zip(types) {
            *ty = *to;
        }
        Ok(plan)
    }

    fn select(
        &self,
        s: &SqlSelect,
        order: &[OrderByExpr],
        outer: Option<&Scope<'_>>,
    ) -> Result<Plan> {
        for (there, what) in [
            (s.top.is_some(), "TOP"),
            (s.exclude.is_some(), "EXCLUDE"),
            (s.into.is_some(), "SELECT INTO"),
            (!s.lateral_views.is_empty(), "LATERAL VIEW"),
            (s.prewhere.is_some(), "PREWHERE"),
            (!s.connect_by.is_empty(), "CONNECT BY"),
            (
                !s.cluster_by.is_empty() || !s.distribute_by.is_empty(),
                "CLUSTER BY",
            ),
            (!s.sort_by.is_empty(), "SORT BY"),
            (!s.named_window.is_empty(), "WINDOW"),
            (s.qualify.is_some(), "QUALIFY"),
            (s.value_table_mode.is_some(), "SELECT AS"),
        ] {
            if there {
                return Err(refuse(what));
            }
        }
        let (from, columns) = self.from(&s.from, outer)?;
        let scope = Scope { columns, outer };
        let filter = match &s.selection {
            Some(e) => conjuncts(self.condition(e, &scope, "WHERE")?),
            None => Vec::new(),
        };
        // From here on aggregates may stand; they become columns behind those of FROM.
        let width = scope.columns.len();
        let around = self.aggregates.replace(Some((width, Vec::new())));
        let result = self.outputs(s, order, &scope);
        let aggs = self
            .aggregates
            .replace(around)
            .map_or_else(Vec::new, |(_, list)| list);
        let out = result?;
        let mut select = select_of(from, out.nodes);
        select.filter = filter;
        select.having = out.having;
        select.distinct = matches!(s.distinct, Some(Distinct::Distinct));
        select.distinct_on = out.distinct_on;
        if !aggs.is_empty() || !out.keys.is_empty() || select.having.is_some() {
            let known: Vec<String> = out.keys.iter().map(|k| format!("{k:?}")).collect();
            for node in select.output.iter().chain(&select.having) {
                grouped(node, &known, &scope)?;
            }
            select.group = Some((out.keys, aggs));
        }
        if select.distinct && select.output.len() > out.columns.len() {
            return Err(Error::new(
                SqlState::GroupingError,
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
            ));
        }
        // DISTINCT ON takes the first row of each in the order asked for.
        if !select.distinct_on.is_empty() && !out.order.is_empty() {
            return Err(refuse("DISTINCT ON with ORDER BY"));
        }
        let mut plan = plan(out.columns, Body::Select(Box::new(select)));
        plan.order = out.order;
        Ok(plan)
    }

    fn outputs(&self, s: &SqlSelect, order: &[OrderByExpr], scope: &Scope<'_>) -> Result<Outputs> {
        let mut out = Outputs::default();
        for item in &s.projection {
            match item {
                SelectItem::UnnamedExpr(e) => {
                    let (node, ty) = self.expr(e, scope)?;
                    out.push(&default_name(e), node, ty);
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let (node, ty) = self.expr(expr, scope)?;
                    out.push(&fold(alias), node, ty);
                }
                SelectItem::Wildcard(_) => {
                    if scope.columns.is_empty() {
                        return Err(Error::new(
                            SqlState::SyntaxError,
                            "SELECT * with no tables specified is not valid",
                        ));
                    }
                    out.star(scope, None);
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let name = parts(name)?;
                    let table = name.last().map_or("", String::as_str);
                    if !scope.columns.iter().any(|c| &*c.table == table) {
                        return Err(missing_from(table));
                    }
                    out.star(scope, Some(table));
                }
                other => return Err(refuse(other)),
            }
            check_width(out.nodes.len())?;
        }
        let visible = out.nodes.len();
        // Ordinals and aliases stand for items of the list.
        let item = |e: &Expr, out: &Outputs, alias_first: bool| -> Result<Option<usize>> {
            match e {
                Expr::Value(v) => match &v.value {
                    Value::Number(n, _) => match n.parse::<usize>() {
                        Ok(n) if (1..=visible).contains(&n) => Ok(Some(n - 1)),
                        _ => Err(Error::new(
                            SqlState::InvalidColumnReference,
                            format!("position {n} is not in select list"),
                        )),
                    },
                    _ => Ok(None),
                },
                Expr::Identifier(i) => {
                    let name = fold(i);
                    if !alias_first && scope.columns.iter().any(|c| *c.name == *name) {
                        return Ok(None);
                    }
                    Ok(out.columns.iter().position(|(n, _)| **n == *name))
                }
                _ => Ok(None),
            }
        };
        match &s.group_by {
            GroupByExpr::Expressions(list, modifiers) if modifiers.is_empty() => {
                for e in list {
                    let node = match item(e, &out, false)? {
                        Some(i) => out.nodes[i].clone(),
                        None => self.expr(e, scope)?.0,
                    };
                    out.keys.push(node);
                }
            }
            GroupByExpr::All(_) | GroupByExpr::Expressions(..) => {
                return Err(refuse("this form of GROUP BY"));
            }
        }
        if let Some(e) = &s.having {
            out.having = Some(self.condition(e, scope, "HAVING")?);
        }
        if let Some(Distinct::On(list)) = &s.distinct {
            for e in list {
                let node = match item(e, &out, true)? {
                    Some(i) => out.nodes[i].clone(),
                    None => self.expr(e, scope)?.0,
                };
                out.distinct_on.push(node);
            }
        }
        for o in order {
            let column = match item(&o.expr, &out, true)? {
                Some(i) => i,
                None => {
                    let (node, ty) = self.expr(&o.expr, scope)?;
                    let shown = format!("{node:?}");
                    match out.nodes[..visible]
                        .iter()
                        .position(|n| format!("{n:?}") == shown)
                    {
                        Some(i) => i,
                        None => {
                            let node = self.coerce(
                                node,
                                ty,
                                if ty == Ty::Unknown { Ty::Text } else { ty },
                            )?;
                            out.nodes.push(node);
                            out.nodes.len() - 1
                        }
                    }
                }
            };
            out.order.push(sort_of(column, o));
        }
        Ok(out)
    }

    /// A table of the catalog.
    pub fn table(&self, schema: Option<&str>, name: &str) -> Result<TableRef> {
        let found = tables::find(self.cx, schema, name);
        let Some(table) = found else {
            if matches!(schema, None | Some("public")) && self.cx.catalog.table(name).is_some() {
                return Err(refuse(format_args!(
                    "reading table \"{name}\" in a subquery"
                )));
            }
            let full = schema.map_or_else(|| name.to_owned(), |s| format!("{s}.{name}"));
            return Err(Error::new(
                SqlState::UndefinedTable,
                format!("relation \"{full}\" does not exist"),
            ));
        };
        if table.schema == "$sys" {
            self.named.borrow_mut().insert(format!("$sys.{name}"));
            if table.columns.is_empty() {
                self.untold.set(true);
            }
        }
        Ok(table)
    }

    /// A condition.
    pub fn condition(&self, e: &Expr, scope: &Scope<'_>, what: &str) -> Result<Node> {
        let (node, ty) = self.expr(e, scope)?;
        if !matches!(ty, Ty::Bool | Ty::Unknown) {
            return Err(Error::new(
                SqlState::DatatypeMismatch,
                format!(
                    "argument of {what} must be type boolean, not type {}",
                    ty.name()
                ),
            ));
        }
        self.coerce(node, ty, Ty::Bool)
    }

    /// The column of that name; further out when this question has none.
    pub fn column(&self, table: Option<&str>, name: &str, scope: &Scope<'_>) -> Result<(Node, Ty)> {
        let (mut up, mut at_scope) = (0, Some(scope));
        let mut table_seen = false;
        while let Some(s) = at_scope {
            let hit = |c: &Seen| *c.name == *name && table.map_or(!c.hidden, |t| *c.table == *t);
            let mut hits = s.columns.iter().enumerate().filter(|(_, c)| hit(c));
            table_seen |= s
                .columns
                .iter()
                .any(|c| table.is_some_and(|t| *c.table == *t));
            if let Some((at, c)) = hits.next() {
                if hits.next().is_some() {
                    return Err(Error::new(
                        SqlState::AmbiguousColumn,
                        format!("column reference \"{name}\" is ambiguous"),
                    ));
                }
                self.reach.set(self.reach.get().max(up));
                return Ok((Node::Column { up, at }, c.ty));
            }
            up += 1;
            at_scope = s.outer;
        }
        match table {
            Some(t) if !table_seen => Err(missing_from(t)),
            Some(t) => Err(Error::new(
                SqlState::UndefinedColumn,
                format!("column {t}.{name} does not exist"),
            )),
            None => Err(Error::new(
                SqlState::UndefinedColumn,
                format!("column \"{name}\" does not exist"),
            )),
        }
    }
}

#[derive(Default)]
struct Outputs {
    columns: Vec<(Rc<str>, Ty)>,
    nodes: Vec<Node>,
    keys: Vec<Node>,
    having: Option<Node>,
    distinct_on: Vec<Node>,
    order: Vec<Sort>,
}

impl Outputs {
    fn push(&mut self, name: &str, node: Node, ty: Ty) {
        self.columns.push((name.into(), ty));
        self.nodes.push(node);
    }
    fn star(&mut self, scope: &Scope<'_>, table: Option<&str>) {
        for (at, c) in scope.columns.iter().enumerate() {
            if !c.hidden && table.is_none_or(|t| *c.table == *t) {
                self.columns.push((c.name.clone(), c.ty));
                self.nodes.push(Node::Column { up: 0, at });
            }
        }
    }
}

pub(super) fn missing_from(table: &str) -> Error {
    Error::new(
        SqlState::UndefinedTable,
        format!("missing FROM-clause entry for table \"{table}\""),
    )
}

/// The error of types that do not go together.
pub(super) fn mismatch(what: &str, a: Ty, b: Ty) -> Error {
    Error::new(
        SqlState::DatatypeMismatch,
        format!(
            "{what} types {} and {} cannot be matched",
            a.name(),
            b.name()
        ),
    )
}

fn plan(columns: Vec<(Rc<str>, Ty)>, body: Body) -> Plan {
    Plan {
        columns,
        body,
        order: Vec::new(),
        limit: None,
        offset: None,
        reach: Cell::new(0),
        kept: RefCell::new(None),
    }
}

fn select_of(from: From, output: Vec<Node>) -> Select {
    Select {
        from,
        filter: Vec::new(),
        group: None,
        having: None,
        output,
        distinct: false,
        distinct_on: Vec::new(),
    }
}

pub(super) fn item(source: Source, width: usize) -> Item {
    Item {
        source,
        width,
        join: Join::Inner,
        on: Vec::new(),
        lateral: false,
    }
}

/// The conditions that all must hold.
pub(super) fn conjuncts(node: Node) -> Vec<Node> {
    match node {
        Node::And(list) => list.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

fn renamed(plan: Rc<Plan>, alias: &TableAlias) -> Result<Rc<Plan>> {
    let names = alias_columns(&plan.columns, Some(alias))?;
    let mut plan = Rc::try_unwrap(plan).unwrap_or_else(|p| (*p).clone());
    plan.columns = names.into_iter().map(|(n, t, _)| (n, t)).collect();
    Ok(Rc::new(plan))
}

fn sort_of(column: usize, o: &OrderByExpr) -> Sort {
    let descending = o.options.asc == Some(false);
    Sort {
        column,
        descending,
        nulls_first: o.options.nulls_first.unwrap_or(descending),
    }
}

/// ORDER BY of VALUES and set operations: ordinals and names of columns.
fn sort_keys(plan: &Plan, order: &[OrderByExpr]) -> Result<Vec<Sort>> {
    let mut keys = Vec::new();
    for o in order {
        let column = match &o.expr {
            Expr::Value(v) => match &v.value {
                Value::Number(n, _) => n.parse::<usize>().ok().and_then(|n| n.checked_sub(1)),
                _ => None,
            },
            Expr::Identifier(i) => {
                let name = fold(i);
                plan.columns.iter().position(|(n, _)| **n == *name)
            }
            _ => None,
        };
        match column.filter(|c| *c < plan.columns.len()) {
            Some(column) => keys.push(sort_of(column, o)),
            None => {
                return Err(refuse(
                    "ORDER BY an expression over a set operation or VALUES",
                ));
            }
        }
    }
    Ok(keys)
}

/// Every column stands in GROUP BY or in an aggregate.
fn grouped(node: &Node, known: &[String], scope: &Scope<'_>) -> Result<()> {
    if !known.is_empty() && known.contains(&format!("{node:?}")) {
        return Ok(());
    }
    if let Node::Column { up: 0, at } = node
        && let Some(c) = scope.columns.get(*at)
    {
        return Err(Error::new(
            SqlState::GroupingError,
            format!(
                "column \"{}.{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                c.table, c.name
            ),
        ));
    }
    let mut result = Ok(());
    node.parts(&mut |n| {
        if result.is_ok() {
            result = grouped(n, known, scope);
        }
    });
    result
}
