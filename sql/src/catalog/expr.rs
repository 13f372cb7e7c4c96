//! Expressions: from `sqlparser`'s tree to [`Node`]s with a type each.

use super::compile::{Scope, mismatch, parts, refuse};
use super::functions;
use super::plan::{Agg, AggKind, Math, Node, Op};
use super::value::{Ty, Val};
use super::{Compiler, fold};
use sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, DuplicateTreatment, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Subscript, UnaryOperator, Value,
};
use strandline_core::error::{Error, Result, SqlState};

type Typed = (Node, Ty);

/// A type's name as a cast writes it: folded, without schema and length. `"char"` stays apart from `char`.
pub(super) fn type_word(ty: &DataType) -> String {
    let shown = ty.to_string();
    let (shown, list) = match shown.strip_suffix("[]") {
        Some(element) => (element.to_owned(), true),
        None => (shown, false),
    };
    let lower = shown.to_lowercase();
    let qualified = lower.strip_prefix("pg_catalog.");
    let word = qualified.unwrap_or(&lower);
    let quoted = word.starts_with('"');
    let word = word.trim_matches('"');
    let word = word.split('(').next().unwrap_or(word).trim();
    let word = match word {
        "char" if !quoted && qualified.is_none() => "bpchar",
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "boolean" => "bool",
        "double precision" | "double" | "float" => "float8",
        "real" => "float4",
        "character varying" => "varchar",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        other => other,
    };
    if list {
        format!("_{word}")
    } else {
        word.to_owned()
    }
}

/// The n of VARCHAR(n), which cuts in a cast.
fn cut(ty: &DataType) -> Option<i64> {
    let shown = ty.to_string();
    let word = type_word(ty);
    if !matches!(word.as_str(), "varchar" | "bpchar") {
        return None;
    }
    let (_, rest) = shown.split_once('(')?;
    rest.split(')').next()?.trim().parse().ok()
}

fn type_of(ty: &DataType) -> Result<Ty> {
    Ty::named(&type_word(ty)).ok_or_else(|| refuse(format_args!("the type {ty}")))
}

fn boxed(n: Node) -> Box<Node> {
    Box::new(n)
}

fn no_operator(op: &str, a: Ty, b: Ty) -> Error {
    Error::new(
        SqlState::UndefinedFunction,
        format!("operator does not exist: {} {op} {}", a.name(), b.name()),
    )
}

impl Op {
    fn symbol(self) -> &'static str {
        match self {
            Op::Eq => "=",
            Op::Ne => "<>",
            Op::Lt => "<",
            Op::Le => "<=",
            Op::Gt => ">",
            Op::Ge => ">=",
            Op::Distinct => "IS DISTINCT FROM",
            Op::NotDistinct => "IS NOT DISTINCT FROM",
            Op::Like { .. } => "~~",
            Op::Regex { .. } => "~",
        }
    }
    fn is_pattern(self) -> bool {
        matches!(self, Op::Like { .. } | Op::Regex { .. })
    }
}

/// The comparison that an operator is, if it is one.
fn comparison_of(op: &BinaryOperator) -> Option<Op> {
    use BinaryOperator as B;
    let like = |insensitive, negated| Op::Like {
        insensitive,
        negated,
    };
    let regex = |insensitive, negated| Op::Regex {
        insensitive,
        negated,
    };
    Some(match op {
        B::Eq => Op::Eq,
        B::NotEq => Op::Ne,
        B::Lt => Op::Lt,
        B::LtEq => Op::Le,
        B::Gt => Op::Gt,
        B::GtEq => Op::Ge,
        B::PGRegexMatch => regex(false, false),
        B::PGRegexIMatch => regex(true, false),
        B::PGRegexNotMatch => regex(false, true),
        B::PGRegexNotIMatch => regex(true, true),
        B::PGLikeMatch => like(false, false),
        B::PGILikeMatch => like(true, false),
        B::PGNotLikeMatch => like(false, true),
        B::PGNotILikeMatch => like(true, true),
        B::PGCustomBinaryOperator(name) => match name.last().map(String::as_str) {
            Some("=") => Op::Eq,
            Some("<>" | "!=") => Op::Ne,
            Some("<") => Op::Lt,
            Some("<=") => Op::Le,
            Some(">") => Op::Gt,
            Some(">=") => Op::Ge,
            Some("~") => regex(false, false),
            Some("~*") => regex(true, false),
            Some("!~") => regex(false, true),
            Some("!~*") => regex(true, true),
            Some("~~") => like(false, false),
            Some("~~*") => like(true, false),
            Some("!~~") => like(false, true),
            Some("!~~*") => like(true, true),
            _ => return None,
        },
        _ => return None,
    })
}

fn math_of(op: &BinaryOperator) -> Option<Math> {
    Some(match op {
        BinaryOperator::Plus => Math::Add,
        BinaryOperator::Minus => Math::Sub,
        BinaryOperator::Multiply => Math::Mul,
        BinaryOperator::Divide => Math::Div,
        BinaryOperator::Modulo => Math::Rem,
        BinaryOperator::BitwiseAnd => Math::And,
        BinaryOperator::BitwiseOr => Math::Or,
        _ => return None,
    })
}

impl Compiler<'_> {
    /// An expression and its type.
    pub fn expr(&self, e: &Expr, scope: &Scope<'_>) -> Result<Typed> {
        match e {
            Expr::Identifier(i) if i.quote_style.is_none() && self.is_keyword(&i.value, scope) => {
                self.call(&i.value.to_lowercase(), Vec::new())
            }
            Expr::Identifier(i) => self.column(None, &fold(i), scope),
            Expr::CompoundIdentifier(list) => {
                let names: Vec<String> = list.iter().map(fold).collect();
                match &names[..] {
                    [table, name] | [_, table, name] => self.column(Some(table), name, scope),
                    _ => Err(refuse(e)),
                }
            }
            Expr::Value(v) => self.literal(&v.value),
            Expr::Nested(e) | Expr::Collate { expr: e, .. } => self.expr(e, scope),
            Expr::BinaryOp { .. } => self.binary(e, scope),
            Expr::UnaryOp { op, expr } => self.unary(op, expr, scope),
            Expr::Function(f) => self.function(f, scope),
            Expr::Cast {
                expr, data_type, ..
            } => {
                let to = type_of(data_type)?;
                let (node, from) = self.expr(expr, scope)?;
                let node = self.coerce(node, from, to)?;
                Ok((self.cut(node, cut(data_type))?, to))
            }
            Expr::TypedString(t) => {
                let to = type_of(&t.data_type)?;
                let (node, from) = self.literal(&t.value.value)?;
                Ok((self.coerce(node, from, to)?, to))
            }
            Expr::AtTimeZone { timestamp, .. } => self.expr(timestamp, scope),
            _ => self.condition_expr(e, scope),
        }
    }

    /// Conditions, and what else is rare; apart, so that the frame of [`Compiler::expr`] stays small.
    fn condition_expr(&self, e: &Expr, scope: &Scope<'_>) -> Result<Typed> {
        let is_bool = |inner: &Expr, value: Option<bool>, negated: bool| -> Result<Typed> {
            let (node, ty) = self.expr(inner, scope)?;
            let node = boxed(self.coerce(node, ty, Ty::Bool)?);
            let node = match value {
                Some(value) => Node::IsBool {
                    node,
                    value,
                    negated,
                },
                None => Node::IsNull { node, negated },
            };
            Ok((node, Ty::Bool))
        };
        match e {
            Expr::IsNull(inner) | Expr::IsNotNull(inner) => {
                let negated = matches!(e, Expr::IsNotNull(_));
                let node = boxed(self.expr(inner, scope)?.0);
                Ok((Node::IsNull { node, negated }, Ty::Bool))
            }
            Expr::IsTrue(x) => is_bool(x, Some(true), false),
            Expr::IsNotTrue(x) => is_bool(x, Some(true), true),
            Expr::IsFalse(x) => is_bool(x, Some(false), false),
            Expr::IsNotFalse(x) => is_bool(x, Some(false), true),
            Expr::IsUnknown(x) => is_bool(x, None, false),
            Expr::IsNotUnknown(x) => is_bool(x, None, true),
            Expr::IsDistinctFrom(a, b) => self.compare(Op::Distinct, a, b, scope),
            Expr::IsNotDistinctFrom(a, b) => self.compare(Op::NotDistinct, a, b, scope),
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let low = self.compare(Op::Ge, expr, low, scope)?.0;
                let high = self.compare(Op::Le, expr, high, scope)?.0;
                Ok(negate(Node::And(vec![low, high]), *negated))
            }
            Expr::InList {
                expr,
                list,
                negated,
            } => {
                let any = list
                    .iter()
                    .map(|x| Ok(self.compare(Op::Eq, expr, x, scope)?.0));
                Ok(negate(Node::Or(any.collect::<Result<_>>()?), *negated))
            }
            Expr::InSubquery {
                expr,
                subquery,
                negated,
            } => {
                let plan = self.query(subquery, Some(scope))?;
                self.one_column(&plan)?;
                let element = plan.columns.first().map_or(Ty::Unknown, |(_, t)| *t);
                let node = self.each(Op::Eq, expr, (Node::ListOf(plan), element), false, scope)?;
                Ok(negate(node, *negated))
            }
            Expr::Exists { subquery, negated } => {
                let plan = self.query(subquery, Some(scope))?;
                Ok(negate(Node::Exists(plan), *negated))
            }
            Expr::Subquery(q) => {
                let plan = self.query(q, Some(scope))?;
                self.one_column(&plan)?;
                let ty = plan.columns.first().map_or(Ty::Unknown, |(_, t)| *t);
                let ty = if ty == Ty::Unknown { Ty::Text } else { ty };
                Ok((Node::Scalar(plan), ty))
            }
            Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            } => {
                let op = Op::Like {
                    insensitive: false,
                    negated: *negated,
                };
                self.compare(op, expr, pattern, scope)
            }
            Expr::ILike {
                negated,
                any: false,
                expr,
                pattern,
                escape_char: None,
            } => {
                let op = Op::Like {
                    insensitive: true,
                    negated: *negated,
                };
                self.compare(op, expr, pattern, scope)
            }
            Expr::AnyOp {
                left,
                compare_op,
                right,
                ..
            }
            | Expr::AllOp {
                left,
                compare_op,
                right,
            } => {
                let all = matches!(e, Expr::AllOp { .. });
                let op = comparison_of(compare_op).ok_or_else(|| refuse(compare_op))?;
                let list = self.list(right, scope)?;
                Ok((self.each(op, left, list, all, scope)?, Ty::Bool))
            }
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(
                operand.as_deref(),
                conditions,
                else_result.as_deref(),
                scope,
            ),
            Expr::Array(a) => {
                let items = a.elem.iter().map(|x| self.expr(x, scope));
                let (items, ty) = self.unify(items.collect::<Result<_>>()?, "ARRAY")?;
                let ty = if ty == Ty::Unknown { Ty::Text } else { ty };
                Ok((Node::List(items), list_of(ty)?))
            }
            Expr::CompoundFieldAccess { root, access_chain } => match &access_chain[..] {
                [AccessExpr::Subscript(Subscript::Index { index })] => {
                    let (list, ty) = self.expr(root, scope)?;
                    if !ty.is_list() {
                        return Err(refuse(format_args!("a subscript of type {}", ty.name())));
                    }
                    let (index, index_ty) = self.expr(index, scope)?;
                    let index = self.coerce(index, index_ty, Ty::Int8)?;
                    let node = Node::Index {
                        list: boxed(list),
                        index: boxed(index),
                    };
                    Ok((node, ty.element()))
                }
                _ => Err(refuse(e)),
            },
            Expr::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => {
                let from = substring_from.as_deref();
                let mut args = vec![self.expr(expr, scope)?];
                args.push(match from {
                    Some(x) => self.expr(x, scope)?,
                    None => (Node::Const(Val::Int(1)), Ty::Int4),
                });
                if let Some(x) = substring_for {
                    args.push(self.expr(x, scope)?);
                }
                self.call("substring", args)
            }
            Expr::Position { expr, r#in } => {
                let args = vec![self.expr(r#in, scope)?, self.expr(expr, scope)?];
                self.call("strpos", args)
            }
            Expr::Trim {
                trim_where,
                trim_what,
                expr,
                trim_characters,
            } => {
                let name = match trim_where.as_ref().map(ToString::to_string).as_deref() {
                    Some("LEADING") => "ltrim",
                    Some("TRAILING") => "rtrim",
                    _ => "btrim",
                };
                let mut args = vec![self.expr(expr, scope)?];
                let what = trim_what.as_deref();
                let more = trim_characters.iter().flatten();
                for x in what.into_iter().chain(more) {
                    args.push(self.expr(x, scope)?);
                }
                self.call(name, args)
            }
            Expr::Ceil { expr, .. } => self.call("ceil", vec![self.expr(expr, scope)?]),
            Expr::Floor { expr, .. } => self.call("floor", vec![self.expr(expr, scope)?]),
            other => {
                let shown: String = other.to_string().chars().take(80).collect();
                Err(refuse(shown))
            }
        }
    }

    /// Words that PostgreSQL calls without parentheses.
    fn is_keyword(&self, word: &str, scope: &Scope<'_>) -> bool {
        let word = word.to_lowercase();
        let known = [
            "current_user",
            "session_user",
            "user",
            "current_role",
            "current_catalog",
            "current_schema",
            "current_timestamp",
            "localtimestamp",
        ];
        known.contains(&word.as_str()) && self.column(None, &word, scope).is_err()
    }

    fn literal(&self, v: &Value) -> Result<Typed> {
        Ok(match v {
            Value::Null => (Node::Const(Val::Null), Ty::Unknown),
            Value::Boolean(b) => (Node::Const(Val::Bool(*b)), Ty::Bool),
            Value::Number(n, _) => match n.parse::<i64>() {
                Ok(i) => {
                    let small = i32::try_from(i).is_ok();
                    (
                        Node::Const(Val::Int(i)),
                        if small { Ty::Int4 } else { Ty::Int8 },
                    )
                }
                Err(_) => {
                    let f: f64 = n
                        .parse()
                        .map_err(|_| refuse(format_args!("the number {n}")))?;
                    (Node::Const(Val::Float(f)), Ty::Float8)
                }
            },
            Value::SingleQuotedString(s)
            | Value::EscapedStringLiteral(s)
            | Value::UnicodeStringLiteral(s)
            | Value::NationalStringLiteral(s) => (Node::Const(Val::text(s)), Ty::Unknown),
            Value::DollarQuotedString(s) => (Node::Const(Val::text(&s.value)), Ty::Unknown),
            Value::Placeholder(p) => {
                let n = p.strip_prefix('$').and_then(|n| n.parse::<usize>().ok());
                match n
                    .and_then(|n| n.checked_sub(1))
                    .filter(|n| *n < self.params.len())
                {
                    Some(n) => (Node::Param(n), Ty::Unknown),
                    None => {
                        return Err(Error::new(
                            SqlState::UndefinedParameter,
                            format!("there is no parameter {p}"),
                        ));
                    }
                }
            }
            other => return Err(refuse(other)),
        })
    }

    /// An expression as one of another type. Constants are cast at once; a parameter notes what it is.
    pub fn coerce(&self, node: Node, from: Ty, to: Ty) -> Result<Node> {
        if let (Node::Param(i), Ty::Unknown) = (&node, from)
            && let Some(slot) = self.parameters.borrow_mut().get_mut(*i)
        {
            slot.get_or_insert(to);
        }
        if from == to {
            return Ok(node);
        }
        match node {
            Node::Const(v) => Ok(Node::Const(super::value::cast(self.rt(), &v, from, to)?)),
            node => Ok(Node::Cast {
                node: boxed(node),
                from,
                to,
            }),
        }
    }

    fn rt(&self) -> &super::run::Runtime<'_> {
        &self.rt
    }

    fn cut(&self, node: Node, length: Option<i64>) -> Result<Node> {
        match length {
            None => Ok(node),
            Some(n) => {
                let length = (Node::Const(Val::Int(n)), Ty::Int4);
                Ok(self.call("left", vec![(node, Ty::Text), length])?.0)
            }
        }
    }

    /// All as the type that holds them.
    pub fn unify(&self, items: Vec<Typed>, what: &str) -> Result<(Vec<Node>, Ty)> {
        let mut ty = Ty::Unknown;
        for (_, t) in &items {
            ty = ty.unify(*t).ok_or_else(|| mismatch(what, ty, *t))?;
        }
        if ty == Ty::Unknown {
            ty = Ty::Text;
        }
        let nodes = items.into_iter().map(|(n, t)| self.coerce(n, t, ty));
        Ok((nodes.collect::<Result<_>>()?, ty))
    }

    fn one_column(&self, plan: &super::plan::Plan) -> Result<()> {
        if plan.columns.len() == 1 {
            return Ok(());
        }
        Err(Error::new(
            SqlState::SyntaxError,
            "subquery must return only one column",
        ))
    }

    fn compare(&self, op: Op, a: &Expr, b: &Expr, scope: &Scope<'_>) -> Result<Typed> {
        if let (Expr::Tuple(a), Expr::Tuple(b)) = (a, b)
            && matches!(op, Op::Eq | Op::Ne)
            && a.len() == b.len()
        {
            let pairs = a.iter().zip(b);
            let equal = pairs.map(|(a, b)| Ok(self.compare(Op::Eq, a, b, scope)?.0));
            let all = Node::And(equal.collect::<Result<_>>()?);
            return Ok(negate(all, op == Op::Ne));
        }
        let (a, b) = (self.expr(a, scope)?, self.expr(b, scope)?);
        Ok((self.comparison(op, a, b)?, Ty::Bool))
    }

    /// `a op b`, each cast to what they can be compared as.
    pub fn comparison(&self, op: Op, a: Typed, b: Typed) -> Result<Node> {
        let ((a, at), (b, bt)) = (a, b);
        let to = self.common(op, at, bt)?;
        let left = boxed(self.coerce_for(op, a, at, to)?);
        let right = boxed(self.coerce_for(op, b, bt, to)?);
        Ok(Node::Compare { op, left, right })
    }

    /// Only what differs in more than its name is cast: `name` and `text` compare as they are.
    fn coerce_for(&self, op: Op, node: Node, from: Ty, to: Ty) -> Result<Node> {
        if from == Ty::Unknown || (op.is_pattern() && !from.is_text()) {
            self.coerce(node, from, to)
        } else {
            Ok(node)
        }
    }

    fn common(&self, op: Op, a: Ty, b: Ty) -> Result<Ty> {
        if op.is_pattern() {
            let fits = |t: Ty| t.is_text() || t == Ty::Unknown;
            return if fits(a) && fits(b) {
                Ok(Ty::Text)
            } else {
                Err(no_operator(op.symbol(), a, b))
            };
        }
        if !a.comparable(b) {
            return Err(no_operator(op.symbol(), a, b));
        }
        Ok(match (a, b) {
            (Ty::Unknown, Ty::Unknown) => Ty::Text,
            (Ty::Unknown, t) | (t, _) => t,
        })
    }

    /// The list of ANY and ALL, and the type of its elements.
    fn list(&self, e: &Expr, scope: &Scope<'_>) -> Result<Typed> {
        let query = match e {
            Expr::Subquery(q) => Some(q),
            Expr::Nested(inner) => return self.list(inner, scope),
            _ => None,
        };
        if let Some(q) = query {
            let plan = self.query(q, Some(scope))?;
            self.one_column(&plan)?;
            let ty = plan.columns.first().map_or(Ty::Unknown, |(_, t)| *t);
            return Ok((Node::ListOf(plan), ty));
        }
        let (node, ty) = self.expr(e, scope)?;
        match ty {
            t if t.is_list() => Ok((node, t.element())),
            Ty::Unknown => Ok((self.coerce(node, ty, Ty::TextList)?, Ty::Unknown)),
            // int2vector and its like: numbers with blanks between, which are empty here.
            Ty::Text => Ok((Node::Const(Val::List(Vec::new().into())), Ty::Unknown)),
            t => Err(Error::new(
                SqlState::DatatypeMismatch,
                format!(
                    "op ANY/ALL requires an array on the right side, not {}",
                    t.name()
                ),
            )),
        }
    }

    fn each(&self, op: Op, left: &Expr, list: Typed, all: bool, scope: &Scope<'_>) -> Result<Node> {
        let (left, lt) = self.expr(left, scope)?;
        let (list, element) = list;
        let to = self.common(op, lt, element)?;
        let left = boxed(self.coerce_for(op, left, lt, to)?);
        let list = if element == Ty::Unknown && to.is_number() {
            self.coerce(list, Ty::TextList, Ty::IntList)?
        } else {
            list
        };
        Ok(Node::Each {
            op,
            left,
            list: boxed(list),
            all,
        })
    }

    fn case(
        &self,
        operand: Option<&Expr>,
        conditions: &[sqlparser::ast::CaseWhen],
        otherwise: Option<&Expr>,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let mut whens = Vec::new();
        let mut results = Vec::new();
        for branch in conditions {
            whens.push(match operand {
                Some(operand) => self.compare(Op::Eq, operand, &branch.condition, scope)?.0,
                None => self.condition(&branch.condition, scope, "CASE/WHEN")?,
            });
            results.push(self.expr(&branch.result, scope)?);
        }
        if let Some(e) = otherwise {
            results.push(self.expr(e, scope)?);
        }
        let (mut results, ty) = self.unify(results, "CASE")?;
        let otherwise = if otherwise.is_some() {
            results.pop().map(boxed)
        } else {
            None
        };
        let branches = whens.into_iter().zip(results).collect();
        Ok((
            Node::Case {
                branches,
                otherwise,
            },
            ty,
        ))
    }

    /// Operators; a long chain of AND or OR becomes one node.
    fn binary(&self, e: &Expr, scope: &Scope<'_>) -> Result<Typed> {
        let Expr::BinaryOp { left, op, right } = e else {
            return Err(refuse(e));
        };
        if matches!(op, BinaryOperator::And | BinaryOperator::Or) {
            let mut list = Vec::new();
            let mut rest = e;
            while let Expr::BinaryOp { left, op: o, right } = rest
                && o == op
            {
                list.push(self.condition(right, scope, &op.to_string())?);
                rest = left;
            }
            list.push(self.condition(rest, scope, &op.to_string())?);
            list.reverse();
            let and = *op == BinaryOperator::And;
            return Ok((if and { Node::And(list) } else { Node::Or(list) }, Ty::Bool));
        }
        if let Some(op) = comparison_of(op) {
            return self.compare(op, left, right, scope);
        }
        let (a, b) = (self.expr(left, scope)?, self.expr(right, scope)?);
        if matches!(op, BinaryOperator::StringConcat) {
            return self.concat(a, b);
        }
        let word = op.to_string();
        let math = match op {
            BinaryOperator::PGCustomBinaryOperator(name) => match name.last().map(String::as_str) {
                Some("+") => Some(Math::Add),
                Some("-") => Some(Math::Sub),
                Some("*") => Some(Math::Mul),
                Some("/") => Some(Math::Div),
                Some("%") => Some(Math::Rem),
                Some("||") => return self.concat(a, b),
                _ => None,
            },
            op => math_of(op),
        };
        let math = math.ok_or_else(|| refuse(format_args!("the operator {word}")))?;
        let ((a, at), (b, bt)) = (a, b);
        let ty = match (at, bt) {
            (Ty::Unknown, Ty::Unknown) => Ty::Float8,
            _ => at.unify(bt).unwrap_or(Ty::Text),
        };
        let bits = matches!(math, Math::And | Math::Or);
        if !ty.is_number() || (bits && ty == Ty::Float8) {
            return Err(no_operator(&word, at, bt));
        }
        let (left, right) = (
            boxed(self.coerce(a, at, ty)?),
            boxed(self.coerce(b, bt, ty)?),
        );
        Ok((
            Node::Math {
                op: math,
                left,
                right,
                ty,
            },
            ty,
        ))
    }

    fn concat(&self, a: Typed, b: Typed) -> Result<Typed> {
        if a.1.is_list() || b.1.is_list() {
            let to = if a.1.is_list() { a.1 } else { b.1 };
            let list = |(n, t): Typed| -> Result<Typed> {
                match t {
                    t if t.is_list() || t == Ty::Unknown => Ok((self.coerce(n, t, to)?, to)),
                    t => Ok((Node::List(vec![self.coerce(n, t, to.element())?]), to)),
                }
            };
            return self.call("array_cat", vec![list(a)?, list(b)?]);
        }
        let text = |t: Ty| t.is_text() || t == Ty::Unknown;
        if !text(a.1) && !text(b.1) {
            return Err(no_operator("||", a.1, b.1));
        }
        let (a, b) = (
            self.coerce(a.0, a.1, Ty::Text)?,
            self.coerce(b.0, b.1, Ty::Text)?,
        );
        self.call("textcat", vec![(a, Ty::Text), (b, Ty::Text)])
    }

    fn unary(&self, op: &UnaryOperator, e: &Expr, scope: &Scope<'_>) -> Result<Typed> {
        match op {
            UnaryOperator::Not => {
                Ok((Node::Not(boxed(self.condition(e, scope, "NOT")?)), Ty::Bool))
            }
            UnaryOperator::Plus | UnaryOperator::Minus => {
                let (node, ty) = self.expr(e, scope)?;
                let to = if ty == Ty::Unknown { Ty::Float8 } else { ty };
                if !to.is_number() {
                    return Err(no_operator(&op.to_string(), Ty::Unknown, ty));
                }
                let node = self.coerce(node, ty, to)?;
                Ok(match (op, node) {
                    (UnaryOperator::Plus, node) => (node, to),
                    (_, Node::Const(Val::Int(i))) => {
                        (Node::Const(Val::Int(i.saturating_neg())), to)
                    }
                    (_, Node::Const(Val::Float(f))) => (Node::Const(Val::Float(-f)), to),
                    (_, node) => (Node::Neg(boxed(node)), to),
                })
            }
            other => Err(refuse(format_args!("the operator {other}"))),
        }
    }

    fn function(&self, f: &Function, scope: &Scope<'_>) -> Result<Typed> {
        let names = parts(&f.name)?;
        let name = names.last().map_or("", String::as_str);
        match &names[..] {
            [_] => {}
            [schema, _] if schema == "pg_catalog" => {}
            _ => return Err(functions::unknown(&names.join("."), &[])),
        }
        if f.over.is_some() || !f.within_group.is_empty() || f.null_treatment.is_some() {
            return Err(refuse(format_args!("{name}() OVER and its like")));
        }
        let (list, distinct, order) = match &f.args {
            FunctionArguments::None => (&[][..], false, None),
            FunctionArguments::Subquery(q) if name == "array" => {
                let plan = self.query(q, Some(scope))?;
                self.one_column(&plan)?;
                let ty = plan.columns.first().map_or(Ty::Unknown, |(_, t)| *t);
                return Ok((Node::ListOf(plan), list_of(ty)?));
            }
            FunctionArguments::Subquery(q) => {
                // `lower((SELECT …))`, its inner parentheses gone.
                let arg = self.expr(&Expr::Subquery(q.clone()), scope)?;
                return self.call(name, vec![arg]);
            }
            FunctionArguments::List(l) => {
                let mut order = None;
                for clause in &l.clauses {
                    match clause {
                        FunctionArgumentClause::OrderBy(list) => order = Some(list),
                        other => return Err(refuse(format_args!("{other} in {name}()"))),
                    }
                }
                let distinct = l.duplicate_treatment == Some(DuplicateTreatment::Distinct);
                (&l.args[..], distinct, order)
            }
        };
        if let Some(kind) = aggregate_of(name) {
            return self.aggregate(kind, f, list, distinct, order.map_or(&[][..], |o| o), scope);
        }
        if distinct || order.is_some() || f.filter.is_some() {
            return Err(refuse(format_args!(
                "DISTINCT, ORDER BY or FILTER in {name}()"
            )));
        }
        let args = list.iter().map(|a| self.argument(a, scope));
        let args: Vec<Typed> = args.collect::<Result<_>>()?;
        match name {
            "coalesce" | "greatest" | "least" if !args.is_empty() => {
                let (nodes, ty) = self.unify(args, "COALESCE")?;
                if name == "coalesce" {
                    return Ok((Node::Coalesce(nodes), ty));
                }
                self.call(name, nodes.into_iter().map(|n| (n, ty)).collect())
            }
            "nullif" => match <[Typed; 2]>::try_from(args) {
                Ok([a, b]) => {
                    let ty = if a.1 == Ty::Unknown { Ty::Text } else { a.1 };
                    let same = self.comparison(Op::Eq, a.clone(), b)?;
                    let a = self.coerce(a.0, a.1, ty)?;
                    let branches = vec![(same, Node::Const(Val::Null))];
                    Ok((
                        Node::Case {
                            branches,
                            otherwise: Some(boxed(a)),
                        },
                        ty,
                    ))
                }
                Err(args) => Err(functions::unknown(name, &types(&args))),
            },
            _ => self.call(name, args),
        }
    }

    fn argument(&self, arg: &FunctionArg, scope: &Scope<'_>) -> Result<Typed> {
        match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => self.expr(e, scope),
            other => Err(refuse(format_args!("the argument {other}"))),
        }
    }

    /// A call of a function with these arguments.
    pub fn call(&self, name: &str, args: Vec<Typed>) -> Result<Typed> {
        let given = types(&args);
        let function = functions::find(name, &given)?;
        if name.ends_with("_size") {
            // What a table takes on disk is the engine's to say.
            self.named.borrow_mut().insert("$sys.tables".to_owned());
        }
        let mut nodes = Vec::new();
        let mut shown = Vec::new();
        for (i, (node, ty)) in args.into_iter().enumerate() {
            let to = function.takes(i, ty);
            nodes.push(self.coerce(node, ty, to)?);
            shown.push(to);
        }
        let ty = function.answers(&shown);
        Ok((
            Node::Call {
                function,
                args: nodes,
                types: shown,
            },
            ty,
        ))
    }

    fn aggregate(
        &self,
        kind: AggKind,
        f: &Function,
        list: &[FunctionArg],
        distinct: bool,
        order: &[sqlparser::ast::OrderByExpr],
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let name = f.name.to_string();
        // Inside one there is no other.
        let Some((width, mut found)) = self.aggregates.take() else {
            return Err(Error::new(
                SqlState::GroupingError,
                format!("aggregate function {name} is not allowed here"),
            ));
        };
        let made = self.aggregate_parts(kind, f, list, distinct, order, scope);
        let result = made.map(|agg| {
            let at = width + found.len();
            let ty = agg.ty;
            found.push(agg);
            (Node::Column { up: 0, at }, ty)
        });
        self.aggregates.replace(Some((width, found)));
        result
    }

    fn aggregate_parts(
        &self,
        kind: AggKind,
        f: &Function,
        list: &[FunctionArg],
        distinct: bool,
        order: &[sqlparser::ast::OrderByExpr],
        scope: &Scope<'_>,
    ) -> Result<Agg> {
        let name = f.name.to_string().to_lowercase();
        let mut args = Vec::new();
        for arg in list {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if kind == AggKind::Count => {}
                arg => args.push(self.argument(arg, scope)?),
            }
        }
        let wrong = |args: &[Typed]| functions::unknown(&name, &types(args));
        let expected = match kind {
            AggKind::Count => args.len().min(1),
            AggKind::Join => 2,
            _ => 1,
        };
        if args.len() != expected || (list.is_empty() && kind != AggKind::Count) {
            return Err(wrong(&args));
        }
        let given = args.first().map_or(Ty::Unknown, |(_, t)| *t);
        let (to, ty) = match kind {
            AggKind::Count => (given, Ty::Int8),
            AggKind::Min | AggKind::Max => {
                let ty = if given == Ty::Unknown {
                    Ty::Text
                } else {
                    given
                };
                (ty, ty)
            }
            AggKind::Sum if given == Ty::Float8 => (given, Ty::Float8),
            AggKind::Sum if given.is_int() => (given, Ty::Int8),
            AggKind::Avg if given.is_number() => (given, Ty::Float8),
            AggKind::Sum | AggKind::Avg => return Err(wrong(&args)),
            AggKind::Join => (Ty::Text, Ty::Text),
            AggKind::Gather => (given, list_of(given)?),
            AggKind::Every | AggKind::Some => (Ty::Bool, Ty::Bool),
        };
        let mut args = args.into_iter();
        let arg = match args.next() {
            Some((n, t)) => Some(self.coerce(n, t, to)?),
            None => None,
        };
        let separator = match args.next() {
            Some((n, t)) => Some(self.coerce(n, t, Ty::Text)?),
            None => None,
        };
        let mut keys = Vec::new();
        for o in order {
            let descending = o.options.asc == Some(false);
            let first = o.options.nulls_first.unwrap_or(descending);
            keys.push((self.expr(&o.expr, scope)?.0, descending, first));
        }
        let filter = match &f.filter {
            Some(e) => Some(self.condition(e, scope, "FILTER")?),
            None => None,
        };
        Ok(Agg {
            kind,
            arg,
            separator,
            distinct,
            order: keys,
            filter,
            ty,
        })
    }
}

fn aggregate_of(name: &str) -> Option<AggKind> {
    Some(match name {
        "count" => AggKind::Count,
        "min" => AggKind::Min,
        "max" => AggKind::Max,
        "sum" => AggKind::Sum,
        "avg" => AggKind::Avg,
        "string_agg" => AggKind::Join,
        "array_agg" => AggKind::Gather,
        "bool_and" | "every" => AggKind::Every,
        "bool_or" => AggKind::Some,
        _ => return None,
    })
}

fn types(args: &[Typed]) -> Vec<Ty> {
    args.iter().map(|(_, t)| *t).collect()
}

fn negate(node: Node, negated: bool) -> Typed {
    let node = if negated {
        Node::Not(boxed(node))
    } else {
        node
    };
    (node, Ty::Bool)
}

/// Arrays have one dimension here: as text, every level would quote the quotes of the one below again.
fn list_of(element: Ty) -> Result<Ty> {
    if element.is_list() {
        return Err(refuse("an array of arrays"));
    }
    Ok(element.list())
}
