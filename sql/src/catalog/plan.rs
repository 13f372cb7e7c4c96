//! A question after its names are looked up: expressions over positions in rows, and what to do with rows.

use super::functions::Function;
use super::tables::TableRef;
use super::value::{Ty, Val};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Values of one row.
pub(super) type Row = Vec<Val>;

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Distinct,
    NotDistinct,
    /// LIKE, `~~`.
    Like {
        insensitive: bool,
        negated: bool,
    },
    /// `~`.
    Regex {
        insensitive: bool,
        negated: bool,
    },
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Math {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Const(Val),
    /// `$n`, from 0.
    Param(usize),
    /// Of the row `up` questions out.
    Column {
        up: usize,
        at: usize,
    },
    Cast {
        node: Box<Node>,
        from: Ty,
        to: Ty,
    },
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    IsNull {
        node: Box<Node>,
        negated: bool,
    },
    /// IS TRUE, IS FALSE.
    IsBool {
        node: Box<Node>,
        value: bool,
        negated: bool,
    },
    Compare {
        op: Op,
        left: Box<Node>,
        right: Box<Node>,
    },
    /// `op ANY (list)`, `op ALL (list)`.
    Each {
        op: Op,
        left: Box<Node>,
        list: Box<Node>,
        all: bool,
    },
    Math {
        op: Math,
        left: Box<Node>,
        right: Box<Node>,
        ty: Ty,
    },
    Neg(Box<Node>),
    Case {
        branches: Vec<(Node, Node)>,
        otherwise: Option<Box<Node>>,
    },
    Coalesce(Vec<Node>),
    Call {
        function: &'static Function,
        args: Vec<Node>,
        types: Vec<Ty>,
    },
    List(Vec<Node>),
    Index {
        list: Box<Node>,
        index: Box<Node>,
    },
    /// The one value of a question; NULL when it has no row.
    Scalar(Rc<Plan>),
    /// The first column of a question.
    ListOf(Rc<Plan>),
    Exists(Rc<Plan>),
}

impl Node {
    /// Calls `f` on each direct part.
    pub fn parts<'a>(&'a self, f: &mut dyn FnMut(&'a Node)) {
        match self {
            Node::Const(_) | Node::Param(_) | Node::Column { .. } => {}
            Node::Scalar(_) | Node::ListOf(_) | Node::Exists(_) => {}
            Node::Not(n) | Node::Neg(n) => f(n),
            Node::Cast { node, .. } | Node::IsNull { node, .. } | Node::IsBool { node, .. } => {
                f(node);
            }
            Node::And(l) | Node::Or(l) | Node::Coalesce(l) | Node::List(l) => l.iter().for_each(f),
            Node::Call { args, .. } => args.iter().for_each(f),
            Node::Compare { left, right, .. } | Node::Math { left, right, .. } => {
                f(left);
                f(right);
            }
            Node::Each { left, list, .. } => {
                f(left);
                f(list);
            }
            Node::Index { list, index } => {
                f(list);
                f(index);
            }
            Node::Case {
                branches,
                otherwise,
            } => {
                for (when, then) in branches {
                    f(when);
                    f(then);
                }
                if let Some(n) = otherwise {
                    f(n);
                }
            }
        }
    }

    /// The columns of this question that it reads; `None` when a question inside it may read any.
    pub fn reads(&self) -> Option<Vec<usize>> {
        fn walk(node: &Node, out: &mut Vec<usize>, known: &mut bool) {
            match node {
                Node::Column { up: 0, at } => out.push(*at),
                Node::Scalar(p) | Node::ListOf(p) | Node::Exists(p) => {
                    *known &= p.reach.get() == 0;
                }
                _ => {}
            }
            node.parts(&mut |n| walk(n, out, known));
        }
        let (mut out, mut known) = (Vec::new(), true);
        walk(self, &mut out, &mut known);
        known.then_some(out)
    }
}

/// An aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AggKind {
    Count,
    Min,
    Max,
    Sum,
    Avg,
    /// string_agg.
    Join,
    /// array_agg.
    Gather,
    /// bool_and, every.
    Every,
    /// bool_or.
    Some,
}

/// One aggregate of a grouped question.
#[derive(Clone, Debug)]
pub(super) struct Agg {
    pub kind: AggKind,
    /// None: `count(*)`.
    pub arg: Option<Node>,
    /// string_agg's separator.
    pub separator: Option<Node>,
    pub distinct: bool,
    pub order: Vec<(Node, bool, bool)>,
    pub filter: Option<Node>,
    pub ty: Ty,
}

/// How an item of FROM meets those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Inner,
    Left,
    Right,
    Full,
}

/// What an item of FROM is.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Table(TableRef),
    Plan(Rc<Plan>),
    /// Items in parentheses.
    Nested(From),
    /// A function that answers rows of one column.
    Unnest(Node),
    /// `generate_series(from, to, step)`.
    Series(Vec<Node>),
    /// A function that has nothing to answer here.
    Nothing,
}

/// One item of FROM.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub source: Source,
    pub width: usize,
    pub join: Join,
    /// Conditions of ON.
    pub on: Vec<Node>,
    /// Reads the items before it.
    pub lateral: bool,
}

/// FROM.
#[derive(Clone, Debug, Default)]
pub(super) struct From {
    pub items: Vec<Item>,
}

impl From {
    pub fn width(&self) -> usize {
        self.items.iter().map(|i| i.width).sum()
    }
}

/// SELECT.
#[derive(Clone, Debug)]
pub(super) struct Select {
    pub from: From,
    /// Conditions of WHERE, all of which must hold.
    pub filter: Vec<Node>,
    /// GROUP BY, or aggregates without it.
    pub group: Option<(Vec<Node>, Vec<Agg>)>,
    pub having: Option<Node>,
    /// The select list, then keys of ORDER BY that are not in it.
    pub output: Vec<Node>,
    pub distinct: bool,
    /// DISTINCT ON.
    pub distinct_on: Vec<Node>,
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Select(Box<Select>),
    Values(Vec<Vec<Node>>),
    Set {
        left: Rc<Plan>,
        right: Rc<Plan>,
        op: SetOp,
        all: bool,
    },
}

/// UNION and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetOp {
    Union,
    Except,
    Intersect,
}

/// A key of ORDER BY.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    pub column: usize,
    pub descending: bool,
    pub nulls_first: bool,
}

/// A question.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub columns: Vec<(Rc<str>, Ty)>,
    pub body: Body,
    pub order: Vec<Sort>,
    pub limit: Option<Node>,
    pub offset: Option<Node>,
    /// How many questions out its rows depend on; 0: on none, and its answer is kept.
    pub reach: Cell<usize>,
    pub kept: RefCell<Option<Rc<Vec<Row>>>>,
}
