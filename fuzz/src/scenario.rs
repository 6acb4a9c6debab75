//! What happens to a receiver, read from bytes: messages, and a schedule of what arrives of them.

use std::fmt;

use arbitrary::{Result, Unstructured};
use shardwire_core::erasure::ErasureCode;
use shardwire_core::reassemble::Limits;
use shardwire_core::segment::Parameters;
use shardwire_core::wire::segment::{Header, Received, Slot, WireFormat, decode};

use crate::message::Message;
use crate::mutation::{mutated, replaced};
use crate::random::Random;
use crate::receiver::settings;

/// How an arrival differs from what a faithful sender sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    /// It does not.
    None,
    /// Random bytes under a genuine header.
    Replaced,
    /// Anything else.
    Mutated,
}

/// One transport message.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// As they come.
    pub bytes: Vec<u8>,
    /// What is wrong with them.
    pub forgery: Forgery,
    /// The key of the message they belong to.
    pub key: Option<Vec<u8>>,
    /// Who sends them.
    pub sender: Option<&'static str>,
    /// Whether that is proven.
    pub authenticated: bool,
}

impl fmt::Display for Arrival {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sender = self.sender.unwrap_or("-");
        let proven = if self.authenticated { ", proven" } else { "" };
        write!(
            formatter,
            "{:?} by {sender}{proven}: {} bytes",
            self.forgery,
            self.bytes.len()
        )?;
        for wire_format in [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243] {
            if let Ok(Received::Segment(segment)) = decode(&self.bytes, wire_format, 256) {
                let (header, length) = (segment.header, segment.payload.len());
                let counts = (header.data_segment_count, header.parity_segment_count);
                write!(
                    formatter,
                    "; {wire_format} {:?} {counts:?} {length}",
                    header.slot
                )?;
            }
        }
        Ok(())
    }
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Step {
    /// A transport message comes.
    Receive(Arrival),
    /// Milliseconds pass.
    Wait(i64),
    /// What is overdue is dropped.
    Expire,
    /// What changed is saved.
    Persist,
    /// The process dies and comes back with what was saved.
    Restart,
}

/// Everything that happens to one receiver.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What the receiver is configured with.
    pub parameters: Parameters,
    /// What it may hold.
    pub limits: Limits,
    /// The genuine messages.
    pub messages: Vec<Message>,
    /// In order.
    pub steps: Vec<Step>,
}

const SENDERS: [(Option<&str>, bool); 6] = [
    (Some("alice"), false),
    (Some("alice"), true),
    (Some("bob"), false),
    (Some("mallory"), false),
    (Some("mallory"), true),
    (None, false),
];

impl Scenario {
    /// The scenario that `source` describes. What is missing at its end is taken as nothing wrong.
    ///
    /// # Errors
    /// None that a caller could act on: the bytes describe no scenario.
    pub fn new(source: &mut Unstructured<'_>) -> Result<Self> {
        let wire_format =
            *source.choose(&[WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243])?;
        let parameters = parameters(source, wire_format)?;
        let limits = limits(source)?;
        let mut messages: Vec<Message> = Vec::new();
        for number in 0..source.int_in_range(1..=3u8)? {
            let key = source.ratio(1, 2)?.then(|| vec![b'k', number]);
            let message = match messages.last().filter(|_| number > 0) {
                // The same payload sent again.
                Some(last) if source.ratio(1, 4)? => Message {
                    key,
                    ..last.clone()
                },
                _ => Message::new(source, wire_format, key)?,
            };
            messages.push(message);
        }
        let steps = schedule(source, &messages, wire_format)?;
        Ok(Scenario {
            parameters,
            limits,
            messages,
            steps,
        })
    }
}

fn parameters(source: &mut Unstructured<'_>, wire_format: WireFormat) -> Result<Parameters> {
    let erasure_code = *source.choose(&[ErasureCode::Leopard, ErasureCode::Vandermonde])?;
    let mut settings = settings(wire_format, erasure_code, 256);
    if source.ratio(1, 8)? {
        settings.max_tail_candidates = 3;
    }
    Ok(Parameters::new(settings).expect("the settings are valid"))
}

/// Mostly roomy limits, now and then tight ones.
fn limits(source: &mut Unstructured<'_>) -> Result<Limits> {
    let roomy = Limits {
        sets_max: 1_000,
        sets_per_sender_max: 100,
        buffered_bytes_max: 256 << 20,
        buffered_bytes_per_sender_max: 64 << 20,
        unauthenticated_share: 0.5,
        candidates_per_slot_max: 4,
        completed_remembered_max: 100_000,
        timeout_ms: 1_000,
        work_budget: 32,
    };
    if source.ratio(3, 4)? {
        return Ok(roomy);
    }
    Ok(Limits {
        sets_max: source.int_in_range(1..=5)?,
        sets_per_sender_max: source.int_in_range(1..=3)?,
        buffered_bytes_max: source.int_in_range(1..=3_000)?,
        buffered_bytes_per_sender_max: source.int_in_range(1..=1_500)?,
        unauthenticated_share: f64::from(source.int_in_range(1..=4u8)?) / 4.0,
        candidates_per_slot_max: source.int_in_range(1..=3)?,
        completed_remembered_max: source.int_in_range(0..=3)?,
        work_budget: source.int_in_range(1..=3)?,
        ..roomy
    })
}

/// The segments of all messages, shuffled, some lost, some altered, with other things between.
fn schedule(
    source: &mut Unstructured<'_>,
    messages: &[Message],
    wire_format: WireFormat,
) -> Result<Vec<Step>> {
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        let total = message.segments.len();
        let mut ordinals: Vec<usize> = (0..total).collect();
        Random(source.arbitrary::<u16>()?.into()).shuffle(&mut ordinals);
        // As many as there is parity for, or any number.
        let lost = match source.ratio(3, 4)? {
            true => source.int_in_range(0..=message.parity_count)?,
            false => source.int_in_range(0..=total)?,
        };
        places.extend(ordinals.iter().skip(lost).map(|ordinal| (number, *ordinal)));
    }
    if source.ratio(1, 2)? {
        Random(source.arbitrary::<u16>()?.into()).shuffle(&mut places);
    }
    let hostility = source.int_in_range(1..=8u8)?;
    let calm = source.ratio(1, 2)?;
    let mut steps = Vec::new();
    for (number, ordinal) in places {
        let message = &messages[number];
        let genuine = &message.segments[ordinal];
        let plain = genuine.0.encode(wire_format, &genuine.1);
        let mut put = |source: &mut Unstructured<'_>, bytes, forgery| -> Result<()> {
            let (sender, authenticated) = *source.choose(&SENDERS)?;
            let key = message.key.clone();
            steps.push(Step::Receive(Arrival {
                bytes,
                forgery,
                key,
                sender,
                authenticated,
            }));
            Ok(())
        };
        if source.int_in_range(0..=15u8)? < hostility && !source.is_empty() {
            match source.int_in_range(0..=7)? {
                0 | 1 => {
                    let bytes = replaced(source, genuine, wire_format)?;
                    put(source, bytes, Forgery::Replaced)?;
                    continue;
                }
                2 => {
                    let bytes = mutated(source, genuine, wire_format)?;
                    put(source, bytes, Forgery::Mutated)?;
                    continue;
                }
                3 | 4 => {
                    let bytes = mutated(source, genuine, wire_format)?;
                    put(source, bytes, Forgery::Mutated)?;
                }
                5 => {
                    let bytes = replaced(source, genuine, wire_format)?;
                    put(source, plain, Forgery::None)?;
                    put(source, bytes, Forgery::Replaced)?;
                    continue;
                }
                6 => put(source, plain.clone(), Forgery::None)?,
                _ => {
                    let bytes = stray(source, wire_format)?;
                    put(source, bytes, Forgery::Mutated)?;
                }
            }
        }
        put(source, plain, Forgery::None)?;
        if !calm && source.ratio(1, 4)? {
            steps.push(match source.int_in_range(0..=5)? {
                0 => Step::Wait(source.int_in_range(0..=1_500)?),
                1 => Step::Expire,
                2 | 3 => Step::Persist,
                _ => Step::Restart,
            });
        }
    }
    Ok(steps)
}

/// A segment of a message that nobody sent, or bytes that are none.
fn stray(source: &mut Unstructured<'_>, wire_format: WireFormat) -> Result<Vec<u8>> {
    let seed: u8 = source.arbitrary()?;
    if source.ratio(1, 4)? {
        let length = source.int_in_range(0..=120)?;
        return Ok(Random(seed.into()).bytes(length));
    }
    let mut entire_message_hash = [seed; 32];
    entire_message_hash[31] = 1;
    let data_count = source.int_in_range(1..=256u16)?;
    let header = Header {
        entire_message_hash,
        slot: Slot::Data(source.arbitrary::<u8>()? % data_count.min(255) as u8),
        data_segment_count: Some(data_count),
        parity_segment_count: Some(source.int_in_range(0..=256 - data_count)?),
        payload_length: (wire_format == WireFormat::Lip243).then_some(u64::MAX),
    };
    let length = source.int_in_range(0..=200)?;
    Ok(header.encode(wire_format, &Random(seed.into()).bytes(length)))
}
