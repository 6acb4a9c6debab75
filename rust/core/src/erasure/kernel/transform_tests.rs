//! The transforms of every kernel against the definition of the matrix that they stand for.

use proptest::prelude::*;

use super::tests::{definition, noise};
use super::*;
use crate::erasure::ErasureCode::{self, Leopard, Vandermonde};
use crate::erasure::geometry::Geometry;

/// The transforms of a geometry and the matrix that they stand for.
fn both(code: ErasureCode, k: usize, m: usize) -> (Transform, Matrix) {
    let transform = Transform::new(code, k, m).expect("there is something to transform");
    (transform, Geometry::new(code, k, m).encoding_matrix())
}

fn assert_encodes(code: ErasureCode, k: usize, m: usize, inputs: &[&[u8]], shard_len: usize) {
    let (transform, matrix) = both(code, k, m);
    let expected = definition(&matrix, inputs, shard_len);
    for kernel in supported() {
        // An output starts one byte off alignment and has neighbours that must stay as they are.
        let mut outputs = vec![vec![0xA5; shard_len + 2]; m];
        let mut targets: Vec<_> = outputs
            .iter_mut()
            .map(|out| as_uninit(&mut out[1..=shard_len]))
            .collect();
        kernel.run_encode(&transform, inputs, &mut targets);
        for (output, expected) in outputs.iter().zip(&expected) {
            let set = kernel.set;
            assert_eq!(
                &output[1..=shard_len],
                expected,
                "{set:?} {code} ({k}, {m}) {shard_len}"
            );
            assert_eq!((output[0], output[shard_len + 1]), (0xA5, 0xA5), "{set:?}");
        }
    }
}

#[test]
fn parity_at_many_geometries() {
    let shards: Vec<Vec<u8>> = (0..224).map(|seed| noise(9 * 64 * 64, seed)).collect();
    for (k, m, shard_len) in [
        (2, 2, 64),
        (3, 2, 9 * 64),
        (3, 3, 64),
        (5, 4, 4096),
        (64, 8, 4160),
        (20, 13, 9 * 4096),
        (16, 16, 192),
        (64, 32, 5 * 1024),
        (100, 13, 128),
        (100, 50, 64),
        (128, 128, 2112),
        (200, 25, 4096),
        (224, 28, 64),
    ] {
        let inputs: Vec<&[u8]> = shards[..k]
            .iter()
            .enumerate()
            .map(|(index, shard)| &shard[..shard_len - (index % 5 / 4) * (index * 31 % shard_len)])
            .collect();
        for code in [Leopard, Vandermonde] {
            if Transform::new(code, k, m).is_some() {
                assert_encodes(code, k, m, &inputs, shard_len);
            }
        }
    }
}

/// Loses the data shards that `is_lost` names and takes the last parity shards for them.
fn assert_decodes(
    code: ErasureCode,
    m: usize,
    shards: &[Vec<u8>],
    is_lost: impl Fn(usize) -> bool,
) {
    let (k, shard_len) = (shards.len(), shards[0].len());
    let lost: Vec<usize> = (0..k).filter(|&index| is_lost(index)).collect();
    let geometry = Geometry::new(code, k, m);
    let slices: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
    let parity = definition(&geometry.encoding_matrix(), &slices, shard_len);
    let rows: Vec<usize> = (m - lost.len()..m).collect();
    let present = (0..k).filter(|index| !lost.contains(index));
    let sources: Vec<usize> = present.chain(rows.iter().map(|row| k + row)).collect();
    let matrix = geometry
        .matrix(&sources, &lost)
        .without_first(k - lost.len());

    let transform = Transform::new(code, k, m).expect("there is something to transform");
    let data: Vec<&[u8]> = slices
        .iter()
        .enumerate()
        .map(|(index, shard)| if lost.contains(&index) { &[] } else { *shard })
        .collect();
    let parity: Vec<(usize, &[u8])> = rows.iter().map(|&row| (row, &parity[row][..])).collect();
    for kernel in supported() {
        let mut outputs = vec![vec![0; shard_len]; lost.len()];
        let mut targets: Vec<_> = outputs.iter_mut().map(|out| as_uninit(out)).collect();
        kernel.run_decode(&transform, &matrix, &data, &parity, &mut targets);
        for (output, &index) in outputs.iter().zip(&lost) {
            let set = kernel.set;
            assert_eq!(
                output, &shards[index],
                "{set:?} {code} ({k}, {m}) {shard_len}"
            );
        }
    }
}

#[test]
fn lost_shards_at_many_geometries() {
    for (code, k, m, lost_count, shard_len) in [
        (Leopard, 5, 4, 3, 64),
        (Leopard, 20, 13, 13, 4096 + 64),
        (Leopard, 64, 32, 9, 192),
        (Vandermonde, 64, 8, 8, 4096 + 65),
        (Vandermonde, 64, 32, 20, 129),
        (Vandermonde, 100, 13, 13, 127),
        (Vandermonde, 200, 25, 25, 300),
    ] {
        let shards: Vec<Vec<u8>> = (0..k).map(|seed| noise(shard_len, seed)).collect();
        let stride = k as usize / lost_count;
        assert_decodes(code, m, &shards, |index| {
            index % stride == 0 && index / stride < lost_count
        });
    }
}

#[test]
fn every_length_around_the_steps_and_blocks() {
    let room = fft::BLOCK_MAX;
    let lengths = (1..=2 * STEP_MAX + 1).chain([room - 1, room, room + 1, room + STEP_MAX + 1]);
    let shards: Vec<Vec<u8>> = (0..10).map(|seed| noise(2 * room, seed)).collect();
    for len in lengths {
        let inputs: Vec<&[u8]> = shards.iter().map(|shard| &shard[1..=len]).collect();
        assert_encodes(Vandermonde, 10, 3, &inputs, len);
        assert_encodes(Leopard, 10, 3, &inputs, len.next_multiple_of(64));
        let whole: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
        assert_decodes(Vandermonde, 3, &whole, |index| index % 4 == 1);
    }
}

/// Small enough for an interpreter, which sees every access and every use of undefined bytes: units
/// of one, two and three layers, more than one unit, scales, tails and data left to the matrix.
#[test]
fn edges_of_units_and_steps() {
    for (code, k, m, shard_len) in [
        (Leopard, 3, 2, 64),
        (Leopard, 5, 3, STEP_MAX + 64),
        (Leopard, 9, 8, 64),
        (Leopard, 17, 9, 64),
        (Vandermonde, 8, 8, 63),
        (Vandermonde, 9, 3, STEP_MAX + 1),
        (Vandermonde, 17, 15, 1),
    ] {
        let shards: Vec<Vec<u8>> = (0..k as u64).map(|seed| noise(shard_len, seed)).collect();
        let inputs: Vec<&[u8]> = shards
            .iter()
            .enumerate()
            .map(|(index, shard)| &shard[..shard_len - shard_len / 2 * (index % 2)])
            .collect();
        assert_encodes(code, k, m, &inputs, shard_len);
        assert_decodes(code, m, &shards, |index| index > 0 && index <= m.min(2));
    }
}

#[cfg(all(unix, not(miri)))]
#[test]
fn nothing_outside_the_shards_is_touched() {
    use crate::guard_pages::GuardedBytes;

    for (code, k, m) in [(Leopard, 9, 3), (Vandermonde, 10, 3)] {
        let (transform, matrix) = both(code, k, m);
        let mut inputs: Vec<GuardedBytes> = (0..k).map(|_| GuardedBytes::new(8192)).collect();
        let mut outputs: Vec<GuardedBytes> = (0..m).map(|_| GuardedBytes::new(8192)).collect();
        let lengths = (1..=2 * STEP_MAX + 1).chain([fft::BLOCK_MAX, fft::BLOCK_MAX + 65]);
        for (len, at_end) in lengths.flat_map(|len| [(len, false), (len, true)]) {
            let place = |bytes: &mut GuardedBytes, len| -> *mut [u8] {
                if at_end {
                    bytes.last(len)
                } else {
                    bytes.first(len)
                }
            };
            let inputs: Vec<&[u8]> = inputs
                .iter_mut()
                .enumerate()
                .map(|(index, bytes)| {
                    // SAFETY: each buffer is borrowed once, for as long as the slice lives.
                    let bytes = unsafe { &mut *place(bytes, len - len / 3 * (index / 5 % 2)) };
                    bytes.copy_from_slice(&noise(bytes.len(), index as u64));
                    &*bytes
                })
                .collect();
            let expected = definition(&matrix, &inputs, len);
            for kernel in supported() {
                // SAFETY: as above.
                let mut targets: Vec<&mut [u8]> = outputs
                    .iter_mut()
                    .map(|bytes| unsafe { &mut *place(bytes, len) })
                    .collect();
                let mut uninit: Vec<_> = targets.iter_mut().map(|out| as_uninit(out)).collect();
                kernel.run_encode(&transform, &inputs, &mut uninit);
                assert_eq!(targets, expected, "{:?} {code} {len}", kernel.set);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Matrix and transforms of every kernel against the portable matrix.
    #[test]
    fn any_geometry_gives_the_portable_matrix_s_parity(
        is_leopard in any::<bool>(),
        (k, m) in (1usize..100, 1usize..40),
        blocks in 1usize..5,
        past in 0usize..64,
        seed in any::<u64>(),
    ) {
        let (code, m) = if is_leopard { (Leopard, m.min(k)) } else { (Vandermonde, m) };
        let shard_len = blocks * 64 - if is_leopard { 0 } else { past };
        let shards: Vec<Vec<u8>> =
            (0..k as u64).map(|index| noise(shard_len, seed ^ index)).collect();
        let inputs: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
        let matrix = Geometry::new(code, k, m).encoding_matrix();
        let mut outputs = vec![vec![vec![0; shard_len]; m]; 2 * supported().len()];
        let mut pairs = outputs.chunks_exact_mut(2);
        let transform = Transform::new(code, k, m);
        for (kernel, pair) in supported().into_iter().zip(&mut pairs) {
            for (output, use_transform) in pair.iter_mut().zip([false, true]) {
                let mut targets: Vec<_> = output.iter_mut().map(|out| as_uninit(out)).collect();
                match &transform {
                    Some(transform) if use_transform => {
                        kernel.run_encode(transform, &inputs, &mut targets);
                    }
                    _ => kernel.run(&matrix, &inputs, &mut targets),
                }
            }
        }
        for output in &outputs[1..] {
            prop_assert_eq!(output, &outputs[0]);
        }
    }
}
