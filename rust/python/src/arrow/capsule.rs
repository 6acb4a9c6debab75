//! Arrays over Arrow's C data interface, in the capsules of Python's Arrow protocol.
//!
//! Whoever makes a capsule vouches for its pointers: how long a buffer is, nobody can see. What else
//! the structures say is checked before it is used, so an array that was taken over is valid
//! throughout. In text that is no UTF-8, U+FFFD stands for what is none: archives hold what peers
//! called themselves.
//!
//! Taking an array over leaves the structure in its capsule released; what nobody took over is
//! released with its capsule.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::fmt::Display;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, LargeStringArray, StringArray, StringViewArray, make_array};
use arrow_buffer::alloc::Allocation;
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder, BufferSpec, layout};
use arrow_schema::{ArrowError, DataType, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::input::BinaryColumn;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Types nest no deeper: a structure that is its own child would never end.
const NESTING_MAX: usize = 64;

/// Fields of one type, columns of a batch among them.
const FIELDS_MAX: usize = 1 << 16;

/// Rows of one array: as many as the format advises for those that others are to read.
const ROWS_MAX: usize = i32::MAX as usize;

/// What stands for a number of nulls that nobody counted.
const NULLS_NOT_COUNTED: i64 = -1;

/// Takes over the array of two capsules, as `__arrow_c_array__` gives them.
pub fn array_of(
    schema: &Bound<'_, PyCapsule>,
    array: &Bound<'_, PyCapsule>,
) -> PyResult<(Field, ArrayRef)> {
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast();
    let array = array.pointer_checked(Some(ARRAY))?.cast();
    // SAFETY: capsules of these names hold these structures, and are borrowed here.
    unsafe { take_array(schema, array) }.map_err(value_error)
}

/// Takes over the arrays of a capsule, as `__arrow_c_stream__` gives it, and the field that
/// describes each.
pub fn arrays_of(stream: &Bound<'_, PyCapsule>) -> PyResult<(Field, Vec<ArrayRef>)> {
    let stream = stream.pointer_checked(Some(STREAM))?.cast();
    // SAFETY: a capsule of this name holds this structure, and is borrowed here.
    unsafe { take_stream(stream) }.map_err(value_error)
}

/// An array and the field that describes it, as `__arrow_c_array__` gives them.
pub fn capsules_of<'py>(
    py: Python<'py>,
    field: &Field,
    array: &ArrayData,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let schema = FFI_ArrowSchema::try_from(field).map_err(value_error)?;
    Ok((
        PyCapsule::new_with_value(py, schema, SCHEMA)?,
        PyCapsule::new_with_value(py, FFI_ArrowArray::new(array), ARRAY)?,
    ))
}

fn value_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn malformed(what: impl Into<String>) -> ArrowError {
    ArrowError::CDataInterface(what.into())
}

/// Takes over an array.
///
/// # Safety
///
/// Both are structures of the C data interface that nobody else uses meanwhile. Every pointer in
/// them is null, or points to as much as the interface says for the lengths beside it.
unsafe fn take_array(
    schema: NonNull<FFI_ArrowSchema>,
    array: NonNull<FFI_ArrowArray>,
) -> Result<(Field, ArrayRef), ArrowError> {
    // SAFETY: the caller vouches for both.
    let (schema, array) = unsafe { (schema.as_ref(), FFI_ArrowArray::from_raw(array.as_ptr())) };
    let field = field_of(schema)?;
    let array = imported(array, field.data_type())?;
    Ok((field, array))
}

/// Takes over all arrays of a stream.
///
/// # Safety
///
/// As of [`take_array`], and for what the functions of the stream give.
unsafe fn take_stream(
    stream: NonNull<FFI_ArrowArrayStream>,
) -> Result<(Field, Vec<ArrayRef>), ArrowError> {
    // SAFETY: the caller vouches for it.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    let (Some(get_schema), Some(get_next), Some(_)) =
        (stream.get_schema, stream.get_next, stream.release)
    else {
        return Err(malformed("the stream was released, or lacks a function"));
    };
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: the stream is not released; it writes a structure where an empty one stands.
    if unsafe { get_schema(&mut stream, &mut schema) } != 0 {
        return Err(failure_of(&mut stream));
    }
    let field = field_of(&schema)?;
    let mut arrays = Vec::new();
    loop {
        let mut array = FFI_ArrowArray::empty();
        // SAFETY: as of the schema.
        if unsafe { get_next(&mut stream, &mut array) } != 0 {
            return Err(failure_of(&mut stream));
        }
        if array.is_released() {
            return Ok((field, arrays));
        }
        arrays.push(imported(array, field.data_type())?);
    }
}

/// What a stream says of its failure.
fn failure_of(stream: &mut FFI_ArrowArrayStream) -> ArrowError {
    let reason = stream.get_last_error.and_then(|get_last_error| {
        // SAFETY: the stream is not released, and its text lives until the next call.
        unsafe { text_at(get_last_error(stream)) }.map(|text| text.to_string_lossy().into_owned())
    });
    malformed(reason.unwrap_or_else(|| "the stream failed and does not say why".to_owned()))
}

/// # Safety
///
/// The text is null, or ends in 0 and lives as long as the result is used.
unsafe fn text_at<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller says so.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// The field that a structure describes.
fn field_of(schema: &FFI_ArrowSchema) -> Result<Field, ArrowError> {
    check_schema(schema, 0)?;
    let field = Field::try_from(schema)?;
    check_type(field.data_type())?;
    Ok(field)
}

/// Checks what `Field::try_from` takes for granted.
fn check_schema(schema: &FFI_ArrowSchema, depth: usize) -> Result<(), ArrowError> {
    if depth > NESTING_MAX {
        return Err(malformed(format!(
            "the type is nested more than {NESTING_MAX} deep"
        )));
    }
    if schema.release.is_none() {
        return Err(malformed("the schema was released"));
    }
    // SAFETY: texts of a schema live as long as it.
    let (format, name) = unsafe { (text_at(schema.format), text_at(schema.name)) };
    let format = format.ok_or_else(|| malformed("the schema has no format"))?;
    let format = format
        .to_str()
        .map_err(|_| malformed("the schema's format is no UTF-8"))?;
    if name.is_some_and(|name| name.to_str().is_err()) {
        return Err(malformed("the schema's name is no UTF-8"));
    }
    let fields = usize::try_from(schema.n_children).unwrap_or(usize::MAX);
    if fields > FIELDS_MAX || fields < fields_min(format) {
        return Err(malformed(format!(
            "the type {format:?} has {} fields: {} to {FIELDS_MAX} are possible",
            schema.n_children,
            fields_min(format)
        )));
    }
    // SAFETY: there are as many, and each lives as long as the schema.
    for child in unsafe { children_at(schema.children, fields) } {
        check_schema(child?, depth + 1)?;
    }
    // SAFETY: it is null, or lives as long as the schema.
    match unsafe { schema.dictionary.as_ref() } {
        Some(dictionary) => check_schema(dictionary, depth + 1),
        None => Ok(()),
    }
}

/// Fields that types of a format have at least.
fn fields_min(format: &str) -> usize {
    match format {
        "+r" => 2,
        "+s" => 0,
        _ if format.starts_with("+u") => 0,
        _ => usize::from(format.starts_with('+')),
    }
}

/// Refuses types that make no sense, and those that neither Spark nor this crate has.
fn check_type(data_type: &DataType) -> Result<(), ArrowError> {
    match data_type {
        DataType::FixedSizeBinary(size) | DataType::FixedSizeList(_, size) if *size < 0 => Err(
            malformed(format!("the type {data_type} has a negative size")),
        ),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => check_type(field.data_type()),
        DataType::Struct(fields) => fields
            .iter()
            .try_for_each(|field| check_type(field.data_type())),
        DataType::Dictionary(keys, values) if keys.is_dictionary_key_type() => check_type(values),
        DataType::Dictionary(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Union(..)
        | DataType::RunEndEncoded(..) => {
            Err(malformed(format!("the type {data_type} is not read here")))
        }
        _ => Ok(()),
    }
}

/// # Safety
///
/// `children` is null or has `count` pointers; each is null, or lives as long as the result is used.
unsafe fn children_at<'a, T: 'a>(
    children: *mut *mut T,
    count: usize,
) -> impl Iterator<Item = Result<&'a T, ArrowError>> {
    (0..count).map(move |place| {
        // SAFETY: the caller says so, and a pointer is only read where there are some.
        let child = (!children.is_null())
            .then(|| unsafe { children.add(place).read_unaligned().as_ref() })
            .flatten();
        child.ok_or_else(|| malformed(format!("child {place} is missing")))
    })
}

/// The array in a structure. It is released with the last of its buffers.
fn imported(array: FFI_ArrowArray, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let owner = Arc::new(array);
    let source = Source {
        array: &owner,
        owner: &owner,
        data_type,
    };
    Ok(make_array(source.read()?))
}

/// An array that is being read, or one inside it.
struct Source<'a> {
    array: &'a FFI_ArrowArray,
    /// What releases it: itself, or what it is inside of.
    owner: &'a Arc<FFI_ArrowArray>,
    data_type: &'a DataType,
}

impl Source<'_> {
    fn malformed(&self, what: impl Display) -> ArrowError {
        malformed(format!("an array of type {} {what}", self.data_type))
    }

    fn count(&self, value: i64, what: &str) -> Result<usize, ArrowError> {
        usize::try_from(value).map_err(|_| self.malformed(format!("has {value} as its {what}")))
    }

    fn read(&self) -> Result<ArrayData, ArrowError> {
        if self.array.is_released() {
            return Err(self.malformed("was released"));
        }
        let length = self.count(self.array.length, "length")?;
        if length > ROWS_MAX {
            return Err(self.malformed(format!("has {length} rows: {ROWS_MAX} at most")));
        }
        let offset = self.count(self.array.offset, "offset")?;
        let end = offset + length;
        let layout = layout(self.data_type);
        let first = usize::from(layout.can_contain_null_mask);
        let fixed_count = first + layout.buffers.len();
        let buffer_count = self.count(self.array.n_buffers, "buffer count")?;
        // The lengths of variadic buffers stand in one more.
        let is_right = match layout.variadic {
            true => buffer_count > fixed_count,
            false => buffer_count == fixed_count,
        };
        if !is_right || buffer_count > 0 && self.array.buffers.is_null() {
            return Err(self.malformed(format!("has {buffer_count} buffers")));
        }
        let children = self.children(end)?;
        if length == 0 {
            // What the buffers hold for no rows is nobody's concern.
            return Ok(ArrayData::new_empty(self.data_type));
        }
        let mut buffers = Vec::new();
        for (place, spec) in layout.buffers.iter().enumerate() {
            let bytes = match spec {
                BufferSpec::FixedWidth { byte_width, .. } => {
                    let has_end = place == 0 && has_offsets(self.data_type);
                    (end + usize::from(has_end)).checked_mul(*byte_width)
                }
                BufferSpec::VariableWidth => Some(self.last_offset(first, end)?),
                BufferSpec::BitMap => Some(end.div_ceil(8)),
                BufferSpec::AlwaysNull => Some(0),
            };
            buffers.push(self.buffer(first + place, bytes)?);
        }
        for place in fixed_count..buffer_count.saturating_sub(1) {
            let bytes: i64 = self.number(buffer_count - 1, place - fixed_count)?;
            let bytes = self.count(bytes, "buffer length")?;
            buffers.push(self.buffer(place, Some(bytes))?);
        }
        let data = ArrayDataBuilder::new(self.data_type.clone())
            .len(length)
            .offset(offset)
            .nulls(self.nulls(first, offset, length)?)
            .buffers(buffers)
            .child_data(children)
            .align_buffers(true);
        match self.data_type {
            DataType::Utf8 => text(data, DataType::Binary, self.data_type),
            DataType::LargeUtf8 => text(data, DataType::LargeBinary, self.data_type),
            DataType::Utf8View => text(data, DataType::BinaryView, self.data_type),
            _ => data.build(),
        }
    }

    /// What this array is made of: the values of lists, the fields of structs, of dictionaries the values.
    fn children(&self, end: usize) -> Result<Vec<ArrayData>, ArrowError> {
        let (types, rows_min): (Vec<&DataType>, Option<usize>) = match self.data_type {
            DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
                (vec![field.data_type()], Some(0))
            }
            DataType::FixedSizeList(field, size) => {
                let size = self.count(i64::from(*size), "list size")?;
                (vec![field.data_type()], end.checked_mul(size))
            }
            DataType::Struct(fields) => {
                let types = fields.iter().map(|field| field.data_type()).collect();
                (types, Some(end))
            }
            _ => (Vec::new(), Some(0)),
        };
        if self.array.n_children != types.len() as i64 {
            return Err(self.malformed(format!("has {} children", self.array.n_children)));
        }
        // SAFETY: there are as many, and each lives as long as what it is inside of.
        let arrays = unsafe { children_at(self.array.children, types.len()) };
        let mut children = arrays
            .zip(types)
            .map(|(array, data_type)| self.child(array?, data_type))
            .collect::<Result<Vec<_>, _>>()?;
        if children
            .iter()
            .any(|child| Some(child.len()) < rows_min || rows_min.is_none())
        {
            return Err(self.malformed("has a child of fewer rows than it needs"));
        }
        // SAFETY: as of a child.
        match (unsafe { self.array.dictionary.as_ref() }, self.data_type) {
            (Some(values), DataType::Dictionary(_, data_type)) => {
                children.push(self.child(values, data_type)?);
            }
            (None, DataType::Dictionary(..)) => return Err(self.malformed("has no dictionary")),
            (Some(_), _) => return Err(self.malformed("has a dictionary")),
            (None, _) => {}
        }
        Ok(children)
    }

    fn child(&self, array: &FFI_ArrowArray, data_type: &DataType) -> Result<ArrayData, ArrowError> {
        let owner = self.owner;
        Source {
            array,
            owner,
            data_type,
        }
        .read()
    }

    /// Which rows are null; `None` where none is.
    fn nulls(
        &self,
        first: usize,
        offset: usize,
        length: usize,
    ) -> Result<Option<NullBuffer>, ArrowError> {
        let claimed = self.array.null_count;
        let is_there = first > 0 && !self.pointer(0).is_null();
        if !is_there {
            // A column that is null throughout has no buffer for it.
            let is_right =
                matches!(claimed, NULLS_NOT_COUNTED | 0) || *self.data_type == DataType::Null;
            return match is_right {
                true => Ok(None),
                false => Err(self.malformed(format!("has {claimed} nulls and does not say where"))),
            };
        }
        let bits = self.buffer(0, Some((offset + length).div_ceil(8)))?;
        let nulls = NullBuffer::new(BooleanBuffer::new(bits, offset, length));
        if claimed != NULLS_NOT_COUNTED && claimed != nulls.null_count() as i64 {
            let marked = nulls.null_count();
            return Err(self.malformed(format!("claims {claimed} nulls and marks {marked}")));
        }
        Ok(Some(nulls))
    }

    /// Where the last of `end` values ends.
    fn last_offset(&self, first: usize, end: usize) -> Result<usize, ArrowError> {
        let offset = match self.data_type {
            DataType::LargeBinary | DataType::LargeUtf8 => self.number::<i64>(first, end)?,
            _ => i64::from(self.number::<i32>(first, end)?),
        };
        self.count(offset, "last offset")
    }

    /// One number of a buffer of numbers.
    fn number<T: ArrowNativeType>(&self, buffer: usize, place: usize) -> Result<T, ArrowError> {
        let numbers = self.pointer(buffer).cast::<T>();
        if numbers.is_null() {
            return Err(self.malformed(format!("lacks buffer {buffer}")));
        }
        // SAFETY: the buffer has a number for every row and one more, or for every variadic buffer.
        Ok(unsafe { numbers.add(place).read_unaligned() })
    }

    /// A buffer of so many bytes; `None` are more than memory has.
    fn buffer(&self, place: usize, bytes: Option<usize>) -> Result<Buffer, ArrowError> {
        let bytes = bytes
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(|| self.malformed("claims more bytes than memory has"))?;
        if bytes == 0 {
            return Ok(Buffer::default());
        }
        let start = NonNull::new(self.pointer(place).cast_mut())
            .ok_or_else(|| self.malformed(format!("lacks buffer {place}")))?;
        let owner: Arc<dyn Allocation> = Arc::<FFI_ArrowArray>::clone(self.owner);
        // SAFETY: the buffer has as many bytes until its owner is released, and nobody writes to it.
        Ok(unsafe { Buffer::from_custom_allocation(start, bytes, owner) })
    }

    fn pointer(&self, place: usize) -> *const u8 {
        // SAFETY: `read` saw that there are so many, and that they are somewhere.
        unsafe { self.array.buffers.add(place).read_unaligned().cast() }
    }
}

/// Whether the first buffer says where each value begins, and where the last one ends.
fn has_offsets(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::List(_)
            | DataType::LargeList(_)
            | DataType::Map(..)
    )
}

/// An array of text, of which nobody said yet that it is UTF-8.
fn text(
    data: ArrayDataBuilder,
    as_bytes: DataType,
    data_type: &DataType,
) -> Result<ArrayData, ArrowError> {
    let bytes = data.data_type(as_bytes).build()?;
    let as_text = bytes.clone().into_builder().data_type(data_type.clone());
    if let Ok(text) = as_text.build() {
        return Ok(text);
    }
    let column = BinaryColumn::of(&make_array(bytes)).expect("bytes are a column of bytes");
    let rows = || column.iter().map(|row| row.map(String::from_utf8_lossy));
    let length: usize = rows().flatten().map(|row| row.len()).sum();
    match data_type {
        DataType::Utf8 if i32::try_from(length).is_err() => Err(malformed(format!(
            "{length} bytes of text that is no UTF-8 do not fit one array"
        ))),
        DataType::Utf8 => Ok(StringArray::from_iter(rows()).into()),
        DataType::LargeUtf8 => Ok(LargeStringArray::from_iter(rows()).into()),
        _ => Ok(StringViewArray::from_iter(rows()).into()),
    }
}

#[cfg(test)]
#[path = "capsule_tests.rs"]
mod tests;
