//! Many messages at once: each keeps to a lane, and a lane that is done takes the next message.

use super::padding::{pad_into, padded};
use super::state::{AbsorbMany, AbsorbOne, Lanes, absorb_one_with, squeeze};
use super::{DIGEST_LEN, RATE};

/// Hashes messages in N lanes.
pub(super) struct Streams<const N: usize> {
    pub absorb_many: AbsorbMany<N>,
    /// What finishes a message alone.
    pub absorb_one: AbsorbOne,
    /// With at most this many messages left, one after the other is faster than side by side.
    pub alone_max: usize,
}

/// A message in a lane: what is left of it.
struct Message<'a> {
    index: usize,
    rest: &'a [u8],
}

impl<const N: usize> Streams<N> {
    /// `digests[i]` becomes the digest of `inputs[i]`; both have one length.
    pub fn run(&self, inputs: &[&[u8]], digests: &mut [[u8; DIGEST_LEN]]) {
        let order = longest_first(inputs);
        let mut waiting = order.iter().map(|&index| Message {
            index,
            rest: inputs[index],
        });
        let mut messages: [Option<Message<'_>>; N] = [const { None }; N];
        let mut lanes = Lanes([[0; N]; 25]);
        let mut last = [[0; RATE]; N];
        loop {
            for message in messages.iter_mut().filter(|message| message.is_none()) {
                *message = waiting.next();
            }
            if messages.iter().flatten().count() <= self.alone_max {
                break;
            }
            self.advance(&mut lanes, &mut messages, &mut last, digests);
        }
        for (lane, message) in messages.iter().enumerate() {
            if let Some(message) = message {
                let mut state = lanes.0.map(|word| word[lane]);
                let whole = message.rest.len() - message.rest.len() % RATE;
                absorb_one_with(self.absorb_one, &mut state, &message.rest[..whole]);
                let last = padded(&message.rest[whole..]);
                absorb_one_with(self.absorb_one, &mut state, &last);
                digests[message.index] = squeeze(&state);
            }
        }
    }

    /// Absorbs as many blocks as every message has, or one where some message has only its last,
    /// which is padded in `last`.
    fn advance(
        &self,
        lanes: &mut Lanes<N>,
        messages: &mut [Option<Message<'_>>; N],
        last: &mut [[u8; RATE]; N],
        digests: &mut [[u8; DIGEST_LEN]],
    ) {
        let whole = messages
            .iter()
            .flatten()
            .map(|message| message.rest.len() / RATE)
            .min();
        let count = whole.unwrap_or(0).max(1);
        let mut blocks = [None; N];
        for ((block, last), message) in blocks.iter_mut().zip(last.iter_mut()).zip(&*messages) {
            *block = message.as_ref().map(|message| {
                if message.rest.len() < RATE {
                    pad_into(last, message.rest);
                    last.as_ptr()
                } else {
                    message.rest.as_ptr()
                }
            });
        }
        // A lane without a message repeats another's work: its state is never read.
        let some = blocks
            .iter()
            .flatten()
            .next()
            .copied()
            .unwrap_or(last[0].as_ptr());
        let blocks = blocks.map(|block| block.unwrap_or(some));
        // SAFETY: `kernel` offers only what the machine has. Each pointer has `count` blocks behind
        // it: those of a message with at least as many, or, where `count` is 1, a padded block.
        unsafe { (self.absorb_many)(lanes, blocks, count) };

        for (lane, slot) in messages.iter_mut().enumerate() {
            let Some(message) = slot else { continue };
            if let Some(rest) = message.rest.get(count * RATE..) {
                message.rest = rest;
                continue;
            }
            let first: [u64; 4] = std::array::from_fn(|word| lanes.0[word][lane]);
            digests[message.index] = squeeze(&first);
            for word in &mut lanes.0 {
                word[lane] = 0;
            }
            *slot = None;
        }
    }
}

/// The order in which lanes stay full longest: the longest messages are not left for the end.
fn longest_first(inputs: &[&[u8]]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..inputs.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(inputs[index].len() / RATE));
    order
}
