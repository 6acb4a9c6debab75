//! Arrow in, Arrow out: what Spark's executors call, one call a batch.
//!
//! Columns cross the C data interface and are read in place. No function here raises for what a
//! peer's bytes contain: a row that cannot be read is null and says why.

mod batch;
mod candidate;
mod capsule;
mod columns;
mod exchange;
mod group;
mod input;
mod leftovers;
mod local;
mod mapped;
mod output;
mod reasons;
mod reconstruct;
mod recover;
mod said;
mod sds_columns;
mod segments;
mod settle;
mod unwrap;
mod whole;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shardwire_core::wire::{sds, segment};

pub use columns::{
    arrow_decode_segment, arrow_decode_waku_message, arrow_keccak256, arrow_message_hash,
    arrow_shard_of,
};
pub use group::{ERROR_LENGTH_MAX, NO_HASH, SENDERS_MAX};
pub use input::BinaryColumn;
pub use local::ArrowLocalReconstructor;
pub use mapped::map_arrow;
pub use reconstruct::ArrowReconstructor;
pub use sds_columns::arrow_decode_sds;
pub use segments::{arrow_segment, arrow_segment_rows};
pub use unwrap::{arrow_unwrap_sds, arrow_unwrap_segment, arrow_unwrap_waku};

/// Length of a send id: 32 lower-case hexadecimal digits.
const SEND_ID_LENGTH: usize = 32;

/// The send and the place in it that a message id of the form `<32 hex>.<ordinal>` names.
fn send_of(message_id: &str) -> Option<(&str, i32)> {
    let (send_id, ordinal) = message_id.split_at_checked(SEND_ID_LENGTH)?;
    let ordinal = ordinal.strip_prefix('.')?;
    let is_hex = send_id
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_decimal = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    (is_hex && is_decimal).then_some(())?;
    Some((send_id, ordinal.parse().ok()?))
}

fn wire_format_named(name: &str) -> PyResult<segment::WireFormat> {
    name.parse().map_err(|()| {
        PyValueError::new_err(format!(
            "wire_format is {name:?}: it must be raw, draft or lip243"
        ))
    })
}

fn sds_wire_format_named(name: &str) -> PyResult<sds::WireFormat> {
    name.parse().map_err(|()| {
        PyValueError::new_err(format!("wire_format is {name:?}: it must be spec or nim"))
    })
}

fn check_lengths(rows: usize, lengths: &[usize]) -> PyResult<()> {
    if lengths.iter().any(|length| *length != rows) {
        return Err(PyValueError::new_err(format!(
            "columns of one batch have {rows} and {lengths:?} rows: they must have as many"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::send_of;

    #[test]
    fn a_send_id_is_32_hex_digits_and_an_ordinal() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(send_of(&format!("{id}.7")), Some((id, 7)));
        assert_eq!(send_of(&format!("{id}.")), None);
        assert_eq!(send_of(&format!("{id}7")), None);
        assert_eq!(send_of(&format!("{id}.-7")), None);
        assert_eq!(send_of(&format!("{id}.99999999999")), None);
        assert_eq!(send_of(&format!("{}.7", id.to_uppercase())), None);
        assert_eq!(send_of(""), None);
        assert_eq!(send_of("ααααααααααααααααααααααααααα.1"), None);
    }
}
