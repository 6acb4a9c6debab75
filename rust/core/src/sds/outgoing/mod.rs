//! Sends of this participant: the queue before dispatch, what is unacknowledged after it, and who
//! acknowledged what.

mod buffer;
mod changes;
mod demand;
mod first_parity;
mod in_store;
mod inquiry;
mod ordinals;
mod queue;
mod resend;
mod send;

pub use buffer::{FINISHED_CONTENTS_MAX, Outgoing, PARTICIPANTS_PER_SEND_MAX};
pub use changes::Stored;
pub use demand::Demand;
pub use ordinals::Ordinals;
pub use send::{ContentRef, FixedHistory, OutgoingContent, OutgoingRef, OutgoingSend};
