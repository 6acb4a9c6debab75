//! Randomness that Python gives.

use pyo3::intern;
use pyo3::prelude::*;
use shardwire_core::sds::Randomness;

/// A `random.Random`.
pub struct PythonRandom(pub Py<PyAny>);

impl Randomness for PythonRandom {
    fn unit(&mut self) -> f64 {
        // Whatever a broken source gives, the machine goes on.
        Python::attach(|py| {
            let drawn = self.0.bind(py).call_method0(intern!(py, "random"));
            let drawn: f64 = drawn.and_then(|drawn| drawn.extract()).unwrap_or(0.5);
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
                .0
                .bind(py)
                .call_method1(intern!(py, "getrandbits"), (64,));
            drawn.and_then(|drawn| drawn.extract()).unwrap_or(0)
        })
    }
}
