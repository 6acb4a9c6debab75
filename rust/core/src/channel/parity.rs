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
    let contents: Vec<&[u8]> = machine.contents_of(send_id).collect();
    let (data_count, total) = machine.size_of(send_id).unwrap_or_default();
    let made = if total == contents.len() && data_count <= total {
        let first = total - data_count;
        let wanted = first..first + count as usize;
        further_parity(&contents[..data_count], wire_format, code, wanted).unwrap_or_default()
    } else {
        Vec::new()
    };
    let (made_count, made) = (made.len(), made.into_iter().map(Octets::from).collect());
    machine.handle_contents_made(send_id, made, now);
    made_count
}
