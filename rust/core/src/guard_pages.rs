//! Bytes between two pages that nothing may touch: a kernel that reads or writes past either end of
//! what it was given ends the test.

use std::ptr;

/// Zeroed bytes that begin just after an inaccessible page and end just before another.
pub struct GuardedBytes {
    mapping: *mut libc::c_void,
    mapping_len: usize,
    page_len: usize,
}

impl GuardedBytes {
    /// At least `len` bytes: whole pages.
    pub fn new(len: usize) -> Self {
        // SAFETY: the call has no precondition.
        let page_len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_len = usize::try_from(page_len).expect("pages have a size");
        let mapping_len = len.next_multiple_of(page_len) + 2 * page_len;
        // SAFETY: a fresh private mapping of no file, all of it inaccessible at first.
        let mapping = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), mapping_len, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(mapping, libc::MAP_FAILED);
        // SAFETY: these are the pages of the mapping but for its first and last.
        let opened = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mprotect(
                mapping.byte_add(page_len),
                mapping_len - 2 * page_len,
                access,
            )
        };
        assert_eq!(opened, 0);
        Self {
            mapping,
            mapping_len,
            page_len,
        }
    }

    /// The first `len` bytes: the guard is right before them.
    pub fn first(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes()[..len]
    }

    /// The last `len` bytes: the guard is right behind them.
    pub fn last(&mut self, len: usize) -> &mut [u8] {
        let bytes = self.bytes();
        let start = bytes.len() - len;
        &mut bytes[start..]
    }

    fn bytes(&mut self) -> &mut [u8] {
        let len = self.mapping_len - 2 * self.page_len;
        // SAFETY: `new` opened these pages and nothing else refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.byte_add(self.page_len).cast(), len) }
    }
}

impl Drop for GuardedBytes {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no slice of it outlives `self`.
        unsafe { libc::munmap(self.mapping, self.mapping_len) };
    }
}
