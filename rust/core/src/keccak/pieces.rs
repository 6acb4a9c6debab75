//! Many messages at once, each lying in pieces: whole blocks are absorbed where they lie, and only
//! a block that spans pieces is gathered.

use super::kernel::{Kernel, Many};
use super::many::Streams;
use super::padding::padded;
use super::state::{Lanes, squeeze};
use super::{DIGEST_LEN, Keccak256, RATE};

/// A message in a lane: what is left of its present piece, and the pieces after it.
struct Message<'a> {
    index: usize,
    rest: &'a [u8],
    following: &'a [&'a [u8]],
}

/// What a message gives to absorb next.
enum Next {
    /// As many blocks from where its present piece stands.
    InPlace(usize),
    /// One block out of several pieces, gathered.
    Gathered,
    /// Its last block, gathered and padded.
    Last,
}

/// `digests[i]` becomes the digest of the pieces of `inputs[i]`; both have one length.
pub(super) fn digests_of_pieces(
    kernel: &Kernel,
    inputs: &[&[&[u8]]],
    digests: &mut [[u8; DIGEST_LEN]],
) {
    match &kernel.many {
        Many::InTurn => {
            for (pieces, digest) in inputs.iter().zip(digests) {
                let mut keccak = Keccak256::new();
                pieces.iter().for_each(|piece| keccak.update(piece));
                *digest = keccak.finalize();
            }
        }
        #[cfg(target_arch = "x86_64")]
        Many::Four(streams) => run(streams, inputs, digests),
        #[cfg(target_arch = "x86_64")]
        Many::Eight(streams) => run(streams, inputs, digests),
    }
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn run<const N: usize>(
    streams: &Streams<N>,
    inputs: &[&[&[u8]]],
    digests: &mut [[u8; DIGEST_LEN]],
) {
    // The longest first: lanes then stay full longest.
    let mut order: Vec<usize> = (0..inputs.len()).collect();
    order.sort_by_cached_key(|&index| {
        std::cmp::Reverse(inputs[index].iter().map(|piece| piece.len()).sum::<usize>())
    });
    let mut waiting = order.into_iter().map(|index| Message {
        index,
        rest: &[],
        following: inputs[index],
    });
    let mut messages: [Option<Message<'_>>; N] = [const { None }; N];
    let mut lanes = Lanes([[0; N]; 25]);
    loop {
        for message in messages.iter_mut().filter(|message| message.is_none()) {
            *message = waiting.next();
        }
        if messages.iter().all(Option::is_none) {
            return;
        }
        advance(streams, &mut lanes, &mut messages, digests);
    }
}

/// Absorbs as many blocks as every message has in place, or one where some message gathers.
fn advance<const N: usize>(
    streams: &Streams<N>,
    lanes: &mut Lanes<N>,
    messages: &mut [Option<Message<'_>>; N],
    digests: &mut [[u8; DIGEST_LEN]],
) {
    let mut gathered = [[0; RATE]; N];
    let mut next: [Option<Next>; N] = [const { None }; N];
    let mut blocks = [None; N];
    for lane in 0..N {
        let Some(message) = &mut messages[lane] else {
            continue;
        };
        let step = message.next(&mut gathered[lane]);
        blocks[lane] = Some(match step {
            Next::InPlace(_) => message.rest.as_ptr(),
            Next::Gathered | Next::Last => gathered[lane].as_ptr(),
        });
        next[lane] = Some(step);
    }
    let in_place = next.iter().flatten().map(|next| match next {
        Next::InPlace(count) => *count,
        Next::Gathered | Next::Last => 1,
    });
    let count = in_place.min().unwrap_or(1);
    // A lane without a message repeats another's work: its state is never read.
    let some = blocks
        .iter()
        .flatten()
        .next()
        .copied()
        .unwrap_or(gathered[0].as_ptr());
    let blocks = blocks.map(|block| block.unwrap_or(some));
    // SAFETY: `kernel` offers only what the machine has. Each pointer has `count` blocks behind it:
    // those of a piece with at least as many, or, where `count` is 1, a gathered block.
    unsafe { (streams.absorb_many)(lanes, blocks, count) };

    for lane in 0..N {
        let Some(message) = &mut messages[lane] else {
            continue;
        };
        match next[lane] {
            Some(Next::InPlace(_)) => message.rest = &message.rest[count * RATE..],
            Some(Next::Gathered) | None => {}
            Some(Next::Last) => {
                digests[message.index] = squeeze(&lanes.0.map(|word| word[lane]));
                for word in &mut lanes.0 {
                    word[lane] = 0;
                }
                messages[lane] = None;
            }
        }
    }
}

impl Message<'_> {
    /// What to absorb next; a block that spans pieces is taken off them and put in `block`.
    fn next(&mut self, block: &mut [u8; RATE]) -> Next {
        let mut filled = 0;
        loop {
            if filled == 0 && self.rest.len() >= RATE {
                return Next::InPlace(self.rest.len() / RATE);
            }
            let taken = self.rest.len().min(RATE - filled);
            let (head, rest) = self.rest.split_at(taken);
            block[filled..filled + taken].copy_from_slice(head);
            filled += taken;
            self.rest = rest;
            if filled == RATE {
                return Next::Gathered;
            }
            let Some((piece, following)) = self.following.split_first() else {
                *block = padded(&block[..filled]);
                return Next::Last;
            };
            self.rest = piece;
            self.following = following;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{keccak256, kernel};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_hash_as_their_whole(
            lengths in vec(vec(prop_oneof![0usize..3, 130usize..140, 0usize..2000], 0..6), 0..20)
        ) {
            let data: Vec<u8> = (0..2000u32).map(|i| (i * 7 % 251) as u8).collect();
            let messages: Vec<Vec<&[u8]>> = lengths
                .iter()
                .map(|lengths| lengths.iter().map(|&length| &data[2000 - length..]).collect())
                .collect();
            let inputs: Vec<&[&[u8]]> = messages.iter().map(|pieces| &pieces[..]).collect();
            let expected: Vec<_> = messages.iter().map(|pieces| keccak256(&pieces.concat())).collect();
            for kernel in kernel::supported() {
                let mut digests = vec![[0; DIGEST_LEN]; inputs.len()];
                digests_of_pieces(&kernel, &inputs, &mut digests);
                prop_assert_eq!(&digests, &expected);
            }
        }
    }
}
