//! Counts what is allocated, so that a target can hold a receiver to what it may hold.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator with a counter beside it, for `#[global_allocator]`. It counts by thread:
/// a test runner has others.
pub struct Counting;

fn note(change: isize) {
    // A thread that is ending has no counter left.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
        let _ = COUNTS.try_with(|counts| counts.set(true));
    });
}

// SAFETY: every call goes to the system allocator unchanged; only a counter is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that this thread has allocated and not freed; `None` without the counting allocator.
pub fn held() -> Option<isize> {
    COUNTS.get().then(|| HELD.get())
}

/// Runs `work` and gives, beside its result, by how much it raised what this thread holds at the
/// highest.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get() - before)
}
