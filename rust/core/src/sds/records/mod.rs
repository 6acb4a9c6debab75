//! The stored form of a machine: records by kind and key, written as they change and read back after
//! a restart.
//!
//! Every value but raw bytes begins with a version and ends with a checksum, so that a damaged record
//! is told from a whole one. Numbers are little-endian, texts have their length before them. Kinds:
//!
//! | kind | key | value |
//! |---|---|---|
//! | `sds.state` | empty | counters, and the heads |
//! | `sds.log` | message id | one received, sent or recovered content, and whether it is acknowledged |
//! | `sds.message` | message id | a message as it came or left: for repair, and for resending |
//! | `sds.send` | send id | a send of ours |
//! | `sds.content` | message id | the bytes of one of its contents, until it leaves first |
//! | `sds.outgoing` | message id | the state of one of its contents, where the send has several |
//! | `sds.incoming` | key of the send | a send of another participant that is not delivered |
//! | `sds.missing` | message id | what a history names and is not here |
//! | `sds.lost` | key of the send | what nothing waits for |
//! | `sds.past` | number | fingerprints of sends that left the log |
//! | `sds.given_up` | send and sender | what is withheld |
//! | `sds.rival` | name of the rival | what was handed up beside another content of its id |
//! | `sds.answer` | message id | what is to be answered |
//! | `sds.participant` | sender id | who was heard, and what of it left the log |
//!
//! A message that is received, or sent and acknowledged, takes as few records as that allows:
//! `sds.log` and `sds.message` for either, and `sds.send` for ours.

pub(crate) mod fields;
mod read;
mod write;

pub use read::RestoreError;

use super::name::Name;
use super::octets::Octets;
use crate::maps::HashSet;

/// What the records of this release begin with.
pub const VERSION: u8 = 3;

pub(super) const STATE: &str = "sds.state";
pub(super) const LOG: &str = "sds.log";
pub(crate) const MESSAGE: &str = "sds.message";
pub(super) const SEND: &str = "sds.send";
pub(crate) const CONTENT: &str = "sds.content";
pub(super) const OUTGOING: &str = "sds.outgoing";
pub(super) const INCOMING: &str = "sds.incoming";
pub(super) const MISSING: &str = "sds.missing";
pub(super) const LOST: &str = "sds.lost";
pub(super) const PAST: &str = "sds.past";
pub(super) const GIVEN_UP: &str = "sds.given_up";
pub(super) const RIVAL: &str = "sds.rival";
pub(super) const ANSWER: &str = "sds.answer";
pub(super) const PARTICIPANT: &str = "sds.participant";

/// One change of what is stored; later ones stand over earlier ones of the same kind and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub kind: &'static str,
    /// Which one.
    pub key: Name,
    /// What is stored; `None` deletes.
    pub value: Option<Octets>,
}

/// What is stored now of the kinds whose records may vanish before they were ever written, and the
/// state record as it stands.
#[derive(Debug, Default)]
pub struct Records {
    state: Option<Octets>,
    stored: HashSet<(&'static str, Name)>,
    /// How many records changed lately.
    usual: usize,
    /// Records that could not be read when the machine was restored.
    pub unreadable: usize,
}

impl Records {
    /// A record that may have come and gone between two calls: then there is nothing to delete.
    fn put(&mut self, out: &mut Vec<Record>, kind: &'static str, key: Name, value: Option<Octets>) {
        let known = match value {
            Some(_) => {
                self.stored.insert((kind, key.clone()));
                true
            }
            None => !self.stored.is_empty() && self.stored.remove(&(kind, key.clone())),
        };
        if known {
            out.push(Record { kind, key, value });
        }
    }
}
