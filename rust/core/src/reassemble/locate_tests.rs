use proptest::prelude::*;

use super::*;
use crate::erasure::ErasureCode;

fn shards(code: ErasureCode, k: usize, m: usize, shard_len: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed | 1;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut all: Vec<Vec<u8>> = (0..k)
        .map(|_| (0..shard_len).map(|_| byte()).collect())
        .collect();
    let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let parity = erasure::encode(code, &data, m, shard_len).unwrap();
    all.extend(parity);
    all
}

/// Distinct ordinals drawn from a seed.
fn draw(seed: u64, count: usize, n: usize) -> Vec<usize> {
    let mut ordinals: Vec<usize> = (0..n).collect();
    let mut state = seed;
    for position in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        ordinals.swap(position, position + (state >> 33) as usize % (n - position));
    }
    ordinals.truncate(count);
    ordinals
}

fn located(
    code: ErasureCode,
    (k, m): (usize, usize),
    lost: usize,
    bad: usize,
    seed: u64,
    corrupt: impl Fn(&mut Vec<u8>, usize),
) -> (Vec<usize>, Located) {
    let mut all = shards(code, k, m, 128, seed);
    let drawn = draw(seed, lost + bad, k + m);
    let mut expected = drawn[lost..].to_vec();
    expected.sort_unstable();
    expected
        .iter()
        .enumerate()
        .for_each(|(number, ordinal)| corrupt(&mut all[*ordinal], number));
    let held = all
        .iter()
        .enumerate()
        .map(|(ordinal, shard)| (!drawn[..lost].contains(&ordinal)).then_some(shard.as_slice()));
    let word = Word {
        code,
        shards: held.collect(),
        data_count: k,
        parity_count: m,
        shard_len: 128,
    };
    (expected, word.locate(&mut unbounded()))
}

fn unbounded() -> Search {
    Search {
        work_max: u64::MAX,
        ..Search::default()
    }
}

const CODES: [ErasureCode; 2] = [ErasureCode::Leopard, ErasureCode::Vandermonde];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, max_global_rejects: 20_000, ..ProptestConfig::default()
    })]

    #[test]
    fn names_up_to_r_minus_1_shards_of_random_corruption(
        code in prop::sample::select(CODES.to_vec()),
        k in 1usize..=64, m in 2usize..=8, lost in 0usize..=6, bad in 0usize..=7, seed: u64,
    ) {
        let m = if code == ErasureCode::Leopard { m.min(k) } else { m };
        prop_assume!(m >= 2 && lost + bad < m);
        let (expected, found) = located(code, (k, m), lost, bad, seed, |shard, number| {
            let mut state = seed ^ (number as u64 + 1) << 32;
            for byte in shard {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
                *byte ^= (state >> 40) as u8;
            }
        });
        prop_assert_eq!(found, Located::Bad(expected));
    }

    #[test]
    fn names_up_to_half_of_r_shards_of_crafted_corruption(
        code in prop::sample::select(CODES.to_vec()),
        k in 2usize..=64, m in 2usize..=8, lost in 0usize..=6, bad in 1usize..=4, seed: u64,
        offset in 0usize..128, flip in 1u8..,
    ) {
        let m = if code == ErasureCode::Leopard { m.min(k) } else { m };
        prop_assume!(m >= 2 && lost < m && 2 * bad <= m - lost && bad < m - lost);
        // The same byte of every bad shard: the differences span one dimension.
        let (expected, found) = located(code, (k, m), lost, bad, seed, |shard, _| {
            shard[offset] ^= flip;
        });
        prop_assert_eq!(found, Located::Bad(expected));
    }
}

#[test]
fn shards_of_another_code_are_not_explained() {
    let all = shards(ErasureCode::Leopard, 10, 4, 128, 3);
    let word = Word {
        code: ErasureCode::Vandermonde,
        shards: all.iter().map(|shard| Some(shard.as_slice())).collect(),
        data_count: 10,
        parity_count: 4,
        shard_len: 128,
    };
    assert_eq!(word.locate(&mut unbounded()), Located::Unknown);
}

#[test]
fn guesses_find_more_crafted_corruption_than_half_of_r() {
    for code in CODES {
        for (bad, guess_work_max, found) in [(4, 0, 8), (5, 0, 0), (5, 1 << 20, 7)] {
            let hits = (1..=8).filter(|seed| {
                let mut all = shards(code, 24, 8, 128, *seed);
                let mut expected = draw(*seed, bad, 32);
                expected.sort_unstable();
                // One error in each, at one offset: the differences span a single dimension.
                for ordinal in &expected {
                    all[*ordinal][77] ^= (*ordinal as u8) | 64;
                }
                let word = Word {
                    code,
                    shards: all.iter().map(|shard| Some(shard.as_slice())).collect(),
                    data_count: 24,
                    parity_count: 8,
                    shard_len: 128,
                };
                let mut search = Search {
                    guess_work_max,
                    ..unbounded()
                };
                word.locate(&mut search) == Located::Bad(expected)
            });
            // Five errors may also be read as four or five others: the hash tells them apart.
            assert!(hits.count().abs_diff(found) <= 1, "{code}, {bad} bad");
        }
    }
}

#[test]
fn corruption_that_the_samples_miss_is_found_in_full() {
    let mut all = shards(ErasureCode::Leopard, 20, 6, 64 * 1024, 5);
    all[3][30_001] ^= 1;
    all[11][47_777] ^= 9;
    let word = Word {
        code: ErasureCode::Leopard,
        shards: all.iter().map(|shard| Some(shard.as_slice())).collect(),
        data_count: 20,
        parity_count: 6,
        shard_len: 64 * 1024,
    };
    let mut search = unbounded();
    assert_eq!(word.locate(&mut search), Located::Bad(vec![3, 11]));
    assert!(search.found.contains(&30_001) && search.found.contains(&47_777));
    // What was found once is looked at first.
    let mut again = Search {
        suspects: search.found,
        ..unbounded()
    };
    assert_eq!(word.locate(&mut again), Located::Bad(vec![3, 11]));
    assert_eq!(again.found, [0; 0]);
}

/// Each check of whole shards finds more that the last one could not: after what it may take a search
/// stops, and tells what it found.
#[test]
fn a_search_stops_at_what_it_may_take() {
    let (k, m, shard_len) = (48, 40, 16 * 1024);
    let mut all = shards(ErasureCode::Leopard, k, m, shard_len, 9);
    // Nothing at the offsets that are sampled; at most half of the shards to spare at each other one.
    for (number, shard) in all.iter_mut().take(30).enumerate() {
        for group in number.saturating_sub(2)..=number {
            (0..8).for_each(|at| shard[1000 + 8 * 61 * group + at] ^= 1);
        }
    }
    let word = Word {
        code: ErasureCode::Leopard,
        shards: all.iter().map(|shard| Some(shard.as_slice())).collect(),
        data_count: k,
        parity_count: m,
        shard_len,
    };
    let mut free = unbounded();
    let located = word.locate(&mut free);
    let mut bound = Search::default();
    assert_eq!(word.locate(&mut bound), Located::Unknown);
    let check = work_of((k, m), shard_len);
    assert!(bound.work <= check + check / 2, "{} of {check}", bound.work);
    assert!(!bound.found.is_empty());
    assert_eq!(located, Located::Bad((0..30).collect()));
    assert!(free.work > bound.work);
}

/// What bears no relation to any code is seen to only when the differences span all there is: each of
/// them was taken apart by all before it.
#[test]
fn a_look_that_finds_nothing_is_paid_for() {
    let (k, m) = (128, 55);
    let noise = shards(ErasureCode::Leopard, k + m, 1, 1024, 9);
    let word = Word {
        code: ErasureCode::Leopard,
        shards: noise[..k + m].iter().map(|s| Some(s.as_slice())).collect(),
        data_count: k,
        parity_count: m,
        shard_len: 1024,
    };
    let mut search = unbounded();
    assert_eq!(word.locate(&mut search), Located::Unknown);
    let offsets = stretches_of(m) * STRETCH;
    let apart = (m * (m - 1) / 2 * m) as u64;
    assert!(search.work >= look_work((k, m), offsets) + apart * 9 / 10);
}
