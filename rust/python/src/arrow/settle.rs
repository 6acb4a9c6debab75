//! What becomes of groups that nothing more is expected of: rows of messages, or leftovers.

use arrow_array::RecordBatch;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shardwire_core::erasure::ErasureCode;
use shardwire_core::keccak;
use shardwire_core::segment::Parameters;

use super::batch::Batch;
use super::exchange::{BatchArgument, batch_to_python};
use super::group::{Group, GroupLimits};
use super::leftovers::LeftoverColumns;
use super::output::{Outcome, OutputColumns};
use super::recover::{Recovery, recover};

/// Hashes groups many at once and lays out what they give.
pub struct Settlement {
    pub parameters: Parameters,
    pub limits: GroupLimits,
    work_budget: u64,
    by_count: usize,
    by_fields: Vec<Field>,
    converter: Option<RowConverter>,
    out: OutputColumns,
    ready: Vec<RecordBatch>,
    /// Where segments go whose message is not whole; `None` where such messages are told of instead.
    leftovers: Option<LeftoverColumns>,
    /// Messages that more than one partition held whole.
    pub repeated: u64,
}

impl Settlement {
    pub fn new(
        parameters: Parameters,
        limits: GroupLimits,
        work_budget: u64,
        by_count: usize,
        include_payload: bool,
        keep_leftovers: bool,
    ) -> Self {
        Settlement {
            parameters,
            limits,
            work_budget,
            by_count,
            by_fields: Vec::new(),
            converter: None,
            out: OutputColumns::new(include_payload),
            ready: Vec::new(),
            leftovers: keep_leftovers.then(LeftoverColumns::default),
            repeated: 0,
        }
    }

    /// Tells the columns of a batch apart.
    pub fn read(&mut self, batch: BatchArgument) -> PyResult<Batch> {
        let batch = Batch::new(&batch.0, self.by_count)?;
        if self.by_fields.is_empty() {
            self.by_fields.clone_from(&batch.by_fields);
        }
        Ok(batch)
    }

    /// The `by` columns of a batch, a key a row; `None` where there are none.
    pub fn encode_by(&mut self, batch: &Batch) -> Result<Option<Rows>, ArrowError> {
        if self.by_count == 0 {
            return Ok(None);
        }
        let converter = match &mut self.converter {
            Some(converter) => converter,
            None => {
                let fields = batch
                    .by
                    .iter()
                    .map(|c| SortField::new(c.data_type().clone()))
                    .collect();
                self.converter.insert(RowConverter::new(fields)?)
            }
        };
        converter.convert_columns(&batch.by).map(Some)
    }

    /// Settles groups in their order; says of each whether its message is there.
    pub fn settle(&mut self, groups: &[Group]) -> Result<Vec<bool>, ArrowError> {
        let pieces: Vec<Option<Vec<&[u8]>>> = groups
            .iter()
            .map(|group| {
                (group.times_whole == 0)
                    .then(|| group.whole_pieces())
                    .flatten()
            })
            .collect();
        let messages: Vec<&[&[u8]]> = pieces.iter().flatten().map(|pieces| &pieces[..]).collect();
        let mut digests = vec![[0; keccak::DIGEST_LEN]; messages.len()];
        keccak::keccak256_many_pieces(&messages, &mut digests);
        let mut digest = digests.iter();
        let mut found = Vec::with_capacity(groups.len());
        for (group, pieces) in groups.iter().zip(pieces) {
            if group.times_whole > 0 {
                // Its row is there already; what came here of it are late repeats.
                self.repeated += u64::from(group.times_whole > 1);
                found.push(true);
                continue;
            }
            let hashes_right = pieces.is_some() && digest.next() == group.key.hash.as_ref();
            found.push(match pieces {
                Some(pieces) if hashes_right => {
                    self.out.append(group, &Outcome::Complete(pieces));
                    true
                }
                _ => self.append_repaired(group),
            });
            if self.out.is_full() {
                self.emit()?;
            }
        }
        Ok(found)
    }

    fn append_repaired(&mut self, group: &Group) -> bool {
        match recover(group, &self.parameters, self.limits, self.work_budget) {
            Recovery::Payload(found) => {
                let pieces = found.payload.pieces().collect();
                let data_segments_recovered = found.data_segments_recovered.len();
                let outcome = if data_segments_recovered == 0 {
                    Outcome::Complete(pieces)
                } else {
                    let erasure_code = found.erasure_code.map(ErasureCode::as_str);
                    Outcome::Recovered {
                        pieces,
                        data_segments_recovered,
                        erasure_code,
                    }
                };
                self.out.append(group, &outcome);
                true
            }
            Recovery::Incomplete => self.append_unfinished(group, &Outcome::Incomplete),
            Recovery::Invalid => self.append_unfinished(group, &Outcome::Invalid),
        }
    }

    fn append_unfinished(&mut self, group: &Group, outcome: &Outcome<'_>) -> bool {
        match &mut self.leftovers {
            // What could not be read is nothing that another partition could complete.
            Some(leftovers) if group.key.hash.is_some() => leftovers.append(group),
            _ => self.out.append(group, outcome),
        }
        false
    }

    /// Makes a batch of the rows so far, however few.
    pub fn emit(&mut self) -> Result<(), ArrowError> {
        if !self.out.is_empty() {
            self.ready
                .push(self.out.finish(&self.by_fields, self.converter.as_ref())?);
        }
        Ok(())
    }

    /// The batches of messages that became ready, as pyarrow's.
    pub fn hand_over<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.ready
            .drain(..)
            .map(|batch| batch_to_python(py, batch))
            .collect()
    }

    /// The leftovers so far as pyarrow's batch; `None` where there are none.
    pub fn take_leftovers<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(leftovers) = self
            .leftovers
            .as_mut()
            .filter(|leftovers| !leftovers.is_empty())
        else {
            return Ok(None);
        };
        let batch = leftovers
            .finish(&self.by_fields, self.converter.as_ref())
            .map_err(arrow_error)?;
        batch_to_python(py, batch).map(Some)
    }
}

pub fn arrow_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
