//! Sends of ours: how far each has come, and which events follow (003 MessageEvents, 004 Event lifecycle).
//!
//! SDS decides what is sent again and says what happened; here it becomes events for the application:
//!
//! - `send`: the progress of one send;
//! - `stored`: its stored form;
//! - `send_events`: the events, and to which of them somebody listens;
//! - `sends`: all of them.

mod send;
mod send_events;
mod sends;
mod stored;

pub use send::{FailureStage, OutcomeKind, OwnSend};
pub use send_events::{ChunkProgress, Listened, RequestIds, SendEvent, SendEventKind};
pub use sends::{OwnSends, SETTLED_REMEMBERED_MAX};

#[cfg(test)]
mod tests;
