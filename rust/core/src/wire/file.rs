//! Messages of file transfers: `proto/file_transfer.proto`, and the limits of what a peer may say.

use prost::Message as _;
use thiserror::Error;

use super::proto::file::file_message::Body;
use super::proto::file::{FileChunk, FileManifest, FileMessage, FileStatus};
use crate::keccak::{self, DIGEST_LEN};

pub use super::proto::file::{FileReason as Reason, FileState as State};

/// What every message begins with: a name, and the version of the format behind it.
pub const MAGIC: [u8; 8] = *b"\x93swfile\x01";
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// The smallest chunk but the last: below it the hashes weigh too much.
pub const CHUNK_BYTES_MIN: u32 = 4 << 10;
/// The largest chunk.
pub const CHUNK_BYTES_MAX: u32 = 16 << 20;
/// The largest file: offsets are signed.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// A Keccak-256 hash.
pub type Hash = [u8; DIGEST_LEN];

/// Why bytes are no message of a file transfer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FileMessageError {
    /// Another magic, or another version.
    #[error("it does not begin with the magic and version of a file message")]
    Magic,
    /// Protobuf that is none.
    #[error("{0}")]
    Protobuf(#[from] prost::DecodeError),
    /// None of manifest, chunk and status.
    #[error("it has no manifest, chunk or status")]
    Kind,
    /// A field out of its limits.
    #[error("{field} is {value}: it must be {limit}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value, or its length.
        value: u64,
        /// What it must be.
        limit: &'static str,
    },
}

/// What is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// A name to suggest; a peer's, so anything of [`NAME_BYTES_MAX`].
    pub name: String,
    /// Bytes of the file, as its sender claims.
    pub size_bytes: u64,
    /// Bytes of each chunk but the last.
    pub chunk_size_bytes: u32,
    /// The hash of the first chunk.
    pub chain_hash: Hash,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Of which transfer.
    pub transfer_id: Hash,
    /// Its place.
    pub index: u64,
    /// The hash of the next chunk.
    pub next_hash: Hash,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// What a participant says of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Of which transfer.
    pub transfer_id: Hash,
    /// What it says.
    pub state: State,
    /// Why, where it refuses.
    pub reason: Reason,
    /// The first chunk that it lacks.
    pub next_index: u64,
}

/// What every message has beside what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// What makes a message another one than all before.
    pub nonce: u64,
    /// Drawn by a sender whenever it begins; a status has that of what it answers.
    pub session: u64,
}

/// What one message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// An offer, and the transfer's id.
    Manifest(Manifest, Hash),
    /// A part of a file.
    Chunk(Chunk),
    /// What a participant says.
    Status(Status),
}

/// Reads a message of the channel.
///
/// # Errors
/// Where it is no file message of this version, or a field is out of its limits.
pub fn read(message: &[u8]) -> Result<(Message, Stamp), FileMessageError> {
    let body = message
        .strip_prefix(&MAGIC)
        .ok_or(FileMessageError::Magic)?;
    let message = FileMessage::decode(body)?;
    let stamp = Stamp {
        nonce: message.nonce,
        session: message.session,
    };
    let read = match message.body {
        Some(Body::Manifest(bytes)) => {
            let manifest = read_manifest(&bytes)?;
            Message::Manifest(manifest, keccak::keccak256(&bytes))
        }
        Some(Body::Chunk(chunk)) => Message::Chunk(read_chunk(chunk)?),
        Some(Body::Status(status)) => Message::Status(read_status(&status)?),
        None => return Err(FileMessageError::Kind),
    };
    Ok((read, stamp))
}

/// The message that offers a file, and the transfer's id.
///
/// # Errors
/// [`FileMessageError::Field`] names what is out of its limits.
pub fn encode_manifest(
    manifest: &Manifest,
    stamp: Stamp,
) -> Result<(Vec<u8>, Hash), FileMessageError> {
    let encoded = FileManifest {
        name: manifest.name.clone(),
        size_bytes: manifest.size_bytes,
        chunk_size_bytes: manifest.chunk_size_bytes,
        chain_hash: manifest.chain_hash.to_vec(),
    }
    .encode_to_vec();
    read_manifest(&encoded)?;
    let transfer_id = keccak::keccak256(&encoded);
    Ok((encode(Body::Manifest(encoded), stamp), transfer_id))
}

/// The message that carries a chunk.
pub fn encode_chunk(chunk: Chunk, stamp: Stamp) -> Vec<u8> {
    let body = Body::Chunk(FileChunk {
        transfer_id: chunk.transfer_id.to_vec(),
        index: chunk.index,
        next_hash: chunk.next_hash.to_vec(),
        data: chunk.data,
    });
    encode(body, stamp)
}

/// The message that says what became of a transfer.
pub fn encode_status(status: &Status, stamp: Stamp) -> Vec<u8> {
    let body = Body::Status(FileStatus {
        transfer_id: status.transfer_id.to_vec(),
        state: status.state.into(),
        reason: status.reason.into(),
        next_index: status.next_index,
    });
    encode(body, stamp)
}

fn encode(body: Body, stamp: Stamp) -> Vec<u8> {
    let message = FileMessage {
        body: Some(body),
        nonce: stamp.nonce,
        session: stamp.session,
    };
    let mut bytes = Vec::with_capacity(MAGIC.len() + message.encoded_len());
    bytes.extend_from_slice(&MAGIC);
    message
        .encode(&mut bytes)
        .expect("a vector grows to what is written");
    bytes
}

fn read_manifest(bytes: &[u8]) -> Result<Manifest, FileMessageError> {
    let manifest = FileManifest::decode(bytes)?;
    let name_bytes = manifest.name.len() as u64;
    if !(1..=NAME_BYTES_MAX as u64).contains(&name_bytes) {
        let limit = "1 to 255 bytes long";
        return Err(out_of_limits("the length of name", name_bytes, limit));
    }
    if manifest.size_bytes > FILE_BYTES_MAX {
        return Err(out_of_limits(
            "size_bytes",
            manifest.size_bytes,
            "below 2^63",
        ));
    }
    let chunk_size_bytes = manifest.chunk_size_bytes;
    if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_size_bytes) {
        let limit = "from 4096 to 16777216";
        return Err(out_of_limits(
            "chunk_size_bytes",
            chunk_size_bytes.into(),
            limit,
        ));
    }
    Ok(Manifest {
        chain_hash: hash_of(&manifest.chain_hash, "the length of chain_hash")?,
        name: manifest.name,
        size_bytes: manifest.size_bytes,
        chunk_size_bytes,
    })
}

fn read_chunk(chunk: FileChunk) -> Result<Chunk, FileMessageError> {
    let length = chunk.data.len() as u64;
    if !(1..=u64::from(CHUNK_BYTES_MAX)).contains(&length) {
        let limit = "from 1 to 16777216";
        return Err(out_of_limits("the length of data", length, limit));
    }
    Ok(Chunk {
        transfer_id: hash_of(&chunk.transfer_id, "the length of transfer_id")?,
        index: chunk.index,
        next_hash: hash_of(&chunk.next_hash, "the length of next_hash")?,
        data: chunk.data,
    })
}

fn read_status(status: &FileStatus) -> Result<Status, FileMessageError> {
    let state = status.state();
    if state == State::Unspecified {
        let value = u64::from(status.state.unsigned_abs());
        return Err(out_of_limits("state", value, "one of those known"));
    }
    Ok(Status {
        transfer_id: hash_of(&status.transfer_id, "the length of transfer_id")?,
        state,
        // One of a later version is none that we know.
        reason: status.reason(),
        next_index: status.next_index,
    })
}

fn hash_of(bytes: &[u8], field: &'static str) -> Result<Hash, FileMessageError> {
    bytes
        .try_into()
        .map_err(|_| out_of_limits(field, bytes.len() as u64, "32"))
}

fn out_of_limits(field: &'static str, value: u64, limit: &'static str) -> FileMessageError {
    FileMessageError::Field {
        field,
        value,
        limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(nonce: u64) -> Stamp {
        Stamp { nonce, session: 77 }
    }

    fn manifest() -> Manifest {
        Manifest {
            name: "a.bin".to_owned(),
            size_bytes: 1_000_000,
            chunk_size_bytes: 1 << 16,
            chain_hash: [7; 32],
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let (message, transfer_id) = encode_manifest(&manifest(), stamp(5)).unwrap();
        let read_back = read(&message).unwrap();
        assert_eq!(
            read_back,
            (Message::Manifest(manifest(), transfer_id), stamp(5))
        );
        let (again, same_id) = encode_manifest(&manifest(), stamp(6)).unwrap();
        assert_eq!(same_id, transfer_id, "the nonce is no part of the id");
        assert_ne!(again, message);
        let (_, other_id) = encode_manifest(
            &Manifest {
                size_bytes: 1_000_001,
                ..manifest()
            },
            stamp(5),
        )
        .unwrap();
        assert_ne!(other_id, transfer_id);
    }

    #[test]
    fn a_manifest_out_of_its_limits_is_refused() {
        let field_of = |change: fn(&mut Manifest)| {
            let mut changed = manifest();
            change(&mut changed);
            match encode_manifest(&changed, stamp(0)) {
                Ok(_) => "",
                Err(FileMessageError::Field { field, .. }) => field,
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(field_of(|m| m.name = "n".repeat(255)), "");
        assert_eq!(field_of(|m| m.name = "n".repeat(256)), "the length of name");
        assert_eq!(field_of(|m| m.name.clear()), "the length of name");
        assert_eq!(field_of(|m| m.size_bytes = 0), "");
        assert_eq!(field_of(|m| m.size_bytes = FILE_BYTES_MAX), "");
        assert_eq!(
            field_of(|m| m.size_bytes = FILE_BYTES_MAX + 1),
            "size_bytes"
        );
        assert_eq!(field_of(|m| m.chunk_size_bytes = CHUNK_BYTES_MIN), "");
        assert_eq!(
            field_of(|m| m.chunk_size_bytes = CHUNK_BYTES_MIN - 1),
            "chunk_size_bytes"
        );
        assert_eq!(field_of(|m| m.chunk_size_bytes = CHUNK_BYTES_MAX), "");
        assert_eq!(
            field_of(|m| m.chunk_size_bytes = CHUNK_BYTES_MAX + 1),
            "chunk_size_bytes"
        );
    }

    #[test]
    fn what_is_no_message_of_this_version_is_refused() {
        let (mut message, _) = encode_manifest(&manifest(), stamp(5)).unwrap();
        message[7] = 2;
        assert_eq!(read(&message), Err(FileMessageError::Magic));
        assert_eq!(read(b""), Err(FileMessageError::Magic));
        assert_eq!(read(&MAGIC), Err(FileMessageError::Kind));
    }

    #[test]
    fn hashes_and_states_out_of_their_limits_are_refused() {
        let message = |body| encode(body, stamp(1));
        let chunk = FileChunk {
            transfer_id: vec![1; 32],
            index: 1,
            next_hash: vec![2; 32],
            data: vec![3],
        };
        let status = FileStatus {
            transfer_id: vec![1; 32],
            state: 1,
            reason: 99,
            next_index: 4,
        };
        assert!(read(&message(Body::Chunk(chunk.clone()))).is_ok());
        let Ok((Message::Status(known), _)) = read(&message(Body::Status(status.clone()))) else {
            panic!("a status")
        };
        assert_eq!(known.reason, Reason::Unspecified);
        for wrong in [
            Body::Chunk(FileChunk {
                transfer_id: vec![1; 31],
                ..chunk.clone()
            }),
            Body::Chunk(FileChunk {
                next_hash: vec![1; 33],
                ..chunk.clone()
            }),
            Body::Chunk(FileChunk {
                data: vec![],
                ..chunk.clone()
            }),
            Body::Chunk(FileChunk {
                data: vec![0; CHUNK_BYTES_MAX as usize + 1],
                ..chunk
            }),
            Body::Status(FileStatus {
                transfer_id: vec![],
                ..status.clone()
            }),
            Body::Status(FileStatus {
                state: 0,
                ..status.clone()
            }),
            Body::Status(FileStatus {
                state: -7,
                ..status
            }),
        ] {
            let read_back = read(&message(wrong));
            assert!(matches!(read_back, Err(FileMessageError::Field { .. })));
        }
    }

    proptest! {
        #[test]
        fn chunks_and_statuses_are_read_as_they_were_written(
            index in any::<u64>(), data in prop::collection::vec(any::<u8>(), 1..300),
            state in 1i32..7, reason in 0i32..9, nonce in any::<u64>(), session in any::<u64>()
        ) {
            let stamp = Stamp { nonce, session };
            let chunk = Chunk { transfer_id: [4; 32], index, next_hash: [5; 32], data };
            let message = encode_chunk(chunk.clone(), stamp);
            prop_assert_eq!(read(&message), Ok((Message::Chunk(chunk), stamp)));
            let status = Status {
                transfer_id: [4; 32],
                state: State::try_from(state).unwrap(),
                reason: Reason::try_from(reason).unwrap(),
                next_index: index,
            };
            let message = encode_status(&status, stamp);
            prop_assert_eq!(read(&message), Ok((Message::Status(status), stamp)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&body);
            let _ = read(&[&MAGIC[..], &body].concat());
        }
    }
}
