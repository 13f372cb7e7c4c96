//! Requests with bodies: where they end, in chunks and packed, must not depend on how their bytes were cut.

use crate::fuzz::{Outcome, Target, size};
use std::io::Write;
use strandline_net::http::body::BodyError;
use strandline_net::http::fuzz::body;
use strandline_net::http::head::{Encoding, Taken, parameter, take};

const MAX_BYTES: u64 = 100_000;

const TOKENS: &[&str] = &[
    "POST /write?db=main&precision=s HTTP/1.1\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Content-Encoding: gzip\r\n",
    "Expect: 100-continue\r\n",
    "\r\n",
    "\n",
    "0\r\n\r\n",
    "5\r\nabcde\r\n",
    "ffffffffffffffff\r\n",
    "fffffffffffffff\r\n",
    "a;b=c\r\n",
    "%",
    "%41",
    "&",
    "\x1f\u{8b}\x08",
];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("packed");
    packer.finish().expect("packed")
}

/// The first byte says in which pieces the rest comes.
fn run(input: &[u8]) -> Outcome {
    let (piece, text) = input.split_first().unwrap_or((&1, &[]));
    let mut buffer = text.to_vec();
    let mut seen = Vec::new();
    while let Taken::Request(request) = take(&mut buffer, 4096) {
        for name in ["db", "precision", "bucket"] {
            seen.push(parameter(&request.query, name).map_or(99, |v| size(v.len())));
        }
        if request.encoding == Encoding::Unknown {
            break;
        }
        let how = (request.body, request.encoding);
        let whole = body(&buffer, how, usize::MAX, MAX_BYTES);
        let pieces = body(&buffer, how, usize::from(*piece), MAX_BYTES);
        match (whole, pieces) {
            (Ok(whole), Ok(pieces)) => {
                assert_eq!(whole, pieces, "the way the bytes are cut changes the body");
                let (bytes, length) = whole;
                assert!(length <= buffer.len() && bytes.len() as u64 <= MAX_BYTES);
                seen.push(size(bytes.len()));
                buffer.drain(..length);
            }
            (Err(whole), Err(pieces)) => {
                // Of two things that are wrong with it the one or the other may be met first.
                let same = std::mem::discriminant(&whole) == std::mem::discriminant(&pieces);
                assert!(
                    same || request.encoding == Encoding::Gzip,
                    "{whole} but {pieces}"
                );
                seen.push(match whole {
                    BodyError::TooLarge => 101,
                    BodyError::Chunks(_) => 102,
                    BodyError::Gzip(_) => 103,
                    BodyError::Slow | BodyError::Cut => 104,
                });
                break;
            }
            (whole, pieces) => panic!("{:?} but {:?}", whole.map(|w| w.1), pieces.map(|p| p.1)),
        }
    }
    seen.truncate(12);
    Outcome::of(seen)
}

#[test]
fn http_bodies() {
    let head = |fields: &str| format!("POST /write?db=main HTTP/1.1\r\n{fields}\r\n").into_bytes();
    let lines = b"t,entity=a x=1 0\nt,entity=b x=2 0\n".repeat(4);
    let packed = gzip(&lines);
    let chunked = |bytes: &[u8], size: usize| {
        let mut out = Vec::new();
        for chunk in bytes.chunks(size) {
            out.extend(format!("{:x}\r\n", chunk.len()).bytes());
            out.extend(chunk);
            out.extend(b"\r\n");
        }
        out.extend(b"0\r\na: b\r\n\r\n");
        out
    };
    let length = |bytes: &[u8]| format!("Content-Length: {}\r\n", bytes.len());
    let (pack, chunks) = (
        "Content-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\n",
    );
    let requests = [
        [head(&length(&lines)), lines.clone()].concat(),
        [head(&(length(&packed) + pack)), packed.clone()].concat(),
        [head(chunks), chunked(&lines, 9)].concat(),
        [head(&(chunks.to_owned() + pack)), chunked(&packed, 16)].concat(),
        [
            head(&(chunks.to_owned() + pack)),
            chunked(&gzip(&[0; 200_000]), 50),
        ]
        .concat(),
    ];
    let all = requests.concat();
    let inputs = requests
        .into_iter()
        .chain([all])
        .zip([1u8, 2, 7, 64, 255, 3]);
    Target {
        name: "http bodies",
        corpus: inputs
            .map(|(text, piece)| [vec![piece], text].concat())
            .collect(),
        tokens: TOKENS,
        mend: None,
        // The window and tables of two decoders, and what they may unpack.
        memory: (1 << 20, 16),
        run: &run,
    }
    .fuzz();
}
