//! FROM: tables, joins, questions in parentheses and the few functions that may stand there.

use super::compile::{Scope, Seen, conjuncts, item, parts, refuse};
use super::plan::{From, Join, Node, Source};
use super::value::Ty;
use super::{Compiler, fold};
use sqlparser::ast::{
    FunctionArg, FunctionArgExpr, JoinConstraint, JoinOperator, ObjectName, TableAlias,
    TableFactor, TableWithJoins,
};
use std::rc::Rc;
use strandline_core::error::{Error, Result, SqlState};

impl Compiler<'_> {
    /// The items of FROM, and the columns that they put in sight.
    pub fn from(
        &self,
        list: &[TableWithJoins],
        outer: Option<&Scope<'_>>,
    ) -> Result<(From, Vec<Seen>)> {
        let mut from = From::default();
        let mut scope = Scope {
            columns: Vec::new(),
            outer,
        };
        for (i, entry) in list.iter().enumerate() {
            let whole = entry.joins.iter().any(|j| {
                matches!(
                    j.join_operator,
                    JoinOperator::Right(_)
                        | JoinOperator::RightOuter(_)
                        | JoinOperator::FullOuter(_)
                )
            });
            if i > 0 && whole {
                // These keep all of one side, so the comma's other side must stay outside.
                let (nested, columns) = self.from(std::slice::from_ref(entry), outer)?;
                from.items.push(item(Source::Nested(nested), columns.len()));
                scope.columns.extend(columns);
                continue;
            }
            self.factor(&entry.relation, &mut from, &mut scope)?;
            for join in &entry.joins {
                let width = scope.columns.len();
                let (kind, constraint) = match &join.join_operator {
                    JoinOperator::Join(c) | JoinOperator::Inner(c) => (Join::Inner, Some(c)),
                    JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (Join::Left, Some(c)),
                    JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (Join::Right, Some(c)),
                    JoinOperator::FullOuter(c) => (Join::Full, Some(c)),
                    JoinOperator::CrossJoin(_) => (Join::Inner, None),
                    _ => return Err(refuse("this kind of join")),
                };
                self.factor(&join.relation, &mut from, &mut scope)?;
                let on = match constraint {
                    Some(JoinConstraint::On(e)) => conjuncts(self.condition(e, &scope, "JOIN/ON")?),
                    Some(JoinConstraint::Using(names)) => {
                        let mut on = Vec::new();
                        for name in names {
                            let name = parts(name)?.pop().unwrap_or_default();
                            on.push(self.using(&name, &mut scope, width, kind)?);
                        }
                        on
                    }
                    Some(JoinConstraint::Natural) => return Err(refuse("NATURAL JOIN")),
                    Some(JoinConstraint::None) | None => Vec::new(),
                };
                if let Some(last) = from.items.last_mut() {
                    last.join = kind;
                    last.on = on;
                    if last.lateral && matches!(kind, Join::Right | Join::Full) {
                        return Err(refuse("RIGHT JOIN LATERAL"));
                    }
                }
            }
        }
        Ok((from, scope.columns))
    }

    /// The condition of USING (name); the second column of that name is hidden.
    fn using(&self, name: &str, scope: &mut Scope<'_>, width: usize, kind: Join) -> Result<Node> {
        if matches!(kind, Join::Right | Join::Full) {
            return Err(refuse("USING with RIGHT or FULL JOIN"));
        }
        let seen = |c: &Seen| *c.name == *name && !c.hidden;
        let left = scope.columns[..width].iter().position(seen);
        let right = scope.columns[width..]
            .iter()
            .position(seen)
            .map(|i| i + width);
        let (Some(l), Some(r)) = (left, right) else {
            return Err(Error::new(
                SqlState::UndefinedColumn,
                format!(
                    "column \"{name}\" specified in USING clause does not exist in both tables"
                ),
            ));
        };
        scope.columns[r].hidden = true;
        let node = |at| Node::Column { up: 0, at };
        let (lt, rt) = (scope.columns[l].ty, scope.columns[r].ty);
        self.comparison(super::plan::Op::Eq, (node(l), lt), (node(r), rt))
    }

    fn factor(&self, factor: &TableFactor, from: &mut From, scope: &mut Scope<'_>) -> Result<()> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                with_ordinality: false,
                sample: None,
                ..
            } => {
                let parts = parts(name)?;
                let (schema, name) = match &parts[..] {
                    [name] => (None, name.as_str()),
                    [schema, name] => (Some(schema.as_str()), name.as_str()),
                    [database, schema, name] if *database == self.cx.database => {
                        (Some(schema.as_str()), name.as_str())
                    }
                    _ => return Err(refuse(format_args!("a table of another database, {name},"))),
                };
                let shown = alias
                    .as_ref()
                    .map_or_else(|| name.to_owned(), |a| fold(&a.name));
                let cte = self
                    .with
                    .borrow()
                    .iter()
                    .rev()
                    .find(|(n, ..)| schema.is_none() && n == name)
                    .cloned();
                if let Some((_, plan, depth)) = cte {
                    // Its text stands `out` questions further out, and the frame of this FROM is one more.
                    let out = usize::try_from(self.depth.get() - depth).unwrap_or(0);
                    if plan.reach.get() > 0 {
                        return Err(refuse(format_args!(
                            "WITH {name}, which reads the question around it {out} levels out,"
                        )));
                    }
                    let names = alias_columns(&plan.columns, alias.as_ref())?;
                    add(from, scope, Source::Plan(plan), false, &shown, names);
                    return Ok(());
                }
                let table = self.table(schema, name)?;
                let mut names = alias_columns(&table.columns, alias.as_ref())?;
                if table.schema == "pg_catalog" {
                    names.push(("tableoid".into(), Ty::Oid, true));
                }
                add(from, scope, Source::Table(table), false, &shown, names);
            }
            TableFactor::Derived {
                lateral,
                subquery,
                alias,
                sample: None,
            } => {
                let around = Scope {
                    columns: if *lateral {
                        scope.columns.clone()
                    } else {
                        Vec::new()
                    },
                    outer: scope.outer,
                };
                let plan = self.query(subquery, Some(&around))?;
                // A text without a type is text once it is a column.
                let types: Vec<Ty> = plan
                    .columns
                    .iter()
                    .map(|(_, t)| if *t == Ty::Unknown { Ty::Text } else { *t })
                    .collect();
                let plan = Rc::try_unwrap(plan).unwrap_or_else(|p| (*p).clone());
                let reach = plan.reach.get();
                let plan = self.casts(plan, &types)?;
                plan.reach.set(reach);
                let plan = Rc::new(plan);
                let names = alias_columns(&plan.columns, alias.as_ref())?;
                let shown = alias.as_ref().map_or_else(String::new, |a| fold(&a.name));
                let lateral = *lateral && reach > 0;
                add(from, scope, Source::Plan(plan), lateral, &shown, names);
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => {
                let (nested, columns) =
                    self.from(std::slice::from_ref(table_with_joins), scope.outer)?;
                from.items.push(item(Source::Nested(nested), columns.len()));
                scope.columns.extend(columns);
            }
            TableFactor::Table {
                name,
                alias,
                args: Some(args),
                with_ordinality: false,
                ..
            } => {
                let (source, ty, word) = self.table_function(name, &args.args, scope)?;
                let names = function_columns(&word, ty, alias.as_ref());
                let shown = alias.as_ref().map_or(word, |a| fold(&a.name));
                add(from, scope, source, true, &shown, names);
            }
            TableFactor::Function {
                name,
                args,
                alias,
                with_ordinality: false,
                ..
            } => {
                let (source, ty, word) = self.table_function(name, args, scope)?;
                let names = function_columns(&word, ty, alias.as_ref());
                let shown = alias.as_ref().map_or(word, |a| fold(&a.name));
                add(from, scope, source, true, &shown, names);
            }
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_ordinality: false,
                ..
            } if array_exprs.len() == 1 => {
                let (node, ty) = self.expr(&array_exprs[0], scope)?;
                let names = function_columns("unnest", ty.element(), alias.as_ref());
                let shown = alias
                    .as_ref()
                    .map_or_else(|| "unnest".to_owned(), |a| fold(&a.name));
                add(from, scope, Source::Unnest(node), true, &shown, names);
            }
            other => return Err(refuse(format_args!("FROM {other}"))),
        }
        Ok(())
    }

    fn table_function(
        &self,
        name: &ObjectName,
        args: &[FunctionArg],
        scope: &Scope<'_>,
    ) -> Result<(Source, Ty, String)> {
        let word = parts(name)?.pop().unwrap_or_default();
        let mut nodes = Vec::new();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => nodes.push(self.expr(e, scope)?),
                other => return Err(refuse(format_args!("the argument {other}"))),
            }
        }
        match (word.as_str(), nodes.len()) {
            ("unnest", 1) => {
                let (node, ty) = nodes.remove(0);
                let list = if ty.is_list() { ty } else { Ty::TextList };
                Ok((
                    Source::Unnest(self.coerce(node, ty, list)?),
                    list.element(),
                    word,
                ))
            }
            ("generate_series", 2 | 3) => {
                let nodes = nodes.into_iter().map(|(n, t)| self.coerce(n, t, Ty::Int8));
                Ok((
                    Source::Series(nodes.collect::<Result<_>>()?),
                    Ty::Int8,
                    word,
                ))
            }
            (
                "pg_options_to_table"
                | "aclexplode"
                | "pg_partition_tree"
                | "pg_partition_ancestors"
                | "pg_get_publication_tables",
                _,
            ) => Ok((Source::Nothing, Ty::Text, word)),
            _ => Err(Error::new(
                SqlState::UndefinedFunction,
                format!("function {word} in FROM does not exist"),
            )),
        }
    }
}

/// Puts an item behind those of FROM, and its columns in sight.
fn add(
    from: &mut From,
    scope: &mut Scope<'_>,
    source: Source,
    lateral: bool,
    alias: &str,
    columns: Vec<(Rc<str>, Ty, bool)>,
) {
    let mut item = item(source, columns.len());
    item.lateral = lateral;
    from.items.push(item);
    let table: Rc<str> = alias.into();
    scope
        .columns
        .extend(columns.into_iter().map(|(name, ty, hidden)| Seen {
            table: table.clone(),
            name,
            ty,
            hidden,
        }));
}

/// Columns of FROM under the names that its alias gives them.
pub(super) fn alias_columns(
    columns: &[(Rc<str>, Ty)],
    alias: Option<&TableAlias>,
) -> Result<Vec<(Rc<str>, Ty, bool)>> {
    let given = alias.map_or(&[][..], |a| &a.columns[..]);
    if given.len() > columns.len() {
        return Err(Error::new(
            SqlState::SyntaxError,
            format!(
                "the alias names {} columns, there are {}",
                given.len(),
                columns.len()
            ),
        ));
    }
    let name = |i: usize, own: &Rc<str>| given.get(i).map_or(own.clone(), |c| fold(&c.name).into());
    Ok(columns
        .iter()
        .enumerate()
        .map(|(i, (n, t))| (name(i, n), *t, false))
        .collect())
}

/// The one column of a function in FROM is called as its alias says.
fn function_columns(word: &str, ty: Ty, alias: Option<&TableAlias>) -> Vec<(Rc<str>, Ty, bool)> {
    let name = match alias {
        Some(a) => fold(a.columns.first().map_or(&a.name, |c| &c.name)),
        None => word.to_owned(),
    };
    vec![(name.into(), ty, false)]
}
