//! Statements as written, before anything is looked up. Every part that can be at fault keeps the byte
//! where it stands (`at`), from which an error makes its character position.

use crate::types::SqlType;
use strandline_core::scan::{AggregateFn, CmpOp};
use strandline_core::schema::Label;
use strandline_core::time::Interval;

/// An identifier as stored: folded unless it was quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The stored form.
    pub text: String,
    /// Where it stands.
    pub at: u32,
}

/// A column, perhaps with its table before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnName {
    /// `t` of `t.c`.
    pub table: Option<Name>,
    /// `c`.
    pub column: Name,
}

/// A value expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What.
    pub kind: ExprKind,
    /// Where it begins.
    pub at: u32,
}

/// What a value expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// NULL, and DEFAULT in VALUES and SET.
    Null,
    /// true, false.
    Bool(bool),
    /// A whole number that fits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A quoted literal.
    Text(Box<str>),
    /// An unquoted time, Unix ms.
    Time(i64),
    /// `60 s`, ms.
    Duration(i64),
    /// `$n`, from 0.
    Param(usize),
    /// `now()`.
    Now,
    /// `today` (0), `yesterday` (-1), `tomorrow` (1).
    Day(i8),
    /// A column.
    Column(ColumnName),
    /// `-x`.
    Neg(Box<Expr>),
    /// `a + b`, `a - b`.
    Add {
        /// Left.
        left: Box<Expr>,
        /// Right.
        right: Box<Expr>,
        /// `-`.
        minus: bool,
    },
    /// `x::type`, `CAST(x AS type)`, `TIMESTAMP '…'`.
    Cast(Box<Expr>, SqlType),
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Cond {
    /// All.
    And(Vec<Cond>),
    /// Any.
    Or(Vec<Cond>),
    /// Not.
    Not(Box<Cond>),
    /// A comparison.
    Compare {
        /// Left.
        left: Expr,
        /// How.
        op: CmpOp,
        /// Right.
        right: Expr,
    },
    /// IS [NOT] NULL.
    IsNull {
        /// Of what.
        expr: Expr,
        /// NOT.
        negated: bool,
    },
    /// IS [NOT] TRUE, FALSE.
    IsBool {
        /// Of what.
        expr: Expr,
        /// Which.
        value: bool,
        /// NOT.
        negated: bool,
    },
    /// [NOT] BETWEEN.
    Between {
        /// What.
        expr: Expr,
        /// From, included.
        low: Expr,
        /// To, included.
        high: Expr,
        /// NOT.
        negated: bool,
    },
    /// [NOT] IN (…).
    In {
        /// What.
        expr: Expr,
        /// Never empty.
        list: Vec<Expr>,
        /// NOT.
        negated: bool,
    },
    /// [NOT] LIKE, ILIKE.
    Like {
        /// What.
        expr: Expr,
        /// The pattern.
        pattern: Expr,
        /// ESCAPE.
        escape: Option<Expr>,
        /// ILIKE.
        fold: bool,
        /// NOT.
        negated: bool,
    },
    /// `ts IN RANGE (a, b)`.
    InRange {
        /// What: the time axis.
        expr: Expr,
        /// The range.
        range: InRange,
    },
    /// A BOOL column or value by itself.
    Bare(Expr),
}

impl Cond {
    /// Where it begins.
    pub fn at(&self) -> u32 {
        match self {
            Cond::And(list) | Cond::Or(list) => list.first().map_or(0, Cond::at),
            Cond::Not(inner) => inner.at(),
            Cond::Compare { left: expr, .. }
            | Cond::IsNull { expr, .. }
            | Cond::IsBool { expr, .. }
            | Cond::Like { expr, .. }
            | Cond::Between { expr, .. }
            | Cond::In { expr, .. }
            | Cond::InRange { expr, .. }
            | Cond::Bare(expr) => expr.at,
        }
    }
}

/// One item of a select list.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What.
    pub what: ItemKind,
    /// `AS name`.
    pub alias: Option<Name>,
    /// Where it begins.
    pub at: u32,
}

/// What an item of a select list is.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemKind {
    /// `*`, `t.*`.
    Star(Option<Name>),
    /// A column or constant.
    Expr(Expr),
    /// An aggregate.
    Aggregate(AggregateCall),
}

/// `avg(speed)`.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateCall {
    /// Which; the share of a percentile is in `share`.
    pub func: AggregateFn,
    /// As it was written, folded.
    pub name: &'static str,
    /// Over what; none: `count(*)`.
    pub column: Option<ColumnName>,
    /// Of a percentile: 0 to 1, and whether it is counted from the top.
    pub share: Option<(Expr, bool)>,
    /// Where it begins.
    pub at: u32,
}

/// One key of ORDER BY, or of GROUP BY.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyExpr {
    /// A column or alias.
    Column(ColumnName),
    /// The n-th item, from 1.
    Ordinal(u64, u32),
    /// An aggregate that the select list has too.
    Aggregate(AggregateCall),
}

/// One key of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderItem {
    /// By what.
    pub key: KeyExpr,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST, NULLS LAST.
    pub nulls_first: Option<bool>,
}

/// `IN RANGE (a, b)`, `IN RANGE (a, +1day)`.
#[derive(Clone, Debug, PartialEq)]
pub struct InRange {
    /// First ms in it.
    pub from: Expr,
    /// First ms past it, or how long it is.
    pub to: RangeEnd,
    /// Where it stands.
    pub at: u32,
}

/// How a range ends.
#[derive(Clone, Debug, PartialEq)]
pub enum RangeEnd {
    /// At this time, not included.
    At(Expr),
    /// So many ms after its start.
    After(i64),
}

/// `FILL(…)`.
#[derive(Clone, Debug, PartialEq)]
pub enum FillSpec {
    /// PREV.
    Prev,
    /// NULL.
    Null,
    /// LINEAR.
    Linear,
    /// A number.
    Number(Expr),
}

/// SAMPLE BY.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Bucket width.
    pub interval: Interval,
    /// FILL.
    pub fill: Option<FillSpec>,
    /// Where it stands.
    pub at: u32,
}

/// SELECT over one table of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// The select list.
    pub items: Vec<Item>,
    /// FROM.
    pub table: Name,
    /// Its alias.
    pub alias: Option<Name>,
    /// RAW, and where.
    pub raw: Option<u32>,
    /// IN RANGE.
    pub in_range: Option<InRange>,
    /// WHERE.
    pub filter: Option<Cond>,
    /// LATEST ON ts PARTITION BY entity, and where.
    pub latest: Option<u32>,
    /// SAMPLE BY.
    pub sample: Option<Sample>,
    /// GROUP BY.
    pub group_by: Vec<KeyExpr>,
    /// Where GROUP BY stands.
    pub group_at: u32,
    /// ORDER BY.
    pub order: Vec<OrderItem>,
    /// LIMIT.
    pub limit: Option<Expr>,
    /// OFFSET.
    pub offset: Option<Expr>,
}

/// RETURNING.
#[derive(Clone, Debug, PartialEq)]
pub struct Returning {
    /// Its list, which has no aggregates.
    pub items: Vec<Item>,
    /// Where it stands.
    pub at: u32,
}

/// One cell of VALUES. Plain literals stay in the text until they are bound: a large INSERT then costs
/// twelve bytes a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellRef {
    /// What.
    pub kind: CellKind,
    /// First byte of its token, or the index of a general expression.
    pub start: u32,
    /// Past the last byte of its token.
    pub end: u32,
}

/// What a cell of VALUES is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// NULL or DEFAULT.
    Null,
    /// true.
    True,
    /// false.
    False,
    /// A number, a minus before it included.
    Int,
    /// The same with a fraction or exponent.
    Decimal,
    /// A quoted literal without doubled quotes, quotes included.
    Str,
    /// An unquoted time.
    Time,
    /// `$n`; `start` is its index from 0 and `end` where it stands.
    Param,
    /// Anything else: `start` is an index into [`Insert::exprs`].
    Expr,
}

/// INSERT.
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// Into which table.
    pub table: Name,
    /// The columns named; none: all in their order.
    pub columns: Option<Vec<Name>>,
    /// All cells, row by row.
    pub cells: Vec<CellRef>,
    /// Cells before the end of each row.
    pub row_ends: Vec<u32>,
    /// Cells that are not plain literals.
    pub exprs: Vec<Expr>,
    /// RETURNING.
    pub returning: Option<Returning>,
    /// Where ON CONFLICT stands.
    pub on_conflict: Option<u32>,
}

/// UPDATE.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Which table.
    pub table: Name,
    /// `column = value`.
    pub set: Vec<(Name, Expr)>,
    /// WHERE.
    pub filter: Option<Cond>,
    /// RETURNING.
    pub returning: Option<Returning>,
}

/// DELETE.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// Which table.
    pub table: Name,
    /// WHERE.
    pub filter: Option<Cond>,
    /// RETURNING.
    pub returning: Option<Returning>,
}

/// A column of CREATE.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDecl {
    /// Its name.
    pub name: Name,
    /// What it holds.
    pub label: Label,
    /// `FILL HOLD` (true), `FILL NONE` (false), and where.
    pub fill: Option<(bool, u32)>,
    /// STALENESS in ms, and where.
    pub staleness: Option<(i64, u32)>,
}

/// ALTER TABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct Alter {
    /// Which.
    pub table: Name,
    /// IF EXISTS.
    pub if_exists: bool,
    /// In order.
    pub actions: Vec<AlterAction>,
    /// Where the statement begins.
    pub at: u32,
}

/// One action of ALTER TABLE.
#[derive(Clone, Debug, PartialEq)]
pub enum AlterAction {
    /// ADD COLUMN.
    Add {
        /// The column.
        column: ColumnDecl,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP COLUMN.
    Drop {
        /// Which.
        column: Name,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// RENAME COLUMN.
    RenameColumn {
        /// Which.
        from: Name,
        /// To what.
        to: Name,
    },
    /// RENAME TO.
    Rename {
        /// The new name.
        to: Name,
    },
    /// ALTER COLUMN … SET FILL.
    SetFill {
        /// Which column.
        column: Name,
        /// HOLD; else NONE.
        hold: bool,
        /// STALENESS in ms, and where.
        staleness: Option<(i64, u32)>,
        /// Where FILL stands.
        at: u32,
    },
    /// SET RETENTION.
    SetRetention {
        /// In ms as written; `None`: NONE.
        ms: Option<i64>,
        /// Where RETENTION stands.
        at: u32,
    },
}

/// CREATE TABLE, CREATE ROWS TABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct Create {
    /// CREATE ROWS TABLE.
    pub rows: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// Its name.
    pub table: Name,
    /// Its columns.
    pub columns: Vec<ColumnDecl>,
    /// What WITH says, each with its place.
    pub options: Vec<(TableOption, u32)>,
}

/// One item of `WITH (…)` on CREATE TABLE.
#[derive(Clone, Debug, PartialEq)]
pub enum TableOption {
    /// ENTITY UUID.
    EntityUuid,
    /// ENTITY TAG name.
    EntityTag(Name),
    /// RETENTION, in ms as written.
    Retention(i64),
    /// MUTABLE.
    Mutable,
    /// DEDUP.
    Dedup,
}

impl TableOption {
    /// The words it begins with.
    pub fn name(&self) -> &'static str {
        match self {
            TableOption::EntityUuid => "ENTITY UUID",
            TableOption::EntityTag(_) => "ENTITY TAG",
            TableOption::Retention(_) => "RETENTION",
            TableOption::Mutable => "MUTABLE",
            TableOption::Dedup => "DEDUP",
        }
    }
}

/// Something that is SQL and that Strandline does not do (here, or yet).
#[derive(Clone, Debug, PartialEq)]
pub struct General {
    /// What, for the message: "GROUP BY", "a join".
    pub what: String,
    /// Where.
    pub at: u32,
    /// The table, when one could be told: its family decides the hint.
    pub table: Option<Name>,
}
