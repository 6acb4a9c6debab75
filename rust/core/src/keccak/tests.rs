//! Every kernel of the machine against `tiny-keccak`.

use proptest::collection::vec;
use proptest::prelude::*;
use tiny_keccak::Hasher;

use super::kernel::supported;
use super::*;

fn oracle(data: &[u8]) -> [u8; DIGEST_LEN] {
    let mut hasher = tiny_keccak::Keccak::v256();
    hasher.update(data);
    let mut digest = [0; DIGEST_LEN];
    hasher.finalize(&mut digest);
    digest
}

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * i % 251) as u8).collect()
}

fn assert_many(inputs: &[&[u8]]) {
    let expected: Vec<_> = inputs.iter().map(|input| oracle(input)).collect();
    for kernel in supported() {
        let mut digests = vec![[0; DIGEST_LEN]; inputs.len()];
        digests_of(&kernel, inputs, &mut digests);
        assert_eq!(digests, expected, "{:?}", kernel.set);
    }
}

#[test]
fn one_message_of_every_length_at_every_alignment() {
    let data = message(3 * RATE + 12);
    for start in 0..9 {
        for end in start..data.len() {
            let expected = oracle(&data[start..end]);
            for kernel in supported() {
                assert_eq!(
                    digest_of(&kernel, &data[start..end]),
                    expected,
                    "{:?}",
                    kernel.set
                );
            }
        }
    }
}

#[test]
fn many_messages_of_one_length() {
    let data = message(2 * RATE + 40);
    for count in 0..=20 {
        for len in [
            0,
            1,
            32,
            RATE - 1,
            RATE,
            RATE + 1,
            2 * RATE - 1,
            2 * RATE,
            2 * RATE + 1,
        ] {
            let inputs: Vec<&[u8]> = (0..count).map(|start| &data[start..start + len]).collect();
            assert_many(&inputs);
        }
    }
}

#[test]
fn one_long_message_among_short_ones() {
    let data = message(50 * RATE);
    for place in 0..12 {
        let mut inputs: Vec<&[u8]> = (0..12).map(|i| &data[..i * 30]).collect();
        inputs[place] = &data;
        assert_many(&inputs);
    }
}

/// Lanes in turn, by the portable permutation: what tries the scheduling of lanes alone.
///
/// # Safety
/// There are `count * RATE` bytes behind each pointer.
#[cfg(target_arch = "x86_64")]
unsafe fn absorb_in_turn<const N: usize>(
    lanes: &mut super::state::Lanes<N>,
    blocks: [*const u8; N],
    count: usize,
) {
    for (lane, blocks) in blocks.into_iter().enumerate() {
        // SAFETY: the caller vouches for the bytes.
        let blocks = unsafe { std::slice::from_raw_parts(blocks, count * RATE) };
        let mut state = lanes.0.map(|word| word[lane]);
        absorb_one_with(supported()[0].absorb_one, &mut state, blocks);
        for (word, absorbed) in lanes.0.iter_mut().zip(state) {
            word[lane] = absorbed;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn eight_lanes_are_scheduled_on_any_machine() {
    let absorb_one = supported()[0].absorb_one;
    let data = message(40 * RATE);
    for seed in 0..200 {
        let lengths = (0..seed % 23).map(|i| (i * 7919 + seed * 104_729) % (40 * RATE));
        let inputs: Vec<&[u8]> = lengths.map(|len| &data[..len >> (len % 5)]).collect();
        let expected: Vec<_> = inputs.iter().map(|input| oracle(input)).collect();
        let mut digests = vec![[0; DIGEST_LEN]; inputs.len()];
        let streams = super::many::Streams {
            absorb_many: absorb_in_turn::<8>,
            absorb_one,
            alone_max: 2,
        };
        streams.run(&inputs, &mut digests);
        assert_eq!(digests, expected);
    }
}

#[cfg(all(unix, not(miri)))]
#[test]
fn nothing_outside_the_messages_is_touched() {
    use crate::guard_pages::GuardedBytes;

    let mut buffers: Vec<GuardedBytes> = (0..9).map(|_| GuardedBytes::new(3 * RATE)).collect();
    for (len, at_end) in (0..=3 * RATE).flat_map(|len| [(len, false), (len, true)]) {
        let inputs: Vec<&[u8]> = buffers
            .iter_mut()
            .map(|bytes| {
                if at_end {
                    bytes.last(len)
                } else {
                    bytes.first(len)
                }
            })
            .map(|bytes| {
                bytes.copy_from_slice(&message(len));
                &*bytes
            })
            .collect();
        assert_many(&inputs);
    }
}

/// Small enough for an interpreter, which sees every access and every use of undefined bytes.
#[test]
fn edges_of_blocks_and_lanes() {
    let data = message(2 * RATE + 12);
    for len in [0, RATE - 1, RATE, RATE + 1] {
        let input = &data[3..3 + len];
        for kernel in supported() {
            assert_eq!(digest_of(&kernel, input), oracle(input), "{:?}", kernel.set);
        }
    }
    // A lane more than the widest kernel has: one of them takes a second message.
    let lengths = [0, 1, RATE - 1, RATE, RATE + 1, 2 * RATE, 2 * RATE + 1, 5, 9];
    let inputs: Vec<&[u8]> = lengths.map(|len| &data[len % 11..][..len]).to_vec();
    assert_many(&inputs);
}

/// Interpreters are told that the machine has everything: then no kernel may be left out.
#[cfg(miri)]
#[test]
fn edges_are_tried_on_all_kernels() {
    use crate::cpu::InstructionSet::*;

    let sets: Vec<_> = supported().iter().map(|kernel| kernel.set).collect();
    #[cfg(target_arch = "x86_64")]
    assert_eq!(sets, [Portable, Avx2, Gfni512]);
    #[cfg(target_arch = "aarch64")]
    assert_eq!(sets, [Portable]);
}

proptest! {
    #[test]
    fn many_messages_of_any_lengths(lengths in vec(0usize..5 * RATE, 0..40)) {
        let data = message(5 * RATE + 40);
        let inputs: Vec<&[u8]> =
            lengths.iter().enumerate().map(|(i, len)| &data[i..i + len]).collect();
        assert_many(&inputs);
    }

    #[test]
    fn any_pieces_make_the_whole(lengths in vec(0usize..2 * RATE, 0..10)) {
        let data = message(lengths.iter().sum());
        let mut keccak = Keccak256::new();
        let mut start = 0;
        for len in lengths {
            keccak.update(&data[start..start + len]);
            start += len;
        }
        prop_assert_eq!(keccak.finalize(), oracle(&data));
    }
}
