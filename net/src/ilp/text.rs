//! The grammar below the line: names, tags, escapes, strings. Works on *regions*: bytes whose last one is
//! a newline, so that a search for the end of a token always stops.
//!
//! InfluxDB's rules: a delimiter is escaped when the byte before it is a backslash; any other backslash is
//! itself. In a string `\"` and `\\` are escapes and any other backslash is itself. A newline ends a line
//! whatever stands before it, except within a string.

use super::bad::{BadLine, Checked, Reason, bad, excerpt};
use super::number::slow_number;
use memchr::{memchr, memchr3};
use std::borrow::Cow;
use std::ops::Range;

/// What a backslash escapes in a table's name.
pub(crate) const TABLE_ESCAPES: &[u8] = b", ";
/// What a backslash escapes in tag keys, tag values and field names.
pub(crate) const NAME_ESCAPES: &[u8] = b",= ";

/// Removes the backslashes that escape one of `set`.
pub(crate) fn unescape<'a>(raw: &'a [u8], set: &[u8]) -> Cow<'a, [u8]> {
    if memchr(b'\\', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied().peekable();
    while let Some(b) = bytes.next() {
        match bytes.peek() {
            Some(next) if b == b'\\' && set.contains(next) => {}
            _ => {
                out.push(b);
                continue;
            }
        }
        out.extend(bytes.next());
    }
    Cow::Owned(out)
}

/// Bytes as text; a line that is not UTF-8 is bad.
pub(crate) fn utf8(bytes: &[u8]) -> Checked<&str> {
    std::str::from_utf8(bytes).map_err(|_| not_text())
}

#[cold]
pub(crate) fn not_text() -> BadLine {
    bad(Reason::Encoding, "the line is not UTF-8 text without NUL")
}

/// Where the token from `start` ends: at the first unescaped byte of `stops`, or at the newline.
#[inline]
fn token_end(region: &[u8], start: usize, stops: &[u8]) -> usize {
    let mut at = start;
    while let Some(&b) = region.get(at) {
        if b == b'\n' || (stops.contains(&b) && (at == start || region[at - 1] != b'\\')) {
            break;
        }
        at += 1;
    }
    at
}

/// Where a name that begins at `start` ends: at its unescaped `=`.
pub(crate) fn name_end(region: &[u8], start: usize) -> Checked<usize> {
    let end = token_end(region, start, b",= ");
    match region.get(end) {
        Some(b'=') if end > start => Ok(end),
        Some(b'=') => Err(bad(Reason::Syntax, "a name before '=' is missing")),
        _ if end == start => Err(bad(Reason::Syntax, "a field is missing after ',' or ' '")),
        _ => Err(bad(
            Reason::Syntax,
            format_args!("'{}' has no '='", excerpt(trim_cr(region, start..end), 40)),
        )),
    }
}

fn trim_cr(region: &[u8], token: Range<usize>) -> &[u8] {
    let text = &region[token];
    text.strip_suffix(b"\r").unwrap_or(text)
}

/// The token of a value that is not a string, and where it ends.
pub(crate) fn value_token(region: &[u8], start: usize) -> (&[u8], usize) {
    let mut end = start;
    while !matches!(region.get(end), None | Some(b',' | b' ' | b'\n')) {
        end += 1;
    }
    if region.get(end) == Some(&b'\n') && end > start && region[end - 1] == b'\r' {
        end -= 1;
    }
    (&region[start..end], end)
}

/// Where the line ends when it ends at `at`: one past its newline.
#[inline]
pub(crate) fn line_end(region: &[u8], at: usize) -> Option<usize> {
    match region.get(at)? {
        b'\n' => Some(at + 1),
        b'\r' if region.get(at + 1) == Some(&b'\n') => Some(at + 2),
        _ => None,
    }
}

/// Table and tags of a line, as they stand there.
#[derive(Debug, Default)]
pub(crate) struct Key {
    /// The table's name, escaped.
    pub table: Range<usize>,
    /// Name and value of each tag, escaped.
    pub tags: Vec<(Range<usize>, Range<usize>)>,
    /// One past the space behind them.
    pub end: usize,
}

/// Reads table and tags.
pub(crate) fn key(region: &[u8], start: usize, out: &mut Key) -> Checked<()> {
    out.tags.clear();
    let mut at = token_end(region, start, b", ");
    out.table = start..at;
    if at == start {
        return Err(bad(
            Reason::Syntax,
            "the line does not begin with a table's name",
        ));
    }
    loop {
        match region.get(at) {
            Some(b' ') => {
                out.end = at + 1;
                return Ok(());
            }
            Some(b',') => {}
            _ => return Err(bad(Reason::Syntax, "the line has no fields")),
        }
        let name = at + 1;
        let equals = token_end(region, name, b",= ");
        if region.get(equals) != Some(&b'=') || equals == name {
            return Err(bad(
                Reason::Syntax,
                format_args!(
                    "tag '{}' is not name=value",
                    excerpt(trim_cr(region, name..equals), 40)
                ),
            ));
        }
        at = token_end(region, equals + 1, b",= ");
        if at == equals + 1 || region.get(at) == Some(&b'=') {
            return Err(bad(
                Reason::Syntax,
                format_args!(
                    "tag {} has no value, or an unescaped '=' in it",
                    excerpt(&region[name..equals], 40)
                ),
            ));
        }
        out.tags.push((name..equals, equals + 1..at));
    }
}

/// Where a string ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StringEnd {
    /// At this quote; whether there are escapes in it.
    Closed {
        /// Where the closing quote stands.
        quote: usize,
        /// Whether a backslash escapes something.
        escaped: bool,
    },
    /// Nowhere: it runs into what is a line of its own, or into the end of the input.
    Unterminated,
    /// Not within the region; more input may tell.
    Open,
}

/// Looks for the quote that closes the string whose first byte is at `start`.
///
/// A string may run over newlines. But a forgotten quote must cost its own line only, so a newline ends the
/// search where what follows is a whole line by itself.
pub(crate) fn string_end(region: &[u8], start: usize) -> StringEnd {
    let mut at = start;
    let mut escaped = false;
    while let Some(found) = memchr3(b'"', b'\\', b'\n', region.get(at..).unwrap_or_default()) {
        at += found;
        match region[at] {
            b'"' => return StringEnd::Closed { quote: at, escaped },
            b'\\' => {
                let is_escape = matches!(region.get(at + 1), Some(b'"' | b'\\'));
                escaped |= is_escape;
                at += 1 + usize::from(is_escape);
            }
            _ => {
                let next = at + 1;
                let Some(length) = memchr(b'\n', &region[next..]) else {
                    return StringEnd::Open;
                };
                if is_line(&region[next..=next + length]) {
                    return StringEnd::Unterminated;
                }
                at = next;
            }
        }
    }
    StringEnd::Open
}

/// The text of a string between its quotes.
pub(crate) fn unescape_string(raw: &[u8], escaped: bool) -> Cow<'_, [u8]> {
    if escaped {
        unescape(raw, b"\"\\")
    } else {
        Cow::Borrowed(raw)
    }
}

/// Whether one physical line, its newline included, has the form of a line with at least one tag and no
/// string over its end.
fn is_line(line: &[u8]) -> bool {
    let mut parts = Key::default();
    if key(line, 0, &mut parts).is_err() || parts.tags.is_empty() {
        return false;
    }
    let mut at = skip_spaces(line, parts.end);
    loop {
        let Ok(equals) = name_end(line, at) else {
            return false;
        };
        at = equals + 1;
        if line.get(at) == Some(&b'"') {
            match physical_string_end(line, at + 1) {
                Some(quote) => at = quote + 1,
                None => return false,
            }
        } else {
            let (token, end) = value_token(line, at);
            if slow_number(token).is_err() {
                return false;
            }
            at = end;
        }
        match line.get(at) {
            Some(b',') => at += 1,
            Some(b' ') => break,
            _ => return line_end(line, at).is_some(),
        }
    }
    at = skip_spaces(line, at);
    if let Some((_, end)) = super::number::whole_number(line, at) {
        at = skip_spaces(line, end);
    }
    line_end(line, at).is_some()
}

fn physical_string_end(line: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        match line.get(at)? {
            b'"' => return Some(at),
            b'\n' => return None,
            b'\\' if matches!(line.get(at + 1), Some(b'"' | b'\\')) => at += 2,
            _ => at += 1,
        }
    }
}

/// The first byte from `at` that is not a space.
#[inline]
pub(crate) fn skip_spaces(region: &[u8], mut at: usize) -> usize {
    while region.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}

/// A UUID as the engine stores it: 32 lowercase hex digits. Takes dashes where RFC 9562 has them, or none.
pub(crate) fn normalise_uuid(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let dashed = bytes.len() == 36;
    if !dashed && bytes.len() != 32 {
        return None;
    }
    let mut out = String::with_capacity(32);
    for (i, &b) in bytes.iter().enumerate() {
        if dashed && matches!(i, 8 | 13 | 18 | 23) {
            if b != b'-' {
                return None;
            }
        } else if b.is_ascii_hexdigit() {
            out.push(char::from(b.to_ascii_lowercase()));
        } else {
            return None;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let u = |raw: &str, set: &[u8]| {
            String::from_utf8(unescape(raw.as_bytes(), set).into_owned()).unwrap()
        };
        assert_eq!(u(r"a\,b\ c\=d", NAME_ESCAPES), "a,b c=d");
        assert_eq!(u(r"a\=b", TABLE_ESCAPES), r"a\=b");
        assert_eq!(u(r"C:\dir\", NAME_ESCAPES), r"C:\dir\");
        assert_eq!(u(r"a\\,b", NAME_ESCAPES), r"a\,b");
        assert_eq!(u(r#"say \"x\\\" \n"#, b"\"\\"), r#"say "x\" \n"#);
    }

    #[test]
    fn strings() {
        let end = |s: &str| string_end(s.as_bytes(), 0);
        let closed = |quote, escaped| StringEnd::Closed { quote, escaped };
        assert_eq!(end("abc\"\n"), closed(3, false));
        assert_eq!(end("a\\\"c\"\n"), closed(4, true));
        assert_eq!(end("a\\\\\"\n"), closed(3, true));
        assert_eq!(end("a\\\"\n"), StringEnd::Open);
        assert_eq!(end("a\nb\"\n"), closed(3, false));
        assert_eq!(end("a\nt,entity=b x=1\n"), StringEnd::Unterminated);
        assert_eq!(
            end("a\nt,entity=b x=1 17 \r\nc\"\n"),
            StringEnd::Unterminated
        );
        assert_eq!(end("a\nt,entity=b x=1,\n\"\n"), closed(18, false));
    }

    #[test]
    fn uuids() {
        let plain = "019f31db000040008000000000000abc";
        assert_eq!(
            normalise_uuid("019F31DB-0000-4000-8000-000000000ABC").as_deref(),
            Some(plain)
        );
        assert_eq!(normalise_uuid(plain).as_deref(), Some(plain));
        for wrong in [
            "",
            "veh-1",
            "019f31db-0000400080000-00000000abcd1",
            &plain[1..],
            "019f31db0000400080000000000é0abc",
        ] {
            assert_eq!(normalise_uuid(wrong), None, "{wrong}");
        }
    }
}
