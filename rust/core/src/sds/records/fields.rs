//! The fields of one record, written and read in turn.

use std::sync::Arc;

use super::VERSION;
use crate::crc32::crc32;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::outgoing::Ordinals;
use crate::wire::sds::HistoryEntry;

const CHECKSUM_BYTES: usize = 4;
/// Most records fit.
const RECORD_BYTES_USUAL: usize = 128;
/// Stands for no bytes, where some may be.
const ABSENT: u32 = u32::MAX;

/// Records that are written, one after the other in the same memory.
pub struct Writer(Vec<u8>);

impl Writer {
    /// A record of this version.
    pub fn new() -> Self {
        let mut record = Vec::with_capacity(RECORD_BYTES_USUAL);
        record.push(VERSION);
        Writer(record)
    }

    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn int(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(value.len() as u32);
        self.0.extend_from_slice(value);
        self
    }

    /// The first `width` bytes of ordinals.
    pub fn ordinals(&mut self, ordinals: &Ordinals, width: usize) -> &mut Self {
        self.int(width as u32);
        self.0.extend(ordinals.bytes(width));
        self
    }

    pub fn optional(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            Some(value) => self.bytes(value),
            None => self.int(ABSENT),
        }
    }

    pub fn names<'a>(&mut self, names: impl IntoIterator<Item = &'a Name>) -> &mut Self {
        let place = self.0.len();
        self.int(0);
        let mut count = 0_u32;
        for name in names {
            self.bytes(name.as_bytes());
            count += 1;
        }
        self.0[place..place + 4].copy_from_slice(&count.to_le_bytes());
        self
    }

    pub fn entry(&mut self, entry: &HistoryEntry) -> &mut Self {
        self.bytes(entry.message_id.as_bytes());
        self.optional(entry.retrieval_hint.as_deref());
        self.optional(entry.sender_id.as_deref().map(str::as_bytes))
    }

    /// The record with its checksum; the next one begins.
    pub fn seal(&mut self) -> Octets {
        let checksum = crc32(&self.0);
        self.0.extend_from_slice(&checksum.to_le_bytes());
        let record = Octets::from(self.0.as_slice());
        self.0.truncate(1);
        record
    }

    /// The record with its checksum, and behind it bytes that the checksum says nothing of.
    pub fn seal_before(&mut self, behind: &[&[u8]]) -> Octets {
        let head = self.seal();
        let length = (head.len() as u32).to_le_bytes();
        let size_bytes = behind.iter().map(|bytes| bytes.len()).sum::<usize>();
        let mut record = Vec::with_capacity(1 + length.len() + head.len() + size_bytes);
        record.push(VERSION);
        record.extend_from_slice(&length);
        record.extend_from_slice(&head);
        for bytes in behind {
            record.extend_from_slice(bytes);
        }
        record.into()
    }
}

/// A record that is being read; everything is `None` from the first field on that is not there.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The fields of a whole record of this version.
    pub fn new(record: &'a [u8]) -> Option<Self> {
        let (body, checksum) = record.split_last_chunk::<CHECKSUM_BYTES>()?;
        let whole = crc32(body).to_le_bytes() == *checksum;
        let (version, fields) = body.split_first()?;
        (whole && *version == VERSION).then_some(Reader(fields))
    }

    /// The fields of a record that other bytes follow, and these.
    pub fn ahead(record: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&version, rest) = record.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (head, behind) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let fields = Reader::new(head)?;
        (version == VERSION).then_some((fields, behind))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn long(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub fn int(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        self.take(length as usize)
    }

    pub fn optional(&mut self) -> Option<Option<&'a [u8]>> {
        match self.int()? {
            ABSENT => Some(None),
            length => self.take(length as usize).map(Some),
        }
    }

    pub fn name(&mut self) -> Option<Name> {
        self.bytes().map(Name::from_wire)
    }

    pub fn text(&mut self) -> Option<Arc<str>> {
        self.bytes()
            .map(|bytes| String::from_utf8_lossy(bytes).into())
    }

    pub fn names(&mut self) -> Option<Vec<Name>> {
        let count = self.int()?;
        (0..count).map(|_| self.name()).collect()
    }

    pub fn entry(&mut self) -> Option<HistoryEntry> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Some(HistoryEntry {
            message_id: text(self.bytes()?),
            retrieval_hint: self.optional()?.map(<[u8]>::to_vec),
            sender_id: self.optional()?.map(text),
        })
    }
}
