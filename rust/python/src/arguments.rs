//! Arguments of a machine, whose refusal names them: what is of a wrong kind, or out of its limits,
//! raises `ConfigError` wherever it is given. Bytes are the exception, as everywhere in Python.

use std::ops::Deref;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::error::config_error;

/// Longer than this no value is shown in an error.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// What an error shows of a value.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let repr = value.repr().map(|text| text.to_string());
    match repr {
        Ok(text) if text.chars().count() <= SHOWN_CHARACTERS_MAX => text,
        _ => format!("a {}", kind_of(value)),
    }
}

fn kind_of(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().name();
    name.map_or_else(|_| "value".to_owned(), |name| name.to_string())
}

/// That an argument is not what it must be.
pub fn refused(name: &str, value: &Bound<'_, PyAny>, limit: &str) -> PyErr {
    config_error(format!("{name} is {}: it must be {limit}", shown(value)))
}

fn text_of<'a>(name: &str, value: Borrowed<'a, '_, PyAny>) -> PyResult<&'a str> {
    if !value.is_instance_of::<PyString>() {
        return Err(refused(name, &value, "a text"));
    }
    value
        .extract::<&'a str>()
        .map_err(|_| refused(name, &value, "encodable as UTF-8"))
}

/// What an argument holds by value.
trait Plain: Sized {
    fn of(name: &str, value: Borrowed<'_, '_, PyAny>) -> PyResult<Self>;
}

/// An integer, which True and False are not.
fn integer_of<'a, 'py, T>(value: Borrowed<'a, 'py, PyAny>) -> Option<T>
where
    T: FromPyObject<'a, 'py>,
{
    let is_flag = value.is_instance_of::<PyBool>();
    (!is_flag).then(|| value.extract().ok()).flatten()
}

macro_rules! counted {
    ($($type:ty),+) => {$(
        impl Plain for $type {
            fn of(name: &str, value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                let limit = || format!("an integer from 0 to {}", <$type>::MAX);
                integer_of(value).ok_or_else(|| refused(name, &value, &limit()))
            }
        }
    )+};
}

counted!(u32, u64, usize);

/// A time in ms.
impl Plain for i64 {
    fn of(name: &str, value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let time = integer_of(value);
        time.ok_or_else(|| refused(name, &value, "an integer of ms, within 64 bits"))
    }
}

impl Plain for bool {
    fn of(name: &str, value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let flag = value.extract();
        flag.map_err(|_| refused(name, &value, "True or False"))
    }
}

macro_rules! texts {
    ($($kind:ident = $name:literal),+ $(,)?) => {$(
        #[doc = concat!("The argument `", $name, "`, a text.")]
        pub struct $kind<'a>(&'a str);

        impl Deref for $kind<'_> {
            type Target = str;

            fn deref(&self) -> &str {
                self.0
            }
        }

        impl<'a, 'py> FromPyObject<'a, 'py> for $kind<'a> {
            type Error = PyErr;

            fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
                text_of($name, object).map($kind)
            }
        }
    )+};
}

macro_rules! values {
    ($($kind:ident($type:ty) = $name:literal),+ $(,)?) => {$(
        #[doc = concat!("The argument `", $name, "`.")]
        #[derive(Clone, Copy)]
        pub struct $kind(pub $type);

        impl FromPyObject<'_, '_> for $kind {
            type Error = PyErr;

            fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                Plain::of($name, object).map($kind)
            }
        }
    )+};
}

texts! {
    ChannelId = "channel_id",
    MessageId = "message_id",
    RivalName = "name",
    SendId = "send_id",
    SenderId = "sender_id",
}

values! {
    ContentBytesMax(usize) = "content_bytes_max",
    ContentCount(u32) = "content_count",
    ContentsNeeded(u32) = "contents_needed",
    Count(u32) = "count",
    EpochMs(i64) = "epoch_ms",
    FromStore(bool) = "from_store",
    HeaderBytesMax(usize) = "header_bytes_max",
    Invalid(bool) = "invalid",
    KeepMessages(bool) = "keep_messages",
    MonotonicMs(i64) = "monotonic_ms",
    Ordinal(u32) = "ordinal",
    Reserve(u32) = "reserve",
    TransmitId(u64) = "transmit_id",
}

/// The argument `rng`.
pub struct Rng(pub Py<PyAny>);

impl FromPyObject<'_, '_> for Rng {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let random = py.import(intern!(py, "random"))?;
        if !object.is_instance(&random.getattr(intern!(py, "Random"))?)? {
            return Err(refused("rng", &object, "a random.Random"));
        }
        Ok(Rng(object.to_owned().unbind()))
    }
}

/// The argument `ordinals`.
pub struct Ordinals(pub Vec<u32>);

impl FromPyObject<'_, '_> for Ordinals {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let ordinals = object.extract().map(Ordinals);
        ordinals.map_err(|_| refused("ordinals", &object, "a list of integers of at least 0"))
    }
}
