//! Values and columnar batches of them. Storage knows two kinds, f64 and string; `i64` columns carry what
//! the engine itself counts (ts, x_rev, counts).

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What storage can hold in a channel or column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// An IEEE 754 double, always finite.
    F64,
    /// UTF-8 without NUL.
    Str,
}

impl Kind {
    /// The name that error messages use.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F64 => "number",
            Kind::Str => "text",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    /// Nothing there.
    #[default]
    Null,
    /// A number; INT, BOOL and TIMESTAMP values too.
    F64(f64),
    /// Text.
    Str(Box<str>),
}

impl Value {
    /// Text, from anything that makes a string.
    pub fn str(s: impl Into<Box<str>>) -> Self {
        Value::Str(s.into())
    }
    /// Whether nothing is there.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
    /// The kind that could store it; none for NULL.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Value::Null => None,
            Value::F64(_) => Some(Kind::F64),
            Value::Str(_) => Some(Kind::Str),
        }
    }
    /// Bytes held on the heap and inline, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        std::mem::size_of::<Value>() + if let Value::Str(s) = self { s.len() } else { 0 }
    }
}

/// Strings end to end in one buffer: `offsets[i]..offsets[i + 1]` is the i-th. As it comes from a block whose
/// texts repeat it is a dictionary: the buffer has each text once, and `codes` says which the i-th is.
#[derive(Clone, Debug, Eq)]
pub struct StrVec {
    offsets: Vec<u32>,
    bytes: Vec<u8>,
    codes: Option<Vec<u32>>,
}

/// By the strings, whether one is a dictionary or not.
impl PartialEq for StrVec {
    fn eq(&self, other: &Self) -> bool {
        match (&self.codes, &other.codes) {
            (None, None) => self.offsets == other.offsets && self.bytes == other.bytes,
            _ => {
                self.len() == other.len()
                    && (0..self.len()).all(|i| self.get_bytes(i) == other.get_bytes(i))
            }
        }
    }
}

/// Which strings of a [`StrVec`] pass a test; see [`StrVec::passes`].
pub struct Passes<'a, P> {
    of: &'a StrVec,
    test: P,
    /// Of a dictionary: what the test says of each entry.
    entries: Vec<bool>,
}

impl<P: Fn(&[u8]) -> bool> Passes<'_, P> {
    /// Whether the i-th does.
    #[inline]
    pub fn at(&self, i: usize) -> bool {
        match &self.of.codes {
            Some(codes) => self.entries[codes[i] as usize],
            None => (self.test)(self.of.get_bytes(i)),
        }
    }
}

impl Default for StrVec {
    fn default() -> Self {
        Self::new()
    }
}

impl StrVec {
    /// Empty.
    pub fn new() -> Self {
        StrVec {
            offsets: vec![0],
            bytes: Vec::new(),
            codes: None,
        }
    }
    /// Empty, with room for `n` strings.
    pub fn with_capacity(n: usize) -> Self {
        let mut offsets = Vec::with_capacity(n + 1);
        offsets.push(0);
        StrVec {
            offsets,
            bytes: Vec::new(),
            codes: None,
        }
    }
    /// Room for strings of so many bytes together, without the half as much again that growing may take.
    pub fn reserve_bytes(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }
    /// Adds one. A `StrVec` holds at most 4 GiB; callers cut batches by their bytes, long before.
    pub fn push(&mut self, s: &str) {
        self.push_bytes(s.as_bytes());
    }
    /// Adds bytes that need not be UTF-8 (keys of the keyed store).
    pub fn push_bytes(&mut self, s: &[u8]) {
        self.expand();
        self.bytes.extend_from_slice(s);
        self.offsets
            .push(u32::try_from(self.bytes.len()).expect("a string batch stays below 4 GiB"));
    }
    /// How many strings.
    pub fn len(&self) -> usize {
        match &self.codes {
            Some(codes) => codes.len(),
            None => self.offsets.len() - 1,
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The i-th as bytes.
    pub fn get_bytes(&self, i: usize) -> &[u8] {
        let i = match &self.codes {
            Some(codes) => codes[i] as usize,
            None => i,
        };
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
    /// The i-th as text; damaged UTF-8 never gets here, because every entrance checks it.
    pub fn get(&self, i: usize) -> &str {
        std::str::from_utf8(self.get_bytes(i)).unwrap_or("\u{FFFD}")
    }
    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
    /// Bytes held, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        let codes = self.codes.as_ref().map_or(0, Vec::capacity);
        (self.offsets.capacity() + codes) * 4 + self.bytes.capacity()
    }
    /// From distinct entries, and for each string which of them it is. `None` when there is no such entry.
    pub fn from_dictionary(entries: StrVec, codes: Vec<u32>) -> Option<Self> {
        let entries = entries.packed().into_owned();
        let ok = codes.iter().all(|&c| (c as usize) < entries.len());
        ok.then_some(StrVec {
            codes: Some(codes),
            ..entries
        })
    }
    /// How many distinct texts a dictionary has, and for each string which of them it is. What is worked out
    /// once for each text, as [`StrVec::passes`] does, need not be for each string.
    pub fn dictionary(&self) -> Option<(usize, &[u32])> {
        let codes = self.codes.as_deref()?;
        Some((self.offsets.len() - 1, codes))
    }
    /// An entry of a dictionary; of others the i-th string.
    pub fn entry_bytes(&self, i: usize) -> &[u8] {
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
    /// Tests strings: those of a dictionary once for each of its entries, others when they are asked for.
    pub fn passes<P: Fn(&[u8]) -> bool>(&self, test: P) -> Passes<'_, P> {
        let entries = match self.dictionary() {
            Some((n, _)) => (0..n).map(|i| test(self.entry_bytes(i))).collect(),
            None => Vec::new(),
        };
        Passes {
            of: self,
            test,
            entries,
        }
    }
    /// The same strings end to end, each in its place: what [`StrVec::bytes`] and [`StrVec::offsets`] speak of.
    pub fn packed(&self) -> Cow<'_, StrVec> {
        if self.codes.is_none() {
            return Cow::Borrowed(self);
        }
        let mut out = StrVec::with_capacity(self.len());
        (0..self.len()).for_each(|i| out.push_bytes(self.get_bytes(i)));
        Cow::Owned(out)
    }
    fn expand(&mut self) {
        if self.codes.is_some() {
            *self = self.packed().into_owned();
        }
    }
    /// The buffer of all bytes; of a dictionary, of its entries.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// The `len() + 1` offsets; of a dictionary, those of its entries.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }
    /// Takes offsets and bytes as they came from a decoder, after checking that they fit each other.
    pub fn from_parts(offsets: Vec<u32>, bytes: Vec<u8>) -> Option<Self> {
        let ok = offsets.first() == Some(&0)
            && offsets.last().copied() == u32::try_from(bytes.len()).ok()
            && offsets.windows(2).all(|w| w[0] <= w[1]);
        ok.then_some(StrVec {
            offsets,
            bytes,
            codes: None,
        })
    }
    /// Puts another string in the place of the last one.
    pub fn replace_last(&mut self, s: &str) {
        self.expand();
        if self.offsets.len() > 1 {
            self.offsets.pop();
            self.bytes
                .truncate(self.offsets[self.offsets.len() - 1] as usize);
        }
        self.push(s);
    }
    /// Drops all strings, keeps the room.
    pub fn clear(&mut self) {
        self.codes = None;
        self.offsets.truncate(1);
        self.bytes.clear();
    }
}

impl<'a> FromIterator<&'a str> for StrVec {
    fn from_iter<I: IntoIterator<Item = &'a str>>(iter: I) -> Self {
        let mut v = StrVec::new();
        iter.into_iter().for_each(|s| v.push(s));
        v
    }
}

/// The cells of one column. Where a cell is NULL, `data` holds a placeholder (0 or "").
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// One entry per row.
    pub data: ColumnData,
    /// `None`: no NULL in it. Else one flag per row, true where a value is.
    pub valid: Option<Vec<bool>>,
}

/// Typed cells.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnData {
    /// Numbers of a channel or column.
    F64(Vec<f64>),
    /// What the engine counts: ts, x_rev, count(*).
    I64(Vec<i64>),
    /// Text.
    Str(StrVec),
}

impl ColumnData {
    /// How many cells.
    pub fn len(&self) -> usize {
        match self {
            ColumnData::F64(v) => v.len(),
            ColumnData::I64(v) => v.len(),
            ColumnData::Str(v) => v.len(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A cell read from a [`Column`], without copying.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing there.
    Null,
    /// From an F64 column.
    F64(f64),
    /// From an I64 column.
    I64(i64),
    /// From a Str column.
    Str(&'a str),
}

impl Column {
    /// A column without NULLs.
    pub fn full(data: ColumnData) -> Self {
        Column { data, valid: None }
    }
    /// The cell of a row.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        if self.valid.as_ref().is_some_and(|v| !v[row]) {
            return Cell::Null;
        }
        match &self.data {
            ColumnData::F64(v) => Cell::F64(v[row]),
            ColumnData::I64(v) => Cell::I64(v[row]),
            ColumnData::Str(v) => Cell::Str(v.get(row)),
        }
    }
    /// Bytes held, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        let data = match &self.data {
            ColumnData::F64(v) => v.capacity() * 8,
            ColumnData::I64(v) => v.capacity() * 8,
            ColumnData::Str(v) => v.memory_bytes(),
        };
        data + self.valid.as_ref().map_or(0, Vec::capacity)
    }
}

/// Builds one [`Column`] a cell at a time.
#[derive(Clone, Debug)]
pub struct ColumnBuilder {
    data: ColumnData,
    valid: Vec<bool>,
    nulls: usize,
}

impl ColumnBuilder {
    /// For numbers.
    pub fn f64() -> Self {
        Self {
            data: ColumnData::F64(Vec::new()),
            valid: Vec::new(),
            nulls: 0,
        }
    }
    /// For what the engine counts.
    pub fn i64() -> Self {
        Self {
            data: ColumnData::I64(Vec::new()),
            valid: Vec::new(),
            nulls: 0,
        }
    }
    /// For text.
    pub fn str() -> Self {
        Self {
            data: ColumnData::Str(StrVec::new()),
            valid: Vec::new(),
            nulls: 0,
        }
    }
    /// For cells of the same type as a column's.
    pub fn like(column: &Column) -> Self {
        match column.data {
            ColumnData::F64(_) => Self::f64(),
            ColumnData::I64(_) => Self::i64(),
            ColumnData::Str(_) => Self::str(),
        }
    }
    /// For a stored kind.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::F64 => Self::f64(),
            Kind::Str => Self::str(),
        }
    }
    /// Adds a NULL.
    pub fn push_null(&mut self) {
        match &mut self.data {
            ColumnData::F64(v) => v.push(0.0),
            ColumnData::I64(v) => v.push(0),
            ColumnData::Str(v) => v.push(""),
        }
        self.valid.push(false);
        self.nulls += 1;
    }
    /// Adds a cell; a cell of another type than the column's is a programming error.
    pub fn push(&mut self, cell: Cell<'_>) {
        match (&mut self.data, cell) {
            (_, Cell::Null) => return self.push_null(),
            (ColumnData::F64(v), Cell::F64(x)) => v.push(x),
            (ColumnData::F64(v), Cell::I64(x)) => v.push(x as f64),
            (ColumnData::I64(v), Cell::I64(x)) => v.push(x),
            (ColumnData::Str(v), Cell::Str(x)) => v.push(x),
            (data, cell) => unreachable!("{cell:?} pushed into {data:?}"),
        }
        self.valid.push(true);
    }
    /// Adds a stored value.
    pub fn push_value(&mut self, value: &Value) {
        self.push(match value {
            Value::Null => Cell::Null,
            Value::F64(x) => Cell::F64(*x),
            Value::Str(s) => Cell::Str(s),
        });
    }
    /// Cells so far.
    pub fn len(&self) -> usize {
        self.valid.len()
    }
    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.valid.is_empty()
    }
    /// The column.
    pub fn finish(self) -> Column {
        Column {
            data: self.data,
            valid: (self.nulls > 0).then_some(self.valid),
        }
    }
}

/// Rows of a result, by column. What each column means stands in the request that asked for it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Batch {
    /// How many rows; also right when there is no column.
    pub rows: usize,
    /// As many columns as were asked for, each with `rows` cells.
    pub columns: Vec<Column>,
}

impl Batch {
    /// A batch of these columns, which are equally long.
    pub fn new(columns: Vec<Column>) -> Self {
        let rows = columns.first().map_or(0, |c| c.data.len());
        debug_assert!(columns.iter().all(|c| c.data.len() == rows));
        Batch { rows, columns }
    }
    /// Bytes held, for the memory budget.
    pub fn memory_bytes(&self) -> usize {
        self.columns.iter().map(Column::memory_bytes).sum()
    }
}
