//! Messages of ours on their way in: refused, waiting for room, or registered with SDS.

use std::collections::VecDeque;

use super::own::OwnSend;
use super::{Channel, parity};
use crate::sds::{Name, Now, Octets, Refusal, TransmitKind};

/// So many contents may wait to leave, whatever their bytes: one takes more than a kilobyte beside them. A message of
/// more waits alone.
pub(super) const QUEUED_CONTENTS_MAX: usize = 100_000;

/// How much may wait to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes of contents.
    pub bytes_max: usize,
    /// Whether a rate limit holds, under which room may take epochs to come: then what has none is refused.
    pub is_limited: bool,
}

/// A segmented message of ours on its way into the channel.
#[derive(Debug)]
pub struct Submission {
    /// Its send.
    pub send_id: Name,
    /// What its caller calls it.
    pub request_id: Name,
    /// Hex Keccak-256 of the payload.
    pub message_id: Name,
    /// The segments.
    pub contents: Vec<Octets>,
    /// How many of them hold data.
    pub data_count: u32,
    /// Parity that can be made on demand.
    pub reserve: u32,
}

impl Submission {
    fn size_bytes(&self) -> usize {
        self.contents.iter().map(|content| content.len()).sum()
    }

    /// The send that it is, with wire and code of the parity that is made on demand.
    fn as_send(&self, form: &str) -> OwnSend {
        OwnSend::new(
            self.request_id.clone(),
            self.message_id.clone(),
            self.data_count,
            self.contents.len() as u32,
            form,
        )
    }
}

/// Why a message is not taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitError {
    /// It is no send.
    Refused(Refusal),
    /// It has more bytes than may ever wait.
    TooLarge {
        /// How many.
        size_bytes: usize,
        /// How many may.
        bytes_max: usize,
    },
    /// With it more bytes would wait for a rate limit than may.
    QueueFull {
        /// How many would.
        queued_bytes: usize,
        /// How many may.
        bytes_max: usize,
    },
    /// With it more contents would wait for a rate limit than may.
    TooMany {
        /// How many may.
        contents_max: usize,
    },
}

/// The request of a message that waits no longer, and whether it was taken in.
pub type Taken = (Name, Result<(), SubmitError>);

/// Messages that wait for room, the oldest first.
#[derive(Debug)]
pub(super) struct Submissions {
    limits: QueueLimits,
    /// The largest content that fits the messages of the network.
    content_bytes_max: usize,
    waiting: VecDeque<Submission>,
    /// How many were registered.
    sends: u64,
}

impl Submissions {
    pub fn new(limits: QueueLimits) -> Self {
        Submissions {
            limits,
            content_bytes_max: usize::MAX,
            waiting: VecDeque::new(),
            sends: 0,
        }
    }

    /// The send of a request that waits no longer; its room in the queue is free from here on.
    pub fn take_out(&mut self, request_id: &str) -> Option<OwnSend> {
        let is_it = |submission: &Submission| *submission.request_id == *request_id;
        let at = self.waiting.iter().position(is_it)?;
        Some(self.waiting.remove(at)?.as_send(""))
    }
}

impl Channel {
    /// A message of ours is to leave: it is refused, or registered when there is room behind those that wait.
    /// Gives those that wait no longer; what is registered is durable once what [`Channel::poll_persist`] gives is.
    ///
    /// Where ids are made of contents its send may be one that is remembered: it shares that one's fate,
    /// unless nothing of that one has left and its failure was told.
    pub fn submit(&mut self, submission: Submission) -> Vec<Taken> {
        let QueueLimits {
            bytes_max,
            is_limited,
        } = self.submissions.limits;
        let size_bytes = submission.size_bytes();
        let (queued, queued_bytes) = if is_limited { self.queued() } else { (0, 0) };
        let queued_bytes = queued_bytes + size_bytes;
        let error = if size_bytes > bytes_max {
            SubmitError::TooLarge {
                size_bytes,
                bytes_max,
            }
        } else if queued_bytes > bytes_max {
            SubmitError::QueueFull {
                queued_bytes,
                bytes_max,
            }
        } else if !may_join(queued, &submission) {
            SubmitError::TooMany {
                contents_max: QUEUED_CONTENTS_MAX,
            }
        } else {
            self.submissions.waiting.push_back(submission);
            return self.register_waiting();
        };
        vec![(submission.request_id, Err(error))]
    }

    /// Registers what waits, for as long as there is room.
    pub fn register_waiting(&mut self) -> Vec<Taken> {
        let bytes_max = self.submissions.limits.bytes_max;
        let mut taken = Vec::new();
        while let Some(next) = self.submissions.waiting.front()
            && self.sds.has_room()
            && self.sds.queued_bytes() + next.size_bytes() <= bytes_max
            && may_join(self.queued_contents(), next)
            && let Some(next) = self.submissions.waiting.pop_front()
        {
            let request_id = next.request_id.clone();
            taken.push((
                request_id,
                self.register(next).map_err(SubmitError::Refused),
            ));
        }
        taken
    }

    fn register(&mut self, submission: Submission) -> Result<(), Refusal> {
        let (send_id, data_count) = (submission.send_id.clone(), submission.data_count);
        let contents = submission.contents.iter().map(|content| content.len());
        let (largest, bytes_max) = (contents.max(), self.submissions.content_bytes_max);
        if let Some(size_bytes) = largest.filter(|&size_bytes| size_bytes > bytes_max) {
            // Segmented for larger messages, before it waited for room.
            let error = too_large(size_bytes, bytes_max);
            self.refuse(
                &submission.request_id,
                &submission.message_id,
                data_count,
                &error,
            );
            return Ok(());
        }
        if self.own.get(&send_id).is_some() && !self.own.never_left(&send_id) {
            self.own.attach(&send_id, &submission.request_id);
        } else {
            let form = match submission.reserve {
                0 => String::new(),
                _ => parity::form_of(self.receiving.segmentation().0),
            };
            let send = submission.as_send(&form);
            self.sds.send_on_demand(
                &send_id,
                submission.contents,
                data_count,
                submission.reserve,
            )?;
            self.own.register(&send_id, send);
        }
        self.submissions.sends += 1;
        Ok(())
    }

    /// Messages of the network have another size: what is encoded from now on is divided so. What was made for
    /// larger ones and is not encoded yet never leaves.
    ///
    /// # Errors
    /// As [`crate::sds::Machine::new`].
    pub fn limit_messages(
        &mut self,
        header_bytes_max: usize,
        content_bytes_max: usize,
        now: Now,
    ) -> Result<(), Refusal> {
        self.sds.limit_headers(header_bytes_max)?;
        self.submissions.content_bytes_max = content_bytes_max;
        let oversized = self.sds.oversized(content_bytes_max);
        let oversized = oversized.map(|(send_id, ordinal, size)| (send_id.clone(), ordinal, size));
        for (send_id, ordinal, size_bytes) in oversized.collect::<Vec<_>>() {
            let error = too_large(size_bytes, content_bytes_max);
            self.fail_oversized(&send_id, ordinal, &error, now);
        }
        Ok(())
    }

    // --- views -----------------------------------------------------------------------------------

    /// How many contents were never dispatched and messages wait for room, and their bytes.
    pub fn queued(&self) -> (usize, usize) {
        let waiting = &self.submissions.waiting;
        let bytes: usize = waiting.iter().map(Submission::size_bytes).sum();
        let queued_bytes = self.sds.queued_bytes() + bytes;
        (self.queued_contents() + waiting.len(), queued_bytes)
    }

    fn queued_contents(&self) -> usize {
        self.sds.waiting(TransmitKind::First) + self.sds.waiting(TransmitKind::Further)
    }

    /// How many messages were registered.
    pub fn sends(&self) -> u64 {
        self.submissions.sends
    }

    /// Whether anything of ours is unfinished, or anything received is not acknowledged. What a store has for
    /// whoever is away is finished.
    pub fn is_busy(&self) -> bool {
        self.own.pending_count() > self.sds.sends_in_store()
            || self.queued().0 > 0
            || self.dispatches_in_flight() > 0
            || self.sds.acknowledgement_due_ms().is_some()
    }
}

fn too_large(size_bytes: usize, bytes_max: usize) -> String {
    format!("it is too large: {size_bytes} bytes, the node carries {bytes_max}")
}

/// Whether there is room behind so many contents that wait.
fn may_join(queued: usize, submission: &Submission) -> bool {
    queued == 0 || queued + submission.contents.len() <= QUEUED_CONTENTS_MAX
}
