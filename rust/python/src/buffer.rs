//! Buffers in: `bytes` is read in place, everything else is copied first.

use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyString};

use crate::error::config_error;

/// Work on fewer bytes than this keeps the GIL: letting go of it costs more than it gives.
pub const DETACH_BYTES_MIN: usize = 4096;

/// More items than any list holds that fits a machine.
pub const ITEMS_MAX: usize = 1 << 40;

/// The bytes of any buffer. A mutable one could change under Rust, so it is copied.
#[derive(Debug, Clone)]
pub struct Buffer<'py>(Bound<'py, PyBytes>);

impl<'py> Buffer<'py> {
    /// The bytes, which stay as they are.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The object, where it is exactly a `bytes`.
    pub fn into_exact_bytes(self) -> Option<Bound<'py, PyBytes>> {
        self.0.is_exact_instance_of::<PyBytes>().then_some(self.0)
    }

    /// The bytes for code that runs without the GIL, and after the call. What a class of its own does
    /// when it goes does not happen there.
    pub fn into_backed(self) -> PyBackedBytes {
        if self.0.is_exact_instance_of::<PyBytes>() {
            return self.0.into();
        }
        PyBytes::new(self.0.py(), self.0.as_bytes()).into()
    }

    /// A reference that outlives the call.
    pub fn unbind(self) -> Py<PyBytes> {
        self.0.unbind()
    }
}

impl<'py> FromPyObject<'_, 'py> for Buffer<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Buffer(bytes.to_owned()));
        }
        let py = object.py();
        let view = PyMemoryView::from(&object).map_err(|error| {
            // A buffer that cannot be had, such as a view that was released, says so itself.
            if error.is_instance_of::<PyTypeError>(py) {
                PyTypeError::new_err(no_buffer(&object))
            } else {
                error
            }
        })?;
        if holds_objects(view.getattr("format")?.extract::<&str>()?) {
            let message = "the buffer holds references to Python objects: give it a type of bytes \
                           or numbers";
            return Err(PyTypeError::new_err(message));
        }
        // `tobytes` takes a buffer that is not contiguous in its logical order.
        Ok(Buffer(view.call_method0("tobytes")?.cast_into()?))
    }
}

/// Whether a buffer's format has addresses of Python objects in it; names of fields stand between
/// colons.
fn holds_objects(format: &str) -> bool {
    let types = format.split(':').step_by(2);
    types.into_iter().any(|types| types.contains('O'))
}

/// What is wrong with an object that has no bytes, and what to give; never what it holds, which may be
/// a payload.
fn no_buffer(object: &Bound<'_, PyAny>) -> String {
    let remedy = if object.is_instance_of::<PyString>() {
        "encode the text, as in \"text\".encode()"
    } else {
        "give bytes"
    };
    let kind = kind_of(object);
    format!("a bytes-like object is required, not {kind}: {remedy}")
}

fn kind_of(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().fully_qualified_name();
    name.map_or_else(|_| "this".to_owned(), |name| name.to_string())
}

/// What `take` makes of each item of an iterable; `name` and the item's place stand in the error.
/// More than `count_max` items are an error too.
pub fn items_of<'py, T>(
    iterable: &Bound<'py, PyAny>,
    name: &str,
    count_max: usize,
    take: impl Fn(Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let is_one = iterable.is_instance_of::<PyBytes>()
        || iterable.is_instance_of::<PyByteArray>()
        || iterable.is_instance_of::<PyString>();
    let py = iterable.py();
    let has = |name: &Bound<'py, PyString>| iterable.hasattr(name);
    // Nearly always it is a list, which need not be asked.
    let is_iterable = iterable.is_exact_instance_of::<PyList>()
        || has(intern!(py, "__iter__"))?
        || has(intern!(py, "__getitem__"))?;
    if is_one || !is_iterable {
        return Err(PyTypeError::new_err(format!(
            "{name} is {}: it must be a list or another iterable of them",
            kind_of(iterable)
        )));
    }
    let too_many = || {
        let message = format!("{name} has more than {count_max} items: pass at most as many");
        Err(config_error(message))
    };
    // What claims too much is refused at once; a smaller claim is not trusted either, and nothing
    // is allocated for it.
    let claims_too_many = match iterable.len() {
        Ok(length) => length > count_max,
        Err(error) => error.is_instance_of::<PyOverflowError>(py),
    };
    if claims_too_many {
        return too_many();
    }
    let mut items = Vec::new();
    for (place, item) in iterable.try_iter()?.enumerate() {
        if place == count_max {
            return too_many();
        }
        let taken = take(item?).map_err(|error| at_place(py, error, name, place))?;
        // An iterable without an end ends here, as it would for a list.
        items.try_reserve(1).map_err(|_| {
            let message =
                format!("{name} has more items than there is memory for: {place} are held");
            PyMemoryError::new_err(message)
        })?;
        items.push(taken);
    }
    Ok(items)
}

fn at_place(py: Python<'_>, error: PyErr, name: &str, place: usize) -> PyErr {
    if !error.get_type(py).is(py.get_type::<PyTypeError>()) {
        return error;
    }
    PyTypeError::new_err(format!("{name}[{place}]: {}", error.value(py)))
}

/// The buffers of an iterable.
pub fn buffers_of<'py>(iterable: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<Buffer<'py>>> {
    items_of(iterable, name, ITEMS_MAX, |item| item.extract())
}

/// The items of an iterable, whatever it says of its length.
pub fn all_of<'py, T>(iterable: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    items_of(iterable, name, ITEMS_MAX, |item| {
        item.extract().map_err(Into::into)
    })
}

/// Runs `work`, without the GIL where it handles enough bytes.
pub fn detached<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes >= DETACH_BYTES_MIN {
        py.detach(work)
    } else {
        work()
    }
}
