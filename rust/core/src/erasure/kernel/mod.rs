//! Shards times a matrix: the one heavy operation of both codes.
//!
//! Owns the choice of kernel and the order in which bytes are visited. A kernel multiplies a panel:
//! a few output rows over a few input shards and a block of columns, with the sums in registers.

mod butterfly;
mod dispatch;
mod fft;
#[cfg(target_arch = "aarch64")]
mod neon;
mod panel;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transform_tests;
#[cfg(target_arch = "x86_64")]
mod x86_gfni;
#[cfg(target_arch = "x86_64")]
mod x86_registers;
#[cfg(target_arch = "x86_64")]
mod x86_shuffle;

use std::convert::Infallible;
use std::mem::MaybeUninit;

use super::geometry::Matrix;
use super::transform::Transform;
use dispatch::Kernel;
pub(crate) use dispatch::selected;
#[cfg(test)]
use dispatch::supported;
use panel::{GROUP_MAX, Panel, Source};

/// Bytes of each shard visited before the next rows and shards: a group of inputs stays in cache
/// for all rows.
const BLOCK: usize = 16 << 10;

/// With at most this many rows nothing is read twice, and `GROUP_OF_FEW_ROWS` applies.
const FEW_ROWS_MAX: usize = 2;

/// Inputs read side by side for few rows, at most: more streams than this outrun the hardware's
/// prefetching. Measured at (8, 1), (10, 2) and (64, 8) with 102400-byte shards: 1.2 times
/// `GROUP_MAX` inputs, which in turn win by 1.1 where rows share them.
const GROUP_OF_FEW_ROWS: usize = 5;

/// The widest step of any kernel; a multiple of every other.
const STEP_MAX: usize = 128;

/// The most output rows of any kernel's panel.
const ROWS_MAX: usize = 8;

const _: () = assert!(BLOCK.is_multiple_of(STEP_MAX) && GROUP_OF_FEW_ROWS <= GROUP_MAX);

/// The product of `matrix` and `inputs`, one fresh shard of `shard_len` bytes a row; otherwise as
/// [`multiply_into`].
pub(crate) fn multiply(matrix: &Matrix, inputs: &[&[u8]], shard_len: usize) -> Vec<Vec<u8>> {
    let written = fresh(matrix.rows, shard_len, |outputs| {
        multiply_into(matrix, inputs, outputs);
        Ok::<_, Infallible>(())
    });
    match written {
        Ok(shards) => shards,
    }
}

/// Writes the product of `matrix` and `inputs` over `outputs`, one a row and of one length.
///
/// There is an input for each column of the matrix. One that is shorter than the outputs counts as
/// padded with zeros; none is longer.
pub(crate) fn multiply_into(
    matrix: &Matrix,
    inputs: &[&[u8]],
    outputs: &mut [&mut [MaybeUninit<u8>]],
) {
    selected().run(matrix, inputs, outputs);
}

/// Writes the parity of `inputs` by transforms over `outputs`; inputs as for [`multiply_into`].
pub(crate) fn encode_into(
    transform: &Transform,
    inputs: &[&[u8]],
    outputs: &mut [&mut [MaybeUninit<u8>]],
) {
    selected().run_encode(transform, inputs, outputs);
}

/// Writes the lost data shards by transforms over `outputs`, one a row of `matrix`.
///
/// `data` has an empty shard for each lost one. `parity` are some parity shards with their rows, as
/// many as were lost, and `matrix` makes the lost shards of what these have beyond `data`'s parity.
pub(crate) fn decode_into(
    transform: &Transform,
    matrix: &Matrix,
    data: &[&[u8]],
    parity: &[(usize, &[u8])],
    outputs: &mut [&mut [MaybeUninit<u8>]],
) {
    selected().run_decode(transform, matrix, data, parity, outputs);
}

/// Fresh shards that `write` writes in full where it succeeds; they are not zeroed before.
///
/// `write` must be one of the writers of this crate: it is trusted to leave no byte out.
pub(super) fn fresh<E>(
    count: usize,
    shard_len: usize,
    write: impl FnOnce(&mut [&mut [MaybeUninit<u8>]]) -> Result<(), E>,
) -> Result<Vec<Vec<u8>>, E> {
    let mut shards: Vec<Vec<u8>> = (0..count).map(|_| Vec::with_capacity(shard_len)).collect();
    let mut spare: Vec<&mut [MaybeUninit<u8>]> = shards
        .iter_mut()
        .map(|shard| &mut shard.spare_capacity_mut()[..shard_len])
        .collect();
    write(&mut spare)?;
    for shard in &mut shards {
        // SAFETY: `write` wrote all `shard_len` bytes of the spare capacity it was given.
        unsafe { shard.set_len(shard_len) };
    }
    Ok(shards)
}

/// Bytes to be written over; whoever gets them only writes initialised ones.
pub(super) fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: same place and length, borrowed for as long, and `run` writes nothing uninitialised.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

impl Kernel {
    /// Writes the product over `outputs`, which are all of one length and one a row of `matrix`.
    pub fn run(self, matrix: &Matrix, inputs: &[&[u8]], outputs: &mut [&mut [MaybeUninit<u8>]]) {
        let shard_len = outputs.first().map_or(0, |output| output.len());
        assert!(outputs.len() == matrix.rows && inputs.len() == matrix.columns);
        assert!(outputs.iter().all(|output| output.len() == shard_len));
        assert!(inputs.iter().all(|input| input.len() <= shard_len));

        let body = shard_len - shard_len % self.step;
        let mut staging = Staging::default();
        let group_len = if matrix.rows <= FEW_ROWS_MAX {
            // Groups of about one size: (8, 1) goes by four and four.
            let groups = inputs.len().div_ceil(GROUP_OF_FEW_ROWS).max(1);
            inputs.len().div_ceil(groups).max(1)
        } else {
            GROUP_MAX
        };
        for (index, group) in inputs.chunks(group_len).enumerate() {
            let first = index * group_len;
            for start in (0..body).step_by(BLOCK) {
                let len = BLOCK.min(body - start);
                let sources = staging.stage(group, first, start, len);
                self.block(matrix, sources, outputs, start, len, first > 0);
            }
            if body < shard_len {
                let sources = staging.stage(group, first, body, self.step);
                self.tail(matrix, sources, outputs, body, first > 0);
            }
        }
    }

    /// All rows of one block of whole steps.
    fn block(
        self,
        matrix: &Matrix,
        sources: &[Source],
        outputs: &mut [&mut [MaybeUninit<u8>]],
        start: usize,
        len: usize,
        accumulate: bool,
    ) {
        for (panel_index, rows) in outputs.chunks_mut(self.rows).enumerate() {
            let mut targets = [std::ptr::null_mut(); ROWS_MAX];
            for (target, output) in targets.iter_mut().zip(rows.iter_mut()) {
                *target = output[start..start + len].as_mut_ptr().cast::<u8>();
            }
            let panel = Panel {
                matrix,
                first_row: panel_index * self.rows,
                sources,
                targets: &targets[..rows.len()],
                len,
                accumulate,
            };
            // SAFETY: `supported` offers only what the machine has; `stage` made `len` bytes good
            // behind each source, and the targets are `len` bytes of distinct outputs, written by
            // an earlier group where `accumulate` is set.
            unsafe { (self.multiply)(&panel) };
        }
    }

    /// All rows over pointers of any kind.
    ///
    /// # Safety
    /// `targets` are one a row of `matrix` and distinct. They and the sources, at most `GROUP_MAX`,
    /// have `len` bytes each, a multiple of the step; the targets have been written where
    /// `accumulate` is set.
    unsafe fn panels(
        self,
        matrix: &Matrix,
        sources: &[Source],
        targets: &[*mut u8],
        len: usize,
        accumulate: bool,
    ) {
        for (panel_index, targets) in targets.chunks(self.rows).enumerate() {
            let panel = Panel {
                matrix,
                first_row: panel_index * self.rows,
                sources,
                targets,
                len,
                accumulate,
            };
            // SAFETY: `supported` offers only what the machine has; the caller vouches for the
            // rest.
            unsafe { (self.multiply)(&panel) };
        }
    }

    /// The bytes from `start` to the end, fewer than a step, by way of buffers of one step.
    fn tail(
        self,
        matrix: &Matrix,
        sources: &[Source],
        outputs: &mut [&mut [MaybeUninit<u8>]],
        start: usize,
        accumulate: bool,
    ) {
        for (panel_index, rows) in outputs.chunks_mut(self.rows).enumerate() {
            let mut buffers = [[MaybeUninit::new(0u8); STEP_MAX]; ROWS_MAX];
            let mut targets = [std::ptr::null_mut(); ROWS_MAX];
            for ((target, buffer), row) in targets.iter_mut().zip(&mut buffers).zip(rows.iter()) {
                if accumulate {
                    buffer[..row.len() - start].copy_from_slice(&row[start..]);
                }
                *target = buffer.as_mut_ptr().cast::<u8>();
            }
            let targets = &targets[..rows.len()];
            let first_row = panel_index * self.rows;
            let panel = Panel {
                matrix,
                first_row,
                sources,
                targets,
                len: self.step,
                accumulate,
            };
            // SAFETY: as in `block`; each target is a buffer of `STEP_MAX` initialised bytes.
            unsafe { (self.multiply)(&panel) };
            for (row, buffer) in rows.iter_mut().zip(&buffers) {
                let rest = &mut row[start..];
                rest.copy_from_slice(&buffer[..rest.len()]);
            }
        }
    }
}

/// The sources of a group, and padded copies of those that end inside a block.
#[derive(Default)]
struct Staging {
    copies: Vec<u8>,
    sources: Vec<Source>,
}

impl Staging {
    /// Where to read `len` bytes from `start` of each input that has any there.
    ///
    /// An input that ends inside is copied and padded with zeros; one that ends before adds nothing
    /// to any sum and is left out.
    fn stage(
        &mut self,
        group: &[&[u8]],
        first_column: usize,
        start: usize,
        len: usize,
    ) -> &[Source] {
        let ends_inside = |input: &[u8]| start < input.len() && input.len() - start < len;
        self.copies.clear();
        self.copies.resize(
            group.iter().filter(|input| ends_inside(input)).count() * len,
            0,
        );
        let mut copies = self.copies.chunks_exact_mut(len);

        self.sources.clear();
        for (index, input) in group.iter().enumerate() {
            let Some(rest) = input.get(start..).filter(|rest| !rest.is_empty()) else {
                continue;
            };
            let padded = if rest.len() < len {
                copies.next()
            } else {
                None
            };
            let bytes = match padded {
                Some(copy) => {
                    copy[..rest.len()].copy_from_slice(rest);
                    copy.as_ptr()
                }
                None => rest.as_ptr(),
            };
            self.sources.push(Source {
                column: first_column + index,
                bytes,
            });
        }
        &self.sources
    }
}
