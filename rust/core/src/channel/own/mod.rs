//! Sends of ours: how far each has come, and which events follow (003 MessageEvents, 004 Event lifecycle).
//!
//! SDS decides what is sent again and says what happened; here it becomes what the application is told:
//!
//! - `send`: the progress of one send;
//! - `stored`: its stored form;
//! - `told`: the events, and which of them somebody listens to;
//! - `sends`: all of them.

mod send;
mod sends;
mod stored;
mod told;

pub use send::{FailureStage, OutcomeKind, OwnSend};
pub use sends::{OwnSends, SETTLED_REMEMBERED_MAX};
pub use told::{Chunks, Kind, Listened, Outcome, Told};

#[cfg(test)]
mod tests;
