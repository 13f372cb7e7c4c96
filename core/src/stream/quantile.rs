//! Percentiles. Exact ones keep every number; close ones do so while they are few, and then count them in
//! bins.
//!
//! A bin holds the numbers that share sign, exponent and the first bits of the mantissa: the bits of a
//! number, shifted right (the log-linear bins of HdrHistogram, Gil Tene 2012, and of Hartmann and
//! Schlossnagle, "Circllhist", 2020). When there are more than [`BINS`] of them, each two neighbours become
//! one, as Epicoco et al. do in "UDDSketch" (2020): the whole range gets coarser evenly, and bins of two
//! shards are put together by bringing the finer to the coarser. A bin remembers its smallest and largest
//! number, so that what repeats (states, whole numbers) is answered exactly.
//!
//! **Error.** The answer lies between the smallest and the largest number of the bin that holds the true
//! percentile: off by less than 1/1024 of it (0.1 %) while at most [`BINS`] bins are in use, which is sure
//! while the largest magnitude is below 2^8 times the smallest; 1/512 below 2^16 times, 1/256 below 2^32 times.

use hashbrown::HashMap;

/// Numbers that a close percentile keeps as they are.
pub const EXACT: usize = 4096;
/// Most bins of one group.
pub const BINS: usize = 8192;
/// Bits of the mantissa that a bin leaves open at first: 52 less 10.
const FINEST: u32 = 42;

/// The bits of a number, so that they sort as numbers do.
fn key(x: f64) -> i64 {
    // -0 stands with 0.
    let bits = (x + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn number(key: i64) -> f64 {
    f64::from_bits((key ^ (((key >> 63) as u64) >> 1) as i64) as u64)
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bin {
    count: u64,
    low: f64,
    high: f64,
}

impl Bin {
    fn add(&mut self, other: &Bin) {
        self.count += other.count;
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Bins {
    shift: u32,
    // Never gone through in its own order where that could be seen: answers sort it.
    bins: HashMap<i64, Bin>,
}

impl Bins {
    fn add(&mut self, key: i64, bin: &Bin) {
        match self.bins.entry(key >> self.shift) {
            hashbrown::hash_map::Entry::Occupied(mut e) => e.get_mut().add(bin),
            hashbrown::hash_map::Entry::Vacant(e) => {
                e.insert(*bin);
                while self.bins.len() > BINS {
                    self.coarsen(self.shift + 1);
                }
            }
        }
    }

    fn add_number(&mut self, x: f64) {
        let one = Bin {
            count: 1,
            low: x,
            high: x,
        };
        self.add(key(x), &one);
    }

    fn coarsen(&mut self, shift: u32) {
        let shift = shift.min(63);
        let by = shift.saturating_sub(self.shift);
        if by == 0 {
            return;
        }
        let mut coarse: HashMap<i64, Bin> = HashMap::with_capacity(self.bins.len());
        for (key, bin) in self.bins.drain() {
            coarse
                .entry(key >> by)
                .and_modify(|b| b.add(&bin))
                .or_insert(bin);
        }
        self.bins = coarse;
        self.shift = shift;
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Kept {
    /// Each part is sorted once [`Samples::sort_parts`] has been called.
    Exact(Vec<Vec<f64>>),
    Few(Vec<f64>),
    Bins(Box<Bins>),
}

/// The numbers of one group, of which percentiles are asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples(Kept);

impl Samples {
    /// None yet; `exact` keeps every one.
    pub fn new(exact: bool) -> Self {
        Samples(if exact {
            Kept::Exact(Vec::new())
        } else {
            Kept::Few(Vec::new())
        })
    }

    /// Adds numbers.
    pub fn extend(&mut self, v: &[f64]) {
        match &mut self.0 {
            Kept::Exact(parts) => match parts.last_mut() {
                Some(part) => part.extend_from_slice(v),
                None => parts.push(v.to_vec()),
            },
            Kept::Few(few) if few.len() + v.len() <= EXACT => few.extend_from_slice(v),
            Kept::Few(_) => {
                let bins = self.become_bins();
                v.iter().for_each(|&x| bins.add_number(x));
            }
            Kept::Bins(bins) => v.iter().for_each(|&x| bins.add_number(x)),
        }
    }

    fn become_bins(&mut self) -> &mut Bins {
        let few = match &mut self.0 {
            Kept::Few(few) => std::mem::take(few),
            Kept::Exact(_) | Kept::Bins(_) => Vec::new(),
        };
        if !matches!(self.0, Kept::Bins(_)) {
            self.0 = Kept::Bins(Box::new(Bins {
                shift: FINEST,
                bins: HashMap::new(),
            }));
        }
        let Kept::Bins(bins) = &mut self.0 else {
            unreachable!("made above")
        };
        few.into_iter().for_each(|x| bins.add_number(x));
        bins
    }

    /// Adds those of another shard.
    pub fn add(&mut self, other: Samples) {
        match other.0 {
            Kept::Exact(theirs) => match &mut self.0 {
                Kept::Exact(mine) => mine.extend(theirs),
                Kept::Few(_) | Kept::Bins(_) => debug_assert!(false, "asked for the same"),
            },
            Kept::Few(theirs) => self.extend(&theirs),
            Kept::Bins(mut theirs) => {
                let mine = self.become_bins();
                let shift = mine.shift.max(theirs.shift);
                mine.coarsen(shift);
                theirs.coarsen(shift);
                for (key, bin) in theirs.bins.drain() {
                    mine.add(key << shift, &bin);
                }
            }
        }
    }

    /// The parts that must be sorted before [`Samples::percentile`] is asked.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        match &mut self.0 {
            Kept::Exact(parts) => parts.iter_mut(),
            Kept::Few(_) | Kept::Bins(_) => [].iter_mut(),
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Kept::Exact(parts) => parts.iter().map(|p| p.capacity() * size_of::<f64>()).sum(),
            Kept::Few(few) => few.capacity() * size_of::<f64>(),
            Kept::Bins(bins) => bins.bins.capacity() * (size_of::<(i64, Bin)>() + 1),
        }
    }

    /// How many.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Kept::Exact(parts) => parts.iter().map(|p| p.len() as u64).sum(),
            Kept::Few(few) => few.len() as u64,
            Kept::Bins(bins) => bins.bins.values().map(|b| b.count).sum(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The percentile between the two neighbours that `share × (count - 1)` falls between, as PostgreSQL's
    /// `percentile_cont`.
    pub fn percentile(&self, q: crate::scan::Quantile) -> Option<f64> {
        let count = self.len();
        let top = count.checked_sub(1)?;
        let place = q.share() * top as f64;
        let (below, above) = (place.floor() as u64, place.ceil() as u64);
        let from_end = |rank: u64| if q.descending { top - rank } else { rank };
        let ranks = [from_end(below.min(top)), from_end(above.min(top))];
        let [a, b] = match &self.0 {
            Kept::Exact(parts) => ranks.map(|r| rank_of_parts(parts, r)),
            Kept::Few(few) => {
                let mut sorted = few.clone();
                sorted.sort_unstable_by(f64::total_cmp);
                ranks.map(|r| sorted[r as usize])
            }
            Kept::Bins(bins) => {
                let mut sorted: Vec<(&i64, &Bin)> = bins.bins.iter().collect();
                sorted.sort_unstable_by_key(|b| *b.0);
                ranks.map(|r| rank_of_bins(&sorted, r))
            }
        };
        let share = place - place.floor();
        Some(match b - a {
            0.0 => a,
            apart if apart.is_finite() => a + apart * share,
            // Both are numbers; only their distance is past the range of f64.
            _ => a * (1.0 - share) + b * share,
        })
    }
}

/// The number of that rank among sorted parts: by halving the range of all numbers.
fn rank_of_parts(parts: &[Vec<f64>], rank: u64) -> f64 {
    if let [only] = parts {
        return only[rank as usize];
    }
    let at_most = |k: i64| -> u64 {
        let below = |part: &Vec<f64>| part.partition_point(|&x| key(x) <= k) as u64;
        parts.iter().map(below).sum()
    };
    let (mut low, mut high) = (i64::MIN, i64::MAX);
    while low < high {
        let mid = low + (high.wrapping_sub(low) as u64 / 2) as i64;
        if at_most(mid) > rank {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    number(low)
}

fn rank_of_bins(bins: &[(&i64, &Bin)], rank: u64) -> f64 {
    let mut before = 0;
    for (_, bin) in bins {
        if rank < before + bin.count {
            let last = bin.count - 1;
            if last == 0 || bin.low == bin.high {
                return bin.low;
            }
            return bin.low + (bin.high - bin.low) * ((rank - before) as f64 / last as f64);
        }
        before += bin.count;
    }
    bins.last().map_or(0.0, |b| b.1.high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Quantile;
    use proptest::prelude::*;

    fn q(share: f64) -> Quantile {
        Quantile::new(share, false).unwrap()
    }

    /// By the definition, on a sorted copy.
    fn naive(v: &[f64], share: f64) -> Option<f64> {
        let mut v = v.to_vec();
        v.sort_by(f64::total_cmp);
        let place = share * v.len().checked_sub(1)? as f64;
        let (a, b) = (v[place.floor() as usize], v[place.ceil() as usize]);
        Some(a + (b - a) * (place - place.floor()))
    }

    #[test]
    fn as_postgresql_says() {
        // select percentile_cont(array[0, 0.25, 0.5, 0.9, 1]) within group (order by x)
        //   from unnest(array[10, 20, 30, 40]) x  →  {10,17.5,25,37,40}
        for exact in [true, false] {
            let mut s = Samples::new(exact);
            s.extend(&[40.0, 10.0, 30.0, 20.0]);
            s.parts_mut().for_each(|p| p.sort_by(f64::total_cmp));
            for (share, want) in [
                (0.0, 10.0),
                (0.25, 17.5),
                (0.5, 25.0),
                (0.9, 37.0),
                (1.0, 40.0),
            ] {
                let got = s.percentile(q(share)).unwrap();
                assert!((got - want).abs() < 1e-12, "{share}: {got}");
                let down = Quantile::new(1.0 - share, true).unwrap();
                assert!((s.percentile(down).unwrap() - want).abs() < 1e-9);
            }
        }
        assert_eq!(Samples::new(true).percentile(Quantile::HALF), None);
        assert!(Quantile::new(1.5, false).is_none() && Quantile::new(f64::NAN, false).is_none());
    }

    #[test]
    fn keys_sort_as_numbers_do() {
        let v = [
            f64::MIN,
            -1.5,
            -1.0,
            -f64::MIN_POSITIVE,
            0.0,
            5e-324,
            1.0,
            1.5,
            f64::MAX,
        ];
        assert!(v.windows(2).all(|w| key(w[0]) < key(w[1])));
        assert!(v.iter().all(|&x| number(key(x)) == x));
        assert_eq!(key(-0.0), key(0.0));
    }

    #[test]
    fn few_distinct_numbers_stay_exact_and_bins_are_bounded() {
        let mut s = Samples::new(false);
        for i in 0..100_000u32 {
            s.extend(&[f64::from(i % 101)]);
        }
        assert!(matches!(s.0, Kept::Bins(_)));
        assert_eq!(s.percentile(q(0.5)), Some(50.0));
        assert_eq!(s.percentile(q(0.99)), Some(99.0));
        let mut wide = Samples::new(false);
        let mut x = 1e-300;
        for i in 0..400_000 {
            wide.extend(&[if i % 2 == 0 { x } else { -x }]);
            x *= 1.0035;
        }
        let Kept::Bins(bins) = &wide.0 else {
            panic!("binned")
        };
        assert!(bins.bins.len() <= BINS);
        assert!(wide.memory_bytes() < 1 << 20);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn close_ones_are_close(
            seed in any::<u64>(), n in 1usize..30_000, parts in 1usize..4, low in 0.5f64..100.0, shares in prop::collection::vec(0.0f64..=1.0, 1..6),
        ) {
            // Within 256 times the smallest: never coarsened.
            let mut random = seed | 1;
            let v: Vec<f64> = (0..n).map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                low * (1.0 + (random >> 11) as f64 / (1u64 << 53) as f64 * 254.0)
            }).collect();
            let mut all = Samples::new(false);
            let mut exact = Samples::new(true);
            for part in v.chunks(n.div_ceil(parts)) {
                let (mut a, mut e) = (Samples::new(false), Samples::new(true));
                part.chunks(97).for_each(|c| { a.extend(c); e.extend(c); });
                e.parts_mut().for_each(|p| p.sort_by(f64::total_cmp));
                all.add(a);
                exact.add(e);
            }
            prop_assert_eq!(all.len() as usize, n);
            for share in shares {
                let want = naive(&v, share).unwrap();
                prop_assert_eq!(exact.percentile(q(share)), Some(want));
                let got = all.percentile(q(share)).unwrap();
                prop_assert!((got - want).abs() <= want / 1024.0, "{} {} {}", share, got, want);
            }
        }
    }
}
