//! The only place where errors of the core become Python exceptions.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use shardwire_core::bloom::BloomError;
use shardwire_core::channel::{self, SubmitError, TooSmall};
use shardwire_core::erasure::ErasureError;
use shardwire_core::sds::{Refusal, RestoreError};
use shardwire_core::segment::{ParameterError, SegmentationError};
use shardwire_core::wire::sds::SdsEncodeError;
use shardwire_core::wire::segment::SegmentError;
use shardwire_core::wire::waku::ContentTopicError;

/// What a function of the boundary fails with.
#[derive(Debug)]
pub enum Error {
    /// Raised as it is: a built-in for a bad argument.
    Python(PyErr),
    /// A string that names none of the choices.
    Choice {
        /// The argument.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        choices: &'static str,
    },
    Parameter(ParameterError),
    Segmentation(SegmentationError),
    Segment(SegmentError),
    Erasure(ErasureError),
    Bloom(BloomError),
    SdsEncode(SdsEncodeError),
    Refusal(Refusal),
    TooSmall(TooSmall),
    Submit(SubmitError),
    Stored(String),
    ContentTopic {
        topic: String,
        source: ContentTopicError,
    },
}

macro_rules! from_core {
    ($($variant:ident($source:ty)),* $(,)?) => {
        $(impl From<$source> for Error {
            fn from(source: $source) -> Self {
                Error::$variant(source)
            }
        })*
    };
}

from_core!(
    Python(PyErr),
    Parameter(ParameterError),
    Segmentation(SegmentationError),
    Segment(SegmentError),
    Erasure(ErasureError),
    Bloom(BloomError),
    SdsEncode(SdsEncodeError),
    Refusal(Refusal),
    TooSmall(TooSmall),
    Submit(SubmitError),
);

impl From<RestoreError> for Error {
    fn from(error: RestoreError) -> Self {
        Error::Stored(error.to_string())
    }
}

impl From<channel::RestoreError> for Error {
    fn from(error: channel::RestoreError) -> Self {
        Error::Stored(error.to_string())
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        match error {
            Error::Python(error) => error,
            Error::Choice {
                field,
                value,
                choices,
            } => config_error(format!("{field} is {value:?}: it must be {choices}")),
            Error::Parameter(error) => config_error(error.to_string()),
            Error::Bloom(error) => config_error(error.to_string()),
            Error::SdsEncode(error) => config_error(error.to_string()),
            Error::Refusal(error) => config_error(error.to_string()),
            Error::TooSmall(error) => config_error(error.to_string()),
            Error::Submit(error) => submit_error(error),
            Error::Stored(message) => raise(&PERSISTENCE, "PersistenceError", message),
            Error::ContentTopic { topic, source } => {
                config_error(format!("content topic {topic:?} has no shard: {source}"))
            }
            Error::Segment(error) => {
                raise(&INVALID_SEGMENT, "InvalidSegmentError", error.to_string())
            }
            Error::Segmentation(error) => segmentation_error(error),
            Error::Erasure(error) => erasure_error(error),
        }
    }
}

static CONFIG: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static INVALID_SEGMENT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static PERSISTENCE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static PAYLOAD_TOO_LARGE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static NOT_ENOUGH_SHARDS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static QUEUE_FULL: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn submit_error(error: SubmitError) -> PyErr {
    let message = match error {
        SubmitError::Refused(error) => return config_error(error.to_string()),
        SubmitError::TooLarge {
            size_bytes,
            bytes_max,
        } => format!(
            "the segments of the message have {size_bytes} bytes, RateLimitConfig.queue_bytes_max is \
             {bytes_max}, with a rate limit or without: raise the limit"
        ),
        SubmitError::QueueFull {
            queued_bytes,
            bytes_max,
        } => format!(
            "the queue that waits for the rate limit would hold {queued_bytes} bytes, \
             RateLimitConfig.queue_bytes_max is {bytes_max}: wait until earlier messages left, as \
             `await channel.delivered(...)` does of one, or raise the limit"
        ),
        SubmitError::TooMany { contents_max } => format!(
            "the queue that waits for the rate limit would hold more than {contents_max} segments: wait until \
             earlier messages left, as `await channel.delivered(...)` does of one, or send fewer, larger ones"
        ),
    };
    raise(&QUEUE_FULL, "QueueFullError", message)
}

fn segmentation_error(error: SegmentationError) -> PyErr {
    let message = error.to_string();
    match error {
        SegmentationError::PayloadTooLarge {
            payload_bytes,
            limit_bytes,
        } => raise(
            &PAYLOAD_TOO_LARGE,
            "PayloadTooLargeError",
            (message, payload_bytes, limit_bytes),
        ),
        SegmentationError::ReadsAsSegment { .. }
        | SegmentationError::Empty
        | SegmentationError::NotItsData => config_error(message),
        SegmentationError::Erasure(error) => erasure_error(error),
    }
}

fn erasure_error(error: ErasureError) -> PyErr {
    let message = error.to_string();
    match error {
        ErasureError::NotEnoughShards { needed, present } => raise(
            &NOT_ENOUGH_SHARDS,
            "NotEnoughShardsError",
            (message, present, needed),
        ),
        _ => config_error(message),
    }
}

/// A `shardwire.errors.ConfigError`.
pub fn config_error(message: String) -> PyErr {
    raise(&CONFIG, "ConfigError", message)
}

/// The class is imported when it is first raised: `shardwire.errors` needs nothing of this module.
fn raise<A>(cell: &'static PyOnceLock<Py<PyType>>, name: &str, arguments: A) -> PyErr
where
    A: pyo3::PyErrArguments + Send + Sync + 'static,
{
    Python::attach(|py| match cell.import(py, "shardwire.errors", name) {
        Ok(class) => PyErr::from_type(class.clone(), arguments),
        Err(error) => PyRuntimeError::new_err(format!("shardwire.errors.{name}: {error}")),
    })
}
