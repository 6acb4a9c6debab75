//! The progress of one send of ours.

use std::sync::Arc;

use crate::sds::{Name, Ordinals};

/// What was being done when a message failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureStage {
    /// It was handed to the network.
    Dispatch,
    /// It was sent, and acknowledgements were waited for.
    Delivery,
}

impl FailureStage {
    /// The stage's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            FailureStage::Dispatch => "dispatch",
            FailureStage::Delivery => "delivery",
        }
    }
}

/// What a message comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeKind {
    /// The network has all of it.
    Sent,
    /// The participants that must have it have it.
    Delivered,
    /// It failed.
    Failed,
}

impl OutcomeKind {
    /// All of them.
    pub const ALL: [OutcomeKind; 3] = [
        OutcomeKind::Sent,
        OutcomeKind::Delivered,
        OutcomeKind::Failed,
    ];

    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            OutcomeKind::Sent => "sent",
            OutcomeKind::Delivered => "delivered",
            OutcomeKind::Failed => "error",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        OutcomeKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// How far one send has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSend {
    /// What `send` returned for it; several where the same content was sent again under an id rule that
    /// cannot tell them apart.
    pub request_ids: Vec<Name>,
    /// Hex Keccak-256 of the payload.
    pub message_id: Name,
    /// Data segments.
    pub data_count: u32,
    /// Data and parity segments that leave without being asked for.
    pub content_count: u32,
    /// Segments that were handed to the node.
    pub sending: Ordinals,
    /// Segments that the network took.
    pub propagated: Ordinals,
    /// Parity that can never be sent.
    pub left_out: Ordinals,
    /// Segments that a store has.
    pub stored: Ordinals,
    /// Data that some participant holds.
    pub acknowledged: Ordinals,
    /// Data that some participant's bloom filter holds.
    pub possibly_acknowledged: Ordinals,
    /// Participants that can reconstruct it, in the order in which they said so.
    pub delivered_to: Vec<Arc<str>>,
    /// Whether it counts as sent.
    pub sent: bool,
    /// Whether it counts as delivered.
    pub delivered: bool,
    /// Why and where it failed.
    pub failure: Option<(FailureStage, Arc<str>)>,
    /// Outcomes that the application was not told yet, each with the request that waits for it; what an
    /// earlier release stored does not name that.
    pub unannounced: Vec<(OutcomeKind, Option<Name>)>,
    /// How many of its segments a node may have taken of which it never said what became of them.
    pub unanswered: u32,
    /// Wire and code of the parity that is made on demand; empty where none is.
    pub form: Arc<str>,
}

impl OwnSend {
    /// A send of which nothing has left.
    pub fn new(
        request_id: Name,
        message_id: Name,
        data_count: u32,
        content_count: u32,
        form: &str,
    ) -> Self {
        OwnSend {
            request_ids: vec![request_id],
            message_id,
            data_count,
            content_count,
            sending: Ordinals::NONE,
            propagated: Ordinals::NONE,
            left_out: Ordinals::NONE,
            stored: Ordinals::NONE,
            acknowledged: Ordinals::NONE,
            possibly_acknowledged: Ordinals::NONE,
            delivered_to: Vec::new(),
            sent: false,
            delivered: false,
            failure: None,
            unannounced: Vec::new(),
            unanswered: 0,
            form: form.into(),
        }
    }

    /// Whether a store has all of it that can be sent.
    pub fn is_stored(&self) -> bool {
        self.is_complete(&self.stored)
    }

    /// Whether the network took all of it that can be sent.
    pub fn is_propagated(&self) -> bool {
        self.is_complete(&self.propagated)
    }

    fn is_complete(&self, ordinals: &Ordinals) -> bool {
        let mut there = ordinals.clone();
        there.extend(&self.left_out);
        there.count() == self.content_count
    }

    /// Whether it is neither delivered nor failed.
    pub fn is_pending(&self) -> bool {
        !self.delivered && self.failure.is_none()
    }

    /// Its data segments that are among `ordinals`.
    pub fn chunks(&self, ordinals: &Ordinals) -> Vec<u32> {
        (0..self.data_count)
            .filter(|&ordinal| ordinals.contains(ordinal))
            .collect()
    }

    /// Segments of which the network is not known to have any, nor known to be done without.
    pub fn unsent(&self) -> Vec<u32> {
        let is_unsent = |ordinal: &u32| {
            !self.propagated.contains(*ordinal) && !self.left_out.contains(*ordinal)
        };
        (0..self.content_count).filter(is_unsent).collect()
    }
}
