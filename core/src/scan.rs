//! What a shard can be asked, and what it answers: the one description that `sql` writes and `shard`
//! carries out. Everything here can cross to another core.

use crate::ids::{ColumnId, Rev, TableId};
use crate::like::LikePattern;
use crate::schema::Fill;
use crate::time::Interval;
use crate::value::{Kind, Value};
use crate::xid::Xid;

/// Which entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entities {
    /// Every entity.
    All,
    /// These, without repeats.
    In(Vec<String>),
}

/// A closed range of Unix ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TsRange {
    /// First ms in it; `i64::MIN` when open on this side.
    pub from: i64,
    /// Last ms in it; `i64::MAX` when open on this side.
    pub to: i64,
}

impl TsRange {
    /// All of time.
    pub const ALL: TsRange = TsRange {
        from: i64::MIN,
        to: i64::MAX,
    };
    /// Whether nothing can lie in it.
    pub fn is_empty(self) -> bool {
        self.from > self.to
    }
    /// Whether `ts` lies in it.
    pub fn contains(self, ts: i64) -> bool {
        self.from <= ts && ts <= self.to
    }
    /// What of it lies at or after `floor`.
    #[must_use]
    pub fn since(self, floor: i64) -> TsRange {
        TsRange {
            from: self.from.max(floor),
            to: self.to,
        }
    }
    /// What lies in both.
    #[must_use]
    pub fn intersect(self, other: TsRange) -> TsRange {
        TsRange {
            from: self.from.max(other.from),
            to: self.to.min(other.to),
        }
    }
}

/// A channel that a read refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelRead {
    /// Which.
    pub column: ColumnId,
    /// How it is stored.
    pub kind: Kind,
    /// Its policy at the time of the statement.
    pub fill: Fill,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmpOp {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl CmpOp {
    /// Whether an ordering of left to right satisfies it.
    pub fn holds(self, o: std::cmp::Ordering) -> bool {
        match self {
            CmpOp::Eq => o.is_eq(),
            CmpOp::Ne => o.is_ne(),
            CmpOp::Lt => o.is_lt(),
            CmpOp::Le => o.is_le(),
            CmpOp::Gt => o.is_gt(),
            CmpOp::Ge => o.is_ge(),
        }
    }
}

/// A condition over the channels of a read, with SQL's three-valued logic. `channel` counts into the
/// read's `channels`.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// The channel's cell against a value of its kind.
    Compare {
        /// Index into `channels`.
        channel: usize,
        /// How.
        op: CmpOp,
        /// Never NULL.
        value: Value,
    },
    /// `IS NULL`, or `IS NOT NULL` when negated.
    IsNull {
        /// Index into `channels`.
        channel: usize,
        /// `IS NOT NULL`.
        negated: bool,
    },
    /// The channel's cell is one of these.
    In {
        /// Index into `channels`.
        channel: usize,
        /// Of the channel's kind, ascending, without repeats.
        values: Vec<Value>,
    },
    /// `LIKE`, `ILIKE`; of text channels.
    Like {
        /// Index into `channels`.
        channel: usize,
        /// The pattern.
        pattern: LikePattern,
    },
    /// Constant.
    Const(Option<bool>),
    /// All of them.
    And(Vec<Predicate>),
    /// Any of them.
    Or(Vec<Predicate>),
    /// Not.
    Not(Box<Predicate>),
}

impl Predicate {
    /// Whether it can hold of a row in which every channel it names is NULL.
    pub fn holds_of_nulls(&self) -> bool {
        crate::stream::fill::evaluate(self, &|_| crate::value::Cell::Null) == Some(true)
    }
    /// Calls `f` with the index of every channel that it names.
    pub fn each_channel(&self, f: &mut impl FnMut(usize)) {
        match self {
            Predicate::Compare { channel, .. }
            | Predicate::IsNull { channel, .. }
            | Predicate::In { channel, .. }
            | Predicate::Like { channel, .. } => f(*channel),
            Predicate::Const(_) => {}
            Predicate::And(list) | Predicate::Or(list) => {
                list.iter().for_each(|p| p.each_channel(f));
            }
            Predicate::Not(inner) => inner.each_channel(f),
        }
    }
}

/// Which stored rows an aggregate takes: one row per (entity, ts) and arrival, nothing filled.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFilter {
    /// The channels that the predicate counts into, each once.
    pub channels: Vec<(ColumnId, Kind)>,
    /// Rows of which it is not true do not count.
    pub predicate: Predicate,
}

/// Rows of a timeseries table. Answers columns: entity, ts, then `channels[0..output]`.
///
/// One row per (entity, ts) at which any of `channels` has a real sample, in order of ts within an entity.
/// An empty `channels` stands for `SELECT entity, ts`: every stored row counts.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamScan {
    /// Which table.
    pub table: TableId,
    /// Samples before this do not exist: RETENTION has expired them. The engine sets it, once per statement;
    /// `i64::MIN` when nothing expires.
    pub floor: i64,
    /// Which entities.
    pub entities: Entities,
    /// Which rows by time; HOLD looks before it.
    pub range: TsRange,
    /// Every channel referred to; the first `output` of them are answered.
    pub channels: Vec<ChannelRead>,
    /// How many of `channels` are answered.
    pub output: usize,
    /// HOLD/NONE filling; false for `RAW`.
    pub filled: bool,
    /// Applies to the filled row.
    pub predicate: Option<Predicate>,
    /// Enough rows per entity order; a shard stops after that many.
    pub limit: Option<u64>,
}

/// The device shadow: one row per entity. Answers columns: entity, ts, then `channels`.
#[derive(Clone, Debug, PartialEq)]
pub struct LatestScan {
    /// Which table.
    pub table: TableId,
    /// Samples before this do not exist: RETENTION has expired them. The engine sets it, once per statement;
    /// `i64::MIN` when nothing expires.
    pub floor: i64,
    /// Which entities.
    pub entities: Entities,
    /// Samples later than this do not count (`ts <= …`); `i64::MAX` when not given.
    pub until: i64,
    /// Samples before this do not count; `i64::MIN` when not given.
    pub from: i64,
    /// The channels, in order of answer.
    pub channels: Vec<ChannelRead>,
}

/// Aggregates of section 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateFn {
    /// `count(*)` when it has no column, else samples of the channel.
    Count,
    /// Sum of samples.
    Sum,
    /// Mean of samples.
    Avg,
    /// Smallest sample.
    Min,
    /// Largest sample.
    Max,
    /// Sample with the smallest ts.
    First,
    /// Sample with the largest ts.
    Last,
    /// Standard deviation of a sample: NULL of fewer than two.
    StddevSamp,
    /// Standard deviation of the whole.
    StddevPop,
    /// Variance of a sample: NULL of fewer than two.
    VarSamp,
    /// Variance of the whole.
    VarPop,
    /// Percentile between neighbours, exact.
    Percentile(Quantile),
    /// Percentile, close: see [`crate::stream::quantile`] for the error.
    ApproxPercentile(Quantile),
}

impl AggregateFn {
    /// Whether it is a variance, or its root.
    pub fn is_moment(self) -> bool {
        use AggregateFn as F;
        matches!(self, F::StddevSamp | F::StddevPop | F::VarSamp | F::VarPop)
    }
}

/// Which share of the samples lies at or below a percentile: 0 to 1, and from which end it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Quantile {
    share: f64,
    /// `ORDER BY … DESC`: the share lies at or above.
    pub descending: bool,
}

impl Quantile {
    /// `None` outside 0 to 1.
    pub fn new(share: f64, descending: bool) -> Option<Self> {
        // -0 is 0: equal shares have equal bits.
        (0.0..=1.0).contains(&share).then_some(Quantile {
            share: share + 0.0,
            descending,
        })
    }
    /// The median.
    pub const HALF: Quantile = Quantile {
        share: 0.5,
        descending: false,
    };
    /// 0 to 1.
    pub fn share(self) -> f64 {
        self.share
    }
}

impl PartialEq for Quantile {
    fn eq(&self, other: &Self) -> bool {
        self.share.to_bits() == other.share.to_bits() && self.descending == other.descending
    }
}

impl Eq for Quantile {}

/// One aggregate of a select list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// Which.
    pub func: AggregateFn,
    /// Over which channel; none only for `count(*)`.
    pub column: Option<(ColumnId, Kind)>,
}

/// `FILL(…)` of SAMPLE BY.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BucketFill {
    /// The previous bucket's value.
    Prev,
    /// NULL.
    Null,
    /// Between the neighbours; NULL at the edges and for text.
    Linear,
    /// This number.
    Number(f64),
}

impl BucketFill {
    /// Whether it can put a fraction where a whole number is counted.
    pub fn makes_fractions(self) -> bool {
        match self {
            BucketFill::Linear => true,
            BucketFill::Number(n) => n.fract() != 0.0,
            BucketFill::Prev | BucketFill::Null => false,
        }
    }
}

/// SAMPLE BY.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleBy {
    /// Bucket width.
    pub interval: Interval,
    /// None: empty buckets are absent.
    pub fill: Option<BucketFill>,
}

/// Aggregates over stored samples (never over held values).
///
/// A shard answers partial states keyed by (entity if `by_entity`, bucket); the gatherer merges them, fills,
/// and answers columns: entity (if `by_entity`), ts (if `sample`), then one per aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamAggregate {
    /// Which table.
    pub table: TableId,
    /// Samples before this do not exist: RETENTION has expired them. The engine sets it, once per statement;
    /// `i64::MIN` when nothing expires.
    pub floor: i64,
    /// Which entities.
    pub entities: Entities,
    /// Which samples by time.
    pub range: TsRange,
    /// Which rows by their cells; none: every row.
    pub filter: Option<RowFilter>,
    /// What to compute.
    pub aggregates: Vec<Aggregate>,
    /// Buckets, if any.
    pub sample: Option<SampleBy>,
    /// One group per entity.
    pub by_entity: bool,
}

/// Any of the reads.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadQuery {
    /// Rows of a timeseries table.
    Stream(StreamScan),
    /// The device shadow.
    Latest(LatestScan),
    /// Aggregates of a timeseries table.
    Aggregate(StreamAggregate),
    /// A read of a rows table.
    Keyed(KeyedScan),
}

/// A column of a keyed table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedColumn {
    /// The xid, as 32 lowercase hex (text).
    Xid,
    /// x_rev (i64).
    Rev,
    /// x_deleted (i64, 0 or 1).
    Deleted,
    /// A declared column.
    User(ColumnId, Kind),
}

/// The one condition of a rows-table statement.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyedFilter {
    /// `xid = …`
    XidEq(Xid),
    /// A declared column against a value of its kind.
    Compare {
        /// Which.
        column: ColumnId,
        /// How; never `Ne`.
        op: CmpOp,
        /// Never NULL.
        value: Value,
    },
    /// `IS NULL`, or `IS NOT NULL` when negated.
    IsNull {
        /// Which.
        column: ColumnId,
        /// `IS NOT NULL`.
        negated: bool,
    },
    /// Nothing can match (a comparison with NULL).
    Nothing,
}

/// One key of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedOrder {
    /// By what.
    pub column: KeyedColumn,
    /// DESC.
    pub descending: bool,
    /// NULLs before everything.
    pub nulls_first: bool,
}

/// What a feed read adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedRange {
    /// Only x_rev above this; 0 when not given.
    pub after: Rev,
    /// Whether the statement gave a lower bound (`x_rev > n`): then the vacuum horizon is checked. Other
    /// filters on x_rev or x_deleted are never refused.
    pub after_given: bool,
    /// Only x_rev up to this (`x_rev <= m`), and never above the watermark.
    pub until: Rev,
    /// `x_deleted = …`.
    pub deleted: Option<bool>,
    /// The watermark, loaded before the scan: the newest version at or below it counts.
    pub watermark: Rev,
}

/// A read of a rows table. Answers `columns`, or one i64 row when `count`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedScan {
    /// Which table.
    pub table: TableId,
    /// What to answer.
    pub columns: Vec<KeyedColumn>,
    /// The one condition, unless it is on x_rev or x_deleted.
    pub filter: Option<KeyedFilter>,
    /// Set when the condition is on x_rev or x_deleted: sees tombstones, ordered by x_rev.
    pub feed: Option<FeedRange>,
    /// In place of the default order; ties by xid. The default is x_rev for the feed, the compared column
    /// for a range filter, else xid.
    pub order: Vec<KeyedOrder>,
    /// A shard answers at most `offset + limit` rows; the gatherer cuts.
    pub limit: Option<u64>,
    /// Rows to pass over, applied by the gatherer.
    pub offset: u64,
    /// `count(*)` alone.
    pub count: bool,
}
