//! SDS-R: asking the channel for missing messages, and answering for others (SDS, SDS-Repair).

mod answering;
mod answers;
mod asking;
mod fitting;
mod needs;
mod requests;
mod rules;

pub use answering::Answering;
pub use asking::Asking;
pub use fitting::fitting;
pub use needs::Needs;
pub use rules::{REPAIR_BUFFER_MAX, in_response_group, request_offset_ms, response_offset_ms};
