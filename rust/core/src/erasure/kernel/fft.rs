//! Leopard's parity by transforms instead of its matrix: fewer products where there is much parity.
//!
//! The data shards are values of a polynomial at the points P, P + 1, .. (P: the parity count
//! rounded up to a power of two), and the parity shards its values at 0, 1, .. . In a Cantor basis
//! a chunk of P values turns into coefficients, and coefficients into values, in log2 P layers of
//! butterflies; the skew of a block of layer l that starts at point x is `x >> l`. Chunks of data
//! add up as coefficients.

use std::mem::MaybeUninit;

use super::butterfly::{UNIT_ROWS_MAX, Unit};
use super::{Kernel, Staging};
use crate::erasure::field;

/// Bytes of coefficients for all rows of a block of columns, and again of their sum. Measured at
/// (128, 128): 512 KiB is 1.2 times as fast as 256 KiB, and fewer rows do not tell them apart.
const WORK_LEN_MAX: usize = 512 << 10;

/// A block of columns is at most this wide: eight rows of it fit a first-level cache.
const BLOCK_MAX: usize = 4096;

/// Bytes between rows beyond a block, so that rows do not compete for the same cache lines.
const ROW_GAP: usize = 64;

/// The layers of one unit at most.
const UNIT_LAYERS_MAX: usize = UNIT_ROWS_MAX.trailing_zeros() as usize;

/// Rows of one block of columns.
struct Rows {
    bytes: Vec<u8>,
    row_len: usize,
}

impl Rows {
    fn new(count: usize, block_len: usize) -> Self {
        let row_len = block_len + ROW_GAP;
        Self {
            bytes: vec![0; count * row_len],
            row_len,
        }
    }

    fn pointers(&mut self) -> Vec<*mut u8> {
        self.bytes
            .chunks_exact_mut(self.row_len)
            .map(<[u8]>::as_mut_ptr)
            .collect()
    }
}

/// Layers `first..first + count` over P rows, of a transform whose first point is `shift`.
struct Pass<'a> {
    first: usize,
    count: usize,
    shift: usize,
    inverse: bool,
    sources: &'a [*const u8],
    targets: &'a [*mut u8],
    accumulate: bool,
    len: usize,
}

impl Kernel {
    /// Writes Leopard's parity of `inputs` over `outputs`, as [`Kernel::run`] with its matrix.
    ///
    /// The outputs are at least two, of one length: a multiple of 64.
    pub fn run_fft(self, inputs: &[&[u8]], outputs: &mut [&mut [MaybeUninit<u8>]]) {
        let shard_len = outputs.first().map_or(0, |output| output.len());
        assert!(outputs.len() >= 2 && shard_len.is_multiple_of(64));
        assert!(outputs.iter().all(|output| output.len() == shard_len));
        assert!(inputs.iter().all(|input| input.len() <= shard_len));

        let chunk_len = outputs.len().next_power_of_two();
        let block_max = (WORK_LEN_MAX / chunk_len)
            .next_multiple_of(64)
            .min(BLOCK_MAX);
        let zeros = vec![0u8; block_max];
        let mut work = Rows::new(chunk_len, block_max);
        let mut sums = Rows::new(chunk_len, block_max);
        let (work, sums) = (work.pointers(), sums.pointers());
        let mut staging = Staging::default();
        for start in (0..shard_len).step_by(block_max) {
            let len = block_max.min(shard_len - start);
            for (index, chunk) in inputs.chunks(chunk_len).enumerate() {
                let mut sources = vec![zeros.as_ptr(); chunk_len];
                for source in staging.stage(chunk, 0, start, len) {
                    sources[source.column] = source.bytes;
                }
                let shift = (index + 1) * chunk_len;
                self.inverse(shift, &sources, &work, &sums, index > 0, len);
            }
            let mut targets: Vec<*mut u8> = outputs
                .iter_mut()
                .map(|output| output[start..start + len].as_mut_ptr().cast())
                .collect();
            // What the transform has beyond the parity count is computed and left.
            targets.extend_from_slice(&work[outputs.len()..]);
            self.forward(&sums, &targets, len);
        }
    }

    /// Values at the points from `shift` on to coefficients, which are added to `sums` or start it.
    fn inverse(
        self,
        shift: usize,
        sources: &[*const u8],
        work: &[*mut u8],
        sums: &[*mut u8],
        accumulate: bool,
        len: usize,
    ) {
        let layers = sources.len().trailing_zeros() as usize;
        let worked: Vec<*const u8> = work.iter().map(|row| row.cast_const()).collect();
        for first in (0..layers).step_by(UNIT_LAYERS_MAX) {
            let count = UNIT_LAYERS_MAX.min(layers - first);
            let is_last = first + count == layers;
            self.pass(&Pass {
                first,
                count,
                shift,
                inverse: true,
                sources: if first == 0 { sources } else { &worked },
                targets: if is_last { sums } else { work },
                accumulate: is_last && accumulate,
                len,
            });
        }
    }

    /// Coefficients to values at the points from 0 on; `sums` is used up.
    fn forward(self, sums: &[*mut u8], targets: &[*mut u8], len: usize) {
        let sources: Vec<*const u8> = sums.iter().map(|row| row.cast_const()).collect();
        let layers = sources.len().trailing_zeros() as usize;
        let mut end = layers;
        while end > 0 {
            let count = UNIT_LAYERS_MAX.min(end);
            end -= count;
            self.pass(&Pass {
                first: end,
                count,
                shift: 0,
                inverse: false,
                sources: &sources,
                targets: if end == 0 { targets } else { sums },
                accumulate: false,
                len,
            });
        }
    }

    /// Every unit of some layers.
    fn pass(self, pass: &Pass<'_>) {
        let distance = 1 << pass.first;
        let unit_rows = 1 << pass.count;
        for block in (0..pass.sources.len()).step_by(unit_rows * distance) {
            let mut skews = [0; UNIT_ROWS_MAX - 1];
            for layer in 0..pass.count {
                let blocks = unit_rows >> (layer + 1);
                for index in 0..blocks {
                    let point = pass.shift + block + ((index * distance) << (layer + 1));
                    skews[blocks - 1 + index] = (point >> (pass.first + layer)) as u8;
                }
            }
            for row in block..block + distance {
                let mut sources = [std::ptr::null(); UNIT_ROWS_MAX];
                let mut targets = [std::ptr::null_mut(); UNIT_ROWS_MAX];
                for index in 0..unit_rows {
                    sources[index] = pass.sources[row + index * distance];
                    targets[index] = pass.targets[row + index * distance];
                }
                let unit = Unit {
                    field: &field::LEOPARD,
                    layers: pass.count,
                    inverse: pass.inverse,
                    sources,
                    targets,
                    skews,
                    accumulate: pass.accumulate,
                    len: pass.len,
                };
                // SAFETY: `supported` offers only what the machine has. Every row of `Rows` has
                // room for a block, as have `zeros`, what `stage` gives and the outputs; the rows
                // of a pass are distinct, and are written before they are read or added to.
                unsafe { (self.transform)(&unit) };
            }
        }
    }
}
