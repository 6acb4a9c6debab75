//! How ids are formed and read, and how long what a peer names may be.

use std::collections::HashMap;
use std::sync::Arc;

use hashlink::DefaultHashBuilder;
use sha2::{Digest, Sha256};

use super::config::MessageIdRule;
use super::name::Name;
use crate::hex::{hex, push_hex};
use crate::wire::sds::HistoryEntry;

/// Longer ids are those of no known peer: what carries one is dropped, so that no peer decides how
/// much memory an entry takes.
pub const MESSAGE_ID_BYTES_MAX: usize = 256;
/// As [`MESSAGE_ID_BYTES_MAX`].
pub const SENDER_ID_BYTES_MAX: usize = 256;
/// As [`MESSAGE_ID_BYTES_MAX`].
pub const RETRIEVAL_HINT_BYTES_MAX: usize = 256;
/// Contents of one send, at most.
pub const CONTENTS_PER_SEND_MAX: u32 = 65_536;

/// Bytes of a send id under the rule "send".
pub const SEND_ID_BYTES: usize = 32;
const PLACE_DIGITS_MAX: usize = 4;
/// A point and the digits of any ordinal.
const PLACE_BYTES_MAX: usize = 11;
const RIVAL_DIGEST_BYTES: usize = 16;

/// The message id of one content of a send under the rule "send".
pub fn content_id(send_id: &str, ordinal: u32) -> Name {
    // Written in place: every content that leaves and every one that is inferred takes one.
    let mut text = [0; SEND_ID_BYTES + PLACE_BYTES_MAX];
    let mut at = text.len();
    let mut rest = ordinal;
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    text[at] = b'.';
    match at.checked_sub(send_id.len()) {
        Some(start) if send_id.is_ascii() => {
            text[start..at].copy_from_slice(send_id.as_bytes());
            Name::from_wire(&text[start..])
        }
        _ => Name::from(format!("{send_id}.{ordinal}")),
    }
}

/// Requests of this ordinal and of those below it ask for no content: they say how many contents of a
/// send are lacking. No send of segments has so many, and whoever does not know it holds none of that
/// name.
const LACKING_NONE: u32 = 9_999;
/// The most that can be said.
pub const LACKING_MAX: u32 = 999;

/// The request by which a participant says how many contents it lacks of a send, none included; the
/// send's own sender asks with it how many the others do.
pub fn lacking_id(send_id: &str, lacking: u32) -> Name {
    content_id(send_id, LACKING_NONE - lacking.min(LACKING_MAX))
}

/// The send and the number that such a request says.
pub fn split_lacking_id(message_id: &str) -> Option<(&str, u32)> {
    let (send_id, ordinal) = split_content_id(message_id)?;
    let lacking = LACKING_NONE.checked_sub(ordinal)?;
    (lacking <= LACKING_MAX && is_send_id(send_id)).then_some((send_id, lacking))
}

/// Whether `send_id` has the form that the rule "send" wants.
pub fn is_send_id(send_id: &str) -> bool {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    send_id.len() == SEND_ID_BYTES && send_id.as_bytes().iter().all(is_hex)
}

/// The send and the ordinal that an id of the rule "send" names; `None` for any other id.
pub fn split_content_id(message_id: &str) -> Option<(&str, u32)> {
    let (send_id, ordinal) = split_content_bytes(message_id.as_bytes())?;
    // A full stop follows, so it ends between two characters.
    Some((&message_id[..send_id.len()], ordinal))
}

/// As [`split_content_id`], of the UTF-8 of an id; the send id is UTF-8 too.
pub fn split_content_bytes(message_id: &[u8]) -> Option<(&[u8], u32)> {
    let (send_id, place) = message_id.split_at_checked(SEND_ID_BYTES)?;
    let digits = place.strip_prefix(b".")?;
    let canonical = digits == b"0" || !digits.starts_with(b"0");
    if !canonical || !(1..=PLACE_DIGITS_MAX).contains(&digits.len()) {
        return None;
    }
    let ordinal = digits.iter().try_fold(0, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        Some(10 * number + digit)
    });
    Some((send_id, ordinal?))
}

/// What a content is called whose message id another content has: no two of one id are called
/// alike.
pub fn rival_name(message_id: &str, sender_id: &str, content: &[u8]) -> Name {
    let length = u32::try_from(sender_id.len()).unwrap_or(u32::MAX);
    let mut hasher = Sha256::new();
    hasher.update(length.to_be_bytes());
    hasher.update(sender_id.as_bytes());
    hasher.update(content);
    let digest = hasher.finalize();
    let mut name = format!("{message_id}\0");
    push_hex(&mut name, &digest[..RIVAL_DIGEST_BYTES]);
    Name::from(name)
}

/// The message id that a rival shares; `None` for what is no rival's name.
pub fn rival_of(name: &str) -> Option<&str> {
    let (message_id, digest) = name.rsplit_once('\0')?;
    let is_digest = digest.len() == 2 * RIVAL_DIGEST_BYTES && is_send_id(digest);
    is_digest.then_some(message_id)
}

/// The key of a send whose id another sender claimed first.
pub fn claimed_key(send_id: &str, sender_id: &str) -> Name {
    Name::from(format!("{send_id}\0{sender_id}"))
}

/// The key of what comes under an id that names no send and may be spelled like one.
///
/// No id that comes has NUL, and none is empty: whatever a sender calls itself, no other key begins so.
pub fn apart_key(message_id: &str) -> Name {
    Name::from(format!("\0{message_id}"))
}

/// The key of a send that the ids of its contents do not name, by what the owner read in them.
pub fn joined_key(send_id: &str, sender_id: &str) -> Name {
    Name::from(format!("\0\0{send_id}\0{sender_id}"))
}

/// Whether a key is that of a send that the ids of its contents do not name.
pub fn is_joined(key: &Name) -> bool {
    key.as_bytes().starts_with(b"\0\0")
}

/// Whether a key is that of a send whose id another sender claimed first.
pub fn is_claimed(key: &Name) -> bool {
    let bytes = key.as_bytes();
    !is_joined(key) && memchr::memrchr(0, bytes).is_some_and(|at| at > 0)
}

/// The id that a key was made of.
pub fn id_in(key: &str) -> &str {
    let rest = key.trim_start_matches('\0');
    rest.split_once('\0').map_or(rest, |(id, _)| id)
}

/// The message ids of a send's contents.
///
/// Under the rule "content-sha256" equal contents share one.
pub fn message_ids_of(
    rule: MessageIdRule,
    send_id: &str,
    contents: &[impl AsRef<[u8]>],
) -> Vec<Name> {
    match rule {
        MessageIdRule::Send => (0..contents.len() as u32)
            .map(|ordinal| content_id(send_id, ordinal))
            .collect(),
        MessageIdRule::ContentSha256 => {
            let contents = contents.iter();
            contents
                .map(|content| sha256_id(content.as_ref()))
                .collect()
        }
    }
}

/// The hex SHA-256 of a content, as @waku/sds calls it.
pub fn sha256_id(content: &[u8]) -> Name {
    Name::from(hex(&Sha256::digest(content)))
}

/// Tags and lengths around the strings of one history entry, at most.
pub const ENTRY_FRAME_BYTES: usize = 14;

/// An upper bound of what a history entry adds to a message.
pub fn entry_bytes_max(entry: &HistoryEntry) -> usize {
    let hint = entry.retrieval_hint.as_ref().map_or(0, Vec::len);
    let sender = entry.sender_id.as_ref().map_or(0, String::len);
    ENTRY_FRAME_BYTES + entry.message_id.len() + hint + sender
}

/// Sender ids are free to forge: so many are remembered, then all are read anew.
const SENDERS_MAX: usize = 1_000;

/// Ids of senders as text, which all that they sent share.
#[derive(Debug, Default)]
pub struct SenderIds {
    texts: HashMap<Box<[u8]>, Arc<str>, DefaultHashBuilder>,
    /// The last that was asked for, where its bytes are its text.
    last: Option<Arc<str>>,
}

impl SenderIds {
    /// The text of an id as it stands in a message.
    pub fn text(&mut self, id: &[u8]) -> Arc<str> {
        if let Some(last) = self.last.as_ref().filter(|last| *last.as_bytes() == *id) {
            return Arc::clone(last);
        }
        let text = match self.texts.get(id) {
            Some(text) => Arc::clone(text),
            None => {
                if self.texts.len() >= SENDERS_MAX {
                    self.texts.clear();
                }
                let text: Arc<str> = String::from_utf8_lossy(id).into();
                self.texts.insert(id.into(), Arc::clone(&text));
                text
            }
        };
        self.last = Some(Arc::clone(&text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_rule_send_name_send_and_place() {
        let send_id = "0123456789abcdef0123456789abcdef";
        for ordinal in [0, 1, 9, 10, 255, 9_999] {
            let id = content_id(send_id, ordinal);
            assert_eq!(split_content_id(&id), Some((send_id, ordinal)));
            let on_the_wire = Some((send_id.as_bytes(), ordinal));
            assert_eq!(split_content_bytes(id.as_bytes()), on_the_wire);
        }
        for send_id in ["", "ä", send_id, &"a".repeat(33), &"ü".repeat(40)] {
            for ordinal in [0, 10, 65_535, u32::MAX] {
                let id = content_id(send_id, ordinal);
                assert_eq!(*id, format!("{send_id}.{ordinal}"));
            }
        }
        for place in [
            "", ".", ".00", ".01", ".+1", ".10000", ".1a", ".٣", "0", ".-0",
        ] {
            assert_eq!(
                split_content_id(&format!("{send_id}{place}")),
                None,
                "{place}"
            );
        }
        for other in ["", "short.0", send_id, &"a".repeat(64)] {
            assert_eq!(split_content_id(other), None, "{other:?}");
        }
        assert_eq!(split_content_id(&"ä".repeat(17)), None);
    }

    #[test]
    fn what_is_lacking_of_a_send_is_said_by_an_id() {
        let send_id = "0123456789abcdef0123456789abcdef";
        for lacking in [0, 1, 64, 256, LACKING_MAX] {
            let id = lacking_id(send_id, lacking);
            assert_eq!(split_lacking_id(&id), Some((send_id, lacking)));
        }
        assert_eq!(split_lacking_id(&content_id(send_id, 255)), None);
        assert_eq!(split_lacking_id(&content_id(send_id, 8_999)), None);
        assert_eq!(lacking_id(send_id, 5_000), lacking_id(send_id, LACKING_MAX));
    }

    #[test]
    fn the_text_of_a_sender_is_that_of_its_bytes_whoever_spoke_before() {
        let mut senders = SenderIds::default();
        for _ in 0..2 {
            for (id, text) in [
                (&b"alice"[..], "alice"),
                (b"bob", "bob"),
                (b"\xff", "\u{fffd}"),
                ("\u{fffd}".as_bytes(), "\u{fffd}"),
                (b"", ""),
            ] {
                let first = senders.text(id);
                assert_eq!((&*first, &*senders.text(id)), (text, text));
            }
        }
        let bob = senders.text(b"bob");
        senders.text(b"alice");
        assert!(Arc::ptr_eq(&bob, &senders.text(b"bob")));
    }

    #[test]
    fn rivals_are_told_from_message_ids() {
        let name = rival_name("id", "sender", b"content");
        assert_eq!(rival_of(&name), Some("id"));
        assert_ne!(name, rival_name("id", "sende", b"rcontent"));
        for other in [
            "id",
            "id\0",
            "id\0xyz",
            "id\u{0}0000000000000000000000000000000g",
            "id\u{0}000000000000000000000000000000000",
        ] {
            assert_eq!(rival_of(other), None, "{other:?}");
        }
    }
}
