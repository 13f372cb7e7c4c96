//! What is stored once fragments have arrived.

use std::collections::BTreeMap;
use strandline_core::ids::ColumnId;
use strandline_core::scan::Entities;
use strandline_core::value::Value;

/// One written row: some channels of one entity at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    /// Of which entity.
    pub entity: String,
    /// When, Unix ms.
    pub ts: i64,
    /// What arrived; never NULL, never empty.
    pub cells: Vec<(ColumnId, Value)>,
}

/// What arrived at one (entity, ts): per channel its samples, in order of arrival.
pub type Cells = BTreeMap<ColumnId, Vec<Value>>;

/// One entity's samples by ts.
pub type Rows = BTreeMap<i64, Cells>;

/// A table's samples by entity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Entities in order of name.
    pub entities: BTreeMap<String, Rows>,
}

impl Contents {
    /// The contents that these fragments make, in this order of arrival.
    pub fn of<'a>(fragments: impl IntoIterator<Item = &'a Fragment>) -> Contents {
        let mut contents = Contents::default();
        fragments.into_iter().for_each(|f| contents.arrive(f));
        contents
    }

    /// One more fragment.
    pub fn arrive(&mut self, fragment: &Fragment) {
        let rows = self.entities.entry(fragment.entity.clone()).or_default();
        let cells = rows.entry(fragment.ts).or_default();
        for (column, value) in &fragment.cells {
            cells.entry(*column).or_default().push(value.clone());
        }
    }

    /// `WITH (DEDUP)`: of the samples of a channel at one (entity, ts) the last to arrive alone is there.
    #[must_use]
    pub fn dedup(mut self) -> Contents {
        for samples in self.samples_mut() {
            samples.drain(..samples.len() - 1);
        }
        self
    }

    fn samples_mut(&mut self) -> impl Iterator<Item = &mut Vec<Value>> {
        let cells = self
            .entities
            .values_mut()
            .flat_map(|rows| rows.values_mut());
        cells.flat_map(|cells| cells.values_mut())
    }

    /// Without the channels that were dropped: what had no other sample is gone.
    #[must_use]
    pub fn of_channels(mut self, there: &[ColumnId]) -> Contents {
        for rows in self.entities.values_mut() {
            for cells in rows.values_mut() {
                cells.retain(|column, _| there.contains(column));
            }
        }
        self.without_empty()
    }

    /// Without what RETENTION has expired: everything before `floor`.
    #[must_use]
    pub fn since(mut self, floor: i64) -> Contents {
        for rows in self.entities.values_mut() {
            rows.retain(|&ts, _| ts >= floor);
        }
        self.without_empty()
    }

    /// Of these entities alone.
    #[must_use]
    pub fn of_entities(mut self, wanted: &Entities) -> Contents {
        if let Entities::In(list) = wanted {
            self.entities.retain(|name, _| list.contains(name));
        }
        self
    }

    fn without_empty(mut self) -> Contents {
        for rows in self.entities.values_mut() {
            rows.retain(|_, cells| !cells.is_empty());
        }
        self.entities.retain(|_, rows| !rows.is_empty());
        self
    }

    /// Every ts that has a sample, for questions near them.
    pub fn times(&self) -> Vec<i64> {
        self.entities
            .values()
            .flat_map(|rows| rows.keys().copied())
            .collect()
    }
}

/// Samples of one (entity, ts) as rows of `columns`: the k-th sample of each channel makes the k-th row.
pub fn coalesced(cells: &Cells, columns: &[ColumnId]) -> Vec<Vec<Option<Value>>> {
    let samples = |column| cells.get(column).map_or(&[][..], Vec::as_slice);
    let height = columns.iter().map(|c| samples(c).len()).max().unwrap_or(0);
    let row = |k: usize| columns.iter().map(|c| samples(c).get(k).cloned()).collect();
    (0..height).map(row).collect()
}
