//! The protobuf wire format: fields read in place, and the few writers that the codecs need.
//!
//! Reading accepts and refuses exactly what prost does, without copying a field.

use thiserror::Error;

/// Nested groups in an unknown field beyond which a message is refused, as prost does.
const GROUP_DEPTH_MAX: u32 = 100;

/// Why bytes are not a protobuf message of the expected shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtobufError {
    /// A field or a length reaches beyond the end.
    #[error("the message ends inside a field, at byte {offset}")]
    Truncated {
        /// Where the field began.
        offset: usize,
    },
    /// A varint does not fit 64 bits.
    #[error("a varint at byte {offset} exceeds 64 bits")]
    VarintTooLong {
        /// Where the varint began.
        offset: usize,
    },
    /// A key has the field number 0, exceeds 32 bits or has an unknown wire type.
    #[error("key {key} at byte {offset} is no field key")]
    InvalidKey {
        /// The key as read.
        key: u64,
        /// Where it stood.
        offset: usize,
    },
    /// A known field has another wire type.
    #[error("field {field} has a wire type that the message does not give it")]
    WrongWireType {
        /// The field's number.
        field: u32,
    },
    /// A group ends that never began, or nests too deep.
    #[error("a group at byte {offset} is unbalanced or deeper than 100")]
    InvalidGroup {
        /// Where it was noticed.
        offset: usize,
    },
}

/// One field's value, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire types 1, 3 and 5: no message of ours has such a field.
    Other,
}

impl<'a> Value<'a> {
    /// The bytes of a length-delimited field, or the error for another wire type.
    pub fn bytes(self, field: u32) -> Result<&'a [u8], ProtobufError> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::WrongWireType { field }),
        }
    }

    /// The integer of a varint field, or the error for another wire type.
    pub fn varint(self, field: u32) -> Result<u64, ProtobufError> {
        match self {
            Value::Varint(value) => Ok(value),
            _ => Err(ProtobufError::WrongWireType { field }),
        }
    }

    /// A `uint32`: protobuf keeps the low 32 bits of a longer varint.
    pub fn uint32(self, field: u32) -> Result<u32, ProtobufError> {
        Ok(self.varint(field)? as u32)
    }
}

/// Reads the fields of one message in order.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
    /// Bytes of the whole message.
    length: usize,
}

impl<'a> Fields<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Fields {
            rest: bytes,
            length: bytes.len(),
        }
    }

    /// The next field's number and value; `None` at the end. A call for each field would take longer than
    /// reading it.
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (field, wire_type) = self.key()?;
        let value = match wire_type {
            0 => Value::Varint(self.varint()?),
            2 => Value::Bytes(self.delimited()?),
            other => {
                self.skip(field, other)?;
                Value::Other
            }
        };
        Ok(Some((field, value)))
    }

    /// Where the reader stands.
    fn offset(&self) -> usize {
        self.length - self.rest.len()
    }

    /// A length, and so many bytes.
    #[inline(always)]
    fn delimited(&mut self) -> Result<&'a [u8], ProtobufError> {
        let start = self.offset();
        let length = self.varint()?;
        let length =
            usize::try_from(length).map_err(|_| ProtobufError::Truncated { offset: start })?;
        self.take(length, start)
    }

    #[inline(always)]
    fn take(&mut self, length: usize, start: usize) -> Result<&'a [u8], ProtobufError> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(ProtobufError::Truncated { offset: start });
        };
        self.rest = rest;
        Ok(taken)
    }

    #[inline(always)]
    fn key(&mut self) -> Result<(u32, u8), ProtobufError> {
        let offset = self.offset();
        let key = self.varint()?;
        let wire_type = (key & 7) as u8;
        let field = (key >> 3) as u32;
        if key > u64::from(u32::MAX) || wire_type > 5 || field == 0 {
            return Err(ProtobufError::InvalidKey { key, offset });
        }
        Ok((field, wire_type))
    }

    /// Nearly all keys and lengths are one byte or two.
    #[inline(always)]
    fn varint(&mut self) -> Result<u64, ProtobufError> {
        match self.rest {
            [byte @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            [low, high @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, ProtobufError> {
        let start = self.offset();
        let mut value = 0u64;
        for position in 0..10 {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return Err(ProtobufError::Truncated { offset: start });
            };
            self.rest = rest;
            // The tenth byte holds the 64th bit alone.
            if position == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::VarintTooLong { offset: start })
    }

    /// Passes over a field of wire type 1, 3, 4 or 5. Groups are walked with a stack, not by
    /// recursion: the bytes are a peer's.
    #[cold]
    fn skip(&mut self, field: u32, wire_type: u8) -> Result<(), ProtobufError> {
        let mut open: Vec<u32> = Vec::new();
        let (mut field, mut wire_type) = (field, wire_type);
        loop {
            let start = self.offset();
            match wire_type {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.take(8, start)?;
                }
                2 => {
                    self.delimited()?;
                }
                3 => {
                    if open.len() as u32 >= GROUP_DEPTH_MAX {
                        return Err(ProtobufError::InvalidGroup { offset: start });
                    }
                    open.push(field);
                }
                4 => {
                    if open.pop() != Some(field) {
                        return Err(ProtobufError::InvalidGroup { offset: start });
                    }
                }
                _ => {
                    self.take(4, start)?;
                }
            }
            if open.is_empty() {
                return Ok(());
            }
            if self.rest.is_empty() {
                return Err(ProtobufError::Truncated { offset: start });
            }
            (field, wire_type) = self.key()?;
        }
    }
}

/// Bytes that `value` takes as a varint.
pub const fn varint_length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends `value` as a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint field.
pub fn put_varint_field(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, value);
}

/// Appends the key and the length of a length-delimited field, whose bytes follow.
#[inline]
pub fn put_length(out: &mut Vec<u8>, field: u32, length: usize) {
    if field < 0x10 && length < 0x80 {
        // One byte each, as most are.
        out.extend_from_slice(&[(field << 3 | 2) as u8, length as u8]);
        return;
    }
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, length as u64);
}

/// Appends a length-delimited field.
pub fn put_bytes_field(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Length of a length-delimited field with `length` bytes of content.
pub const fn bytes_field_length(field: u32, length: usize) -> usize {
    varint_length((field as u64) << 3) + varint_length(length as u64) + length
}

/// UTF-8 with U+FFFD in place of what is not: a peer's id must not make a message undecodable.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
