//! Where one message is kept.

use super::packed::Packed;
use crate::sds::octets::Octets;
use crate::sds::slab::Handle;

/// Where the message of an entry is.
#[derive(Debug, Clone, Copy)]
pub enum Kept {
    /// As it came or left: until its record is written, which shares it; a long one, or one of ours, for good.
    Whole(Handle<Octets>),
    /// Among others.
    Packed(Packed),
}
