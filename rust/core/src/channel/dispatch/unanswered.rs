//! Segments that a node may have taken and of which it has not said what became of them.

use hashlink::LinkedHashMap;

use super::flights::DISPATCHES_MAX;
use crate::channel::own::OwnSends;
use crate::sds::{Name, Transmit};

/// Messages that nobody waits for any longer, until the node answers all the same: while a send has any, it is not
/// known that nothing of it left.
///
/// By transmit: the send, and the number of its registration, which tells it from another under the same id, begun
/// after it was cancelled.
#[derive(Debug, Default)]
pub(super) struct Unanswered(LinkedHashMap<u64, (Name, Option<u64>)>);

impl Unanswered {
    /// It was handed to the node.
    pub fn add(&mut self, transmit: &Transmit, own: &mut OwnSends) {
        let Some(send_id) = &transmit.send_id else {
            return;
        };
        own.on_unanswered(send_id);
        let serial = own.serial_of(send_id);
        self.0
            .insert(transmit.transmit_id, (send_id.clone(), serial));
        if self.0.len() > DISPATCHES_MAX {
            // The oldest counts as unanswered for good.
            self.0.pop_front();
        }
    }

    /// The node says late what became of one: it was `refused`, or it may have left.
    pub fn on_answer(&mut self, transmit_id: u64, refused: bool, own: &mut OwnSends) {
        let Some((send_id, serial)) = self.0.remove(&transmit_id) else {
            return;
        };
        if refused && serial.is_some() && own.serial_of(&send_id) == serial {
            own.on_answered(&send_id);
        }
    }
}
