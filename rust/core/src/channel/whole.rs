//! Whole messages until SDS releases them.

use std::sync::Arc;

use super::records::{payload_key, split_payload_key};
use super::shared_bytes::{Completed, SharedBytes};
use super::{is_rival, release_id_of};
use crate::keccak::keccak256;
use crate::maps::HashMap;
#[cfg(debug_assertions)]
use crate::maps::HashSet;
use crate::reassemble::Payload;
#[cfg(debug_assertions)]
use crate::sds::Machine;
use crate::sds::{Name, rival_name};
use crate::wire::segment::HASH_LENGTH;

/// A message that waits for its release.
#[derive(Debug)]
pub(super) struct Whole {
    pub payload: Payload,
    pub payload_hash: [u8; HASH_LENGTH],
    /// The send id under which it is stored.
    pub stored_id: Name,
}

/// Keeps each under a name that no other one has while it is stored.
///
/// Two messages may come under one sender and send, of which one is forged. Nothing tells which: both
/// are delivered.
#[derive(Debug, Default)]
pub(super) struct WholeMessages {
    /// By the sender and the release id: the send id under which SDS releases it.
    waiting: HashMap<Box<[u8]>, Whole>,
    size_bytes: usize,
}

impl WholeMessages {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of all that wait.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Whether the message that waits under `key` has this hash.
    pub fn contains(&self, key: &[u8], payload_hash: &[u8; HASH_LENGTH]) -> bool {
        let waiting = self.waiting.get(key);
        waiting.is_some_and(|whole| whole.payload_hash == *payload_hash)
    }

    /// Keeps a message until it is released and its delivery ends.
    ///
    /// Gives its release id; `None` where this very message waits for its delivery already.
    pub fn keep(
        &mut self,
        (sender_id, send_id): (&Arc<str>, &Name),
        payload: Payload,
        payload_hash: [u8; HASH_LENGTH],
        completed: Option<&Completed<'_>>,
        shared: &mut SharedBytes,
    ) -> Option<Name> {
        let (mut release_id, mut stored_id) = (send_id.clone(), send_id.clone());
        let mut key = payload_key(sender_id, send_id);
        // One that waits may be stored under another name than that of its send.
        let waits = self.waiting.contains_key(&key);
        if waits || shared.keeps_payload(&key) {
            stored_id = rival_name(send_id, sender_id, &payload.to_vec());
            let stored_key = payload_key(sender_id, &stored_id);
            // The name of a rival is that of its content.
            let is_kept = is_rival(send_id) || shared.keeps_payload(&stored_key);
            shared.drop_segments(&key, &payload_hash);
            if is_kept {
                return None;
            }
            if waits {
                // The send is released with the other one.
                release_id = stored_id.clone();
            }
            key = stored_key;
        }
        shared.keep_payload(key, &payload, payload_hash, completed);
        let release_key = payload_key(sender_id, &release_id);
        self.insert(release_key, payload, payload_hash, stored_id);
        Some(release_id)
    }

    fn insert(
        &mut self,
        key: Box<[u8]>,
        payload: Payload,
        payload_hash: [u8; HASH_LENGTH],
        stored_id: Name,
    ) {
        self.size_bytes += payload.len();
        let whole = Whole {
            payload,
            payload_hash,
            stored_id,
        };
        if let Some(former) = self.waiting.insert(key, whole) {
            self.size_bytes -= former.payload.len();
        }
    }

    /// A message that SDS releases; `None` where it is not held.
    pub fn release(&mut self, sender_id: &str, send_id: &str) -> Option<Whole> {
        let whole = self.waiting.remove(&payload_key(sender_id, send_id))?;
        self.size_bytes -= whole.payload.len();
        Some(whole)
    }

    /// Each waits in SDS too, by its release id, and nothing waits there that is not here.
    ///
    /// Gives the keys under which they are stored.
    #[cfg(debug_assertions)]
    pub fn audit(&self, sds: &Machine) -> HashSet<Box<[u8]>> {
        let awaited: HashSet<_> = sds
            .reconstructed()
            .map(|(sender_id, send_id)| payload_key(sender_id, send_id))
            .collect();
        let held: HashSet<_> = self.waiting.keys().cloned().collect();
        assert_eq!(held, awaited, "what waits for its release");
        let size_bytes: usize = self.waiting.values().map(|whole| whole.payload.len()).sum();
        assert_eq!(self.size_bytes, size_bytes);
        let stored = self.waiting.iter().filter_map(|(key, whole)| {
            let (sender_id, _) = split_payload_key(key)?;
            Some(payload_key(sender_id, &whole.stored_id))
        });
        stored.collect()
    }

    /// Takes back a stored message that no delivery holds; false where its key is damaged.
    pub fn restore(&mut self, key: &[u8], payload: Vec<u8>) -> bool {
        let Some((sender_id, stored_id)) = split_payload_key(key) else {
            return false;
        };
        // What SDS knew by another release id was released at once.
        let release_key = payload_key(sender_id, release_id_of(stored_id));
        let payload_hash = keccak256(&payload);
        self.insert(
            release_key,
            Payload::from(payload),
            payload_hash,
            Name::new(stored_id),
        );
        true
    }
}
