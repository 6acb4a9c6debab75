//! Which instruction sets the kernels of `keccak` and `erasure` may use.
//!
//! Each kernel module picks its own best among what the processor has and what is allowed here.
//! This module detects nothing itself.

use std::env;
use std::str::FromStr;
use std::sync::OnceLock;

/// Environment variable that lowers the ceiling: the name of an [`InstructionSet`].
///
/// Every kernel above the ceiling is left aside in favour of the best one below it. Results do not
/// depend on it, only speed; tests use it to run what a lesser machine would run. It is read once
/// per process. A value that names no instruction set is ignored.
pub const KERNEL_VARIABLE: &str = "SHARDWIRE_KERNEL";

/// Levels of vector instructions, least first; a level allows everything below it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum InstructionSet {
    /// No vector instructions beyond the compilation target's baseline. Hashing and `vandermonde`
    /// go through the `tiny-keccak` and `reed-solomon-erasure` crates.
    Portable,
    /// NEON byte shuffles (aarch64).
    Neon,
    /// SSSE3 byte shuffles.
    Ssse3,
    /// AVX2, and BMI1 and BMI2 beside it.
    Avx2,
    /// GFNI with 256-bit registers.
    Gfni256,
    /// GFNI with 512-bit registers, and AVX-512 altogether.
    Gfni512,
}

impl InstructionSet {
    /// Every level, least first.
    pub const ALL: [Self; 6] = [
        Self::Portable,
        Self::Neon,
        Self::Ssse3,
        Self::Avx2,
        Self::Gfni256,
        Self::Gfni512,
    ];

    /// The name used in [`KERNEL_VARIABLE`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Gfni256 => "gfni256",
            Self::Gfni512 => "gfni512",
        }
    }
}

/// A string that names no [`InstructionSet`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name:?} is no instruction set: portable, neon, ssse3, avx2, gfni256 or gfni512")]
pub struct InstructionSetError {
    /// What was given.
    pub name: String,
}

impl FromStr for InstructionSet {
    type Err = InstructionSetError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|set| set.as_str() == name)
            .ok_or_else(|| InstructionSetError {
                name: name.to_owned(),
            })
    }
}

/// The highest level that kernels may use in this process: [`KERNEL_VARIABLE`], else no limit.
pub fn ceiling() -> InstructionSet {
    static CEILING: OnceLock<InstructionSet> = OnceLock::new();
    *CEILING.get_or_init(|| {
        env::var(KERNEL_VARIABLE)
            .ok()
            .and_then(|name| name.parse().ok())
            .unwrap_or(InstructionSet::Gfni512)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_levels_ascend() {
        for set in InstructionSet::ALL {
            assert_eq!(set.as_str().parse(), Ok(set));
        }
        assert!(InstructionSet::ALL.is_sorted());
        assert!("AVX2".parse::<InstructionSet>().is_err());
    }
}
