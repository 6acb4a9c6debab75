//! The stored form of a send of ours, and that of earlier releases, a JSON object.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::send::{FailureStage, OutcomeKind, OwnSend};
use crate::channel::records::SCHEMA_VERSION;
use crate::channel::restore_error::RestoreError;
use crate::sds::fields::{Reader, Writer};
use crate::sds::{Name, Octets, Ordinals, VERSION};

/// What errors call it.
const CALLED: &str = "SendRecord";

/// More than any set of segments that a message has.
const MASK_DIGITS_MAX: usize = 2_000;

const SENT: u8 = 1;
const DELIVERED: u8 = 2;

impl OwnSend {
    /// What [`OwnSend::decode`] reads.
    pub fn encode(&self) -> Octets {
        let mut record = Writer::new();
        record
            .names(&self.request_ids)
            .bytes(self.message_id.as_bytes())
            .int(self.data_count)
            .int(self.content_count);
        let width = (self.content_count as usize).div_ceil(8);
        for ordinals in [
            &self.sending,
            &self.propagated,
            &self.left_out,
            &self.stored,
            &self.acknowledged,
            &self.possibly_acknowledged,
        ] {
            // Most are empty, or full.
            match ordinals.count() {
                0 => record.byte(0),
                count if count == self.content_count => record.byte(1),
                _ => record.byte(2).ordinals(ordinals, width),
            };
        }
        record.int(self.delivered_to.len() as u32);
        for participant in &self.delivered_to {
            record.bytes(participant.as_bytes());
        }
        record.byte((u8::from(self.sent) * SENT) | (u8::from(self.delivered) * DELIVERED));
        match &self.failure {
            None => record.byte(0),
            Some((stage, error)) => record.byte(1 + *stage as u8).bytes(error.as_bytes()),
        };
        record.int(self.unannounced.len() as u32);
        for (kind, request_id) in &self.unannounced {
            let request_id = request_id.as_ref().map(Name::as_bytes);
            record.byte(*kind as u8).optional(request_id);
        }
        record
            .int(self.unanswered)
            .bytes(self.form.as_bytes())
            .seal()
    }

    /// Reads a stored send.
    ///
    /// # Errors
    /// [`RestoreError`] where it is damaged, or of a newer release.
    pub fn decode(record: &[u8]) -> Result<Self, RestoreError> {
        match record.first() {
            Some(b'{') => of_json(record),
            Some(&version) if version > VERSION => Err(crate::sds::RestoreError::Version(version))?,
            _ => of_fields(record).ok_or(RestoreError::Damaged(CALLED)),
        }
    }
}

fn of_fields(record: &[u8]) -> Option<OwnSend> {
    let mut fields = Reader::new(record)?;
    let request_ids = fields.names()?;
    let message_id = fields.name()?;
    let (data_count, content_count) = (fields.int()?, fields.int()?);
    let mut ordinals = || match fields.byte()? {
        0 => Some(Ordinals::NONE),
        1 => Some(Ordinals::all(content_count)),
        _ => fields.bytes().map(Ordinals::from_bytes),
    };
    let [
        sending,
        propagated,
        left_out,
        stored,
        acknowledged,
        possibly,
    ] = [
        ordinals()?,
        ordinals()?,
        ordinals()?,
        ordinals()?,
        ordinals()?,
        ordinals()?,
    ];
    let count = fields.int()?;
    let delivered_to: Option<Vec<Arc<str>>> = (0..count).map(|_| fields.text()).collect();
    let flags = fields.byte()?;
    let failure = match fields.byte()? {
        0 => None,
        1 => Some((FailureStage::Dispatch, fields.text()?)),
        _ => Some((FailureStage::Delivery, fields.text()?)),
    };
    let mut unannounced = Vec::new();
    for _ in 0..fields.int()? {
        let kind = OutcomeKind::ALL.get(usize::from(fields.byte()?))?;
        unannounced.push((*kind, fields.optional()?.map(Name::from_wire)));
    }
    Some(OwnSend {
        request_ids,
        message_id,
        data_count,
        content_count,
        sending,
        propagated,
        left_out,
        stored,
        acknowledged,
        possibly_acknowledged: possibly,
        delivered_to: delivered_to?,
        sent: flags & SENT != 0,
        delivered: flags & DELIVERED != 0,
        failure,
        unannounced,
        unanswered: fields.int()?,
        form: fields.text()?,
    })
}

/// As earlier releases wrote it: fields that hold their defaults stay out, and sets of ordinals are
/// numbers of any size.
fn of_json(record: &[u8]) -> Result<OwnSend, RestoreError> {
    let damaged = |_| RestoreError::Damaged(CALLED);
    let fields: Json<'_> = serde_json::from_slice(record).map_err(damaged)?;
    let version = required(&fields, "version")?;
    if version > u64::from(SCHEMA_VERSION) {
        return Err(RestoreError::Newer {
            what: CALLED,
            version,
        });
    }
    let request_ids: Vec<String> = required(&fields, "request_ids")?;
    let message_id: String = required(&fields, "message_id")?;
    let delivered_to: Vec<String> = optional(&fields, "delivered_to")?.unwrap_or_default();
    let unannounced: Vec<String> = optional(&fields, "unannounced")?.unwrap_or_default();
    let error: Option<String> = optional(&fields, "error")?;
    let stage: Option<String> = optional(&fields, "error_stage")?;
    let form: Option<String> = optional(&fields, "form")?;
    let stage = match stage.as_deref().unwrap_or_default() {
        "" => None,
        "delivery" => Some(FailureStage::Delivery),
        _ => Some(FailureStage::Dispatch),
    };
    let unannounced: Option<Vec<_>> = unannounced.iter().map(|entry| waiting(entry)).collect();
    Ok(OwnSend {
        request_ids: request_ids.iter().map(|id| Name::new(id)).collect(),
        message_id: Name::new(&message_id),
        data_count: required(&fields, "data_count")?,
        content_count: required(&fields, "content_count")?,
        sending: mask(&fields, "sending")?,
        propagated: mask(&fields, "propagated")?,
        left_out: mask(&fields, "left_out")?,
        stored: mask(&fields, "stored")?,
        acknowledged: mask(&fields, "acknowledged")?,
        possibly_acknowledged: mask(&fields, "possibly_acknowledged")?,
        delivered_to: delivered_to.into_iter().map(Arc::from).collect(),
        sent: optional(&fields, "sent")?.unwrap_or_default(),
        delivered: optional(&fields, "delivered")?.unwrap_or_default(),
        failure: stage.map(|stage| (stage, error.unwrap_or_default().into())),
        unannounced: unannounced.ok_or(RestoreError::Damaged(CALLED))?,
        // What does not tell how many there are may have one.
        unanswered: optional(&fields, "unanswered")?.unwrap_or(1),
        form: form.unwrap_or_default().into(),
    })
}

type Json<'a> = HashMap<&'a str, &'a RawValue>;

fn optional<'a, T: Deserialize<'a>>(
    fields: &Json<'a>,
    name: &str,
) -> Result<Option<T>, RestoreError> {
    let found = fields
        .get(name)
        .map(|value| serde_json::from_str(value.get()));
    found.transpose().map_err(|_| RestoreError::Damaged(CALLED))
}

fn required<'a, T: Deserialize<'a>>(fields: &Json<'a>, name: &str) -> Result<T, RestoreError> {
    optional(fields, name)?.ok_or(RestoreError::Damaged(CALLED))
}

/// An outcome and, behind a space, the request that waits for it.
fn waiting(entry: &str) -> Option<(OutcomeKind, Option<Name>)> {
    let (outcome, request_id) = match entry.split_once(' ') {
        Some((outcome, request_id)) => (outcome, Some(Name::new(request_id))),
        None => (entry, None),
    };
    Some((OutcomeKind::named(outcome)?, request_id))
}

/// A set of ordinals as the number whose bits they are.
fn mask(fields: &Json<'_>, name: &str) -> Result<Ordinals, RestoreError> {
    let Some(digits) = fields.get(name).map(|value| value.get()) else {
        return Ok(Ordinals::NONE);
    };
    if digits.len() > MASK_DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(RestoreError::Damaged(CALLED));
    }
    // Little-endian; each digit multiplies by ten what came before it.
    let mut bytes: Vec<u8> = Vec::new();
    for digit in digits.bytes() {
        let mut carry = u16::from(digit - b'0');
        for byte in &mut bytes {
            carry += u16::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(carry as u8);
        }
    }
    Ok(Ordinals::from_bytes(&bytes))
}
