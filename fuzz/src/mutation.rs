//! What a hostile peer makes of a genuine segment.

use arbitrary::{Result, Unstructured};
use shardwire_core::wire::segment::{Header, Slot, WireFormat};

use crate::random::Random;

/// Other bytes under the same header, of the same length.
pub fn replaced(
    source: &mut Unstructured<'_>,
    (header, part): &(Header, Vec<u8>),
    wire_format: WireFormat,
) -> Result<Vec<u8>> {
    let seed: u32 = source.arbitrary()?;
    // Apart from the seeds of payloads: a forgery that is another segment's content by chance is
    // not one of random bytes.
    let content = Random(!u64::from(seed)).bytes(part.len());
    Ok(header.encode(wire_format, &content))
}

/// One change to the content, the header or the bytes of a segment.
pub fn mutated(
    source: &mut Unstructured<'_>,
    (header, part): &(Header, Vec<u8>),
    wire_format: WireFormat,
) -> Result<Vec<u8>> {
    match source.int_in_range(0..=5)? {
        0..=2 => Ok(header.encode(wire_format, &mutated_content(source, part)?)),
        3 => Ok(mutated_header(source, *header)?.encode(wire_format, part)),
        _ => mutated_bytes(source, header.encode(wire_format, part)),
    }
}

fn mutated_content(source: &mut Unstructured<'_>, part: &[u8]) -> Result<Vec<u8>> {
    let mut content = part.to_vec();
    match source.int_in_range(0..=5)? {
        0..=2 if !content.is_empty() => {
            // Few positions, so that several segments are wrong at the same ones.
            let position = source.int_in_range(0..=(content.len() - 1).min(3))?;
            content[position] ^= source.int_in_range(1..=255u8)?;
        }
        3 => content.truncate(source.int_in_range(0..=part.len())?),
        4 => content.resize(part.len() + source.int_in_range(1..=70)?, 0),
        _ => {
            content = Random(source.arbitrary::<u8>()?.into()).bytes(source.int_in_range(0..=130)?)
        }
    }
    Ok(content)
}

fn mutated_header(source: &mut Unstructured<'_>, mut header: Header) -> Result<Header> {
    let count = |source: &mut Unstructured<'_>| -> Result<u16> {
        Ok(match source.ratio(1, 4)? {
            true => source.int_in_range(0..=257)?,
            false => source.int_in_range(0..=12)?,
        })
    };
    match source.int_in_range(0..=5)? {
        0 => header.data_segment_count = Some(count(source)?),
        1 => header.parity_segment_count = Some(count(source)?),
        2 => {
            let index = source.arbitrary::<u8>()? % 16;
            header.slot = match header.slot {
                Slot::Data(_) => Slot::Data(index),
                Slot::Parity(_) => Slot::Parity(index),
            };
        }
        3 => {
            header.slot = match header.slot {
                Slot::Data(index) => Slot::Parity(index),
                Slot::Parity(index) => Slot::Data(index),
            };
        }
        4 => header.entire_message_hash[0] ^= source.arbitrary::<u8>()?,
        _ => header.payload_length = Some(source.arbitrary::<u16>()?.into()),
    }
    Ok(header)
}

fn mutated_bytes(source: &mut Unstructured<'_>, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    for _ in 0..=source.int_in_range(0..=2)? {
        let position = source.int_in_range(0..=bytes.len().max(1) - 1)?;
        match source.int_in_range(0..=5)? {
            0..=1 if !bytes.is_empty() => bytes[position] ^= source.int_in_range(1..=255u8)?,
            2 => bytes.truncate(position),
            3 => bytes.insert(position, source.arbitrary()?),
            4 => {
                // A field once more, or one that nobody knows.
                let field = source.int_in_range(1..=12u8)?;
                bytes.extend([field << 3, source.arbitrary::<u8>()? & 0x7F]);
            }
            _ => {
                let end = (position + source.int_in_range(0..=40)?).min(bytes.len());
                let copy = bytes[position.min(end)..end].to_vec();
                bytes.extend(copy);
            }
        }
    }
    Ok(bytes)
}
