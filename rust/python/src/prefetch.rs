//! Asks for memory before it is read.

#![allow(unsafe_code)]

use pyo3::prelude::*;

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// Asks for the first `bytes` of an object, and for what the garbage collector and the allocator
/// keep in front of it.
pub fn prefetch<T>(object: &Py<T>, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = object.as_ptr().cast::<i8>().wrapping_sub(16);
        for offset in (0..bytes + 16).step_by(LINE) {
            // SAFETY: a prefetch reads nothing and may be given any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (object, bytes);
}
