//! What joins the parts of a channel: here sends, whose contents are opaque to SDS, are segments.

use std::sync::Arc;

use crate::erasure::ErasureCode;
use crate::reassemble::{Limits, Outcome, Reassembler, Receipt, Reconstructed};
use crate::sds::{Machine, Name, Now, Octets, content_id};
use crate::segment::{Parameters, further_parity, parity_of};
use crate::wire::sds::{MessageView, WireFormat as SdsWireFormat};
use crate::wire::segment::{self, Header, Received, TOTAL_SEGMENTS_MAX, WireFormat};

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

/// Wire and code of parity that is made so, as [`make_as_segmented`] reads them.
pub(super) fn form_of(parameters: Parameters) -> String {
    let settings = parameters.settings();
    format!("{} {}", settings.wire_format.name(), settings.erasure_code)
}

/// [`make_parity`] in the form in which a send of ours was segmented, whatever is configured now: `form` names
/// wire and code. None is made of a send whose form is not known.
pub(super) fn make_as_segmented(
    machine: &mut Machine,
    send_id: &str,
    count: u32,
    form: &str,
    now: Now,
) -> usize {
    let (wire_format, code) = form.split_once(' ').unwrap_or_default();
    let form = wire_format.parse().ok().zip(code.parse().ok());
    let (form, count) = match form {
        Some(form) => (form, count),
        None => ((WireFormat::Raw, ErasureCode::Leopard), 0),
    };
    make_parity(machine, send_id, count, form, now)
}

/// Makes parity of a whole message, whoever sent it, out of the segments that are kept for repair
/// ([`crate::sds::Event::ParityWanted`]); none where too few are.
pub(super) fn answer_with_parity(
    machine: &mut Machine,
    (sender_id, send_id): (&Arc<str>, &Name),
    count: u32,
    (parameters, limits): (Parameters, Limits),
    now: Now,
) {
    let Some((found, header, shard_len)) =
        remake(machine, (sender_id, send_id), parameters, limits)
    else {
        return;
    };
    let data_count = found.data_segment_count as u32;
    let parity_count = found.parity_segment_count as u32;
    let indexes = machine.unheard_parity(send_id, data_count, parity_count, count);
    let code = found.erasure_code;
    let code = code.unwrap_or(parameters.settings().erasure_code);
    let wire_format = parameters.settings().wire_format;
    let payload = found.payload.to_vec();
    let made = parity_of(&payload, &header, shard_len, (wire_format, code), &indexes);
    let made = made.unwrap_or_default().into_iter().map(Octets::from);
    let contents = indexes.into_iter().zip(made).collect();
    machine.handle_parity_made(sender_id, send_id, contents, payload.len(), now);
}

/// The message that kept segments make once more, a header of theirs and the length of a shard. Some of
/// them may be false: so it is reconstructed, and has its hash.
fn remake(
    machine: &Machine,
    (sender_id, send_id): (&Arc<str>, &Name),
    parameters: Parameters,
    limits: Limits,
) -> Option<(Reconstructed, Header, usize)> {
    let mut reassembler = Reassembler::new(parameters, limits);
    for ordinal in 0..TOTAL_SEGMENTS_MAX {
        let Some(message) = machine.message(&content_id(send_id, ordinal)) else {
            continue;
        };
        let Ok(message) = MessageView::decode(&message, SdsWireFormat::Spec) else {
            continue;
        };
        let Some(content) = message
            .content
            .filter(|_| *message.sender_id == *sender_id.as_bytes())
        else {
            continue;
        };
        let wire_format = parameters.settings().wire_format;
        let Ok(Received::Segment(read)) = segment::decode(content, wire_format, TOTAL_SEGMENTS_MAX)
        else {
            continue;
        };
        let receipt = Receipt {
            sender: Some(sender_id),
            // It alone is here: nothing is kept free for those whose identity is proven.
            authenticated: true,
            ..Receipt::default()
        };
        if let Outcome::Reconstructed(found) = reassembler.receive(content, &receipt) {
            let shard_len = found.payload.pieces().next().map_or(0, <[u8]>::len);
            return Some((*found, read.header, shard_len));
        }
    }
    None
}
