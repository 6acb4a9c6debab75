//! Arrow columns as they come from Spark: any of the layouts of a type, read in place.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType, TimestampNanosecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, Int64Array,
    LargeBinaryArray, LargeStringArray, StringArray, StringViewArray,
};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A column of bytes in any of Arrow's layouts.
#[derive(Debug, Clone)]
pub enum BinaryColumn {
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    View(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
    /// Spark hands over a column that is null throughout as Arrow's null type.
    Null(usize),
}

impl BinaryColumn {
    /// Borrows the buffers of `array`; `name` stands in the error for another type.
    pub fn new(array: &ArrayRef, name: &str) -> PyResult<Self> {
        BinaryColumn::of(array).ok_or_else(|| wrong_type(name, "binary", array.data_type()))
    }

    /// Borrows the buffers of `array`; `None` where it holds no bytes.
    pub fn of(array: &ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Binary => BinaryColumn::Binary(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => BinaryColumn::LargeBinary(array.as_binary::<i64>().clone()),
            DataType::BinaryView => BinaryColumn::View(array.as_binary_view().clone()),
            DataType::FixedSizeBinary(_) => {
                BinaryColumn::Fixed(array.as_fixed_size_binary().clone())
            }
            DataType::Null => BinaryColumn::Null(array.len()),
            _ => return None,
        })
    }

    pub fn len(&self) -> usize {
        match self {
            BinaryColumn::Binary(array) => array.len(),
            BinaryColumn::LargeBinary(array) => array.len(),
            BinaryColumn::View(array) => array.len(),
            BinaryColumn::Fixed(array) => array.len(),
            BinaryColumn::Null(length) => *length,
        }
    }

    /// The bytes of one row; `None` where it is null.
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            BinaryColumn::Binary(array) => array.is_valid(row).then(|| array.value(row)),
            BinaryColumn::LargeBinary(array) => array.is_valid(row).then(|| array.value(row)),
            BinaryColumn::View(array) => array.is_valid(row).then(|| array.value(row)),
            BinaryColumn::Fixed(array) => array.is_valid(row).then(|| array.value(row)),
            BinaryColumn::Null(_) => None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Bytes that the rows hold together.
    pub fn value_bytes(&self) -> usize {
        self.iter().map(|value| value.map_or(0, <[u8]>::len)).sum()
    }
}

/// A column of text in any of Arrow's layouts.
#[derive(Debug, Clone)]
pub enum TextColumn {
    Text(StringArray),
    LargeText(LargeStringArray),
    View(StringViewArray),
    Null(usize),
}

impl TextColumn {
    /// Borrows the buffers of `array`; `name` stands in the error for another type.
    pub fn new(array: &ArrayRef, name: &str) -> PyResult<Self> {
        Ok(match array.data_type() {
            DataType::Utf8 => TextColumn::Text(array.as_string::<i32>().clone()),
            DataType::LargeUtf8 => TextColumn::LargeText(array.as_string::<i64>().clone()),
            DataType::Utf8View => TextColumn::View(array.as_string_view().clone()),
            DataType::Null => TextColumn::Null(array.len()),
            other => return Err(wrong_type(name, "string", other)),
        })
    }

    pub fn len(&self) -> usize {
        match self {
            TextColumn::Text(array) => array.len(),
            TextColumn::LargeText(array) => array.len(),
            TextColumn::View(array) => array.len(),
            TextColumn::Null(length) => *length,
        }
    }

    /// The text of one row; `None` where it is null.
    pub fn get(&self, row: usize) -> Option<&str> {
        match self {
            TextColumn::Text(array) => array.is_valid(row).then(|| array.value(row)),
            TextColumn::LargeText(array) => array.is_valid(row).then(|| array.value(row)),
            TextColumn::View(array) => array.is_valid(row).then(|| array.value(row)),
            TextColumn::Null(_) => None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        (0..self.len()).map(|row| self.get(row))
    }
}

/// A column of integers: 64 bits, or a timestamp whose unit is kept as it is.
#[derive(Debug, Clone)]
pub struct IntegerColumn(Option<Int64Array>, usize);

impl IntegerColumn {
    /// Borrows the buffers of `array`; `name` stands in the error for another type.
    pub fn new(array: &ArrayRef, name: &str) -> PyResult<Self> {
        let values = match array.data_type() {
            DataType::Int64 => Some(array.as_primitive::<Int64Type>().clone()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Some(
                array
                    .as_primitive::<TimestampMicrosecondType>()
                    .reinterpret_cast(),
            ),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Some(
                array
                    .as_primitive::<TimestampNanosecondType>()
                    .reinterpret_cast(),
            ),
            DataType::Null => None,
            other => return Err(wrong_type(name, "bigint", other)),
        };
        Ok(IntegerColumn(values, array.len()))
    }

    pub fn len(&self) -> usize {
        self.1
    }

    /// The value of one row; `None` where it is null.
    pub fn get(&self, row: usize) -> Option<i64> {
        self.0
            .as_ref()
            .and_then(|array| array.is_valid(row).then(|| array.value(row)))
    }
}

fn wrong_type(name: &str, wanted: &str, found: &DataType) -> PyErr {
    PyTypeError::new_err(format!(
        "column {name} has the Arrow type {found}: it must be {wanted}"
    ))
}
