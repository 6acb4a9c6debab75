//! Scalable Data Sync: the reliability protocol of one channel as a machine without clock or I/O.
//!
//! Time and randomness are arguments, what must leave, be stored or be told is polled, and timers are
//! data. Each part owns one kind of state and has a verb for each thing that can happen to it:
//!
//! - [`Machine`] takes inputs and spreads them: `reception` what came, `transmission` what leaves, `flights`
//!   what is on its way;
//! - `log`: what is held, by id, in order of arrival and in causal order;
//! - `incoming`: sends of others until they are delivered, and what is missing of them;
//! - `outgoing`: sends of ours until they are acknowledged;
//! - `sync`: when this participant speaks though it has nothing to send;
//! - `repair`: SDS-R, requests and answers; `members` what participants make for each other;
//! - `records`: the stored form.

mod config;
mod events;
mod flights;
mod history;
mod ids;
mod incoming;
mod index;
mod inspection;
mod lamport;
mod limits;
mod log;
mod machine;
mod members;
mod name;
mod octets;
mod outgoing;
mod participants;
mod queue;
mod reception;
mod records;
mod repair;
mod slab;
mod sync;
mod transmission;
mod unnaming;

#[cfg(test)]
pub(crate) use config::Drawn;
pub use config::repair_times_without_store;
pub use config::{Config, DeliveredWhen, MessageIdRule, Now, Randomness};
pub use events::{Dropped, Event, Kinds, Transmit, TransmitKind};
pub use flights::header_bytes_min;
pub use ids::{
    CONTENTS_PER_SEND_MAX, ENTRY_FRAME_BYTES, SENDER_ID_BYTES_MAX, content_id, is_send_id,
    rival_name, rival_of, sha256_id, split_content_id,
};
pub use incoming::{Place, Reopened};
pub use inspection::{Inspection, Shares, Unacknowledged};
pub use limits::LIMITS;
pub use machine::{Machine, Refusal, Stats};
pub use name::Name;
pub use octets::{Join, Octets, Part};
pub(crate) use outgoing::Ordinals;
pub(crate) use records::{CONTENT, MESSAGE, fields};
pub use records::{Record, RestoreError, VERSION};
pub use repair::{in_response_group, request_offset_ms, response_offset_ms};
pub use sync::feedback::{feedback_delay_ms, late_share};

#[cfg(test)]
mod counting_tests;
#[cfg(test)]
mod gaps_tests;
#[cfg(test)]
mod incoming_tests;
#[cfg(test)]
mod members_tests;
#[cfg(test)]
mod on_demand_tests;
#[cfg(test)]
mod outgoing_tests;
#[cfg(test)]
mod reception_tests;
#[cfg(test)]
mod repetition_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_tests;
