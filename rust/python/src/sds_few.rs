//! A list that is mostly one object.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::types::PyList;

/// None, one, or the Python list that somebody looked at, which is the only state from then on.
pub enum Few<T> {
    None,
    One(Py<T>),
    List(Py<PyList>),
}

impl<T: PyClass> Few<T> {
    pub fn len(&self, py: Python<'_>) -> usize {
        match self {
            Few::None => 0,
            Few::One(_) => 1,
            Few::List(list) => list.bind(py).len(),
        }
    }

    pub fn is_empty(&self, py: Python<'_>) -> bool {
        self.len(py) == 0
    }

    /// The object at a position that there is.
    pub fn get<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, T>> {
        match self {
            Few::One(one) if position == 0 => Ok(one.bind(py).clone()),
            Few::List(list) => Ok(list.bind(py).get_item(position)?.cast_into()?),
            _ => Err(pyo3::exceptions::PyIndexError::new_err(position)),
        }
    }

    pub fn push(&mut self, object: &Bound<'_, T>) -> PyResult<()> {
        if let Few::None = self {
            *self = Few::One(object.clone().unbind());
            return Ok(());
        }
        self.list(object.py())?.append(object)
    }

    /// As a Python list.
    pub fn list<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = match self {
            Few::None => PyList::empty(py),
            Few::One(one) => PyList::new(py, [one.bind(py)])?,
            Few::List(list) => return Ok(list.bind(py).clone()),
        };
        *self = Few::List(list.clone().unbind());
        Ok(list)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Few::None => Ok(()),
            Few::One(one) => visit.call(one),
            Few::List(list) => visit.call(list),
        }
    }
}
