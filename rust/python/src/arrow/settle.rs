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
use super::whole::Missing;

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
    /// Of a partition of many: its number.
    partition: Option<i64>,
    /// Of a partition of many: segments whose message is not whole, and a row for each that is. Where
    /// the partitions meet: what their rows should have been.
    pub leftovers: LeftoverColumns,
}

/// What a settled group was.
pub enum Settled {
    /// A message with a row, and the data segments that it lacks.
    Whole(Box<[u8]>),
    /// Nothing that has a payload.
    Unfinished,
}

impl Settlement {
    pub fn new(
        parameters: Parameters,
        limits: GroupLimits,
        work_budget: u64,
        by_count: usize,
        include_payload: bool,
        partition: Option<i64>,
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
            partition,
            leftovers: LeftoverColumns::default(),
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

    /// Settles groups in their order; says what each was.
    pub fn settle(&mut self, groups: &[Group]) -> Result<Vec<Settled>, ArrowError> {
        let pieces: Vec<Option<Vec<&[u8]>>> = groups
            .iter()
            .map(|group| {
                group
                    .whole_copies
                    .is_empty()
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
            if !group.whole_copies.is_empty() {
                // Its row is there already; what came here of it tells its status.
                self.correct(group);
                found.push(Settled::Whole([].into()));
                continue;
            }
            let hashes_right = pieces.is_some() && digest.next() == group.key.hash.as_ref();
            found.push(match pieces {
                Some(pieces) if hashes_right => self.append_whole(group, pieces, &[], None),
                _ => self.append_repaired(group),
            });
            if self.out.is_full() {
                self.emit()?;
            }
        }
        Ok(found)
    }

    fn correct(&mut self, group: &Group) {
        let Some((kept, recovered)) = agree(group) else {
            return;
        };
        for copy in &group.whole_copies {
            if copy.partition != kept {
                self.leftovers
                    .append_correction(&group.key, copy.partition, None);
            } else if copy.missing.len() != recovered {
                self.leftovers
                    .append_correction(&group.key, kept, Some(recovered));
            }
        }
    }

    /// The row of a message; `missing` are the data segments that were recovered.
    fn append_whole(
        &mut self,
        group: &Group,
        pieces: Vec<&[u8]>,
        missing: &[usize],
        erasure_code: Option<ErasureCode>,
    ) -> Settled {
        if let Some(partition) = self.partition {
            let missing: Vec<Missing> = missing
                .iter()
                .map(|index| Missing::new(*index, pieces[*index]))
                .collect();
            self.leftovers.append_whole(&group.key, partition, &missing);
        }
        let outcome = if missing.is_empty() {
            Outcome::Complete(pieces)
        } else {
            Outcome::Recovered {
                pieces,
                data_segments_recovered: missing.len(),
                erasure_code: erasure_code.map(ErasureCode::as_str),
            }
        };
        self.out.append(group, &outcome);
        Settled::Whole(missing.iter().map(|index| *index as u8).collect())
    }

    fn append_repaired(&mut self, group: &Group) -> Settled {
        match recover(group, &self.parameters, self.limits, self.work_budget) {
            Recovery::Payload(found) => {
                let pieces: Vec<&[u8]> = found.payload.pieces().collect();
                // A contested segment counts as lost where a decoder needs others less. Here a message is
                // complete where all its data segments came, in whatever company.
                let missing: Vec<usize> = found
                    .data_segments_recovered
                    .iter()
                    .copied()
                    .filter(|index| !group.holds(*index, pieces[*index]))
                    .collect();
                self.append_whole(group, pieces, &missing, found.erasure_code)
            }
            Recovery::Incomplete => self.append_unfinished(group, &Outcome::Incomplete),
            Recovery::Invalid => self.append_unfinished(group, &Outcome::Invalid),
        }
    }

    fn append_unfinished(&mut self, group: &Group, outcome: &Outcome<'_>) -> Settled {
        if self.partition.is_some() && group.key.hash.is_some() {
            self.leftovers.append(group);
        } else {
            // What could not be read is nothing that another partition could complete.
            self.out.append(group, outcome);
        }
        Settled::Unfinished
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
        if self.leftovers.is_empty() {
            return Ok(None);
        }
        let batch = self
            .leftovers
            .finish(&self.by_fields, self.converter.as_ref())
            .map_err(arrow_error)?;
        batch_to_python(py, batch).map(Some)
    }
}

pub fn arrow_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Which partition's row stands for the message, and how many data segments came in none of them.
fn agree(group: &Group) -> Option<(i64, usize)> {
    let kept = group
        .whole_copies
        .iter()
        .min_by_key(|copy| (copy.missing.len(), copy.partition))?;
    let came = |missing: &Missing| {
        let elsewhere = group.whole_copies.iter().any(|copy| {
            copy.missing
                .iter()
                .all(|other| other.index != missing.index)
        });
        elsewhere
            || group
                .shards_at(missing.index)
                .any(|shard| missing.is(shard))
    };
    let recovered = kept.missing.iter().filter(|one| !came(one)).count();
    Some((kept.partition, recovered))
}
