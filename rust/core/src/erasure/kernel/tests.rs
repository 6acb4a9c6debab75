//! Every kernel of the machine against the definition of the product.

use super::*;
use crate::erasure::ErasureCode;
use crate::erasure::geometry::Geometry;

/// Bytes without a pattern that a kernel could share.
pub(super) fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    (0..len)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .collect()
}

/// The product by its definition, a byte at a time.
pub(super) fn definition(matrix: &Matrix, inputs: &[&[u8]], shard_len: usize) -> Vec<Vec<u8>> {
    let mut outputs = vec![vec![0; shard_len]; matrix.rows];
    for (row, output) in outputs.iter_mut().enumerate() {
        for (column, input) in inputs.iter().enumerate() {
            let coefficient = matrix.coefficient(row, column);
            for (sum, &byte) in output.iter_mut().zip(*input) {
                *sum ^= matrix.field.product(coefficient, byte);
            }
        }
    }
    outputs
}

fn assert_kernel(kernel: Kernel, matrix: &Matrix, inputs: &[&[u8]], shard_len: usize) {
    // An output starts one byte off alignment and has neighbours that must stay as they are.
    let mut outputs = vec![vec![MaybeUninit::new(0xA5); shard_len + 2]; matrix.rows];
    let mut targets: Vec<_> = outputs
        .iter_mut()
        .map(|out| &mut out[1..=shard_len])
        .collect();
    kernel.run(matrix, inputs, &mut targets);
    for (output, expected) in outputs.iter().zip(definition(matrix, inputs, shard_len)) {
        // SAFETY: the bytes were initialised above.
        let bytes: Vec<u8> = output
            .iter()
            .map(|byte| unsafe { byte.assume_init() })
            .collect();
        assert_eq!(
            bytes[1..=shard_len],
            expected,
            "{:?} {shard_len}",
            kernel.set
        );
        assert_eq!(
            (bytes[0], bytes[shard_len + 1]),
            (0xA5, 0xA5),
            "{:?}",
            kernel.set
        );
    }
}

#[test]
fn every_length_around_the_steps_and_blocks() {
    let around = |length: usize| length - 1..=length + 1;
    let mut lengths: Vec<usize> = (1..=2 * STEP_MAX + 1).collect();
    lengths.extend(
        [4, 6, 8]
            .into_iter()
            .flat_map(|steps| around(steps * STEP_MAX)),
    );
    lengths.extend(
        around(BLOCK)
            .chain(around(BLOCK + STEP_MAX))
            .chain(around(2 * BLOCK)),
    );
    let shards: Vec<Vec<u8>> = (0..3).map(|seed| noise(2 * BLOCK + 2, seed)).collect();
    // Leopard's only parity shard is a sum.
    let codes = [ErasureCode::Leopard, ErasureCode::Vandermonde];
    for (code, m) in codes.into_iter().flat_map(|code| [(code, 1), (code, 2)]) {
        let matrix = Geometry::new(code, 3, m).encoding_matrix();
        for &len in &lengths {
            let inputs: Vec<&[u8]> = shards.iter().map(|shard| &shard[1..=len]).collect();
            for kernel in supported() {
                assert_kernel(kernel, &matrix, &inputs, len);
            }
        }
    }
}

#[test]
fn every_row_count_and_group() {
    let shards: Vec<Vec<u8>> = (0..40).map(|seed| noise(300, seed)).collect();
    for k in [1, 2, GROUP_MAX - 1, GROUP_MAX, GROUP_MAX + 1, 40] {
        for m in 1..=2 * ROWS_MAX + 1 {
            let matrix = Geometry::new(ErasureCode::Vandermonde, k, m).encoding_matrix();
            let inputs: Vec<&[u8]> = shards[..k].iter().map(Vec::as_slice).collect();
            for kernel in supported() {
                assert_kernel(kernel, &matrix, &inputs, 300);
            }
        }
    }
}

#[test]
fn short_inputs_count_as_padded() {
    let shards: Vec<Vec<u8>> = (0..20).map(|seed| noise(2 * BLOCK + 70, seed)).collect();
    let matrix = Geometry::new(ErasureCode::Leopard, 20, 5).encoding_matrix();
    for pass in 0..20 {
        let inputs: Vec<&[u8]> = shards
            .iter()
            .enumerate()
            .map(|(index, shard)| &shard[..(index * 977 + pass * 431) % (shard.len() + 1)])
            .collect();
        for kernel in supported() {
            assert_kernel(kernel, &matrix, &inputs, 2 * BLOCK + 70);
        }
    }
    for kernel in supported() {
        assert_kernel(kernel, &matrix, &[&[][..]; 20], 2 * BLOCK + 70);
    }
}

#[cfg(all(unix, not(miri)))]
#[test]
fn nothing_outside_the_shards_is_touched() {
    use crate::guard_pages::GuardedBytes;

    let matrix = Geometry::new(ErasureCode::Vandermonde, 3, 3).encoding_matrix();
    let mut inputs: Vec<GuardedBytes> = (0..3).map(|_| GuardedBytes::new(BLOCK + 300)).collect();
    let mut outputs: Vec<GuardedBytes> = (0..3).map(|_| GuardedBytes::new(BLOCK + 300)).collect();
    let lengths = (1..=2 * STEP_MAX + 1)
        .chain(BLOCK - 1..=BLOCK + 1)
        .chain([BLOCK + 300]);
    for (len, at_end) in lengths.flat_map(|len| [(len, false), (len, true)]) {
        // The last input is short, so that padding is tried as well.
        let inputs: Vec<&[u8]> = inputs
            .iter_mut()
            .enumerate()
            .map(|(index, bytes)| (len - len / 3 * (index / 2), bytes))
            .map(|(len, bytes)| {
                if at_end {
                    bytes.last(len)
                } else {
                    bytes.first(len)
                }
            })
            .enumerate()
            .map(|(index, bytes)| {
                bytes.copy_from_slice(&noise(bytes.len(), index as u64));
                &*bytes
            })
            .collect();
        let expected = definition(&matrix, &inputs, len);
        for kernel in supported() {
            let mut targets: Vec<&mut [u8]> = outputs
                .iter_mut()
                .map(|bytes| {
                    if at_end {
                        bytes.last(len)
                    } else {
                        bytes.first(len)
                    }
                })
                .collect();
            let mut uninit: Vec<&mut [MaybeUninit<u8>]> =
                targets.iter_mut().map(|target| as_uninit(target)).collect();
            kernel.run(&matrix, &inputs, &mut uninit);
            assert_eq!(targets, expected, "{:?} {len}", kernel.set);
        }
    }
}

/// Small enough for an interpreter, which sees every access and every use of undefined bytes: each
/// count of rows over whole steps and a tail, a sum, and groups of sources beyond one.
#[test]
fn edges_of_panels_and_steps() {
    let few_rows = [
        (ErasureCode::Leopard, 2, 1),
        (ErasureCode::Vandermonde, GROUP_OF_FEW_ROWS + 1, 1),
        (ErasureCode::Vandermonde, 2, 2),
    ];
    let many_rows = (3..=ROWS_MAX + 1).map(|m| (ErasureCode::Vandermonde, 2, m));
    let groups = [(ErasureCode::Vandermonde, GROUP_MAX + 1, 3)];
    for (code, k, m) in few_rows.into_iter().chain(many_rows).chain(groups) {
        // A row or two go by wide steps as far as these reach.
        let wide = if m <= FEW_ROWS_MAX { 4 } else { 0 };
        let len = (wide + 1) * STEP_MAX + 1;
        let shards: Vec<Vec<u8>> = (0..k as u64).map(|seed| noise(len + 1, seed)).collect();
        let matrix = Geometry::new(code, k, m).encoding_matrix();
        // Every other input ends early and is padded.
        let inputs: Vec<&[u8]> = shards
            .iter()
            .enumerate()
            .map(|(index, shard)| &shard[1..=len - len / 2 * (index % 2)])
            .collect();
        for kernel in supported() {
            assert_kernel(kernel, &matrix, &inputs, len);
        }
    }
}

/// Interpreters are told that the machine has everything: then no kernel may be left out.
#[cfg(miri)]
#[test]
fn edges_are_tried_on_all_kernels() {
    use crate::cpu::InstructionSet::*;

    let sets: Vec<_> = supported().iter().map(|kernel| kernel.set).collect();
    #[cfg(target_arch = "x86_64")]
    assert_eq!(sets, [Portable, Ssse3, Avx2, Gfni256, Gfni512]);
    #[cfg(target_arch = "aarch64")]
    assert_eq!(sets, [Portable, Neon]);
}
