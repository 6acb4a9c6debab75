//! Asks for memory before it is read.

#![allow(unsafe_code)]

use pyo3::prelude::*;

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Asks for the first `bytes` of an object, and for what the garbage collector and the allocator
/// keep in front of it.
pub fn prefetch<T>(object: &Py<T>, bytes: usize) {
    let start = object.as_ptr().cast::<i8>().wrapping_sub(16);
    for offset in (0..bytes + 16).step_by(LINE) {
        prefetch_line(start.wrapping_add(offset));
    }
}

/// Asks for the line at an address.
pub fn prefetch_line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
