//! Text to tokens, once per statement and without copying: a token is a kind and two byte offsets. The
//! lexer is our own because Strandline writes times without quotes (`2026-01-01T10:00:00`), durations
//! (`1h30m`) and names with a dollar (`$sys`, `$timestamp`), and because an INSERT of ten thousand rows must
//! not allocate per cell.

use strandline_core::error::{Error, Result, SqlState};
use strandline_core::limits::Limits;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bare word: keyword or identifier.
    Word,
    /// `"…"`, the quotes included in the span.
    Quoted,
    /// Digits only.
    Int,
    /// A number with a fraction or an exponent.
    Decimal,
    /// An unquoted ISO 8601 time.
    Time,
    /// `'…'` without a doubled quote in it, the quotes included.
    Str,
    /// `'…'` with doubled quotes.
    StrDoubled,
    /// `E'…'`, the E included.
    StrEscaped,
    /// `$tag$…$tag$`.
    StrDollar,
    /// `$1`; the number is in the text.
    Param,
    /// `(`
    LParen,
    /// `)`
    RParen,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// `.`
    Dot,
    /// `*`
    Star,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `/`
    Slash,
    /// `=`
    Eq,
    /// `<>` or `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `::`
    Cast,
    /// Any other character: no statement of ours has it, but general SQL may.
    Other,
    /// After the last token; its span is empty.
    End,
}

/// A token: what it is and which bytes of the text it stands on.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// First byte.
    pub start: u32,
    /// Past the last byte.
    pub end: u32,
}

/// Position of a byte of `text`, in characters from 1, as PostgreSQL counts.
pub fn position(text: &str, byte: u32) -> u32 {
    let end = (byte as usize).min(text.len());
    let chars = text.as_bytes()[..end].iter().filter(|b| **b & 0xC0 != 0x80);
    u32::try_from(chars.count() + 1).unwrap_or(u32::MAX)
}

/// A syntax error at a byte of the text.
pub fn syntax(text: &str, byte: u32, message: impl Into<String>) -> Error {
    Error::new(SqlState::SyntaxError, message).at(position(text, byte))
}

/// All tokens of a text, [`Kind::End`] last.
///
/// # Errors
/// `54000` when the text is over `statement_bytes` or a parameter over `parameters`; `42601` for a quote or
/// comment that does not end.
pub fn tokenize(text: &str, limits: &Limits) -> Result<Vec<Token>> {
    if text.len() as u64 > limits.statement_bytes || u32::try_from(text.len()).is_err() {
        return Err(limits.exceeded(
            "statement_bytes",
            SqlState::ProgramLimitExceeded,
            format_args!("a statement of {} bytes", text.len()),
        ));
    }
    let mut lexer = Lexer {
        text,
        bytes: text.as_bytes(),
        at: 0,
        max_parameter: limits.parameters,
        // Most statements have a token every four bytes; large INSERTs come close to that too.
        tokens: Vec::with_capacity(text.len() / 4 + 4),
    };
    lexer.run()?;
    let end = text.len() as u32;
    lexer.tokens.push(Token {
        kind: Kind::End,
        start: end,
        end,
    });
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    max_parameter: u64,
    tokens: Vec<Token>,
}

fn is_word_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        // NUL stands for the end: text never holds it in a place where that matters.
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn push(&mut self, kind: Kind, len: usize) {
        self.tokens.push(Token {
            kind,
            start: self.at as u32,
            end: (self.at + len) as u32,
        });
        self.at += len;
    }

    fn run(&mut self) -> Result<()> {
        while let Some(&b) = self.bytes.get(self.at) {
            match b {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'-' if self.peek(1) == b'-' => {
                    let rest = &self.bytes[self.at..];
                    self.at += rest
                        .iter()
                        .position(|c| *c == b'\n' || *c == b'\r')
                        .unwrap_or(rest.len());
                }
                b'/' if self.peek(1) == b'*' => self.comment()?,
                b'\'' => self.string(0)?,
                b'e' | b'E' if self.peek(1) == b'\'' => self.escaped()?,
                b'"' => self.quoted()?,
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_ascii_digit() => self.number(),
                b'$' => self.dollar()?,
                _ if is_word_start(b) => self.word(),
                b'(' => self.push(Kind::LParen, 1),
                b')' => self.push(Kind::RParen, 1),
                b',' => self.push(Kind::Comma, 1),
                b';' => self.push(Kind::Semicolon, 1),
                b'.' => self.push(Kind::Dot, 1),
                b'*' => self.push(Kind::Star, 1),
                b'+' => self.push(Kind::Plus, 1),
                b'-' => self.push(Kind::Minus, 1),
                b'/' => self.push(Kind::Slash, 1),
                b'=' => self.push(Kind::Eq, 1),
                b'!' if self.peek(1) == b'=' => self.push(Kind::Ne, 2),
                b'<' if self.peek(1) == b'>' => self.push(Kind::Ne, 2),
                b'<' if self.peek(1) == b'=' => self.push(Kind::Le, 2),
                b'<' => self.push(Kind::Lt, 1),
                b'>' if self.peek(1) == b'=' => self.push(Kind::Ge, 2),
                b'>' => self.push(Kind::Gt, 1),
                b':' if self.peek(1) == b':' => self.push(Kind::Cast, 2),
                _ => self.push(Kind::Other, 1),
            }
        }
        Ok(())
    }

    /// `/* … */`, which nests as in PostgreSQL.
    fn comment(&mut self) -> Result<()> {
        let start = self.at;
        let mut depth = 0usize;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => self.at += 1,
            }
        }
        Err(syntax(self.text, start as u32, "unterminated /* comment"))
    }

    fn unterminated(&self, what: &str) -> Error {
        let rest: String = self.text[self.at..].chars().take(20).collect();
        syntax(
            self.text,
            self.at as u32,
            format!("unterminated {what} at or near \"{rest}\""),
        )
    }

    fn string(&mut self, prefix: usize) -> Result<()> {
        let mut i = self.at + prefix + 1;
        let mut kind = Kind::Str;
        loop {
            let Some(found) = self
                .bytes
                .get(i..)
                .and_then(|b| b.iter().position(|c| *c == b'\''))
            else {
                return Err(self.unterminated("quoted string"));
            };
            i += found + 1;
            if self.bytes.get(i) == Some(&b'\'') {
                kind = Kind::StrDoubled;
                i += 1;
            } else {
                self.push(kind, i - self.at);
                return Ok(());
            }
        }
    }

    fn escaped(&mut self) -> Result<()> {
        let mut i = self.at + 2;
        while let Some(&b) = self.bytes.get(i) {
            match b {
                b'\\' => i += 2,
                b'\'' if self.bytes.get(i + 1) == Some(&b'\'') => i += 2,
                b'\'' => {
                    self.push(Kind::StrEscaped, i + 1 - self.at);
                    return Ok(());
                }
                _ => i += 1,
            }
        }
        Err(self.unterminated("quoted string"))
    }

    fn quoted(&mut self) -> Result<()> {
        let mut i = self.at + 1;
        while let Some(&b) = self.bytes.get(i) {
            match b {
                b'"' if self.bytes.get(i + 1) == Some(&b'"') => i += 2,
                b'"' => {
                    self.push(Kind::Quoted, i + 1 - self.at);
                    return Ok(());
                }
                _ => i += 1,
            }
        }
        Err(self.unterminated("quoted identifier"))
    }

    fn digits(&self, from: usize) -> usize {
        self.bytes[from.min(self.bytes.len())..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    }

    fn number(&mut self) {
        if let Some(len) = self.time() {
            return self.push(Kind::Time, len);
        }
        let whole = self.digits(self.at);
        let mut len = whole;
        let mut kind = Kind::Int;
        if self.peek(len) == b'.' && (whole > 0 || self.peek(len + 1).is_ascii_digit()) {
            kind = Kind::Decimal;
            len += 1;
            len += self.digits(self.at + len);
        }
        if matches!(self.peek(len), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(len + 1), b'+' | b'-'));
            let exponent = self.digits(self.at + len + 1 + sign);
            if exponent > 0 {
                kind = Kind::Decimal;
                len += 1 + sign + exponent;
            }
        }
        self.push(kind, len);
        // `1h30m`: a unit that stands against its number ends where the next number begins.
        if is_word_start(self.peek(0)) {
            let letters = self.bytes[self.at..]
                .iter()
                .take_while(|b| is_word_start(**b))
                .count();
            self.push(Kind::Word, letters);
        }
    }

    /// Length of `2026-01-01`, `2026-01-01T10:00`, `…:00.250`, with `Z` or `±hh[:mm]` behind a time of day.
    fn time(&self) -> Option<usize> {
        let b = &self.bytes[self.at..];
        let digits = |at: usize, n: usize| {
            b.get(at..at + n)
                .is_some_and(|d| d.iter().all(u8::is_ascii_digit))
        };
        let is = |at: usize, c: u8| b.get(at) == Some(&c);
        let not_digit = |at: usize| !b.get(at).is_some_and(u8::is_ascii_digit);
        if !(digits(0, 4)
            && is(4, b'-')
            && digits(5, 2)
            && is(7, b'-')
            && digits(8, 2)
            && not_digit(10))
        {
            return None;
        }
        let mut len = 10;
        if !(matches!(b.get(10), Some(b'T' | b't'))
            && digits(11, 2)
            && is(13, b':')
            && digits(14, 2))
        {
            return Some(len);
        }
        len = 16;
        if is(16, b':') && digits(17, 2) {
            len = 19;
            if is(19, b'.') && digits(20, 1) {
                len = 20 + self.digits(self.at + 20);
            }
        }
        let word = |at: usize| b.get(at).is_some_and(|c| is_word(*c));
        if matches!(b.get(len), Some(b'Z' | b'z')) && !word(len + 1) {
            return Some(len + 1);
        }
        if matches!(b.get(len), Some(b'+' | b'-')) && digits(len + 1, 2) {
            // `+10h` is a duration, `+10:00`, `+1000` and `+10` are zones.
            if is(len + 3, b':') && digits(len + 4, 2) && !word(len + 6) {
                return Some(len + 6);
            }
            if digits(len + 3, 2) && !word(len + 5) {
                return Some(len + 5);
            }
            if !word(len + 3) {
                return Some(len + 3);
            }
        }
        Some(len)
    }

    fn word(&mut self) {
        let len = self.bytes[self.at..]
            .iter()
            .take_while(|b| is_word(**b))
            .count();
        self.push(Kind::Word, len);
    }

    fn dollar(&mut self) -> Result<()> {
        let digits = self.digits(self.at + 1);
        if digits > 0 {
            let number = self.text[self.at + 1..self.at + 1 + digits].parse::<u64>();
            if !matches!(number, Ok(n) if n >= 1 && n <= self.max_parameter) {
                let name = &self.text[self.at..self.at + 1 + digits.min(20)];
                let e = Error::new(
                    SqlState::UndefinedParameter,
                    format!(
                        "there is no parameter {name}: parameters count from $1 to ${}",
                        self.max_parameter
                    ),
                );
                return Err(e.at(position(self.text, self.at as u32)));
            }
            self.push(Kind::Param, 1 + digits);
            return Ok(());
        }
        let name = self.bytes[self.at + 1..]
            .iter()
            .take_while(|b| is_word(**b) && **b != b'$')
            .count();
        if self.peek(1 + name) == b'$' {
            let tag = &self.text[self.at..self.at + name + 2];
            let body = self.at + tag.len();
            let Some(found) = self.text[body..].find(tag) else {
                return Err(self.unterminated("dollar-quoted string"));
            };
            self.push(Kind::StrDollar, tag.len() + found + tag.len());
        } else if name > 0 {
            self.push(Kind::Word, 1 + name);
        } else {
            self.push(Kind::Other, 1);
        }
        Ok(())
    }
}

/// The characters of a string token.
///
/// # Errors
/// `22021` for an escape that makes a NUL or no character; `42601` for one that is malformed.
pub fn string_value(text: &str, token: Token) -> Result<String> {
    let raw = &text[token.start as usize..token.end as usize];
    match token.kind {
        Kind::Str => Ok(inner(raw, 1).to_owned()),
        Kind::StrDoubled => Ok(inner(raw, 1).replace("''", "'")),
        Kind::StrDollar => {
            let tag = raw[1..].find('$').map_or(0, |i| i + 2);
            Ok(raw.get(tag..raw.len() - tag).unwrap_or_default().to_owned())
        }
        _ => unescape(&raw[1..]).map_err(|e| e.at(position(text, token.start))),
    }
}

fn inner(raw: &str, cut: usize) -> &str {
    raw.get(cut..raw.len().saturating_sub(cut))
        .unwrap_or_default()
}

/// What `'…'` of an `E'…'` says.
fn unescape(raw: &str) -> Result<String> {
    let body = inner(raw, 1);
    let mut out: Vec<u8> = Vec::with_capacity(body.len());
    let b = body.as_bytes();
    let mut i = 0;
    let bad = |what: &str| {
        Error::new(
            SqlState::SyntaxError,
            format!("invalid {what} in an E'…' string"),
        )
    };
    while let Some(&c) = b.get(i) {
        i += 1;
        if c == b'\'' {
            // Doubled.
            i += 1;
            out.push(b'\'');
            continue;
        }
        if c != b'\\' {
            out.push(c);
            continue;
        }
        let Some(&e) = b.get(i) else { break };
        i += 1;
        match e {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'0'..=b'7' => {
                let mut v = u32::from(e - b'0');
                let mut n = 1;
                while n < 3 && matches!(b.get(i), Some(b'0'..=b'7')) {
                    v = v * 8 + u32::from(b[i] - b'0');
                    i += 1;
                    n += 1;
                }
                out.push(v as u8);
            }
            b'x' if b.get(i).is_some_and(u8::is_ascii_hexdigit) => {
                let mut v = 0;
                let mut n = 0;
                while n < 2 && b.get(i).is_some_and(u8::is_ascii_hexdigit) {
                    v = v * 16 + (b[i] as char).to_digit(16).unwrap_or(0);
                    i += 1;
                    n += 1;
                }
                out.push(v as u8);
            }
            b'u' | b'U' => {
                let width = if e == b'u' { 4 } else { 8 };
                let hex = body
                    .get(i..i + width)
                    .ok_or_else(|| bad("Unicode escape"))?;
                let code = u32::from_str_radix(hex, 16).map_err(|_| bad("Unicode escape"))?;
                i += width;
                let ch = char::from_u32(code).ok_or_else(|| bad("Unicode escape"))?;
                out.extend_from_slice(ch.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(other),
        }
    }
    match String::from_utf8(out) {
        Ok(s) if !s.contains('\0') => Ok(s),
        _ => Err(Error::new(
            SqlState::CharacterNotInRepertoire,
            "the escapes of an E'…' string do not make UTF-8 text without NUL",
        )),
    }
}

/// The name that an identifier token stands for: folded, unless it is quoted.
pub fn identifier(text: &str, token: Token) -> String {
    let raw = &text[token.start as usize..token.end as usize];
    match token.kind {
        Kind::Quoted => inner(raw, 1).replace("\"\"", "\""),
        _ => raw.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        tokenize(text, &Limits::default())
            .unwrap()
            .iter()
            .map(|t| (t.kind, &text[t.start as usize..t.end as usize]))
            .filter(|t| t.0 != Kind::End)
            .collect()
    }

    #[test]
    fn times_durations_and_dollars() {
        use Kind::*;
        assert_eq!(
            kinds("2026-01-01T10:00:00.250+1day 2026-01-01 2026-01-01T10:00+01:00"),
            [
                (Time, "2026-01-01T10:00:00.250"),
                (Plus, "+"),
                (Int, "1"),
                (Word, "day"),
                (Time, "2026-01-01"),
                (Time, "2026-01-01T10:00+01:00")
            ]
        );
        assert_eq!(
            kinds("2026-01-01T10:00:00+10h 1h30m 1e3 1.5e-2 .5 7."),
            [
                (Time, "2026-01-01T10:00:00"),
                (Plus, "+"),
                (Int, "10"),
                (Word, "h"),
                (Int, "1"),
                (Word, "h"),
                (Int, "30"),
                (Word, "m"),
                (Decimal, "1e3"),
                (Decimal, "1.5e-2"),
                (Decimal, ".5"),
                (Decimal, "7.")
            ]
        );
        assert_eq!(
            kinds("$sys.tables $1 $timestamp $$a'b$$ $x$y$x$"),
            [
                (Word, "$sys"),
                (Dot, "."),
                (Word, "tables"),
                (Param, "$1"),
                (Word, "$timestamp"),
                (StrDollar, "$$a'b$$"),
                (StrDollar, "$x$y$x$")
            ]
        );
        assert_eq!(
            kinds("a<=b--c\n<>/* x /* y */ z */!=::"),
            [
                (Word, "a"),
                (Le, "<="),
                (Word, "b"),
                (Ne, "<>"),
                (Ne, "!="),
                (Cast, "::")
            ]
        );
    }

    #[test]
    fn strings() {
        let value = |text: &str| {
            let t = tokenize(text, &Limits::default()).unwrap()[0];
            string_value(text, t)
        };
        assert_eq!(value("'it''s'").unwrap(), "it's");
        assert_eq!(
            value(r"E'a\n\'\\\x41\101\u00e9'''").unwrap(),
            "a\n'\\AA\u{e9}'"
        );
        assert_eq!(value("$q$it's$q$").unwrap(), "it's");
        assert_eq!(value(r"'a\n'").unwrap(), r"a\n");
        for bad in [r"E'\0'", r"E'\xff'"] {
            assert_eq!(
                value(bad).unwrap_err().state(),
                SqlState::CharacterNotInRepertoire
            );
        }
        assert!(value(r"E'\u12'").is_err());
    }

    #[test]
    fn what_does_not_end_is_refused_where_it_begins() {
        for (text, at) in [
            ("a 'b", 3),
            ("é \"b", 3),
            ("/* x", 1),
            ("$a$ b", 1),
            ("E'\\'", 1),
        ] {
            let e = tokenize(text, &Limits::default()).unwrap_err();
            assert_eq!(
                (e.state(), e.position()),
                (SqlState::SyntaxError, Some(at)),
                "{text}"
            );
        }
        let limits = Limits {
            statement_bytes: 4,
            ..Limits::default()
        };
        assert_eq!(
            tokenize("12345", &limits).unwrap_err().state(),
            SqlState::ProgramLimitExceeded
        );
        let e = tokenize("$99999", &Limits::default()).unwrap_err();
        assert_eq!(e.state(), SqlState::UndefinedParameter);
    }
}
