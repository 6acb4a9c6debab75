//! The choice of a way to absorb, by what the machine has and what `cpu` allows.

use std::sync::OnceLock;

use super::RATE;
#[cfg(target_arch = "x86_64")]
use super::many::Streams;
use super::state::{AbsorbOne, absorb_one_with};
#[cfg(target_arch = "x86_64")]
use super::{x86_avx2, x86_avx512, x86_bmi2};
use crate::cpu::{self, InstructionSet};

/// How messages are absorbed: alone, and side by side where the machine can.
pub(super) struct Kernel {
    pub set: InstructionSet,
    pub absorb_one: AbsorbOne,
    pub many: Many,
}

/// How many messages are absorbed.
pub(super) enum Many {
    /// One after the other.
    InTurn,
    #[cfg(target_arch = "x86_64")]
    Four(Streams<4>),
    #[cfg(target_arch = "x86_64")]
    Eight(Streams<8>),
}

/// Every kernel that this machine can run, least first.
pub(super) fn supported() -> Vec<Kernel> {
    let portable = Kernel {
        set: InstructionSet::Portable,
        absorb_one: absorb_portable,
        many: Many::InTurn,
    };
    #[allow(unused_mut)]
    let mut kernels = vec![portable];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("avx2");
        if avx2 {
            let absorb_one: AbsorbOne = x86_bmi2::absorb;
            let absorb_many = x86_avx2::absorb;
            // A message alone goes faster than one of four lanes, but not than two of them.
            let many = Many::Four(Streams {
                absorb_many,
                absorb_one,
                alone_max: 1,
            });
            kernels.push(Kernel {
                set: InstructionSet::Avx2,
                absorb_one,
                many,
            });
        }
        if avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            let absorb_one: AbsorbOne = x86_avx512::absorb_one;
            let absorb_many = x86_avx512::absorb_eight;
            // 0.66 GB/s alone against an eighth of 2.4 GB/s in each lane.
            let many = Many::Eight(Streams {
                absorb_many,
                absorb_one,
                alone_max: 2,
            });
            kernels.push(Kernel {
                set: InstructionSet::Gfni512,
                absorb_one,
                many,
            });
        }
    }
    kernels
}

/// The best supported kernel within the ceiling that `cpu` sets.
pub(super) fn selected() -> &'static Kernel {
    static SELECTED: OnceLock<Kernel> = OnceLock::new();
    SELECTED.get_or_init(|| {
        let allowed = supported()
            .into_iter()
            .filter(|kernel| kernel.set <= cpu::ceiling());
        allowed
            .max_by_key(|kernel| kernel.set)
            .expect("the portable kernel is always allowed")
    })
}

/// Absorbs whole blocks with the selected kernel.
pub(super) fn absorb(state: &mut [u64; 25], blocks: &[u8]) {
    absorb_one_with(selected().absorb_one, state, blocks);
}

/// The oracle of all others.
fn absorb_portable(state: &mut [u64; 25], blocks: &[u8]) {
    for block in blocks.chunks_exact(RATE) {
        for (lane, bytes) in state.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane ^= u64::from_le_bytes(*bytes);
        }
        tiny_keccak::keccakf(state);
    }
}
