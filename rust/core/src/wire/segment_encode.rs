//! Writing a segment's header around its payload, which is copied once.

use super::protobuf::{bytes_field_length, put_bytes_field, put_length, put_varint_field};
use super::segment::{Header, OVERHEAD_BYTES_MAX, Slot, WireFormat};
use crate::sink::Sink;

impl Header {
    /// Writes everything up to the payload's first byte; the payload then ends the segment, on
    /// every wire. An empty payload is written on `draft`, where its presence tells a segment from
    /// a whole message, and left out on the others.
    pub fn encode_prefix(&self, wire_format: WireFormat, payload_length: usize, out: &mut Vec<u8>) {
        let data = u64::from(self.data_segment_count.unwrap_or(0));
        let parity = u64::from(self.parity_segment_count.unwrap_or(0));
        let (data_index, parity_index, is_parity) = match self.slot {
            Slot::Data(index) => (u64::from(index), 0, 0),
            Slot::Parity(index) => (0, u64::from(index), 1),
        };
        put_bytes_field(out, 1, &self.entire_message_hash);
        let mut put = |field, value| {
            if value != 0 {
                put_varint_field(out, field, value);
            }
        };
        match wire_format {
            WireFormat::Lip243 => {
                put(2, self.payload_length.unwrap_or(0));
                put(3, data_index + parity_index);
                put(4, data);
                put(5, parity);
                put(6, is_parity);
                if payload_length > 0 {
                    put_length(out, 7, payload_length);
                }
            }
            WireFormat::Raw | WireFormat::Draft => {
                // Fields 5 to 7 follow the payload in ascending order, see `encode_suffix`.
                put(2, data_index);
                put(3, data);
                if payload_length > 0 || wire_format == WireFormat::Draft {
                    put_length(out, 4, payload_length);
                }
            }
        }
    }

    /// Writes what follows the payload.
    pub fn encode_suffix(&self, wire_format: WireFormat, out: &mut Vec<u8>) {
        if wire_format == WireFormat::Lip243 {
            return;
        }
        let parity = u64::from(self.parity_segment_count.unwrap_or(0));
        if let Slot::Parity(index @ 1..) = self.slot {
            put_varint_field(out, 5, u64::from(index));
        }
        if parity != 0 {
            put_varint_field(out, 6, parity);
        }
        if wire_format == WireFormat::Raw && matches!(self.slot, Slot::Parity(_)) {
            put_varint_field(out, 7, 1);
        }
    }

    /// Length of the whole segment around a payload of `payload_length` bytes.
    pub fn encoded_length(&self, wire_format: WireFormat, payload_length: usize) -> usize {
        let mut frame = Vec::with_capacity(OVERHEAD_BYTES_MAX);
        self.encode_prefix(wire_format, payload_length, &mut frame);
        self.encode_suffix(wire_format, &mut frame);
        frame.len() + payload_length
    }

    /// Writes the whole segment, [`Header::encoded_length`] bytes.
    pub fn encode_into(&self, wire_format: WireFormat, payload: &[u8], out: &mut impl Sink) {
        let mut frame = Vec::with_capacity(OVERHEAD_BYTES_MAX);
        self.encode_prefix(wire_format, payload.len(), &mut frame);
        out.put(&frame);
        out.put(payload);
        frame.clear();
        self.encode_suffix(wire_format, &mut frame);
        out.put(&frame);
    }

    /// The whole segment.
    pub fn encode(&self, wire_format: WireFormat, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(payload.len() + OVERHEAD_BYTES_MAX);
        self.encode_into(wire_format, payload, &mut out);
        out
    }
}

// The longest payload key and length stay inside the stated overhead.
const _: () = assert!(bytes_field_length(7, u32::MAX as usize) - (u32::MAX as usize) == 6);
