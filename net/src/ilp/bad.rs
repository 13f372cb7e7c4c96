//! Why a line is refused. A bad line costs itself alone, so this is not an error of the connection: it is
//! counted by its reason and told to the log (TCP) or to the client (HTTP).

use std::fmt::Display;

/// What is wrong with a line, as far as `/metrics` tells lines apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Not `table,tag=… field=value [ts]`.
    Syntax,
    /// Bytes that are not UTF-8, or NUL.
    Encoding,
    /// Over `ilp_line_bytes` or `ilp_fields`.
    TooLong,
    /// No entity tag, or an entity that the table does not take.
    Entity,
    /// A table or channel name that is too long.
    Name,
    /// A table or channel name that is the system's, as CREATE refuses it too.
    Reserved,
    /// A number that is not finite, not exact, or not within the channel's label; text over VARCHAR(n).
    Value,
    /// Text for a number channel, or a number for a text channel.
    Type,
    /// A timestamp that is not whole steps of its unit from 1970 to where TIMESTAMP ends, in 2262.
    Timestamp,
    /// The table is of a family that line protocol does not write.
    Family,
    /// The engine refused to add the table, the channel or the entity.
    Refused,
}

impl Reason {
    /// All of them, in the order of the counters.
    pub const ALL: [Reason; 11] = [
        Reason::Syntax,
        Reason::Encoding,
        Reason::TooLong,
        Reason::Entity,
        Reason::Name,
        Reason::Reserved,
        Reason::Value,
        Reason::Type,
        Reason::Timestamp,
        Reason::Family,
        Reason::Refused,
    ];

    /// The label in `/metrics` and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Syntax => "syntax",
            Reason::Encoding => "encoding",
            Reason::TooLong => "too_long",
            Reason::Entity => "entity",
            Reason::Name => "name",
            Reason::Reserved => "reserved",
            Reason::Value => "value",
            Reason::Type => "type",
            Reason::Timestamp => "timestamp",
            Reason::Family => "family",
            Reason::Refused => "refused",
        }
    }
}

/// A refused line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its class.
    pub reason: Reason,
    /// One line that names the table and the channel where they are known.
    pub message: Box<str>,
    /// Which line of the input, from 1; 0 until it is reported.
    pub line: u64,
}

/// What the functions of a line answer.
pub(crate) type Checked<T> = Result<T, BadLine>;

/// Makes a [`BadLine`].
#[cold]
pub(crate) fn bad(reason: Reason, message: impl Display) -> BadLine {
    BadLine {
        reason,
        message: message.to_string().into_boxed_str(),
        line: 0,
    }
}

/// At most `max` bytes of input for a log line, with everything unprintable escaped.
pub fn excerpt(bytes: &[u8], max: usize) -> String {
    let cut = &bytes[..bytes.len().min(max)];
    let mut text: String = String::from_utf8_lossy(cut)
        .chars()
        .flat_map(|c| {
            let plain = !c.is_control();
            plain
                .then_some(c)
                .into_iter()
                .chain((!plain).then(|| c.escape_default()).into_iter().flatten())
        })
        .collect();
    if bytes.len() > max {
        text.push('…');
    }
    text
}
