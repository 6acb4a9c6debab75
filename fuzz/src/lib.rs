//! What must hold whatever peers send, as functions of any bytes.
//!
//! Each target reads its input as what a peer may send, or as a plan to make it from, and panics
//! where a promise is broken. `make fuzz` searches for such inputs under the guidance of coverage;
//! the tests replay those kept in `tests/corpus/` and draw others at random.

mod channel;
mod dispatch;
mod draws;
mod honest;
mod machine;
pub mod memory;
mod message;
mod model;
mod mutation;
mod parties;
mod play;
mod random;
mod receiver;
mod scenario;
mod spelled;
mod wires;

pub use channel::Chat;
pub use dispatch::Sender;
pub use honest::delivers_once;
pub use machine::World;
pub use message::Message;
pub use play::{Counts, play};
pub use random::Random;
pub use receiver::{limits, receiver, settings};
pub use scenario::{Arrival, Forgery, Scenario, Step};

/// A target: its name, which is that of its directory in `tests/corpus/`, and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 11] = [
    ("segment", wires::segment),
    ("sds", wires::sds),
    ("waku", wires::waku),
    ("waku_json", wires::waku_json),
    ("file", wires::file),
    ("bloom", wires::bloom),
    ("restore", wires::restore),
    ("reassembler", reassembler),
    ("machine", machine),
    ("channel", channel),
    ("dispatch", dispatch),
];

/// Plays the scenario that the bytes describe.
fn reassembler(bytes: &[u8]) {
    let mut source = arbitrary::Unstructured::new(bytes);
    if let Ok(scenario) = Scenario::new(&mut source) {
        play(&scenario);
    }
}

/// Lets SDS machines live as the bytes describe.
fn machine(bytes: &[u8]) {
    let mut world = World::from_bytes(bytes);
    while world.goes_on() {
        world.step();
    }
    world.restart_all();
}

/// Lets channels live as the bytes describe.
fn channel(bytes: &[u8]) {
    let mut chat = Chat::from_bytes(bytes);
    while chat.goes_on() {
        chat.step();
    }
    chat.end();
}

/// Lets a channel and its node live as the bytes describe.
fn dispatch(bytes: &[u8]) {
    let mut sender = Sender::from_bytes(bytes);
    while sender.goes_on() {
        sender.step();
    }
    sender.end();
}
