//! Errors as a client sees them: an SQLSTATE, one line that names the table and column, and a hint where
//! one helps. Modules keep precise enums of their own inside and turn them into this at their edge.

use std::fmt;

/// PostgreSQL's five-character condition codes, those that Strandline answers.
///
/// Source: PostgreSQL documentation, appendix A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlState {
    /// `08P01`: a message that breaks the protocol.
    ProtocolViolation,
    /// `0A000`: understood, and not supported here.
    FeatureNotSupported,
    /// `22001`: longer than VARCHAR(n) allows.
    StringTooLong,
    /// `22003`: outside the label's range.
    NumericOutOfRange,
    /// `22007`: text that is not a time.
    InvalidDatetime,
    /// `22008`: a time outside the TIMESTAMP range.
    DatetimeOverflow,
    /// `22012`: division by zero.
    DivisionByZero,
    /// `22021`: bytes that are not UTF-8, or NUL.
    CharacterNotInRepertoire,
    /// `22023`: a parameter value that makes no sense.
    InvalidParameterValue,
    /// `22025`: an escape that escapes nothing, or that is no single character.
    InvalidEscapeSequence,
    /// `22P02`: text that is not a value of the label.
    InvalidTextRepresentation,
    /// `22P03`: a binary parameter of the wrong length or format.
    InvalidBinaryRepresentation,
    /// `23502`: a required column is missing or NULL.
    NotNullViolation,
    /// `25000`: not possible in this transaction state.
    InvalidTransactionState,
    /// `25006`: a write while the session is read-only.
    ReadOnlyTransaction,
    /// `25001`: a transaction block is open already.
    ActiveTransaction,
    /// `25P01`: no transaction block is open.
    NoActiveTransaction,
    /// `25P02`: the block has failed; only COMMIT or ROLLBACK goes on.
    InFailedTransaction,
    /// `26000`: no prepared statement of that name.
    InvalidStatementName,
    /// `28000`: this user may not do that.
    InvalidAuthorization,
    /// `28P01`: wrong password.
    InvalidPassword,
    /// `34000`: no portal or cursor of that name.
    InvalidCursorName,
    /// `3D000`: no such database.
    InvalidCatalogName,
    /// `42601`: syntax.
    SyntaxError,
    /// `42602`: not a valid name.
    InvalidName,
    /// `42622`: a name over 127 bytes.
    NameTooLong,
    /// `42701`: a column named twice.
    DuplicateColumn,
    /// `42702`: a name that could mean two columns.
    AmbiguousColumn,
    /// `42703`: no such column.
    UndefinedColumn,
    /// `42704`: no such setting or object.
    UndefinedObject,
    /// `42803`: a column outside aggregates.
    GroupingError,
    /// `42804`: a value of the wrong type for its column.
    DatatypeMismatch,
    /// `42883`: no such function.
    UndefinedFunction,
    /// `42939`: a reserved name.
    ReservedName,
    /// `428C9`: a column the engine owns.
    GeneratedAlways,
    /// `42P01`: no such table.
    UndefinedTable,
    /// `42P02`: no such parameter.
    UndefinedParameter,
    /// `42P03`: a portal or cursor of that name exists.
    DuplicateCursor,
    /// `42P05`: a prepared statement of that name exists.
    DuplicatePreparedStatement,
    /// `42P07`: a table of that name exists.
    DuplicateTable,
    /// `42P10`: a position that is not in the select list.
    InvalidColumnReference,
    /// `42P16`: a table definition that cannot be.
    InvalidTableDefinition,
    /// `42P18`: the type of a parameter cannot be told.
    IndeterminateDatatype,
    /// `53100`: no space on the disk.
    DiskFull,
    /// `53200`: over the memory budget.
    OutOfMemory,
    /// `53300`: too many connections.
    TooManyConnections,
    /// `53400`: a configured limit is reached.
    ConfigurationLimitExceeded,
    /// `54000`: too large.
    ProgramLimitExceeded,
    /// `54001`: nested too deep.
    StatementTooComplex,
    /// `55000`: not in the state for that.
    ObjectNotInPrerequisiteState,
    /// `55P02`: a setting that cannot be changed now.
    CantChangeRuntimeParam,
    /// `57014`: cancelled.
    QueryCanceled,
    /// `57P01`: the server is going down.
    AdminShutdown,
    /// `57P03`: not ready yet.
    CannotConnectNow,
    /// `58030`: the disk answered an error.
    IoError,
    /// `XX000`: an internal fault.
    InternalError,
    /// `XX001`: stored data is damaged.
    DataCorrupted,
}

impl SqlState {
    /// The five characters that go over the wire.
    pub const fn code(self) -> &'static str {
        use SqlState::*;
        match self {
            ProtocolViolation => "08P01",
            FeatureNotSupported => "0A000",
            StringTooLong => "22001",
            NumericOutOfRange => "22003",
            InvalidDatetime => "22007",
            DatetimeOverflow => "22008",
            DivisionByZero => "22012",
            CharacterNotInRepertoire => "22021",
            InvalidParameterValue => "22023",
            InvalidEscapeSequence => "22025",
            InvalidTextRepresentation => "22P02",
            InvalidBinaryRepresentation => "22P03",
            NotNullViolation => "23502",
            InvalidTransactionState => "25000",
            ReadOnlyTransaction => "25006",
            ActiveTransaction => "25001",
            NoActiveTransaction => "25P01",
            InFailedTransaction => "25P02",
            InvalidStatementName => "26000",
            InvalidAuthorization => "28000",
            InvalidPassword => "28P01",
            InvalidCursorName => "34000",
            InvalidCatalogName => "3D000",
            SyntaxError => "42601",
            InvalidName => "42602",
            NameTooLong => "42622",
            DuplicateColumn => "42701",
            AmbiguousColumn => "42702",
            UndefinedColumn => "42703",
            UndefinedObject => "42704",
            GroupingError => "42803",
            DatatypeMismatch => "42804",
            UndefinedFunction => "42883",
            ReservedName => "42939",
            GeneratedAlways => "428C9",
            UndefinedTable => "42P01",
            UndefinedParameter => "42P02",
            DuplicateCursor => "42P03",
            DuplicatePreparedStatement => "42P05",
            DuplicateTable => "42P07",
            InvalidColumnReference => "42P10",
            InvalidTableDefinition => "42P16",
            IndeterminateDatatype => "42P18",
            DiskFull => "53100",
            OutOfMemory => "53200",
            TooManyConnections => "53300",
            ConfigurationLimitExceeded => "53400",
            ProgramLimitExceeded => "54000",
            StatementTooComplex => "54001",
            ObjectNotInPrerequisiteState => "55000",
            CantChangeRuntimeParam => "55P02",
            QueryCanceled => "57014",
            AdminShutdown => "57P01",
            CannotConnectNow => "57P03",
            IoError => "58030",
            InternalError => "XX000",
            DataCorrupted => "XX001",
        }
    }
}

/// An error on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    state: SqlState,
    message: String,
    hint: Option<String>,
    position: Option<u32>,
}

/// What almost every function here answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with its code and its one line.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            state,
            message: message.into(),
            hint: None,
            position: None,
        }))
    }

    /// `0A000`.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(SqlState::FeatureNotSupported, message)
    }

    /// `XX000`: a fault of ours, never of the client.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::InternalError, message)
    }

    /// `XX001`: stored bytes that fail their checks. Name the file and the offset.
    pub fn corrupted(message: impl Into<String>) -> Self {
        Self::new(SqlState::DataCorrupted, message)
    }

    /// Adds the HINT line: what to do instead.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds where in the statement, in characters from 1, as PostgreSQL counts.
    #[must_use]
    pub fn at(mut self, position: u32) -> Self {
        self.0.position = Some(position);
        self
    }

    /// The condition.
    pub fn state(&self) -> SqlState {
        self.0.state
    }
    /// The one line.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The HINT, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// Character position in the statement, from 1.
    pub fn position(&self) -> Option<u32> {
        self.0.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.state.code(), self.0.message)?;
        if let Some(hint) = &self.0.hint {
            write!(f, " (hint: {hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        match e.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge => Error::new(
                SqlState::DiskFull,
                format!("no space left on the disk: {e}"),
            )
            .hint("free space on the data directory's file system; writes resume by themselves"),
            _ => Error::new(SqlState::IoError, format!("input/output error: {e}")),
        }
    }
}
