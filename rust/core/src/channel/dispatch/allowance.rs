//! What a rate limit lets leave (003 and 004, Rate limit management).

use crate::sds::{Kinds, TransmitKind};

/// What one limit lets leave at one moment, by how many messages are prepared that have no place yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Kinds that take no place.
    pub free: Kinds,
    /// Places that are left, those kept for acknowledgements included.
    pub left: i64,
    /// Of those, how many any kind but acknowledgements may take.
    pub open_left: i64,
    /// How many acknowledgements may take.
    pub sync_left: i64,
    /// How many are left until ephemeral messages are dropped.
    pub ephemeral_left: i64,
    /// Whether what others ask for may leave.
    pub repairs: bool,
}

/// Why an ephemeral message may not leave (004, Ephemeral messages).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// No place is left.
    Reached,
    /// The places that are left are kept for other messages.
    Approached,
}

impl DropReason {
    /// The reason's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Reached => "rate_limit_reached",
            DropReason::Approached => "rate_limit_approached",
        }
    }
}

impl Allowance {
    /// The kinds of which one more may be prepared, where `taken` are prepared that have no place yet.
    pub fn kinds(&self, taken: usize) -> Kinds {
        let taken = i64::try_from(taken).unwrap_or(i64::MAX);
        let mut kinds = self.free;
        if taken < self.sync_left {
            kinds = kinds.with(TransmitKind::Sync);
        }
        if taken < self.open_left {
            for kind in TransmitKind::ALL {
                let may_leave = match kind {
                    TransmitKind::Ephemeral => taken < self.ephemeral_left,
                    TransmitKind::Repair => self.repairs,
                    // What is open to any kind may come too early for one that comes again and again.
                    TransmitKind::Sync => false,
                    TransmitKind::First | TransmitKind::Further | TransmitKind::Retransmission => {
                        true
                    }
                };
                if may_leave {
                    kinds = kinds.with(kind);
                }
            }
        }
        kinds
    }

    /// Why an ephemeral message may not leave, where `taken` messages are prepared that have no place yet; `None`
    /// where it may.
    pub fn drop_reason(&self, taken: usize) -> Option<DropReason> {
        drop_reason(std::slice::from_ref(self), taken)
    }
}

/// The kinds that all limits let leave.
pub fn allowed(allowances: &[Allowance], taken: usize) -> Kinds {
    let each = allowances.iter().map(|allowance| allowance.kinds(taken));
    each.fold(Kinds::ALL, Kinds::and)
}

/// Whether a message of `kind` takes a place of a limit.
pub fn counts(allowances: &[Allowance], kind: TransmitKind) -> bool {
    allowances.iter().any(|allowance| !allowance.free.has(kind))
}

/// Why an ephemeral message may not leave now; `None` where it may.
pub fn drop_reason(allowances: &[Allowance], taken: usize) -> Option<DropReason> {
    let places = i64::try_from(taken).unwrap_or(i64::MAX);
    if allowances.iter().any(|allowance| allowance.left <= places) {
        return Some(DropReason::Reached);
    }
    let may_leave = allowed(allowances, taken).has(TransmitKind::Ephemeral);
    (!may_leave).then_some(DropReason::Approached)
}
