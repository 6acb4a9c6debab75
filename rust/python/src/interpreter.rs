//! Which interpreter of the process imports the module.

#![allow(unsafe_code)]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Refuses a subinterpreter: types, and what is cached of Python's, are one for the process.
pub fn require_main(py: Python<'_>) -> PyResult<()> {
    // SAFETY: `py` says that this thread is attached to an interpreter, which stays valid meanwhile.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match number {
        0 => Ok(()),
        ..0 => Err(PyErr::fetch(py)),
        _ => Err(PyImportError::new_err(
            "shardwire works in the main interpreter of a process alone, and this is a \
             subinterpreter: import it in the main one, or in a process of its own",
        )),
    }
}
