//! Which segments of a timeseries table are merged next, and how what is written is cut by time. Pure: sizes
//! and times in, a choice out.
//!
//! Time is cut into UTC days, and days into aligned *buckets* of 8, 64 and 512 days. A segment belongs to the
//! smallest bucket that holds all of its rows:
//!
//! ```text
//! level 2   │                              64 days                             │
//! level 1   │ 8 days │ 8 days │ 8 days │ 8 days │ …
//! level 0   │││││││││││││││││ days: what a flush writes
//! ```
//!
//! Three things are done, the first that is due:
//! 1. A segment that no bucket holds (*mixed*: rows of many years in one flush, or a RETENTION that has since
//!    become short) is cut up at once.
//! 2. In a bucket, neighbours by flush of like size are merged: each byte is rewritten once for each power of
//!    the fan-in. A bucket that holds much is cut into smaller ones then; small ones whose time is past join
//!    into larger ones, so that a table with few rows a day has few files.
//! 3. A bucket whose time is past becomes one segment, when that costs little for what it brings.
//!
//! Order of arrival is order of flushes. A merge's outputs say the first and the last flush of its inputs, so
//! no segment of overlapping times may stand between them: such a choice is never made.

use std::collections::BTreeMap;
use strandline_core::time::DAY_MS;

/// Days of a bucket of one level in one of the next.
const FAN_OUT: i64 = 8;
/// The level of 512 days.
pub const TOP_LEVEL: u8 = 3;
/// Sizes below this are alike: a file costs more than its bytes.
const SMALL_BYTES: u64 = 64 << 10;
/// Segments that one merge reads at most: each holds a block of every channel in memory.
const MOST_INPUTS: usize = 16;
/// Late rows are expected for so long: a bucket is past when newer rows than this after its end have come.
const GRACE_MS: i64 = DAY_MS;
/// In a bucket whose time is past, segments wait until they are this part of the largest one.
const WORTH: u64 = 16;

/// An aligned span of UTC days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// 0: one day; each further level has eight times as many.
    pub level: u8,
    /// Which, from the epoch.
    pub index: i64,
}

impl Bucket {
    /// The bucket of a level that holds a ts.
    pub fn at(ts: i64, level: u8) -> Bucket {
        let day = ts.div_euclid(DAY_MS);
        Bucket {
            level,
            index: day.div_euclid(FAN_OUT.pow(level.into())),
        }
    }
    /// The smallest bucket up to a level that holds a range.
    pub fn of(range: (i64, i64), top: u8) -> Option<Bucket> {
        (0..=top)
            .map(|level| Bucket::at(range.0, level))
            .find(|b| *b == Bucket::at(range.1, b.level))
    }
    /// The bucket of the next level around it.
    pub fn parent(self) -> Bucket {
        Bucket {
            level: self.level + 1,
            index: self.index.div_euclid(FAN_OUT),
        }
    }
    /// Days in it.
    pub fn days(self) -> i64 {
        FAN_OUT.pow(self.level.into())
    }
    /// Its first and its last ms.
    pub fn range(self) -> (i64, i64) {
        let ms = self.days() * DAY_MS;
        let from = self.index.saturating_mul(ms);
        (from, from.saturating_add(ms - 1))
    }
}

/// A segment, as far as the choice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First and last flush.
    pub flushes: (u64, u64),
    /// Smallest and largest ts.
    pub range: (i64, i64),
    /// Size of the file.
    pub bytes: u64,
}

impl Piece {
    /// Between these two the order of arrival matters.
    fn touches(&self, flushes: (u64, u64), range: (i64, i64)) -> bool {
        self.flushes.0 <= flushes.1
            && flushes.0 <= self.flushes.1
            && self.range.0 <= range.1
            && range.0 <= self.range.1
    }
}

/// What the choice goes by.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Neighbours of like size that are merged.
    pub fan_in: usize,
    /// Bytes that a merge reads at most, unless it has one input only.
    pub most: u64,
    /// Buckets of together at most so many bytes join.
    pub join: u64,
    /// The largest buckets there are; `None`: time is not cut at all.
    pub top: Option<u8>,
    /// What time it is, for "past".
    pub now_ms: i64,
}

impl Rules {
    /// By the limits `merge_fan_in` and `segment_bytes`, and by what RETENTION keeps.
    pub fn new(fan_in: u64, segment_bytes: u64, retention_ms: Option<i64>, now_ms: i64) -> Rules {
        // A bucket goes as a whole: one that is long against RETENTION would hold on to expired rows.
        let longest = |level: &u8| {
            let ms = FAN_OUT.pow(u32::from(*level)) * DAY_MS;
            retention_ms.is_none_or(|r| ms <= r / FAN_OUT)
        };
        Rules {
            fan_in: usize::try_from(fan_in).unwrap_or(usize::MAX).max(2),
            most: segment_bytes,
            join: segment_bytes / 8,
            top: Some((0..=TOP_LEVEL).rev().find(longest).unwrap_or(0)),
            now_ms,
        }
    }

    /// A bucket of more bytes is cut when it is written: far above what joins, so that neither undoes the other.
    pub fn cut(&self) -> u64 {
        self.join.saturating_mul(4)
    }
}

/// The segments to merge next, by their numbers in `pieces`, which stand in order of flushes.
pub fn pick(pieces: &[Piece], rules: &Rules) -> Option<Vec<usize>> {
    let Some(top) = rules.top else {
        let all: Vec<usize> = (0..pieces.len()).collect();
        let windows = windows(pieces, rules, &all, |_| rules.most);
        return cheapest(pieces, windows.map(|w| (0, w)).collect());
    };
    let mut loose = Vec::new();
    let mut nodes: BTreeMap<Bucket, Vec<usize>> = BTreeMap::new();
    for (n, piece) in pieces.iter().enumerate() {
        match Bucket::of(piece.range, top) {
            None => loose.push(n),
            Some(mut b) => loop {
                nodes.entry(b).or_default().push(n);
                if b.level >= top {
                    break;
                }
                b = b.parent();
            },
        }
    }
    if let Some(inputs) = cut_up(pieces, rules, &loose) {
        return Some(inputs);
    }
    let newest = pieces.iter().map(|p| p.range.1).max()?.min(rules.now_ms);
    let past = |b: &Bucket| b.range().1 < newest.saturating_sub(GRACE_MS);
    let mut found: Vec<(u8, Vec<usize>)> = Vec::new();
    for (bucket, members) in &nodes {
        let own = |n: &usize| Bucket::of(pieces[*n].range, top) == Some(*bucket);
        let candidates: Vec<usize> = match bucket.level == 0 || past(bucket) {
            true => members.clone(),
            false => members.iter().copied().filter(own).collect(),
        };
        let most = |window: &[usize]| match window.iter().all(own) {
            true => rules.most,
            false => rules.join,
        };
        found.extend(windows(pieces, rules, &candidates, most).map(|w| (bucket.level, w)));
    }
    if let Some(inputs) = cheapest(pieces, found) {
        return Some(inputs);
    }
    let whole = nodes.into_iter().filter(|(b, members)| {
        let sum = total(pieces, members);
        let largest = members.iter().map(|&n| pieces[n].bytes).max().unwrap_or(0);
        let most = if b.level == 0 { rules.most } else { rules.join };
        (2..=MOST_INPUTS).contains(&members.len())
            && sum <= most
            && (largest <= SMALL_BYTES || sum - largest >= largest / WORTH)
            && past(b)
    });
    cheapest(pieces, whole.map(|(b, m)| (b.level, m)).collect())
}

fn total(pieces: &[Piece], inputs: &[usize]) -> u64 {
    inputs.iter().map(|&n| pieces[n].bytes).sum()
}

/// Of these sets the one of the fewest bytes, small buckets first, that keeps the order of arrival.
fn cheapest(pieces: &[Piece], mut sets: Vec<(u8, Vec<usize>)>) -> Option<Vec<usize>> {
    sets.sort_by_cached_key(|(level, set)| (total(pieces, set), *level, set.first().copied()));
    sets.into_iter()
        .map(|(_, set)| set)
        .find(|set| keeps_order(pieces, set))
}

/// Whether no other segment of the same times stands between the flushes of these.
fn keeps_order(pieces: &[Piece], set: &[usize]) -> bool {
    let all = set.iter().map(|&n| &pieces[n]);
    let (mut flushes, mut range) = ((u64::MAX, 0), (i64::MAX, i64::MIN));
    for p in all {
        flushes = (flushes.0.min(p.flushes.0), flushes.1.max(p.flushes.1));
        range = (range.0.min(p.range.0), range.1.max(p.range.1));
    }
    set.len() == 1
        || (pieces.iter().enumerate()).all(|(n, p)| set.contains(&n) || !p.touches(flushes, range))
}

/// Neighbours of like size among `members`. Where there are too many segments, of any size and fewer of them.
fn windows<'a>(
    pieces: &'a [Piece],
    rules: &'a Rules,
    members: &'a [usize],
    most: impl Fn(&[usize]) -> u64 + 'a,
) -> impl Iterator<Item = Vec<usize>> + 'a {
    let crowded = members.len() > rules.fan_in.saturating_mul(8);
    let shortest = if crowded { 2 } else { rules.fan_in };
    (shortest..=rules.fan_in.min(members.len()))
        .flat_map(|len| members.windows(len))
        .filter(move |window| {
            let sum = total(pieces, window);
            let max = window.iter().map(|&n| pieces[n].bytes).max().unwrap_or(0);
            let others = (sum - max) / (window.len() as u64 - 1);
            let alike = max <= others.saturating_mul(3).max(SMALL_BYTES) || crowded;
            alike && sum <= most(window)
        })
        .map(<[usize]>::to_vec)
}

/// The first mixed segment, and those after it that go along.
fn cut_up(pieces: &[Piece], rules: &Rules, loose: &[usize]) -> Option<Vec<usize>> {
    let mut inputs = vec![*loose.first()?];
    for &n in loose[1..].iter().take(MOST_INPUTS - 1) {
        inputs.push(n);
        if total(pieces, &inputs) > rules.most || !keeps_order(pieces, &inputs) {
            inputs.pop();
            break;
        }
    }
    Some(inputs)
}

/// Groups that [`plan_flush`] looks at one by one; more than these are joined without a look at their rows.
const MOST_GROUPS: usize = 256;

/// The buckets that a flush is cut into: its days, where these are few; else neighbours with few rows share a
/// larger bucket. `None`: it would still be more than `most`, and all of it goes into one mixed segment.
pub fn plan_flush(rows_by_day: &BTreeMap<i64, u64>, top: u8, most: usize) -> Option<Vec<Bucket>> {
    let mut groups: BTreeMap<Bucket, u64> = rows_by_day
        .iter()
        .map(|(&index, &rows)| (Bucket { level: 0, index }, rows))
        .collect();
    for _ in 0..top {
        if groups.len() <= MOST_GROUPS {
            break;
        }
        let fine = std::mem::take(&mut groups);
        for (b, rows) in fine {
            *groups.entry(b.parent()).or_default() += rows;
        }
    }
    if groups.len() > MOST_GROUPS {
        return None;
    }
    while groups.len() > most {
        // Groups and rows in each bucket that would hold several of them.
        let mut joined: BTreeMap<Bucket, (usize, u64)> = BTreeMap::new();
        for (&group, &rows) in &groups {
            let mut b = group;
            while b.level < top {
                b = b.parent();
                let sum = joined.entry(b).or_default();
                *sum = (sum.0 + 1, sum.1 + rows);
            }
        }
        // The fewest rows lose the sharper bucket.
        let several = joined.into_iter().filter(|(_, (groups, _))| *groups > 1);
        let (rows, bucket) = several.map(|(b, (_, rows))| (rows, b)).min()?;
        groups.retain(|b, _| !within(*b, bucket));
        groups.insert(bucket, rows);
    }
    Some(groups.into_keys().collect())
}

/// Whether a bucket lies in another.
fn within(mut inner: Bucket, outer: Bucket) -> bool {
    while inner.level < outer.level {
        inner = inner.parent();
    }
    inner == outer
}

/// Where rows go that are written: to the bucket of their ts.
pub enum Route {
    /// All into one segment, whatever their times.
    Whole,
    /// Into these buckets, which do not overlap.
    Buckets(Vec<Bucket>),
    /// Into the buckets of a level, or into smaller ones where much stands.
    Cut {
        /// The level.
        top: u8,
        /// Bytes that stand in a bucket, and the most that are wanted there.
        bytes: Weights,
        /// See `bytes`.
        most: u64,
    },
}

/// What stands where, roughly: blocks by their times.
pub struct Weights {
    /// Range and bytes of each block.
    blocks: Vec<((i64, i64), u64)>,
    known: BTreeMap<Bucket, u64>,
}

impl Weights {
    /// Of these blocks: range and bytes of each.
    pub fn new(blocks: Vec<((i64, i64), u64)>) -> Weights {
        Weights {
            blocks,
            known: BTreeMap::new(),
        }
    }
    /// Bytes in a bucket, blocks that reach beyond it by their part.
    fn of(&mut self, bucket: Bucket) -> u64 {
        let (from, to) = bucket.range();
        let sum = || {
            let part = |&((a, b), bytes): &((i64, i64), u64)| {
                if b < from || a > to {
                    return 0;
                }
                let inside = b.min(to).saturating_sub(a.max(from)) as f64 + 1.0;
                let all = b.saturating_sub(a) as f64 + 1.0;
                (bytes as f64 * (inside / all)) as u64
            };
            self.blocks.iter().map(part).sum()
        };
        *self.known.entry(bucket).or_insert_with(sum)
    }
}

impl Route {
    /// For a merge of segments that together have this range.
    pub fn over(range: (i64, i64), rules: &Rules, bytes: Weights) -> Route {
        let Some(top) = rules.top else {
            return Route::Whole;
        };
        Route::Cut {
            top: Bucket::of(range, top).map_or(top, |b| b.level),
            bytes,
            most: rules.cut(),
        }
    }

    /// The bucket that a row of this ts goes to; `None`: the one segment for all.
    pub fn bucket(&mut self, ts: i64) -> Option<Bucket> {
        match self {
            Route::Whole => None,
            Route::Buckets(list) => list
                .iter()
                .copied()
                .find(|b| b.range().0 <= ts && ts <= b.range().1),
            Route::Cut { top, bytes, most } => {
                let mut level = *top;
                loop {
                    let b = Bucket::at(ts, level);
                    if level == 0 || bytes.of(b) <= *most {
                        return Some(b);
                    }
                    level -= 1;
                }
            }
        }
    }
}
