//! Randomness that Python gives.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardwire_core::sds::Randomness;

/// How many shares the system is asked for at once.
const SHARES: usize = 64;
const SHARE_BYTES: usize = size_of::<u64>();
/// Significant bits of an `f64`.
const SHARE_BITS: u32 = f64::MANTISSA_DIGITS;

/// A `random.Random`.
pub struct PythonRandom {
    source: Py<PyAny>,
    /// Its method `random`, which is called once for each message that leaves.
    random: Option<Py<PyAny>>,
    /// Of the system's own randomness, which nobody draws again: shares that were not given yet. They say when
    /// something is done, once for each message that leaves; ids are drawn one by one.
    shares: Option<Vec<f64>>,
}

impl PythonRandom {
    pub fn new(py: Python<'_>, source: Py<PyAny>) -> Self {
        let class = py
            .import("random")
            .and_then(|random| random.getattr("SystemRandom"));
        let is_system = class.is_ok_and(|class| source.bind(py).get_type().is(&class));
        let random = source.bind(py).getattr(intern!(py, "random")).ok();
        PythonRandom {
            source,
            random: random.map(Bound::unbind),
            shares: is_system.then(Vec::new),
        }
    }
}

impl Randomness for PythonRandom {
    fn unit(&mut self) -> f64 {
        if let Some(share) = self.shares.as_mut().and_then(Vec::pop) {
            return share;
        }
        // Whatever a broken source gives, the machine goes on.
        Python::attach(|py| {
            if let Some(shares) = &mut self.shares {
                let source = self.source.bind(py);
                let drawn = source.call_method1(intern!(py, "randbytes"), (SHARES * SHARE_BYTES,));
                if let Ok(drawn) = drawn.and_then(|drawn| Ok(drawn.cast_into::<PyBytes>()?)) {
                    let (drawn, _) = drawn.as_bytes().as_chunks();
                    shares.extend(
                        drawn
                            .iter()
                            .map(|drawn| share_of(u64::from_ne_bytes(*drawn))),
                    );
                }
                return shares.pop().unwrap_or(0.5);
            }
            let random = self.random.as_ref();
            let drawn = random.and_then(|random| random.bind(py).call0().ok());
            let drawn: f64 = drawn.and_then(|drawn| drawn.extract().ok()).unwrap_or(0.5);
            if (0.0..1.0).contains(&drawn) {
                drawn
            } else {
                0.5
            }
        })
    }

    fn bits(&mut self) -> u64 {
        Python::attach(|py| {
            let drawn = self
                .source
                .bind(py)
                .call_method1(intern!(py, "getrandbits"), (64,));
            drawn.and_then(|drawn| drawn.extract()).unwrap_or(0)
        })
    }
}

/// A share from 0 to below 1, as `random.random` makes it of its bits.
fn share_of(bits: u64) -> f64 {
    (bits >> (u64::BITS - SHARE_BITS)) as f64 / (1_u64 << SHARE_BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn a_share_is_below_one() {
        assert_eq!((share_of(0), share_of(1 << 63)), (0.0, 0.5));
        let most = share_of(u64::MAX);
        assert!(most < 1.0 && most > 1.0 - 1e-15, "{most}");
    }
}
