//! What goes over the wire: the five labels as PostgreSQL types, and single values of them.

use strandline_core::error::{Error, Result, SqlState};
use strandline_core::schema::Label;

/// Columns of one answer: the protocol counts them in a signed number of 16 bits.
const ROW_COLUMNS_MAX: usize = i16::MAX as usize;

/// Refuses an answer that is too wide for the protocol. Lists of columns are checked while they are made, since
/// every `*` of a short statement adds all of a wide table.
///
/// # Errors
/// `54000`.
pub fn check_width(columns: usize) -> Result<()> {
    if columns <= ROW_COLUMNS_MAX {
        return Ok(());
    }
    Err(Error::new(
        SqlState::ProgramLimitExceeded,
        format!("an answer can have at most {ROW_COLUMNS_MAX} columns"),
    ))
}

/// The PostgreSQL type of a result column or parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlType {
    /// `float8`, DOUBLE.
    Float8,
    /// `int8`, INT; also ts, x_rev and counts.
    Int8,
    /// `bool`.
    Bool,
    /// `timestamptz`, whole ms UTC.
    Timestamptz,
    /// `text`.
    Text,
    /// `int4`: only in catalog answers and parameters.
    Int4,
    /// `int2`: only in catalog answers and parameters.
    Int2,
    /// `oid`: only in catalog answers and parameters.
    Oid,
    /// `name`: only in catalog answers and parameters.
    Name,
    /// `"char"`: only in catalog answers and parameters.
    Char,
    /// `regtype` and its like, shown as text: only in catalog answers.
    Regtype,
    /// `text[]` in PostgreSQL's array text form: only in catalog answers.
    TextArray,
}

impl SqlType {
    /// Of a declared label.
    pub fn of(label: Label) -> Self {
        match label {
            Label::Double => SqlType::Float8,
            Label::Int => SqlType::Int8,
            Label::Bool => SqlType::Bool,
            Label::Timestamp => SqlType::Timestamptz,
            Label::Text { .. } => SqlType::Text,
        }
    }
    /// Its number in PostgreSQL's `pg_type`.
    pub fn oid(self) -> u32 {
        match self {
            SqlType::Bool => 16,
            SqlType::Char => 18,
            SqlType::Name => 19,
            SqlType::Int8 => 20,
            SqlType::Int2 => 21,
            SqlType::Int4 => 23,
            SqlType::Text => 25,
            SqlType::Oid => 26,
            SqlType::Float8 => 701,
            SqlType::TextArray => 1009,
            SqlType::Timestamptz => 1184,
            SqlType::Regtype => 2206,
        }
    }
    /// Its size in `pg_type.typlen`.
    #[allow(clippy::len_without_is_empty, reason = "PostgreSQL's name for it")]
    pub fn len(self) -> i16 {
        match self {
            SqlType::Bool | SqlType::Char => 1,
            SqlType::Int2 => 2,
            SqlType::Int4 | SqlType::Oid | SqlType::Regtype => 4,
            SqlType::Int8 | SqlType::Float8 | SqlType::Timestamptz => 8,
            SqlType::Name => 64,
            SqlType::Text | SqlType::TextArray => -1,
        }
    }
}

/// One value on its way in (a literal or a parameter) or in a catalog answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// NULL.
    Null,
    /// true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Unix ms.
    Timestamp(i64),
    /// Text. With `unknown` set it is an untyped literal or text parameter, which takes the type of where it
    /// stands, as in PostgreSQL.
    Text {
        /// The characters.
        text: String,
        /// Quoted literal or text-format parameter of no declared type.
        unknown: bool,
    },
}
