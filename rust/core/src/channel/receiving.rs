//! From received contents to whole messages: which message a content is part of, and what becomes of it.
//!
//! A content goes to reassembly on receipt; SDS hears where it belongs, when its message can be
//! reconstructed, and what became of what was not kept. SDS alone decides when a whole message may be
//! released.

use std::collections::VecDeque;
use std::sync::Arc;

use super::deliveries::{Deliveries, Delivery};
use super::events::{Event, Fault, FaultKind, SegmentSeen, SegmentStage};
use super::records::{payload_key, split_payload_key};
use super::restore_error::RestoreError;
use super::restored::{Stored, StoredSegment};
use super::shared_bytes::{Completed, Kept, SharedBytes};
use super::whole::WholeMessages;
use super::{Segmentation, is_rival, release_id_of};
use crate::hex::hex;
use crate::keccak::keccak256;
use crate::reassemble::{
    self, Change, Discard, Drop, Dropped, Lent, Limits, Outcome, Payload, Reassembler, Receipt,
    Reconstructed,
};
use crate::sds::{Machine, Name, Now, Octets, Part, Place, sha256_id};
use crate::segment::Parameters;
use crate::wire::sds::{HistoryEntry, WireFormat as SdsWireFormat};
use crate::wire::segment::{
    self, HASH_LENGTH, Header, Received, Slot, TOTAL_SEGMENTS_MAX, WireFormat,
};

/// Bytes and their Keccak-256.
type Hashed<'a> = (&'a [u8], [u8; HASH_LENGTH]);

/// Bytes of a hash that a log shows.
const PREFIX_BYTES: usize = 4;

/// A message that a content does not fill to this part is not kept for it: a peer could make us hold
/// many times what its segments are charged with.
const KEPT_WHOLE_PERCENT: usize = 75;

/// A decrypted SDS message, and how it came.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The message.
    pub data: &'a Octets,
    /// How a store finds it.
    pub retrieval_hint: Option<&'a [u8]>,
    /// Its transport time, in nanoseconds since the Unix epoch; 0 where that is not known.
    pub timestamp_ns: i64,
    /// Who encrypted it, where the cipher proves that.
    pub authenticated_sender: Option<&'a str>,
    /// Whether a store answered with it: that says nothing about what its sender heard.
    pub from_store: bool,
    /// Whether [`Event::Segment`] is wanted.
    pub observed: bool,
}

/// A content that SDS received for the first time.
pub(super) struct Content {
    pub message_id: Name,
    pub sender_id: Arc<str>,
    pub content: Part,
    pub send_id: Option<Name>,
    pub ordinal: Option<u32>,
}

/// What was received since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Segments that were kept, or completed a message.
    pub segments_received: u64,
    /// Data segments that parity brought back.
    pub segments_recovered: u64,
    /// Segments that were not kept.
    pub segments_discarded: u64,
    /// Whole messages.
    pub messages: u64,
}

/// What a segment says of its place in its message: `None` where its wire does not say it.
#[derive(Clone, Copy)]
struct Position {
    data_count: Option<u32>,
    content_count: Option<u32>,
    /// The data index, or the data count plus the parity index.
    ordinal: Option<u32>,
}

impl Position {
    fn of(header: &Header) -> Self {
        let data_count = header.data_segment_count.map(u32::from);
        let parity_count = header.parity_segment_count.map(u32::from);
        Position {
            data_count,
            content_count: data_count
                .zip(parity_count)
                .map(|(data, parity)| data + parity),
            ordinal: match header.slot {
                Slot::Data(index) => Some(u32::from(index)),
                Slot::Parity(index) => data_count.map(|data| data + u32::from(index)),
            },
        }
    }
}

/// Contents that are being put together, and messages that wait for their release.
pub(super) struct Receiving {
    reassembler: Reassembler,
    parameters: Parameters,
    shared: SharedBytes,
    whole: WholeMessages,
    counts: Counts,
}

/// What one input may change beside what is received here, and when it came.
pub(super) struct Context<'a> {
    pub sds: &'a mut Machine,
    /// What the owner is told.
    pub events: &'a mut VecDeque<Event>,
    pub now: Now,
}

impl Receiving {
    pub fn new(segmentation: Segmentation, sds_wire_format: SdsWireFormat) -> Self {
        let Segmentation { parameters, limits } = segmentation;
        let wire_format = parameters.settings().wire_format;
        Receiving {
            reassembler: Reassembler::new(parameters, limits),
            parameters,
            shared: SharedBytes::new(sds_wire_format, wire_format),
            whole: WholeMessages::default(),
            counts: Counts::default(),
        }
    }

    pub fn shared_mut(&mut self) -> &mut SharedBytes {
        &mut self.shared
    }

    pub fn has_partial(&self) -> bool {
        self.shared.has_segments()
    }

    pub fn waiting(&self) -> (usize, usize) {
        (self.whole.len(), self.whole.size_bytes())
    }

    pub fn counts(&self) -> (Counts, reassemble::Stats) {
        (self.counts, self.reassembler.stats())
    }

    pub fn poll_completions(&mut self) -> Vec<reassemble::Record> {
        self.reassembler.poll_completions()
    }

    /// How segments are read and made, and what may be held.
    pub fn segmentation(&self) -> (Parameters, Limits) {
        (self.parameters, self.reassembler.limits())
    }

    fn wire_format(&self) -> WireFormat {
        self.parameters.settings().wire_format
    }

    // --- what came ------------------------------------------------------------------------------

    /// Takes a content; false where there was no room for it, so that it may come again.
    pub fn on_content(
        &mut self,
        mut came: Content,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) -> bool {
        let content = came.content.clone();
        let received = match segment::decode(&content, self.wire_format(), TOTAL_SEGMENTS_MAX) {
            Ok(received) => received,
            Err(error) => {
                let why = (FaultKind::SegmentInvalid, error.to_string());
                self.discard(&came, arrival, why, context);
                return true;
            }
        };
        let header = match &received {
            Received::WholeMessage(_) => None,
            Received::Segment(segment) => Some(segment.header),
        };
        let is_alone = header.is_none_or(|header| header.data_segment_count == Some(1));
        if is_alone
            && context
                .sds
                .was_rival(&came.message_id, &came.sender_id, &content)
        {
            context.sds.handle_content_surplus(&came.message_id);
            return true;
        }
        let is_parity = header.is_some_and(|header| matches!(header.slot, Slot::Parity(_)));
        if is_alone && !is_parity && self.is_of_larger(&came) {
            came.message_id = context.sds.handle_content_apart(
                &came.message_id,
                &came.sender_id,
                &content,
                arrival.data,
            );
        }
        match received {
            Received::WholeMessage(payload) => {
                self.on_whole(&came, payload, arrival, context);
                true
            }
            Received::Segment(segment) => {
                let kept = self.on_segment(&came, &segment.header, arrival, context);
                // Whatever became of it, others may have gone to make room for it.
                self.on_evicted(context);
                kept
            }
        }
    }

    /// Whether the id is that of a content of a message that has several.
    fn is_of_larger(&self, came: &Content) -> bool {
        let Some(send_id) = came
            .send_id
            .as_ref()
            .filter(|_| !is_rival(&came.message_id))
        else {
            return false;
        };
        let is_further = came.ordinal.is_some_and(|ordinal| ordinal > 0);
        is_further
            || self
                .shared
                .keeps_segments(&payload_key(&came.sender_id, send_id))
    }

    /// `draft` sends small payloads as they are.
    fn on_whole(
        &mut self,
        came: &Content,
        payload: &[u8],
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) {
        let send_id = match &came.send_id {
            Some(send_id) if !is_rival(&came.message_id) => send_id,
            _ => &came.message_id,
        };
        let payload_hash = keccak256(payload);
        let key = key_of(came, send_id);
        if !self.reassembler.complete_whole(&key, &payload_hash) {
            context.sds.handle_rival_surplus(&came.message_id);
            context.sds.handle_content_surplus(&came.message_id);
            return;
        }
        let position = Position {
            data_count: Some(1),
            content_count: Some(1),
            ordinal: Some(0),
        };
        self.place(came, send_id, position, arrival, context);
        let completed = Completed {
            data_count: 1,
            recovered: &[],
            message_id: &came.message_id,
            index: Some(0),
            wire: arrival.data,
            kept_by_sds: context.sds.message(&came.message_id),
        };
        let release_id = self.whole.keep(
            (&came.sender_id, send_id),
            Payload::of(payload, source_of(&came.content)),
            payload_hash,
            Some(&completed),
            &mut self.shared,
        );
        let Some(release_id) = release_id else {
            context.sds.handle_content_surplus(&came.message_id);
            return;
        };
        self.counts.messages += 1;
        context
            .sds
            .handle_whole_content(&came.message_id, &came.sender_id, payload, arrival.data);
        let message_id = Some(came.message_id.as_str());
        context.sds.handle_send_reconstructed(
            message_id,
            &came.sender_id,
            &release_id,
            1,
            &[],
            context.now,
        );
    }

    /// Tells SDS, and who observes, where a content belongs.
    fn place(
        &mut self,
        came: &Content,
        send_id: &Name,
        position: Position,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) {
        if arrival.observed {
            context.events.push_back(Event::Segment(SegmentSeen {
                stage: SegmentStage::Received,
                send_id: send_id.clone(),
                ordinal: position.ordinal.unwrap_or(0),
                sender_id: Arc::clone(&came.sender_id),
                data_count: position.data_count,
                content_count: position.content_count,
                message_id: Some(came.message_id.clone()),
            }));
        }
        let place = Place {
            send_id,
            ordinal: position.ordinal,
            content_count: position.content_count,
            contents_needed: position.data_count,
        };
        context
            .sds
            .handle_content_placed(&came.message_id, place, context.now);
    }

    /// Gives a segment to reassembly; false where there was no room for it.
    fn on_segment(
        &mut self,
        came: &Content,
        header: &Header,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) -> bool {
        let mut position = Position::of(header);
        let send_id = send_id_of(came, header, position);
        let is_authenticated = arrival.authenticated_sender == Some(&*came.sender_id);
        let segment = Segment {
            came,
            header,
            key: key_of(came, &send_id),
            send_id,
            authenticated: is_authenticated,
        };
        let receipt = Receipt {
            now_ms: context.now.monotonic_ms,
            sender: Some(&came.sender_id),
            authenticated: is_authenticated,
            message_key: Some(&segment.key),
        };
        let source = source_of(&came.content);
        let outcome = self
            .reassembler
            .receive_part(&came.content, source, &receipt);
        match &outcome {
            Outcome::Discarded { reason, detail } => {
                let kept = self.on_discarded(&segment, (*reason, detail), arrival, context);
                if let Some(kept) = kept {
                    return kept;
                }
            }
            Outcome::Dropped(dropped) => {
                self.on_false_message(&segment, dropped, position, arrival, context);
                return true;
            }
            Outcome::Stored { .. } | Outcome::Reconstructed(_) => {}
        }
        position.ordinal = position.ordinal.or(came.ordinal);
        self.counts.segments_received += 1;
        self.place(came, &segment.send_id, position, arrival, context);
        match outcome {
            Outcome::Stored {
                segments_needed,
                hash_mismatch,
                ..
            } => {
                // Parity of `draft` alone does not tell how much of it there must be.
                let doubted = hash_mismatch || segments_needed.is_none();
                if hash_mismatch {
                    let hash = header.entire_message_hash;
                    let more = mismatch(hash, came, "more segments are awaited");
                    context.events.push_back(more);
                }
                self.keep_segment(&segment, doubted, arrival, context);
            }
            Outcome::Reconstructed(found) => {
                self.on_reconstructed(&segment, *found, arrival, context);
            }
            Outcome::Discarded { .. } | Outcome::Dropped(_) => {}
        }
        true
    }

    /// What becomes of a segment that reassembly did not take; `None` where SDS hears of it all the same, since it
    /// repeats what is here.
    fn on_discarded(
        &mut self,
        segment: &Segment<'_>,
        (reason, detail): (Discard, &str),
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) -> Option<bool> {
        let came = segment.came;
        match reason {
            Discard::Undecodable | Discard::Invalid => {
                let why = (FaultKind::SegmentInvalid, detail.to_owned());
                self.discard(came, arrival, why, context);
                Some(true)
            }
            Discard::Oversized | Discard::CountMismatch => {
                let detail = format!("{}: {detail}", reason.name());
                let why = (FaultKind::SegmentDiscarded, detail);
                self.discard(came, arrival, why, context);
                Some(true)
            }
            Discard::QuotaExceeded => {
                // Not acknowledged: it may come again when there is room.
                self.counts.segments_discarded += 1;
                context
                    .sds
                    .handle_content_refused(&came.message_id, arrival.data, false);
                Some(false)
            }
            Discard::AlreadyCompleted if !self.awaits_release(segment, context) => {
                // Its id does not say to which message it belongs: to SDS it would begin another that
                // never gets whole.
                self.counts.segments_discarded += 1;
                context.sds.handle_rival_surplus(&came.message_id);
                context.sds.handle_content_surplus(&came.message_id);
                Some(true)
            }
            Discard::AlreadyCompleted | Discard::Duplicate => None,
        }
    }

    /// Whether the message of a segment is whole, and SDS has not released it. SDS may have done so and said it
    /// behind what it says now.
    fn awaits_release(&self, segment: &Segment<'_>, context: &Context<'_>) -> bool {
        let (came, send_id) = (segment.came, &segment.send_id);
        let payload_hash = &segment.header.entire_message_hash;
        self.whole.contains(&segment.key, payload_hash)
            && context
                .sds
                .is_reconstructed(&came.message_id, &came.sender_id, send_id)
    }

    /// All segments of a message are here, and it does not have its hash.
    fn on_false_message(
        &mut self,
        segment: &Segment<'_>,
        dropped: &Dropped,
        position: Position,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) {
        let (came, send_id) = (segment.came, &segment.send_id);
        let hash = dropped.entire_message_hash;
        if is_alone(segment.header) {
            // False from its sender or from its way: as if it had been lost, so that what follows waits for one that
            // is not.
            let again = mismatch(hash, came, "another copy is awaited");
            context.events.push_back(again);
            context
                .sds
                .handle_content_refused(&came.message_id, arrival.data, false);
            return;
        }
        let dropped_event = mismatch(hash, came, "the set is dropped");
        context.events.push_back(dropped_event);
        context
            .sds
            .handle_rival_refused(&came.message_id, &came.sender_id);
        if came.send_id.is_none() {
            // It goes with the others.
            self.place(came, send_id, position, arrival, context);
        }
        let of = (Some(&came.message_id), &came.sender_id, send_id);
        self.drop_message(of, dropped, context);
    }

    /// Keeps a segment until its message is whole. Where that is `doubted`, SDS does not count on it.
    fn keep_segment(
        &mut self,
        segment: &Segment<'_>,
        doubted: bool,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) {
        let (came, send_id) = (segment.came, &segment.send_id);
        if doubted {
            context
                .sds
                .handle_content_doubted(&came.message_id, &came.sender_id, send_id);
        }
        self.shared.keep_segment(&Kept {
            message_id: &came.message_id,
            sender_id: &came.sender_id,
            send_id,
            content: &came.content,
            wire: arrival.data,
            kept_by_sds: context.sds.message(&came.message_id),
            payload_hash: segment.header.entire_message_hash,
            index: segment.data_index(),
            authenticated: segment.authenticated,
        });
    }

    /// A segment completed its message.
    fn on_reconstructed(
        &mut self,
        segment: &Segment<'_>,
        found: Reconstructed,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) {
        let (came, send_id) = (segment.came, &segment.send_id);
        let data_count = found.data_segment_count;
        let content_count = (data_count + found.parity_segment_count) as u32;
        let recovered = &found.data_segments_recovered;
        self.counts.segments_recovered += recovered.len() as u64;
        if arrival.observed {
            context.events.extend(recovered.iter().map(|index| {
                Event::Segment(SegmentSeen {
                    stage: SegmentStage::Recovered,
                    send_id: send_id.clone(),
                    ordinal: *index as u32,
                    sender_id: Arc::clone(&came.sender_id),
                    data_count: Some(data_count as u32),
                    content_count: Some(content_count),
                    message_id: None,
                })
            }));
        }
        if !found.bad_segments.is_empty() {
            context.events.push_back(fault(
                FaultKind::FalseSegments,
                &came.sender_id,
                prefix(&found.entire_message_hash),
                found.bad_segments.len().to_string(),
            ));
        }
        // A sender that names messages by their contents names those of recovered segments so, too.
        let inferred = if !recovered.is_empty() && came.message_id == sha256_id(&came.content) {
            self.inferred_ids(&found)
        } else {
            Vec::new()
        };
        let completed = Completed {
            data_count,
            recovered,
            message_id: &came.message_id,
            index: segment.data_index(),
            wire: arrival.data,
            kept_by_sds: context.sds.message(&came.message_id),
        };
        let release_id = self.whole.keep(
            (&came.sender_id, send_id),
            found.payload,
            found.entire_message_hash,
            Some(&completed),
            &mut self.shared,
        );
        let Some(release_id) = release_id else {
            context.sds.handle_content_surplus(&came.message_id);
            return;
        };
        self.counts.messages += 1;
        if content_count == 1 {
            context.sds.handle_whole_content(
                &came.message_id,
                &came.sender_id,
                &came.content,
                arrival.data,
            );
        }
        context.sds.handle_send_reconstructed(
            Some(&came.message_id),
            &came.sender_id,
            &release_id,
            content_count,
            &inferred,
            context.now,
        );
    }

    /// SHA-256 of recovered data segments, made again as the sender made them.
    fn inferred_ids(&self, found: &Reconstructed) -> Vec<Name> {
        let wire_format = self.wire_format();
        let pieces: Vec<&[u8]> = found.payload.pieces().collect();
        let recovered = found.data_segments_recovered.iter();
        let contents = recovered.filter_map(|index| {
            let header = Header {
                entire_message_hash: found.entire_message_hash,
                slot: Slot::Data(*index as u8),
                data_segment_count: Some(found.data_segment_count as u16),
                // As the segments of each wire tell them.
                parity_segment_count: (wire_format != WireFormat::Draft)
                    .then_some(found.parity_segment_count as u16),
                payload_length: (wire_format == WireFormat::Lip243)
                    .then_some(found.payload.len() as u64),
            };
            Some(header.encode(wire_format, pieces.get(*index)?))
        });
        contents.map(|content| sha256_id(&content)).collect()
    }

    /// Parity that `came` from another participant than `send_sender_id`, whose message it repairs. It
    /// begins no message, and is not stored: whoever restarts asks again.
    pub fn on_parity(
        &mut self,
        came: Content,
        send_sender_id: &Arc<str>,
        arrival: &Arrival<'_>,
        context: &mut Context<'_>,
    ) {
        let Some(send_id) = &came.send_id else {
            return;
        };
        let decoded = segment::decode(&came.content, self.wire_format(), TOTAL_SEGMENTS_MAX);
        let Ok(Received::Segment(read)) = decoded else {
            return;
        };
        let header = read.header;
        let Slot::Parity(index) = header.slot else {
            return;
        };
        context.sds.handle_parity_heard(send_id, u32::from(index));
        if !context.sds.is_partial(send_sender_id, send_id) {
            return;
        }
        let key = payload_key(send_sender_id, send_id);
        let receipt = Receipt {
            now_ms: context.now.monotonic_ms,
            sender: Some(&came.sender_id),
            authenticated: arrival.authenticated_sender == Some(&*came.sender_id),
            message_key: Some(&key),
        };
        match self.reassembler.receive_guest(&came.content, &receipt) {
            Some(Outcome::Reconstructed(found)) => {
                self.counts.segments_received += 1;
                let send_id = send_id.clone();
                let came = Content {
                    sender_id: Arc::clone(send_sender_id),
                    ..came
                };
                let segment = Segment {
                    came: &came,
                    header: &header,
                    send_id,
                    key,
                    // Who made the message did not send this.
                    authenticated: false,
                };
                self.on_reconstructed(&segment, *found, arrival, context);
            }
            Some(Outcome::Stored { segments_held, .. }) => {
                self.counts.segments_received += 1;
                let held = u32::try_from(segments_held).unwrap_or(u32::MAX);
                context
                    .sds
                    .handle_parity_taken(send_sender_id, send_id, held, context.now);
            }
            _ => self.counts.segments_discarded += 1,
        }
    }

    /// An ephemeral content: one whole segment, or under `draft` bytes as they are.
    pub fn on_ephemeral(
        &mut self,
        message_id: &Name,
        sender_id: Arc<str>,
        content: &Part,
        deliveries: &mut Deliveries,
        events: &mut VecDeque<Event>,
    ) {
        match self.ephemeral_of(content) {
            Ok((payload, payload_hash)) => deliveries.push(Delivery {
                sender_id,
                send_id: None,
                payload_hash,
                payload: Payload::of(payload, None),
                redelivered: false,
                released_ms: None,
            }),
            Err((kind, detail)) => {
                self.counts.segments_discarded += 1;
                events.push_back(fault(kind, &sender_id, message_id.to_string(), detail));
            }
        }
    }

    /// What an ephemeral content carries, and its hash; or why it is of no use.
    fn ephemeral_of<'a>(&self, content: &'a Part) -> Result<Hashed<'a>, (FaultKind, String)> {
        let (payload, claimed) =
            match segment::decode(content, self.wire_format(), TOTAL_SEGMENTS_MAX) {
                Ok(Received::Segment(segment)) if segment.header.data_segment_count != Some(1) => {
                    let why = "ephemeral messages have one segment, this one is of several";
                    return Err((FaultKind::SegmentDiscarded, why.to_owned()));
                }
                Ok(Received::Segment(segment)) => {
                    (segment.payload, Some(segment.header.entire_message_hash))
                }
                Ok(Received::WholeMessage(payload)) => (payload, None),
                Err(_) if self.wire_format() == WireFormat::Draft => (&**content, None),
                Err(error) => return Err((FaultKind::SegmentInvalid, error.to_string())),
            };
        let payload_hash = keccak256(payload);
        if claimed.is_some_and(|claimed| claimed != payload_hash) {
            let why = "the payload of an ephemeral message does not have its hash";
            return Err((FaultKind::SegmentInvalid, why.to_owned()));
        }
        Ok((payload, payload_hash))
    }

    /// SDS releases a message.
    pub fn on_released(
        &mut self,
        sender_id: Arc<str>,
        send_id: &Name,
        deliveries: &mut Deliveries,
        events: &mut VecDeque<Event>,
        now: Now,
    ) {
        match self.whole.release(&sender_id, send_id) {
            Some(whole) => deliveries.push(Delivery {
                sender_id,
                send_id: Some(whole.stored_id),
                payload_hash: whole.payload_hash,
                payload: whole.payload,
                redelivered: false,
                released_ms: Some(now.monotonic_ms),
            }),
            None => events.push_back(fault(
                FaultKind::MessageNotHeld,
                &sender_id,
                send_id.to_string(),
                String::new(),
            )),
        }
    }

    // --- what does not get whole ----------------------------------------------------------------

    pub fn expire(&mut self, context: &mut Context<'_>) {
        for dropped in self.reassembler.expire(context.now.monotonic_ms) {
            self.on_dropped(&dropped, context);
        }
    }

    pub fn next_expiry_ms(&self) -> Option<i64> {
        self.reassembler.next_expiry_ms()
    }

    /// Partial messages went to make room.
    fn on_evicted(&mut self, context: &mut Context<'_>) {
        for dropped in self.reassembler.poll_dropped() {
            self.on_dropped(&dropped, context);
        }
    }

    fn on_dropped(&mut self, dropped: &Dropped, context: &mut Context<'_>) {
        let key = dropped.message_key.as_deref().unwrap_or_default();
        if let Some((sender_id, send_id)) = split_payload_key(key) {
            let sender_id = Arc::from(sender_id);
            let of = (None, &sender_id, &Name::new(send_id));
            self.drop_message(of, dropped, context);
        }
    }

    /// Forgets a partial message, by the content that came last of it, its sender and its send.
    fn drop_message(
        &mut self,
        (message_id, sender_id, send_id): (Option<&Name>, &Arc<str>, &Name),
        dropped: &Dropped,
        context: &mut Context<'_>,
    ) {
        let key = payload_key(sender_id, send_id);
        let hash = &dropped.entire_message_hash;
        let contents = self.shared.drop_segments(&key, hash);
        for message_id in &contents {
            // What SDS knows by its log it forgets below.
            context.sds.handle_rival_refused(message_id, sender_id);
        }
        // Another one of its sender may be spelled like it.
        let held = || {
            contents
                .iter()
                .find(|message_id| context.sds.holds(message_id))
        };
        let message_id = message_id.or_else(held);
        let reason = dropped.reason.name().to_owned();
        context.events.push_back(fault(
            FaultKind::MessageDropped,
            sender_id,
            prefix(hash),
            reason,
        ));
        // Where it was false or there was no room, it is not taken up again from what is kept.
        let keep = dropped.reason == Drop::Expired;
        if context.sds.handle_send_abandoned(
            message_id.map(Name::as_str),
            sender_id,
            send_id,
            keep,
            context.now,
        ) {
            context
                .events
                .push_back(Event::MessageGivenUp(HistoryEntry {
                    message_id: hex(hash),
                    retrieval_hint: None,
                    sender_id: Some(sender_id.to_string()),
                }));
        }
    }

    /// A segment of no use: it is not acknowledged, since it is not delivered.
    fn discard(
        &mut self,
        came: &Content,
        arrival: &Arrival<'_>,
        (kind, detail): (FaultKind, String),
        context: &mut Context<'_>,
    ) {
        self.counts.segments_discarded += 1;
        let name = came.message_id.to_string();
        context
            .events
            .push_back(fault(kind, &came.sender_id, name, detail));
        context
            .sds
            .handle_content_refused(&came.message_id, arrival.data, true);
    }

    /// What is held is held for something.
    #[cfg(debug_assertions)]
    pub fn audit(&self, sds: &Machine, deliveries: &Deliveries) {
        for (sender_id, send_id) in sds.partial() {
            assert!(
                self.shared.keeps_segments(&payload_key(sender_id, send_id)),
                "{send_id:?} of {sender_id:?} is waited for in vain"
            );
        }
        let mut waiting = self.whole.audit(sds);
        waiting.extend(deliveries.stored());
        self.shared.audit(
            |message_id| sds.needs_message(message_id),
            &waiting,
            |key, hash| {
                let key = split_payload_key(key)
                    .map(|(sender_id, send_id)| payload_key(sender_id, release_id_of(send_id)));
                key.is_some_and(|key| self.reassembler.is_partial(&key, hash))
            },
        );
    }

    // --- after a restart ------------------------------------------------------------------------

    /// Takes back completions, whole messages that no delivery holds, and segments of partial ones.
    pub fn restore(
        &mut self,
        stored: Stored,
        context: &mut Context<'_>,
    ) -> Result<(), RestoreError> {
        let completions = stored.completions.iter();
        let completions =
            completions.map(|(key, value)| (Change::PutCompleted, &key[..], &value[..]));
        self.reassembler.restore(completions);
        for (key, payload) in stored.payloads {
            if !self.whole.restore(&key, payload) {
                return Err(RestoreError::Damaged("key of a message"));
            }
        }
        for segment in stored.segments {
            self.receive_again(segment, context);
        }
        Ok(())
    }

    fn receive_again(&mut self, stored: StoredSegment, context: &mut Context<'_>) {
        let StoredSegment {
            key: own_key,
            record,
            content,
            wire,
        } = stored;
        let sender_id: Arc<str> = record.sender_id.into();
        let send_id = record.send_id;
        let key = payload_key(&sender_id, &send_id);
        if !self.shared.keeps_segment(&key, &own_key) {
            // With those before it its message was dropped, or is whole.
            return;
        }
        // As if it came now: while nobody listened nothing could come, and the clock may have been set
        // meanwhile.
        let receipt = Receipt {
            now_ms: context.now.monotonic_ms,
            sender: Some(&sender_id),
            authenticated: record.authenticated,
            message_key: Some(&key),
        };
        match self.reassembler.receive(&content, &receipt) {
            Outcome::Reconstructed(found) => {
                // With a larger work budget than the earlier life had.
                let content_count = found.data_segment_count + found.parity_segment_count;
                let release_id = self.whole.keep(
                    (&sender_id, &send_id),
                    found.payload,
                    found.entire_message_hash,
                    None,
                    &mut self.shared,
                );
                if let Some(release_id) = release_id {
                    self.counts.messages += 1;
                    let content_count = content_count as u32;
                    let message_id = record.message_id.as_deref();
                    context.sds.handle_send_reconstructed(
                        message_id,
                        &sender_id,
                        &release_id,
                        content_count,
                        &[],
                        context.now,
                    );
                }
            }
            Outcome::Dropped(dropped) => {
                let of = (record.message_id.as_ref(), &sender_id, &send_id);
                self.drop_message(of, &dropped, context);
            }
            // Where limits or the wire are others than in the earlier life.
            Outcome::Discarded { reason, .. } if reason != Discard::Duplicate => {
                self.shared.forget_segment(&key, &own_key);
                if let Some((message_id, wire)) = record.message_id.zip(wire) {
                    let invalid = reason != Discard::QuotaExceeded;
                    context
                        .sds
                        .handle_content_refused(&message_id, &wire, invalid);
                }
            }
            Outcome::Stored { .. } | Outcome::Discarded { .. } => {}
        }
        self.on_evicted(context);
    }
}

/// A segment that came, and the message that it belongs to.
struct Segment<'a> {
    came: &'a Content,
    header: &'a Header,
    send_id: Name,
    /// What reassembly knows the message by.
    key: Box<[u8]>,
    /// Whether the cipher proves its sender.
    authenticated: bool,
}

impl Segment<'_> {
    /// `None` for parity.
    fn data_index(&self) -> Option<u8> {
        match self.header.slot {
            Slot::Data(index) => Some(index),
            Slot::Parity(_) => None,
        }
    }
}

/// The send that a segment belongs to.
fn send_id_of(came: &Content, header: &Header, position: Position) -> Name {
    let is_single = position.content_count == Some(1);
    if is_single && is_rival(&came.message_id) {
        // Of the messages that share an id each is one of its own.
        return came.message_id.clone();
    }
    match &came.send_id {
        Some(send_id) => send_id.clone(),
        // A peer whose ids name no send: one message for each id where it fits one segment, else for each
        // hash.
        None if is_single => came.message_id.clone(),
        None => Name::new(&hex(&header.entire_message_hash)),
    }
}

/// What reassembly knows the message of a content by: a rival that is a message of its own by the send that
/// its id names, or by that id, as if no other one had it.
fn key_of(came: &Content, send_id: &Name) -> Box<[u8]> {
    let named = came.send_id.as_deref();
    payload_key(&came.sender_id, named.unwrap_or(release_id_of(send_id)))
}

/// What a content lies in, where that may be kept for it.
fn source_of(content: &Part) -> Option<&Lent> {
    match &content.whole {
        Octets::Lent(lent) if content.len() * 100 >= content.whole.len() * KEPT_WHOLE_PERCENT => {
            Some(lent)
        }
        _ => None,
    }
}

/// Whether its message has this segment and no other one.
fn is_alone(header: &Header) -> bool {
    (header.data_segment_count, header.parity_segment_count) == (Some(1), Some(0))
}

fn prefix(hash: &[u8; HASH_LENGTH]) -> String {
    hex(&hash[..PREFIX_BYTES])
}

fn fault(kind: FaultKind, sender_id: &Arc<str>, name: String, detail: String) -> Event {
    Event::Fault(Fault {
        kind,
        sender_id: Arc::clone(sender_id),
        name,
        detail,
    })
}

fn mismatch(hash: [u8; HASH_LENGTH], came: &Content, consequence: &str) -> Event {
    let consequence = consequence.to_owned();
    fault(
        FaultKind::HashMismatch,
        &came.sender_id,
        prefix(&hash),
        consequence,
    )
}
