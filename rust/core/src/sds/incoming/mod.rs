//! What other participants sent, until it is delivered: sends that are named, partial, or waiting
//! for their causes; what is missing of them; what was given up; and contents that share an id.

mod buffer;
mod gaps;
mod given_up;
mod lost;
mod missing;
mod named;
mod past;
mod rare;
mod rivals;
mod send;
mod step;

pub use buffer::{Incoming, Surroundings, WAITING_PAIRS_MAX};
pub use gaps::Naming;
pub use given_up::{GivenUp, Reopened, Voice, unsay};
pub use rivals::{Rival, Rivals};
pub use send::{IncomingSend, Place, SendRef};
