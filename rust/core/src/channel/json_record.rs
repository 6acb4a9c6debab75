//! Records as earlier releases wrote them: JSON objects.

use serde::de::DeserializeOwned;

use super::records::SCHEMA_VERSION;
use super::restore_error::RestoreError;
use crate::wire::segment::HASH_LENGTH;

/// A record that an earlier release wrote as a JSON object.
pub(super) fn decode<T: DeserializeOwned>(
    value: &[u8],
    what: &'static str,
) -> Result<T, RestoreError> {
    let damaged = |_| RestoreError::Damaged(what);
    let fields: serde_json::Value = serde_json::from_slice(value).map_err(damaged)?;
    let version = fields.get("version").and_then(serde_json::Value::as_u64);
    match version {
        Some(version) if version > u64::from(SCHEMA_VERSION) => {
            Err(RestoreError::Newer { what, version })
        }
        _ => serde_json::from_value(fields).map_err(damaged),
    }
}

/// A Keccak-256 that a text spells in hex.
pub(super) fn hash_of(digits: &str) -> Option<[u8; HASH_LENGTH]> {
    let mut hash = [0; HASH_LENGTH];
    if digits.len() != 2 * HASH_LENGTH || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(hash)
}
