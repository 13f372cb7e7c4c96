//! The head of a request: where it ends, what it says, how long it may be.

/// Header fields of a request; more is an attack or a mistake.
const MAX_FIELDS: usize = 100;

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// As it came.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// What stands between `?` and `#`, as it came.
    pub query: String,
    /// Whether another request may follow on the connection, once the body is read.
    pub keep_alive: bool,
    /// How long the body is.
    pub body: BodyLength,
    /// How the body is packed.
    pub encoding: Encoding,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// So many bytes; 0 without a body.
    Bytes(u64),
    /// Chunks, the last one empty.
    Chunked,
}

/// `Content-Encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// None.
    Identity,
    /// gzip.
    Gzip,
    /// Any other, or several.
    Unknown,
}

/// What [`take`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// A whole head, taken out of the buffer.
    Request(Request),
    /// The head is not whole yet.
    More,
    /// It cannot be answered but with this status.
    Bad(u16),
}

/// Takes the first request head out of `buffer`.
pub fn take(buffer: &mut Vec<u8>, max_bytes: usize) -> Taken {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let seen = &buffer[..buffer.len().min(max_bytes)];
    let length = match parsed.parse(seen) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if buffer.len() < max_bytes => return Taken::More,
        // Too long: the target, if the first line alone is.
        Ok(httparse::Status::Partial) => {
            let whole_line = memchr::memchr(b'\n', seen).is_some();
            return Taken::Bad(if whole_line { 431 } else { 414 });
        }
        Err(httparse::Error::TooManyHeaders) => return Taken::Bad(431),
        Err(httparse::Error::Version) => return Taken::Bad(505),
        Err(_) => return Taken::Bad(400),
    };
    let is_1_1 = parsed.version == Some(1);
    let field = |name: &'static str| {
        parsed
            .headers
            .iter()
            .filter(move |h| h.name.eq_ignore_ascii_case(name))
            .map(|h| h.value.trim_ascii())
    };
    let says = |word: &str| {
        field("connection").any(|v| {
            v.split(|b| *b == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        })
    };
    let body = match body_length(field("content-length"), field("transfer-encoding"), is_1_1) {
        Ok(body) => body,
        Err(status) => return Taken::Bad(status),
    };
    let mut expects_continue = false;
    for value in field("expect") {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Taken::Bad(417);
        }
        expects_continue = is_1_1 && body != BodyLength::Bytes(0);
    }
    let mut encoding = Encoding::Identity;
    for value in field("content-encoding").filter(|v| !v.eq_ignore_ascii_case(b"identity")) {
        let is_gzip = value.eq_ignore_ascii_case(b"gzip") || value.eq_ignore_ascii_case(b"x-gzip");
        encoding = match (encoding, is_gzip) {
            (Encoding::Identity, true) => Encoding::Gzip,
            _ => Encoding::Unknown,
        };
    }
    let keep_alive = match is_1_1 {
        true => !says("close"),
        false => says("keep-alive"),
    };
    let target = parsed.path.unwrap_or("/");
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        keep_alive,
        body,
        encoding,
        expects_continue,
    };
    buffer.drain(..length);
    Taken::Request(request)
}

/// RFC 9112, 6.3, without its leniencies: where two readers could disagree on where a body ends, one of them
/// can be made to take the rest for a request of its own.
fn body_length<'a>(
    mut lengths: impl Iterator<Item = &'a [u8]>,
    mut codings: impl Iterator<Item = &'a [u8]>,
    is_1_1: bool,
) -> Result<BodyLength, u16> {
    let (length, coding) = (lengths.next(), codings.next());
    if lengths.next().is_some() || codings.next().is_some() {
        return Err(400);
    }
    match (length, coding) {
        (None, None) => Ok(BodyLength::Bytes(0)),
        (Some(digits), None) => {
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            std::str::from_utf8(digits)
                .ok()
                .filter(|_| is_number)
                .and_then(|d| d.parse().ok())
                .map(BodyLength::Bytes)
                .ok_or(400)
        }
        (None, Some(coding)) if is_1_1 => match coding.eq_ignore_ascii_case(b"chunked") {
            true => Ok(BodyLength::Chunked),
            false => Err(501),
        },
        (_, Some(_)) => Err(400),
    }
}

/// The value of a parameter of a query, its escapes resolved; of several the last. `None`: it is not there;
/// an escape that is none stands for itself.
pub fn parameter(query: &str, name: &str) -> Option<String> {
    query.rsplit('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescape(key) == name).then(|| unescape(value))
    })
}

fn unescape(text: &str) -> String {
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        at += 1;
        match (b, digit(bytes.get(at)), digit(bytes.get(at + 1))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(b),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> Taken {
        let mut buffer = format!("POST /write?a=b HTTP/1.1\r\n{fields}\r\n").into_bytes();
        take(&mut buffer, 4096)
    }

    #[test]
    fn bodies_have_one_length_or_none() {
        for (fields, expect) in [
            ("", Ok(BodyLength::Bytes(0))),
            ("Content-Length: 5\r\n", Ok(BodyLength::Bytes(5))),
            ("Transfer-Encoding: Chunked\r\n", Ok(BodyLength::Chunked)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(400)),
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                Err(400),
            ),
            ("Content-Length: +5\r\n", Err(400)),
            ("Content-Length: 0x5\r\n", Err(400)),
            ("Content-Length: 5, 5\r\n", Err(400)),
            ("Content-Length:\r\n", Err(400)),
            ("Content-Length: 18446744073709551616\r\n", Err(400)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(501)),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                Err(400),
            ),
            ("Expect: wonders\r\n", Err(417)),
        ] {
            match (head(fields), expect) {
                (Taken::Request(r), Ok(body)) => assert_eq!(r.body, body, "{fields}"),
                (Taken::Bad(status), Err(expect)) => assert_eq!(status, expect, "{fields}"),
                (other, _) => panic!("{fields}: {other:?}"),
            }
        }
        let mut old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        assert_eq!(take(&mut old, 4096), Taken::Bad(400));
    }

    #[test]
    fn encodings_and_expectations() {
        for (fields, encoding, expects) in [
            (
                "Content-Encoding: gzip\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n",
                Encoding::Gzip,
                true,
            ),
            (
                "Content-Encoding: identity\r\nExpect: 100-continue\r\n",
                Encoding::Identity,
                false,
            ),
            ("Content-Encoding: gzip, gzip\r\n", Encoding::Unknown, false),
            (
                "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n",
                Encoding::Unknown,
                false,
            ),
            ("Content-Encoding: zstd\r\n", Encoding::Unknown, false),
        ] {
            let Taken::Request(r) = head(fields) else {
                panic!("{fields}")
            };
            assert_eq!(
                (r.encoding, r.expects_continue),
                (encoding, expects),
                "{fields}"
            );
        }
    }

    #[test]
    fn parameters() {
        let query = "db=a%20b&db=c+d&empty=&flag&%64b=e%zz%4";
        assert_eq!(parameter(query, "db").as_deref(), Some("e%zz%4"));
        assert_eq!(parameter("db=c+d%C3%BC", "db").as_deref(), Some("c dü"));
        assert_eq!(parameter(query, "empty").as_deref(), Some(""));
        assert_eq!(parameter(query, "flag").as_deref(), Some(""));
        assert_eq!(parameter(query, "none"), None);
    }
}
