//! What failed attempts at a set found out, so that the next attempt does not look for it again.

use crate::erasure::ErasureCode;
use crate::wire::segment::Slot;

/// A candidate's name within its set: its slot, and which of the slot's candidates it is.
pub(super) type Name = (Slot, u8);

/// Failures remembered, the latest.
const FAILURES_MAX: usize = 4;

/// Offsets remembered, the latest.
const SUSPECTS_MAX: usize = 32;

/// Offsets where shards contradicted each other, and payloads that did not have the hash. Most sets
/// have none: they must not cost them room.
#[derive(Debug, Default)]
pub(super) struct FailedAttempts(Option<Box<Learnt>>);

#[derive(Debug, Default)]
struct Learnt {
    suspects: Vec<u32>,
    failures: Vec<Failure>,
}

/// The payload that `members` fix does not have the hash. Under a code any k of them fix it;
/// without one they are all its data segments.
#[derive(Debug)]
struct Failure {
    code: Option<ErasureCode>,
    members: Box<[Name]>,
}

impl FailedAttempts {
    pub fn suspects(&self) -> &[u32] {
        self.0.as_ref().map_or(&[], |learnt| &learnt.suspects)
    }

    pub fn suspect(&mut self, offsets: impl IntoIterator<Item = usize>) {
        let mut offsets = offsets.into_iter().filter_map(|o| u32::try_from(o).ok());
        let Some(first) = offsets.next() else { return };
        let suspects = &mut self.0.get_or_insert_default().suspects;
        suspects.push(first);
        suspects.extend(offsets);
        let excess = suspects.len().saturating_sub(SUSPECTS_MAX);
        suspects.drain(..excess);
        suspects.shrink_to_fit();
    }

    /// Remembers `members`, which are sorted, agree with each other and fix a payload without the hash.
    pub fn remember(&mut self, code: Option<ErasureCode>, members: Vec<Name>) {
        let failures = &mut self.0.get_or_insert_default().failures;
        if failures.len() >= FAILURES_MAX {
            failures.remove(0);
        }
        let members = members.into_boxed_slice();
        failures.push(Failure { code, members });
    }

    /// Whether `members`, which agree with each other under `code`, fix a payload that failed.
    ///
    /// `last` is the last data segment among them: where it was not there before, the end of the
    /// payload was unknown, and what failed may have been the search for it.
    pub fn has_failed(
        &self,
        code: ErasureCode,
        members: &[Name],
        data_count: usize,
        last: Option<Name>,
    ) -> bool {
        let mut failures = self.0.iter().flat_map(|learnt| &learnt.failures);
        failures.any(|failure| {
            let held = |name: &Name| failure.members.binary_search(name).is_ok();
            failure.code.is_none_or(|failed| failed == code)
                && last.as_ref().is_none_or(held)
                && members.iter().filter(|name| held(name)).count() >= data_count
        })
    }

    /// Another candidate may get this name.
    pub fn forget(&mut self, name: Name) {
        if let Some(learnt) = &mut self.0 {
            learnt
                .failures
                .retain(|failure| failure.members.binary_search(&name).is_err());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(first: u8) -> Vec<Name> {
        vec![(Slot::Data(first), 0), (Slot::Data(first + 1), 0)]
    }

    #[test]
    fn what_failed_is_known_by_enough_of_its_members_its_code_and_its_end() {
        let mut learnt = FailedAttempts::default();
        learnt.remember(Some(ErasureCode::Leopard), names(0));
        let has_failed = |code, count, last| learnt.has_failed(code, &names(0), count, last);
        assert!(has_failed(ErasureCode::Leopard, 2, None));
        assert!(!has_failed(ErasureCode::Vandermonde, 2, None));
        assert!(!has_failed(ErasureCode::Leopard, 3, None));
        // The end of the payload was unknown then.
        assert!(!has_failed(
            ErasureCode::Leopard,
            2,
            Some((Slot::Data(2), 0))
        ));
    }

    #[test]
    fn the_latest_are_remembered() {
        let mut learnt = FailedAttempts::default();
        for first in 0..=FAILURES_MAX as u8 {
            learnt.remember(None, names(2 * first));
        }
        let failed = |first| learnt.has_failed(ErasureCode::Leopard, &names(first), 2, None);
        assert_eq!([0, 2].map(failed), [false, true]);
        learnt.suspect(0..SUSPECTS_MAX + 3);
        assert_eq!(learnt.suspects().len(), SUSPECTS_MAX);
        assert_eq!(learnt.suspects().first(), Some(&3));
    }
}
