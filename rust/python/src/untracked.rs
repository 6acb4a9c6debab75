//! Objects that the garbage collector does not walk.

#![allow(unsafe_code)]

use pyo3::prelude::*;

/// Takes `object` out of the garbage collector's sight. Whoever made it breaks the rings that it
/// may stand in.
pub fn untrack<T>(object: &Bound<'_, T>) {
    // SAFETY: the pointer is that of a live object, and every type that comes here is of those that
    // the collector tracks; to untrack one that is not tracked does nothing.
    unsafe { pyo3::ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
}
