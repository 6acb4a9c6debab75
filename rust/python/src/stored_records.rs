//! What is stored of a channel, on its way to where it is kept: `_native.pyi`, "Stored records".

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::basic::CompareOp;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyString};
use shardwire_core::channel::{Record, RecordKey, Value};
use shardwire_core::journal::body::{Body, Change, Named, Place, names, split};
use shardwire_core::journal::table::Table;
use shardwire_core::sds;
use shardwire_stub::documented;

use crate::arguments::refused;
use crate::buffer::Buffer;
use crate::channel_events::payload_object;
use crate::error::Error;
use crate::lent_bytes::{octets, octets_object};

/// Its kind and key.
type Name = (Cow<'static, str>, RecordKey);
type Changed = (Name, Option<Value>);
type NameObject<'py> = (Bound<'py, PyString>, Bound<'py, PyBytes>);
/// Where a value lies: its first byte, its bytes as they are stored, their checksum.
type PlaceNumbers = (u64, u64, u32);

/// What a mapping of stored records gives: kind, key and value of each.
pub fn read_records<'py>(
    records: &Bound<'py, PyAny>,
) -> PyResult<Vec<(PyBackedStr, Bound<'py, PyBytes>, Buffer<'py>)>> {
    let limit = "a mapping of (kind, key) to bytes";
    let items = records.call_method0(intern!(records.py(), "items"));
    let items = items.map_err(|_| refused("records", records, limit))?;
    let read = items.try_iter()?.map(|item| {
        let ((kind, key), value) = item?.extract()?;
        Ok((kind, key, value))
    });
    read.collect()
}

#[documented]
#[pyclass(frozen, mapping, module = "shardwire._native")]
pub struct ChangedRecords {
    /// Of one record the last counts. Whoever reads them has them for itself: no object is made while others
    /// wait for the lock.
    records: Mutex<Arc<Vec<Changed>>>,
    /// All of them as objects, once somebody asked for one.
    dict: PyOnceLock<Py<PyDict>>,
}

impl From<Vec<sds::Record>> for ChangedRecords {
    fn from(records: Vec<sds::Record>) -> Self {
        let records = records.into_iter().map(|record| {
            let name = (Cow::Borrowed(record.kind), RecordKey::Name(record.key));
            (name, record.value.map(Value::Bytes))
        });
        ChangedRecords::new(records.collect())
    }
}

impl ChangedRecords {
    fn new(records: Vec<Changed>) -> Self {
        ChangedRecords {
            records: Mutex::new(Arc::new(records)),
            dict: PyOnceLock::new(),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Arc<Vec<Changed>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> Arc<Vec<Changed>> {
        Arc::clone(&self.locked())
    }

    /// Takes all records out.
    fn take(&self) -> Vec<Changed> {
        let records = std::mem::take(&mut *self.locked());
        Arc::unwrap_or_clone(records)
    }

    /// The records of the core, with those of its owner beside them.
    pub fn of(records: Vec<Record>, beside: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut made = Vec::with_capacity(records.len());
        for record in records {
            made.push(((Cow::Borrowed(record.kind), record.key), record.value));
        }
        for (name, value) in beside.into_iter().flatten() {
            let (kind, key): (String, Buffer<'_>) = name.extract()?;
            let value: Option<Buffer<'_>> = value.extract()?;
            let key = RecordKey::from(key.as_bytes().to_vec());
            let value = value.map(|value| Value::Bytes(octets(value)));
            made.push(((Cow::Owned(kind), key), value));
        }
        Ok(ChangedRecords::new(made))
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyDict>> {
        let dict = self.dict.get_or_try_init(py, || {
            let dict = PyDict::new(py);
            for (name, value) in &*self.records() {
                let value = value.as_ref().map(|value| object(py, value));
                dict.set_item(name_object(py, name), value.transpose()?)?;
            }
            Ok::<_, PyErr>(dict.unbind())
        });
        Ok(dict?.bind(py))
    }
}

#[documented]
#[pymethods]
impl ChangedRecords {
    #[new]
    #[pyo3(signature = (records = None))]
    fn from_dict(records: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        ChangedRecords::of(Vec::new(), records)
    }

    fn __bool__(&self) -> bool {
        !self.locked().is_empty()
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.dict(py)?.len())
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.as_any().get_item(name)
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.dict(py)?.contains(name)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.dict(py)?.try_iter()
    }

    fn __eq__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dict = self.dict(py)?;
        match other.cast::<ChangedRecords>() {
            Ok(other) => dict.rich_compare(other.get().dict(py)?, CompareOp::Eq),
            Err(_) => dict.rich_compare(other, CompareOp::Eq),
        }
    }

    #[pyo3(signature = (name, default = None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.dict(py)?.get_item(name)?.or(default))
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("keys")
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("values")
    }

    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("items")
    }

    #[getter]
    fn value_bytes(&self) -> usize {
        let records = self.records();
        let values = records.iter().filter_map(|(_, value)| value.as_ref());
        values.map(Value::len).sum()
    }

    fn merged(&self, later: &ChangedRecords) -> Self {
        let mut table = Table::new(true);
        for (name, value) in self.records().iter().chain(&*later.records()) {
            table.change(name.clone(), value.clone());
        }
        ChangedRecords::new(table.into_iter().collect())
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.dict(py)?.copy()
    }

    #[pyo3(signature = (places = None, seal_bytes = 0))]
    fn row<'py>(
        &self,
        py: Python<'py>,
        places: Option<&Bound<'py, PyDict>>,
        seal_bytes: u64,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let too_long =
            || Error::Stored("a record is longer than a row of the journal can be".into());
        let mut body = Body::default();
        for (name, value) in &*self.records() {
            let (kind, key) = (&*name.0, name.1.as_bytes());
            let done = match (place_of(py, places, name)?, value) {
                (Some(place), _) => {
                    let value_bytes = place.size.saturating_sub(seal_bytes);
                    body.put_apart(kind, key, place, value_bytes as usize)
                }
                (None, Some(value)) => body.put(kind, key, value.len(), |out| value.write_to(out)),
                (None, None) => body.delete(kind, key),
            };
            done.ok_or_else(too_long)?;
        }
        let (head, values) = body.finish().ok_or_else(too_long)?;
        Ok((PyBytes::new(py, &head), PyBytes::new(py, &values)))
    }
}

/// What is kept of a record.
#[derive(Clone)]
enum Kept {
    Value(Value),
    Apart(Place),
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct RecordTable {
    table: Mutex<Table<Name, Kept>>,
}

#[documented]
#[pymethods]
impl RecordTable {
    #[new]
    #[pyo3(signature = (*, keeps_deleted = false))]
    fn new(keeps_deleted: bool) -> Self {
        RecordTable {
            table: Mutex::new(Table::new(keeps_deleted)),
        }
    }

    fn __len__(&self) -> usize {
        self.table().len()
    }

    #[pyo3(signature = (changes, places = None))]
    fn apply(
        &self,
        py: Python<'_>,
        changes: &Bound<'_, ChangedRecords>,
        places: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let records = changes.get().records();
        let mut kept = Vec::new();
        if places.is_some() {
            for (name, _) in &*records {
                kept.push(place_of(py, places, name)?.map(Kept::Apart));
            }
        }
        let mut table = self.table();
        let mut kept = kept.into_iter();
        for (name, value) in &*records {
            let placed = kept.next().flatten();
            let value = placed.or_else(|| value.clone().map(Kept::Value));
            table.change(name.clone(), value);
        }
        Ok(())
    }

    fn take(&self, changes: &Bound<'_, ChangedRecords>) {
        let records = changes.get().take();
        let mut table = self.table();
        for (name, value) in records {
            table.change(name, value.map(Kept::Value));
        }
    }

    fn apply_row(&self, head: Buffer<'_>, values: Buffer<'_>) -> bool {
        let mut left = values.as_bytes();
        names(head.as_bytes()).is_some_and(|names| {
            self.table().apply(&names, owned_name, |named| {
                if let Change::Apart(place) = named.change {
                    return Some(Kept::Apart(place));
                }
                let (value, rest) = left.split_at_checked(named.value_bytes as usize)?;
                left = rest;
                Some(Kept::Value(Value::from(value.to_vec())))
            })
        })
    }

    fn delete_prefix(&self, kind: &str, prefix: Buffer<'_>) {
        let prefix = prefix.as_bytes();
        self.table()
            .delete(|(of, key)| of == kind && key.as_bytes().starts_with(prefix));
    }

    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, kept) in self.listed() {
            let value = match &kept {
                Some(Kept::Apart(_)) => continue,
                Some(Kept::Value(value)) => Some(object(py, value)?),
                None => None,
            };
            dict.set_item(name_object(py, &name), value)?;
        }
        Ok(dict)
    }

    fn places<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, kept) in self.listed() {
            if let Some(Kept::Apart(place)) = kept {
                let numbers = (place.start, place.size, place.checksum);
                dict.set_item(name_object(py, &name), numbers)?;
            }
        }
        Ok(dict)
    }
}

impl RecordTable {
    fn table(&self) -> MutexGuard<'_, Table<Name, Kept>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits for the table may have the interpreter: no object is made while it is locked.
    fn listed(&self) -> Vec<(Name, Option<Kept>)> {
        let table = self.table();
        let records = table.iter();
        records
            .map(|(name, kept)| (name.clone(), kept.cloned()))
            .collect()
    }
}

#[documented]
#[pyfunction]
pub fn split_row<'py>(
    py: Python<'py>,
    row: Buffer<'py>,
) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (head, values) = split(row.as_bytes())?;
    Some((PyBytes::new(py, head), PyBytes::new(py, values)))
}

#[documented]
#[pyfunction]
pub fn sizes_in_rows<'py>(py: Python<'py>, rows: Vec<Buffer<'py>>) -> PyResult<Bound<'py, PyDict>> {
    let mut table = Table::new(true);
    for row in &rows {
        if let Some(names) = split(row.as_bytes()).and_then(|(head, _)| names(head)) {
            let _ = table.apply(&names, owned_name, |named| Some(named.value_bytes));
        }
    }
    let dict = PyDict::new(py);
    for (name, size) in table.iter() {
        dict.set_item(name_object(py, name), size.copied())?;
    }
    Ok(dict)
}

fn owned_name(named: &Named<'_>) -> Name {
    let key = RecordKey::from(named.key.to_vec());
    (Cow::Owned(named.kind.to_owned()), key)
}

fn name_object<'py>(py: Python<'py>, (kind, key): &Name) -> NameObject<'py> {
    (PyString::intern(py, kind), PyBytes::new(py, key.as_bytes()))
}

fn place_of<'py>(
    py: Python<'py>,
    places: Option<&Bound<'py, PyDict>>,
    name: &Name,
) -> PyResult<Option<Place>> {
    let Some(places) = places else {
        return Ok(None);
    };
    let Some(found) = places.get_item(name_object(py, name))? else {
        return Ok(None);
    };
    let (start, size, checksum): PlaceNumbers = found.extract()?;
    Ok(Some(Place {
        start,
        size,
        checksum,
    }))
}

fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyBytes>> {
    match value {
        Value::Bytes(bytes) => octets_object(py, bytes),
        Value::Payload(payload) => payload_object(py, payload),
    }
}
