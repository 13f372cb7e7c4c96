//! The head of a request: where it ends, what it says, how long it may be.

/// Header fields of a request; more is an attack or a mistake.
const MAX_FIELDS: usize = 100;

/// A request without its body: nothing here takes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// As it came.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Whether another request may follow on the connection.
    pub keep_alive: bool,
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
    let field = |name: &'static str| {
        parsed
            .headers
            .iter()
            .filter(move |h| h.name.eq_ignore_ascii_case(name))
            .map(|h| h.value)
    };
    let says = |word: &str| {
        field("connection").any(|v| {
            v.split(|b| *b == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        })
    };
    // A body would have to be read before the next head: close instead.
    let has_body = field("transfer-encoding").next().is_some()
        || field("content-length").any(|v| v.trim_ascii() != b"0");
    let keep_alive = !has_body
        && match parsed.version {
            Some(1) => !says("close"),
            _ => says("keep-alive"),
        };
    let target = parsed.path.unwrap_or("/");
    let request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: target.split(['?', '#']).next().unwrap_or("/").to_owned(),
        keep_alive,
    };
    buffer.drain(..length);
    Taken::Request(request)
}
