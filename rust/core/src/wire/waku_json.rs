//! Waku messages in the JSON of the REST interfaces: go-waku's, nwaku's and logos-delivery's.
//!
//! What a server sends is anybody's: nothing is allocated that has not arrived, an element has a
//! largest size, and one that is no message is passed over.

use std::borrow::Cow;
use std::ops::Range;

use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, engine};
use memchr::{memchr2, memchr3};
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

/// Bytes of a message hash.
const HASH_BYTES: usize = 32;

/// Why an answer cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JsonError {
    /// It is neither an array of objects nor null.
    #[error("it is no array of messages")]
    Structure,
    /// An element does not end within its largest size.
    #[error("an element of it is longer than {0} bytes")]
    ElementTooLong(usize),
    /// It ended before it was whole.
    #[error("it ends before it is whole")]
    Truncated,
    /// It is no answer of a store.
    #[error("it is no answer of a store")]
    Store,
}

/// A Waku message as it stands in JSON, its bytes still in base64.
#[derive(Debug, Deserialize)]
pub struct JsonMessage<'a> {
    #[serde(borrow, default)]
    payload: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "contentTopic", alias = "content_topic")]
    content_topic: Cow<'a, str>,
    #[serde(default)]
    timestamp: Option<Integer>,
    #[serde(borrow, default)]
    meta: Option<Cow<'a, str>>,
    #[serde(default)]
    ephemeral: Option<bool>,
}

impl<'a> JsonMessage<'a> {
    /// The message that an element is; `None` where it is none.
    pub fn parse(json: &'a [u8]) -> Option<Self> {
        if !is_object(json) {
            return None;
        }
        serde_json::from_slice(json).ok()
    }

    /// Its content topic.
    pub fn content_topic(&self) -> &str {
        &self.content_topic
    }

    /// Its timestamp, nanoseconds since the Unix epoch; 0 where it has none.
    pub fn timestamp_ns(&self) -> i64 {
        self.timestamp.as_ref().map_or(0, |integer| integer.0)
    }

    /// Whether no store is to keep it.
    pub fn ephemeral(&self) -> bool {
        self.ephemeral.unwrap_or(false)
    }

    /// Its payload; `None` where it is not in base64.
    pub fn payload(&self) -> Option<Vec<u8>> {
        decode_base64(self.payload.as_deref().unwrap_or(""))
    }

    /// Its meta attribute; `None` where it is not in base64.
    pub fn meta(&self) -> Option<Vec<u8>> {
        decode_base64(self.meta.as_deref().unwrap_or(""))
    }
}

/// Whether JSON begins as an object does: an array would be read as one, field by field.
fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'{')
}

/// A number, or a text that is one, as protojson writes integers of 64 bits.
#[derive(Debug)]
struct Integer(i64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Integer;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an integer of 64 bits")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Integer, E> {
                Ok(Integer(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Integer, E> {
                i64::try_from(value).map(Integer).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Integer, E> {
                value.parse().map(Integer).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Bytes in base64 of either alphabet, padded or not.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD_ENGINE: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
    const URL_ENGINE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);
    // A mixture is neither; nearly every text is of the standard alphabet.
    STANDARD_ENGINE
        .decode(text)
        .or_else(|_| URL_ENGINE.decode(text))
        .ok()
}

/// A message hash in hexadecimal, with or without `0x`, or in base64.
///
/// Its length decides: one base64 hash in 4,096 begins with `0x`.
pub fn decode_hash(text: &str) -> Option<[u8; HASH_BYTES]> {
    let hex = match text.len() {
        64 => Some(text),
        66 => text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")),
        _ => None,
    };
    let bytes = match hex {
        Some(hex) => decode_hex(hex)?,
        None => decode_base64(text)?,
    };
    bytes.try_into().ok()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|value| value as u8);
    text.as_bytes()
        .chunks(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?))
        .collect()
}

/// A message as the REST interfaces take it.
pub fn encode(
    payload: &[u8],
    content_topic: &str,
    timestamp_ns: i64,
    meta: &[u8],
    ephemeral: bool,
) -> Vec<u8> {
    let engine = engine::general_purpose::STANDARD;
    let topic = serde_json::to_string(content_topic).expect("a text is JSON");
    let mut json = String::with_capacity(payload.len().div_ceil(3) * 4 + topic.len() + 256);
    json.push_str("{\"payload\":\"");
    engine.encode_string(payload, &mut json);
    json.push_str("\",\"contentTopic\":");
    json.push_str(&topic);
    json.push_str(",\"timestamp\":");
    json.push_str(&timestamp_ns.to_string());
    if !meta.is_empty() {
        json.push_str(",\"meta\":\"");
        engine.encode_string(meta, &mut json);
        json.push('"');
    }
    json.push_str(if ephemeral {
        ",\"ephemeral\":true}"
    } else {
        ",\"ephemeral\":false}"
    });
    json.into_bytes()
}

/// Where a reader stands in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing but white space came.
    Start,
    /// In `null`, of which so many letters came.
    Null(usize),
    /// After `[`.
    First,
    /// After an element.
    AfterElement,
    /// After a comma.
    AfterComma,
    /// In an element, at this depth of braces, in a text or outside.
    Element {
        begin: usize,
        depth: usize,
        in_text: bool,
    },
    /// After the end.
    Done,
}

/// Finds the elements of a JSON array of objects while it comes in. `null` is an empty array.
#[derive(Debug)]
pub struct ElementReader {
    element_bytes_max: usize,
    buffer: Vec<u8>,
    position: usize,
    place: Place,
}

impl ElementReader {
    /// A reader of one answer.
    pub fn new(element_bytes_max: usize) -> Self {
        ElementReader {
            element_bytes_max,
            buffer: Vec::new(),
            position: 0,
            place: Place::Start,
        }
    }

    /// Takes in what came.
    pub fn push(&mut self, chunk: &[u8]) {
        let keep = match self.place {
            Place::Element { begin, .. } => begin,
            _ => self.position,
        };
        self.buffer.drain(..keep);
        self.position -= keep;
        if let Place::Element { begin, .. } = &mut self.place {
            *begin = 0;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// The next element that is whole.
    ///
    /// # Errors
    /// [`JsonError`] where the array is none; nothing can be read after that.
    pub fn next_element(&mut self) -> Result<Option<&[u8]>, JsonError> {
        let found = self.find()?;
        Ok(found.map(|range| &self.buffer[range]))
    }

    /// Whether the array came to its end.
    pub fn is_done(&self) -> bool {
        self.place == Place::Done
    }

    fn find(&mut self) -> Result<Option<Range<usize>>, JsonError> {
        while self.position < self.buffer.len() {
            if let Place::Element {
                begin,
                depth,
                in_text,
            } = self.place
            {
                if let Some(end) = self.scan_element(begin, depth, in_text) {
                    self.position = end;
                    self.place = Place::AfterElement;
                    if end - begin > self.element_bytes_max {
                        return Err(JsonError::ElementTooLong(self.element_bytes_max));
                    }
                    return Ok(Some(begin..end));
                }
                if self.buffer.len() - begin > self.element_bytes_max {
                    return Err(JsonError::ElementTooLong(self.element_bytes_max));
                }
                return Ok(None);
            }
            let byte = self.buffer[self.position];
            self.position += 1;
            self.place = match (self.place, byte) {
                (Place::Null(3), b'l') => Place::Done,
                (Place::Null(at), byte) if at < 3 && byte == b"null"[at] => Place::Null(at + 1),
                (Place::Null(_), _) => return Err(JsonError::Structure),
                (_, b' ' | b'\t' | b'\r' | b'\n') => self.place,
                (Place::Start, b'[') => Place::First,
                (Place::Start, b'n') => Place::Null(1),
                (Place::First | Place::AfterComma, b'{') => Place::Element {
                    begin: self.position - 1,
                    depth: 1,
                    in_text: false,
                },
                (Place::First | Place::AfterElement, b']') => Place::Done,
                (Place::AfterElement, b',') => Place::AfterComma,
                _ => return Err(JsonError::Structure),
            };
        }
        Ok(None)
    }

    /// The end of the element in which the reader stands, if it came.
    fn scan_element(&mut self, begin: usize, mut depth: usize, mut in_text: bool) -> Option<usize> {
        let bytes = &self.buffer;
        let mut at = self.position;
        loop {
            if in_text {
                match memchr2(b'"', b'\\', &bytes[at..]) {
                    Some(offset) if bytes[at + offset] == b'"' => {
                        at += offset + 1;
                        in_text = false;
                    }
                    // What is escaped is passed over; it may not have come yet.
                    Some(offset) if at + offset + 1 < bytes.len() => at += offset + 2,
                    Some(offset) => {
                        at += offset;
                        break;
                    }
                    None => {
                        at = bytes.len();
                        break;
                    }
                }
            } else {
                let Some(offset) = memchr3(b'"', b'{', b'}', &bytes[at..]) else {
                    at = bytes.len();
                    break;
                };
                at += offset + 1;
                match bytes[at - 1] {
                    b'"' => in_text = true,
                    b'{' => depth += 1,
                    _ if depth == 1 => return Some(at),
                    _ => depth -= 1,
                }
            }
        }
        self.position = at;
        self.place = Place::Element {
            begin,
            depth,
            in_text,
        };
        None
    }
}

/// One message of a store's answer.
#[derive(Debug)]
pub struct StoreEntry<'a> {
    /// Its hash.
    pub message_hash: [u8; HASH_BYTES],
    /// Where it was published, if the store says so.
    pub pubsub_topic: Option<Cow<'a, str>>,
    /// The message; `None` where the query asked for none.
    pub message: Option<JsonMessage<'a>>,
}

/// A page of a store's answer (13/WAKU2-STORE v3).
#[derive(Debug)]
pub struct StoreAnswer<'a> {
    /// 200, or why there is no answer; `None` where it says nothing.
    pub status_code: Option<u32>,
    /// What it says about that.
    pub status_desc: Option<Cow<'a, str>>,
    /// The messages.
    pub entries: Vec<StoreEntry<'a>>,
    /// Where the next page begins.
    pub cursor: Option<[u8; HASH_BYTES]>,
}

#[derive(Deserialize)]
struct JsonEntry<'a> {
    #[serde(borrow, rename = "messageHash", alias = "message_hash")]
    message_hash: Cow<'a, str>,
    #[serde(borrow, default, rename = "pubsubTopic", alias = "pubsub_topic")]
    pubsub_topic: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<JsonMessage<'a>>,
}

#[derive(Deserialize)]
struct JsonAnswer<'a> {
    #[serde(default, rename = "statusCode", alias = "status_code")]
    status_code: Option<u32>,
    #[serde(borrow, default, rename = "statusDesc", alias = "status_desc")]
    status_desc: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    messages: Option<Vec<JsonEntry<'a>>>,
    #[serde(
        borrow,
        default,
        rename = "paginationCursor",
        alias = "pagination_cursor"
    )]
    cursor: Option<Cow<'a, str>>,
}

impl<'a> StoreAnswer<'a> {
    /// Reads an answer in either dialect.
    ///
    /// # Errors
    /// [`JsonError::Store`] where it is none.
    pub fn parse(json: &'a [u8]) -> Result<Self, JsonError> {
        if !is_object(json) {
            return Err(JsonError::Store);
        }
        let answer: JsonAnswer<'a> = serde_json::from_slice(json).map_err(|_| JsonError::Store)?;
        let entries = answer
            .messages
            .unwrap_or_default()
            .into_iter()
            .map(|entry| {
                let message_hash = decode_hash(&entry.message_hash).ok_or(JsonError::Store)?;
                Ok(StoreEntry {
                    message_hash,
                    pubsub_topic: entry.pubsub_topic,
                    message: entry.message,
                })
            });
        let cursor = match answer.cursor.as_deref() {
            None | Some("") => None,
            Some(text) => Some(decode_hash(text).ok_or(JsonError::Store)?),
        };
        Ok(StoreAnswer {
            status_code: answer.status_code,
            status_desc: answer.status_desc,
            entries: entries.collect::<Result<_, _>>()?,
            cursor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn elements(json: &[u8], chunk: usize) -> Result<(Vec<Vec<u8>>, bool), JsonError> {
        let mut reader = ElementReader::new(1_000);
        let mut found = Vec::new();
        for part in json.chunks(chunk) {
            reader.push(part);
            while let Some(element) = reader.next_element()? {
                found.push(element.to_vec());
            }
        }
        Ok((found, reader.is_done()))
    }

    #[test]
    fn finds_elements_however_they_come() {
        let json = br#" [ {"a":"}{\"[\\"} ,{"b":{"c":[1,{"d":2}]}},{} ] "#;
        for chunk in 1..=json.len() {
            let (found, done) = elements(json, chunk).expect("an array");
            assert_eq!(
                found,
                [
                    &br#"{"a":"}{\"[\\"}"#[..],
                    br#"{"b":{"c":[1,{"d":2}]}}"#,
                    b"{}"
                ]
            );
            assert!(done);
        }
    }

    #[test]
    fn null_and_nothing_are_empty() {
        assert_eq!(elements(b"null\n", 1), Ok((vec![], true)));
        assert_eq!(elements(b"[]", 1), Ok((vec![], true)));
        assert_eq!(
            elements(b"[{\"a\":1},", 3),
            Ok((vec![b"{\"a\":1}".to_vec()], false))
        );
    }

    #[test]
    fn refuses_what_is_no_array_of_objects() {
        for json in [
            "{}", "[1]", "[{}{}]", "[,{}]", "[{},]", "nul1", "true", "[] x", "[null]", "nullx",
        ] {
            assert_eq!(
                elements(json.as_bytes(), 2),
                Err(JsonError::Structure),
                "{json}"
            );
        }
    }

    #[test]
    fn leaves_an_element_that_does_not_end() {
        let json = [b"[{\"a\":\"".to_vec(), vec![b'x'; 5_000]].concat();
        assert_eq!(elements(&json, 100), Err(JsonError::ElementTooLong(1_000)));
        let whole = [json, b"\"}]".to_vec()].concat();
        assert_eq!(
            elements(&whole, whole.len()),
            Err(JsonError::ElementTooLong(1_000))
        );
    }

    #[test]
    fn reads_a_message_of_either_server() {
        let go = br#"{"payload":"aGVsbG8g/w==","contentTopic":"/a/1/b/proto","version":0,
            "timestamp":1795236109481767365,"meta":"bWV0YQ==","ephemeral":null}"#;
        let message = JsonMessage::parse(go).expect("a message");
        assert_eq!(message.content_topic(), "/a/1/b/proto");
        assert_eq!(message.timestamp_ns(), 1_795_236_109_481_767_365);
        assert_eq!(message.payload().as_deref(), Some(&b"hello \xff"[..]));
        assert_eq!(message.meta().as_deref(), Some(&b"meta"[..]));
        assert!(!message.ephemeral());
        let bare = JsonMessage::parse(br#"{"contentTopic":"x","timestamp":"-5","ephemeral":true}"#);
        let bare = bare.expect("a message");
        assert_eq!((bare.timestamp_ns(), bare.ephemeral()), (-5, true));
        assert_eq!((bare.payload(), bare.meta()), (Some(vec![]), Some(vec![])));
    }

    #[test]
    fn refuses_what_is_no_message() {
        for json in [
            "{}",
            "[]",
            r#"{"contentTopic":5}"#,
            r#"{"contentTopic":"x","timestamp":1.5}"#,
            r#"{"contentTopic":"x","timestamp":1e400}"#,
            r#"{"contentTopic":"x","timestamp":9223372036854775808}"#,
            r#"{"contentTopic":"x","timestamp":"now"}"#,
            r#"{"contentTopic":"x","payload":[1]}"#,
            "{\"contentTopic\":\"\u{1}\"}",
        ] {
            assert!(JsonMessage::parse(json.as_bytes()).is_none(), "{json}");
        }
        let message = JsonMessage::parse(br#"{"contentTopic":"x","payload":"%%"}"#).expect("JSON");
        assert_eq!(message.payload(), None);
    }

    #[test]
    fn a_hash_in_base64_may_begin_with_0x() {
        let bytes: [u8; 32] = std::array::from_fn(|at| {
            if at == 0 {
                0xd3
            } else if at == 1 {
                0x1b
            } else {
                at as u8
            }
        });
        let text = engine::general_purpose::STANDARD.encode(bytes);
        assert!(text.starts_with("0x"), "{text}");
        assert_eq!(decode_hash(&text), Some(bytes));
        let hex = crate::hex::hex(&bytes);
        assert_eq!(decode_hash(&hex), Some(bytes));
        assert_eq!(decode_hash(&format!("0x{hex}")), Some(bytes));
        for wrong in [
            "",
            "0x",
            &hex[1..],
            &text[..20],
            "zz",
            &format!("0x{}zz", &hex[2..]),
        ] {
            assert_eq!(decode_hash(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn reads_a_page_of_either_server() {
        let hash = "11".repeat(32);
        let go = r#"{"request_id":"1","status_code":200,"status_desc":"OK","messages":[{"message_hash":
            "U4nCY+WtFYAH0LT3vwBWj31z4gaNno7W8WMyhmJL7Io=","message":{"payload":"czA=","contentTopic":"/rc/1/store/proto",
            "timestamp":"1795236112976815348"},"pubsub_topic":"/waku/2/rs/1/7"}],"pagination_cursor":
            "U4nCY+WtFYAH0LT3vwBWj31z4gaNno7W8WMyhmJL7Io="}"#;
        let page = StoreAnswer::parse(go.as_bytes()).expect("a page");
        assert_eq!((page.status_code, page.entries.len()), (Some(200), 1));
        assert_eq!(page.cursor, Some(page.entries[0].message_hash));
        assert_eq!(
            page.entries[0].pubsub_topic.as_deref(),
            Some("/waku/2/rs/1/7")
        );
        let nim = format!(
            r#"{{"statusCode":200,"messages":[{{"messageHash":"0x{hash}","proof":"","message":null}}]}}"#
        );
        let page = StoreAnswer::parse(nim.as_bytes()).expect("a page");
        assert_eq!(page.entries[0].message_hash, [0x11; 32]);
        assert!(page.entries[0].message.is_none() && page.cursor.is_none());
        let deep = "[".repeat(200_000);
        for wrong in [
            "",
            "[]",
            "null",
            r#"{"messages":7}"#,
            r#"{"messages":[{"messageHash":"0x00"}]}"#,
            &deep,
        ] {
            assert_eq!(
                StoreAnswer::parse(wrong.as_bytes()).err(),
                Some(JsonError::Store)
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            topic in ".*",
            meta in proptest::collection::vec(any::<u8>(), 0..64),
            timestamp_ns: i64,
            ephemeral: bool,
        ) {
            let json = encode(&payload, &topic, timestamp_ns, &meta, ephemeral);
            let message = JsonMessage::parse(&json).expect("a message");
            prop_assert_eq!(message.content_topic(), topic.as_str());
            prop_assert_eq!((message.timestamp_ns(), message.ephemeral()), (timestamp_ns, ephemeral));
            prop_assert_eq!(message.payload(), Some(payload));
            prop_assert_eq!(message.meta(), Some(meta));
        }

        #[test]
        fn no_bytes_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), chunk in 1usize..50) {
            let _ = elements(&bytes, chunk);
            let _ = StoreAnswer::parse(&bytes);
            let _ = JsonMessage::parse(&bytes);
        }
    }
}
