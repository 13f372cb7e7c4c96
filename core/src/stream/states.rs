//! What is known of the samples of one channel in one group, so that parts of it, from blocks, runs and
//! shards, can be put together in any number.

use super::quantile::Samples;

/// Count, sum, extremes and edges of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Numbers {
    pub count: u64,
    pub sum: f64,
    pub min: f64,
    pub max: f64,
    pub first: (i64, f64),
    pub last: (i64, f64),
}

impl Numbers {
    pub const EMPTY: Numbers = Numbers {
        count: 0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        first: (i64::MAX, 0.0),
        last: (i64::MIN, 0.0),
    };

    /// Adds what came later; of equal ts the earlier arrival is first, the later one last.
    pub fn add(&mut self, other: &Numbers) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if other.first.0 < self.first.0 {
            self.first = other.first;
        }
        if other.last.0 >= self.last.0 {
            self.last = other.last;
        }
    }
}

/// Mean and squared distance from it, which unlike a sum of squares loses nothing where the mean is large
/// and the spread is small. Parts are put together by Chan, Golub and LeVeque, "Updating formulae and a
/// pairwise algorithm for computing sample variances" (1979).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub count: u64,
    pub mean: f64,
    /// Sum of (x - mean)².
    pub squares: f64,
}

impl Moments {
    /// Of numbers whose sum is known.
    pub fn of(v: &[f64], sum: f64) -> Moments {
        if v.is_empty() {
            return Moments::default();
        }
        let n = v.len() as f64;
        let mean = sum / n;
        const LANES: usize = 8;
        let (mut square, mut rest) = ([0.0f64; LANES], [0.0f64; LANES]);
        let chunks = v.chunks_exact(LANES);
        let tail = chunks.remainder();
        for chunk in chunks {
            for i in 0..LANES {
                let d = chunk[i] - mean;
                square[i] += d * d;
                rest[i] += d;
            }
        }
        let (mut squares, mut off) = (square.iter().sum::<f64>(), rest.iter().sum::<f64>());
        for x in tail {
            let d = x - mean;
            squares += d * d;
            off += d;
        }
        // What the rounding of the mean has put into every distance.
        let squares = squares - off * off / n;
        Moments {
            count: v.len() as u64,
            mean: mean + off / n,
            // Past the range of f64 there is no number, and it must not read as none at all.
            squares: if squares.is_nan() {
                f64::INFINITY
            } else {
                squares.max(0.0)
            },
        }
    }

    /// `count` times the same number.
    pub fn constant(x: f64, count: u64) -> Moments {
        Moments {
            count,
            mean: x,
            squares: 0.0,
        }
    }

    pub fn add(&mut self, other: &Moments) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let all = a + b;
        let apart = other.mean - self.mean;
        self.squares += other.squares + apart * apart * (a * b / all);
        self.mean += apart * (b / all);
        self.count += other.count;
    }

    /// Variance; `sample` divides by one less, and then one number has none.
    pub fn variance(&self, sample: bool) -> Option<f64> {
        let by = self
            .count
            .checked_sub(u64::from(sample))
            .filter(|&n| n > 0)?;
        Some(self.squares / by as f64)
    }
}

/// Samples of a text channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Texts {
    pub count: u64,
    pub min: Box<str>,
    pub max: Box<str>,
    pub first: (i64, Box<str>),
    pub last: (i64, Box<str>),
}

impl Texts {
    pub fn bytes(&self) -> usize {
        self.min.len() + self.max.len() + self.first.1.len() + self.last.1.len()
    }

    pub fn add_one(&mut self, ts: i64, text: &str) {
        if self.count == 0 {
            *self = Texts {
                count: 1,
                min: text.into(),
                max: text.into(),
                first: (ts, text.into()),
                last: (ts, text.into()),
            };
            return;
        }
        self.count += 1;
        if text < &*self.min {
            self.min = text.into();
        }
        if text > &*self.max {
            self.max = text.into();
        }
        if ts < self.first.0 {
            self.first = (ts, text.into());
        }
        if ts >= self.last.0 {
            self.last = (ts, text.into());
        }
    }

    pub fn add(&mut self, other: Texts) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other;
            return;
        }
        self.count += other.count;
        if other.min < self.min {
            self.min = other.min;
        }
        if other.max > self.max {
            self.max = other.max;
        }
        if other.first.0 < self.first.0 {
            self.first = other.first;
        }
        if other.last.0 >= self.last.0 {
            self.last = other.last;
        }
    }
}

/// Which states of a channel a query needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// `first` or `last`.
    pub edges: bool,
    /// More than the count.
    pub values: bool,
    /// A variance.
    pub moments: bool,
    /// An exact percentile.
    pub exact: bool,
    /// A close percentile.
    pub approx: bool,
}

impl Wants {
    /// Whether every sample has to be seen: statistics of a block do not tell.
    pub fn each_sample(self) -> bool {
        self.moments || self.exact || self.approx
    }
}

/// One channel's states of all groups.
#[derive(Clone, Debug)]
pub(super) enum States {
    Numbers(NumberStates),
    Texts(Vec<Texts>),
}

/// Beside the plain ones only what is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberStates {
    pub plain: Vec<Numbers>,
    pub moments: Option<Vec<Moments>>,
    pub samples: Option<Vec<Samples>>,
}

impl NumberStates {
    pub fn new(wants: Wants) -> Self {
        NumberStates {
            plain: Vec::new(),
            moments: wants.moments.then(Vec::new),
            samples: (wants.exact || wants.approx).then(Vec::new),
        }
    }

    pub fn push_empty(&mut self, exact: bool) {
        self.plain.push(Numbers::EMPTY);
        if let Some(m) = &mut self.moments {
            m.push(Moments::default());
        }
        if let Some(s) = &mut self.samples {
            s.push(Samples::new(exact));
        }
    }

    /// Bytes of one group, without its samples.
    pub fn group_bytes(&self) -> usize {
        size_of::<Numbers>()
            + self.moments.as_ref().map_or(0, |_| size_of::<Moments>())
            + self.samples.as_ref().map_or(0, |_| size_of::<Samples>())
    }

    /// Adds numbers, whose first and last are those of `edges`. Answers by how many bytes it has grown.
    pub fn add_slice(&mut self, g: usize, v: &[f64], edges: (i64, i64)) -> usize {
        let (Some(&first), Some(&last)) = (v.first(), v.last()) else {
            return 0;
        };
        let mut new = reduce(v);
        new.first = (edges.0, first);
        new.last = (edges.1, last);
        self.plain[g].add(&new);
        if let Some(m) = &mut self.moments {
            m[g].add(&Moments::of(v, new.sum));
        }
        match &mut self.samples {
            Some(s) => {
                let before = s[g].memory_bytes();
                s[g].extend(v);
                s[g].memory_bytes().saturating_sub(before)
            }
            None => 0,
        }
    }
}

/// Count, sum, min and max of at least one number, in eight lanes so that the compiler uses vectors.
pub(super) fn reduce(v: &[f64]) -> Numbers {
    const LANES: usize = 8;
    let mut out = Numbers {
        count: v.len() as u64,
        ..Numbers::EMPTY
    };
    let (mut sum, mut min, mut max) = (
        [0.0f64; LANES],
        [f64::INFINITY; LANES],
        [f64::NEG_INFINITY; LANES],
    );
    let chunks = v.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            sum[i] += chunk[i];
            min[i] = if chunk[i] < min[i] { chunk[i] } else { min[i] };
            max[i] = if chunk[i] > max[i] { chunk[i] } else { max[i] };
        }
    }
    for i in 0..LANES {
        out.sum += sum[i];
        out.min = out.min.min(min[i]);
        out.max = out.max.max(max[i]);
    }
    for &x in rest {
        out.sum += x;
        out.min = out.min.min(x);
        out.max = out.max.max(x);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(v: &[f64]) -> Moments {
        Moments::of(v, v.iter().sum())
    }

    #[test]
    fn a_large_mean_does_not_drown_a_small_spread() {
        // Variance of 0, 1, …, 9 is 8.25 (whole), 55/6 (sample), whatever is added to all of them.
        for base in [0.0, 1e6, 1e9, -1e12] {
            let v: Vec<f64> = (0..10).map(|i| base + f64::from(i)).collect();
            let mut parts = Moments::default();
            v.chunks(3).for_each(|c| parts.add(&of(c)));
            for m in [of(&v), parts] {
                assert!((m.variance(false).unwrap() - 8.25).abs() < 1e-9, "{base}");
                assert!((m.variance(true).unwrap() - 55.0 / 6.0).abs() < 1e-9);
            }
        }
        assert_eq!(of(&[5.0]).variance(true), None);
        assert_eq!(of(&[5.0]).variance(false), Some(0.0));
        assert_eq!(of(&[]).variance(false), None);
    }

    proptest! {
        #[test]
        fn parts_are_as_good_as_the_whole(parts in prop::collection::vec(prop::collection::vec(-1e3f64..1e3, 0..40), 1..8), base in prop_oneof![Just(0.0), Just(1e8)]) {
            let parts: Vec<Vec<f64>> = parts.into_iter().map(|p| p.into_iter().map(|x| x + base).collect()).collect();
            let mut sum = Moments::default();
            parts.iter().for_each(|p| sum.add(&of(p)));
            let all: Vec<f64> = parts.concat();
            let mean = all.iter().map(|x| x - base).sum::<f64>() / all.len().max(1) as f64;
            let squares: f64 = all.iter().map(|x| (x - base - mean).powi(2)).sum();
            prop_assert_eq!(sum.count as usize, all.len());
            prop_assert!((sum.squares - squares).abs() <= 1e-6 * squares.max(1.0), "{} {}", sum.squares, squares);
        }
    }
}
