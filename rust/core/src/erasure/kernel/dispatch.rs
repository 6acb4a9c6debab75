//! The kernels that there are, and which of them runs.

use std::sync::OnceLock;

use super::butterfly::{self, Unit};
#[cfg(target_arch = "aarch64")]
use super::neon::Lookup;
use super::panel::{self, Panel, Product, Register};
use super::portable::Masks;
#[cfg(target_arch = "x86_64")]
use super::x86_gfni::{Affine256, Affine512};
#[cfg(target_arch = "x86_64")]
use super::x86_shuffle::{Shuffle128, Shuffle256};
use super::{ROWS_MAX, STEP_MAX};
use crate::cpu::{self, InstructionSet};

/// A way of multiplying, for the machine at hand.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    pub set: InstructionSet,
    /// Bytes of a shard per step; a panel's length is a multiple of it. Divides `BLOCK`.
    pub(super) step: usize,
    /// The most output rows of a panel.
    pub(super) rows: usize,
    /// Multiplies a panel. The machine must have `set` and the panel's pointers must be good.
    pub(super) multiply: unsafe fn(&Panel<'_>),
    /// Transforms a unit, under the same conditions.
    pub(super) transform: unsafe fn(&Unit<'_>),
}

/// The kernel of an instruction set: the shared loops, compiled with its features.
macro_rules! kernel {
    (
        $set:ident: $product:ty, rows $rows:literal, registers $width:literal
        $(, features $features:literal)?
    ) => {{
        $(#[target_feature(enable = $features)])?
        unsafe fn multiply(panel: &Panel<'_>) {
            // SAFETY: the caller vouches for the panel and the instruction set.
            unsafe { panel::multiply::<$product, $rows, $width>(panel) }
        }

        $(#[target_feature(enable = $features)])?
        unsafe fn transform(unit: &Unit<'_>) {
            // SAFETY: the caller vouches for the unit and the instruction set.
            unsafe { butterfly::transform::<$product>(unit) }
        }

        const STEP: usize = $width * <$product as Product>::Register::LEN;
        const { assert!($rows <= ROWS_MAX && STEP_MAX % STEP == 0) };
        Kernel {
            set: InstructionSet::$set,
            step: STEP,
            rows: $rows,
            multiply,
            transform,
        }
    }};
}

/// Every kernel that this machine can run, least first.
pub(crate) fn supported() -> Vec<Kernel> {
    #[allow(unused_mut)]
    let mut kernels = vec![kernel!(Portable: Masks, rows 4, registers 1)];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2");
        let gfni = is_x86_feature_detected!("gfni");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        if is_x86_feature_detected!("ssse3") {
            kernels.push(kernel!(Ssse3: Shuffle128, rows 4, registers 2, features "ssse3"));
        }
        if avx2 {
            kernels.push(kernel!(Avx2: Shuffle256, rows 4, registers 2, features "avx2"));
        }
        if avx2 && gfni {
            kernels.push(kernel!(Gfni256: Affine256, rows 4, registers 2, features "avx2,gfni"));
        }
        if avx512 && gfni {
            kernels.push(kernel!(
                Gfni512: Affine512, rows 8, registers 2, features "avx512f,avx512bw,gfni"
            ));
        }
    }
    // NEON is part of every aarch64 target's baseline.
    #[cfg(target_arch = "aarch64")]
    kernels.push(kernel!(Neon: Lookup, rows 4, registers 2));
    kernels
}

/// The best supported kernel within the ceiling that `cpu` sets.
pub(crate) fn selected() -> Kernel {
    static SELECTED: OnceLock<Kernel> = OnceLock::new();
    *SELECTED.get_or_init(|| {
        let allowed = supported()
            .into_iter()
            .filter(|kernel| kernel.set <= cpu::ceiling());
        allowed
            .max_by_key(|kernel| kernel.set)
            .expect("the portable kernel is always allowed")
    })
}
