//! What joins the parts of a channel: here sends, whose contents are opaque to SDS, are segments.

use crate::erasure::ErasureCode;
use crate::sds::{Machine, Now, Octets};
use crate::segment::further_parity;
use crate::wire::segment::WireFormat;

/// Makes the parity that receivers of a send of ours need, out of the segments that it keeps
/// ([`crate::sds::Event::ContentsWanted`]); how much there is now.
///
/// Where none can be made, what they lack is sent again.
pub fn make_parity(
    machine: &mut Machine,
    send_id: &str,
    count: u32,
    (wire_format, code): (WireFormat, ErasureCode),
    now: Now,
) -> usize {
    let (data_count, total) = machine.size_of(send_id).unwrap_or_default();
    // Of parity that left before a restart nothing is kept but that it did: what is new comes after it.
    let data: Option<Vec<&[u8]>> = machine.contents_of(send_id).take(data_count).collect();
    let made = match data {
        Some(data) if data_count > 0 && data.len() == data_count => {
            let first = total - data_count;
            let wanted = first..first + count as usize;
            further_parity(&data, wire_format, code, wanted).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let (made_count, made) = (made.len(), made.into_iter().map(Octets::from).collect());
    machine.handle_contents_made(send_id, made, now);
    made_count
}
