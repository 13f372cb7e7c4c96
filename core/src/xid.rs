//! The id of a row: 128 bits that sort in insert order.

use std::fmt;

/// `[48-bit Unix ms][64-bit sequence][16-bit node id]`; numeric order = text order = insert order on a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub u128);

impl Xid {
    /// From its parts. `ms` keeps its low 48 bits.
    pub fn new(ms: u64, sequence: u64, node: u16) -> Self {
        Xid(((ms as u128 & 0xFFFF_FFFF_FFFF) << 80) | ((sequence as u128) << 16) | node as u128)
    }
    /// When it was minted, Unix ms.
    pub fn ms(self) -> u64 {
        (self.0 >> 80) as u64
    }
    /// Its place within the ms.
    pub fn sequence(self) -> u64 {
        (self.0 >> 16) as u64
    }
    /// The node that minted it.
    pub fn node(self) -> u16 {
        self.0 as u16
    }
    /// Sorts like the number.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
    /// Back from [`Xid::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Xid(u128::from_be_bytes(bytes))
    }
    /// From 32 hex digits in either case, with dashes where a UUID has them or without.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex_128(text).map(Xid)
    }
}

/// 32 hex digits, or the 8-4-4-4-12 form of a UUID.
pub fn parse_hex_128(text: &str) -> Option<u128> {
    let b = text.as_bytes();
    let dashed = match b.len() {
        32 => false,
        36 => true,
        _ => return None,
    };
    let mut value = 0u128;
    for (i, &c) in b.iter().enumerate() {
        if dashed && matches!(i, 8 | 13 | 18 | 23) {
            if c != b'-' {
                return None;
            }
            continue;
        }
        value = (value << 4) | (c as char).to_digit(16)? as u128;
    }
    Some(value)
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid({:032x})", self.0)
    }
}
