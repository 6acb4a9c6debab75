//! Sends of this participant: the queue before dispatch, what is unacknowledged after it, and who
//! acknowledged what.

mod acknowledged;
mod buffer;
mod changes;
mod demand;
mod finished;
mod first_parity;
mod in_store;
mod inquiries;
mod inquiry;
mod mark;
mod on_demand;
mod ordinals;
mod queue;
mod quorum;
mod resend;
mod send;
mod sends;
mod unacknowledged;
mod waiting;

pub use acknowledged::PARTICIPANTS_PER_SEND_MAX;
pub use buffer::Outgoing;
pub use changes::Stored;
pub use demand::Demand;
pub use finished::FINISHED_CONTENTS_MAX;
pub use inquiries::Asked;
pub use ordinals::Ordinals;
pub use send::{ContentRef, FixedHistory, OutgoingContent, OutgoingRef, OutgoingSend};
