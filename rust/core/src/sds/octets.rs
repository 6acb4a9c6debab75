//! The bytes of messages, shared by whoever keeps them.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::reassemble::Lent;

/// Fewer bytes than this are copied next to their count.
pub(super) const KEPT_BYTES_MIN: usize = 4096;

/// A message as it came or left.
#[derive(Clone)]
pub enum Octets {
    /// Bytes of our own.
    Own(Arc<[u8]>),
    /// Bytes that stay where they are: the caller's, or long ones.
    Lent(Lent),
}

impl Octets {
    /// Whether both are the same bytes in memory.
    pub fn is(&self, other: &Octets) -> bool {
        std::ptr::eq::<[u8]>(&**self, &**other)
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Octets::Own(bytes) => bytes,
            Octets::Lent(bytes) => (**bytes).as_ref(),
        }
    }
}

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Self {
        Octets::Own(bytes.into())
    }
}

impl From<Vec<u8>> for Octets {
    /// Long ones stay where they are.
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.len() < KEPT_BYTES_MIN {
            return Octets::Own(bytes.into());
        }
        let lent: Lent = Arc::new(bytes);
        Octets::Lent(lent)
    }
}

/// Makes long messages that leave in the form in which the machine's owner hands them on, so that a message
/// is one copy for both.
pub trait Join: Send + Sync {
    /// The pieces, one after the other.
    fn join(&self, pieces: &[&[u8]]) -> Octets;
}

/// Makes them of this process's memory.
pub(super) struct IntoVec;

impl Join for IntoVec {
    fn join(&self, pieces: &[&[u8]]) -> Octets {
        pieces.concat().into()
    }
}

impl PartialEq for Octets {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Octets {}

impl std::fmt::Debug for Octets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "<{} bytes>", self.len())
    }
}

/// A part of a message: its content, say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The message.
    pub whole: Octets,
    /// Where in it.
    pub range: Range<usize>,
}

impl Part {
    /// The part of `whole` that `bytes` are, which lie in it.
    pub fn of(whole: &Octets, bytes: &[u8]) -> Self {
        let start = bytes.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        let range = start..start.wrapping_add(bytes.len());
        debug_assert!(
            whole.get(range.clone()).is_some(),
            "a part lies in its whole"
        );
        Part {
            whole: whole.clone(),
            range,
        }
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.whole.get(self.range.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;
    use crate::reassemble::Lend;
    use crate::sds::{Config, Drawn, Kinds, Machine, Now, Transmit, TransmitKind};
    use crate::wire::sds::{Message, WireFormat};

    struct Marked(Vec<u8>);

    impl AsRef<[u8]> for Marked {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Lend for Marked {
        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    struct IntoMarked;

    impl Join for IntoMarked {
        fn join(&self, pieces: &[&[u8]]) -> Octets {
            Octets::Lent(Arc::new(Marked(pieces.concat())))
        }
    }

    const SEND: &str = "11111111111111111111111111111111";

    fn at(monotonic_ms: i64) -> Now {
        Now {
            monotonic_ms,
            epoch_ms: 1_760_000_000_000 + monotonic_ms,
        }
    }

    fn machine(wire_format: WireFormat, content_bytes: usize) -> Machine {
        let config = Config {
            wire_format,
            ..Config::example()
        };
        let rng = Box::new(Drawn::from([]));
        let mut machine = Machine::new("room", "alice", config, at(0), rng).unwrap();
        let content = vec![7; content_bytes].into();
        machine.send(SEND, vec![content], 1).unwrap();
        machine
    }

    fn first(machine: &mut Machine) -> Transmit {
        let first = Kinds::NONE.with(TransmitKind::First);
        machine.poll_transmit(at(0), first).expect("it may leave")
    }

    fn is_marked(octets: &Octets) -> bool {
        matches!(octets, Octets::Lent(lent) if lent.as_any().is::<Marked>())
    }

    #[test]
    fn a_long_message_leaves_and_stays_as_the_owner_makes_it() {
        for wire_format in [WireFormat::Spec, WireFormat::Nim] {
            let mut machine = machine(wire_format, KEPT_BYTES_MIN);
            machine.join_by(Box::new(IntoMarked));
            let sent = first(&mut machine);
            assert!(is_marked(&sent.payload));
            machine.handle_transmitted(sent.transmit_id, None, at(0));
            let kinds = Kinds::NONE.with(TransmitKind::Retransmission);
            let due = (0..600_000).step_by(1_000).find_map(|now_ms| {
                machine.handle_timeout(at(now_ms));
                machine.poll_transmit(at(now_ms), kinds)
            });
            assert!(due.expect("nobody answers").payload.is(&sent.payload));
        }
    }

    #[test]
    fn whoever_makes_a_message_its_bytes_are_the_same() {
        for wire_format in [WireFormat::Spec, WireFormat::Nim] {
            for content_bytes in [1, KEPT_BYTES_MIN - 1, KEPT_BYTES_MIN, 100_000] {
                let mut joining = machine(wire_format, content_bytes);
                joining.join_by(Box::new(IntoMarked));
                let joined = first(&mut joining).payload;
                assert_eq!(
                    joined,
                    first(&mut machine(wire_format, content_bytes)).payload
                );
                let message = Message::decode(&joined, wire_format).unwrap();
                assert_eq!(*message.encode(wire_format).unwrap(), *joined);
                assert_eq!(is_marked(&joined), content_bytes >= KEPT_BYTES_MIN);
            }
        }
    }
}
