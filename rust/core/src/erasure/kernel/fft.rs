//! Parity by transforms instead of its matrix: fewer products where there is much parity.
//!
//! The data shards of a chunk are values of a polynomial at the points of a coset, and the parity
//! shards take its values at other points. A chunk of P values turns into coefficients, and
//! coefficients into values, in log2 P layers of butterflies; chunks add up as coefficients. The
//! `Transform` says which points and scales make this a code's parity.

use std::mem::MaybeUninit;

use super::butterfly::{UNIT_ROWS_MAX, Unit};
use super::panel::{GROUP_MAX, Source};
use super::{Kernel, STEP_MAX, Staging};
use crate::erasure::geometry::Matrix;
use crate::erasure::transform::Transform;

/// Bytes of coefficients for all rows of a block of columns, and again of their sum. Measured at
/// (128, 128): 512 KiB is 1.2 times as fast as 256 KiB, and fewer rows do not tell them apart.
const WORK_LEN_MAX: usize = 512 << 10;

/// A block of columns is at most this wide: eight rows of it fit a first-level cache.
pub(super) const BLOCK_MAX: usize = 4096;

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

/// What the transforms of one block after another work in.
struct Room {
    block_max: usize,
    zeros: Vec<u8>,
    work: Rows,
    sums: Rows,
    staging: Staging,
}

impl Room {
    fn new(transform: &Transform) -> Self {
        let block_max = (WORK_LEN_MAX >> transform.layers)
            .next_multiple_of(STEP_MAX)
            .min(BLOCK_MAX);
        Self {
            block_max,
            zeros: vec![0; block_max],
            work: Rows::new(1 << transform.layers, block_max),
            sums: Rows::new(1 << transform.layers, block_max),
            staging: Staging::default(),
        }
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
    /// What the rows of layer 0 are multiplied by, where they are.
    scales: Option<&'a [u8]>,
    accumulate: bool,
    len: usize,
}

impl Kernel {
    /// Writes the parity of `inputs` over `outputs`, as [`Kernel::run`] with the encoding matrix.
    pub fn run_encode(
        self,
        transform: &Transform,
        inputs: &[&[u8]],
        outputs: &mut [&mut [MaybeUninit<u8>]],
    ) {
        let shard_len = outputs.first().map_or(0, |output| output.len());
        assert!(outputs.len() == transform.rows && inputs.len() == transform.data_count());
        assert!(outputs.iter().all(|output| output.len() == shard_len));
        assert!(inputs.iter().all(|input| input.len() <= shard_len));

        let mut room = Room::new(transform);
        let body = shard_len - shard_len % self.step;
        for start in (0..body).step_by(room.block_max) {
            let len = room.block_max.min(body - start);
            let targets = pointers_at(outputs, start, len);
            // SAFETY: the targets are `len` bytes of distinct outputs.
            unsafe { self.encode_block(transform, inputs, &mut room, &targets, start, len) };
        }
        if body < shard_len {
            let mut rows = Rows::new(transform.rows, self.step);
            let targets = rows.pointers();
            // SAFETY: the targets are distinct rows of a step.
            unsafe { self.encode_block(transform, inputs, &mut room, &targets, body, self.step) };
            copy_rows(&rows, outputs, body);
        }
    }

    /// Writes the lost data shards over `outputs`: `matrix` times what some shards of parity have
    /// beyond the parity of `data`, in which a lost shard is empty.
    pub fn run_decode(
        self,
        transform: &Transform,
        matrix: &Matrix,
        data: &[&[u8]],
        parity: &[(usize, &[u8])],
        outputs: &mut [&mut [MaybeUninit<u8>]],
    ) {
        let shard_len = outputs.first().map_or(0, |output| output.len());
        assert!(outputs.len() == matrix.rows && data.len() == transform.data_count());
        assert!(parity.len() == matrix.columns);
        assert!(outputs.iter().all(|output| output.len() == shard_len));
        let present = data.iter().chain(parity.iter().map(|(_, shard)| shard));
        assert!(present.into_iter().all(|shard| shard.len() <= shard_len));

        let mut room = Room::new(transform);
        let mut syndromes = Rows::new(transform.rows, room.block_max);
        let syndromes = syndromes.pointers();
        let body = shard_len - shard_len % self.step;
        for start in (0..body).step_by(room.block_max) {
            let len = room.block_max.min(body - start);
            let targets = pointers_at(outputs, start, len);
            // SAFETY: `syndromes` are distinct rows of a block, and the targets are `len` bytes of
            // distinct outputs.
            unsafe {
                self.encode_block(transform, data, &mut room, &syndromes, start, len);
                self.solve_block(matrix, parity, &syndromes, &targets, start, len);
            }
        }
        if body < shard_len {
            let mut rows = Rows::new(matrix.rows, self.step);
            let targets = rows.pointers();
            // SAFETY: as above; the targets are distinct rows of a step.
            unsafe {
                self.encode_block(transform, data, &mut room, &syndromes, body, self.step);
                self.solve_block(matrix, parity, &syndromes, &targets, body, self.step);
            }
            copy_rows(&rows, outputs, body);
        }
    }

    /// The parity of `len` bytes of the inputs from `start` on; an input that ends earlier counts
    /// as padded with zeros.
    ///
    /// # Safety
    /// `targets` are one a row of the transform and distinct, with `len` bytes to write each. `len`
    /// is a multiple of the kernel's step and at most the block of `room`.
    unsafe fn encode_block(
        self,
        transform: &Transform,
        inputs: &[&[u8]],
        room: &mut Room,
        targets: &[*mut u8],
        start: usize,
        len: usize,
    ) {
        let chunk_len = 1 << transform.layers;
        let (work, sums) = (room.work.pointers(), room.sums.pointers());
        let (outer, inner) = inputs.split_at(transform.columns);
        for (index, chunk) in outer.chunks(chunk_len).enumerate() {
            let mut sources = vec![room.zeros.as_ptr(); chunk_len];
            let staged = room.staging.stage(chunk, 0, start, len);
            if staged.is_empty() && index > 0 {
                continue;
            }
            for source in staged {
                sources[source.column] = source.bytes;
            }
            self.inverse(transform, index, &sources, &work, &sums, len);
        }
        // What the chunk has beyond the parity is computed and left.
        let mut rows = work;
        rows[transform.first_row..][..targets.len()].copy_from_slice(targets);
        self.forward(transform, &sums, &rows, len);

        let Some(matrix) = &transform.inner else {
            return;
        };
        for (index, group) in inner.chunks(GROUP_MAX).enumerate() {
            let sources = room.staging.stage(group, index * GROUP_MAX, start, len);
            // SAFETY: `stage` made `len` bytes good behind each source; the caller vouches for the
            // targets, which the transform has written.
            unsafe { self.panels(matrix, sources, targets, len, true) };
        }
    }

    /// `matrix` times the sums of `syndromes` and `parity`; `syndromes` are used up.
    ///
    /// # Safety
    /// `syndromes` and `targets` are distinct and have `len` bytes each; there is a target for each
    /// row of the matrix, and a syndrome for each row that `parity` names. `len` is a multiple of
    /// the kernel's step.
    unsafe fn solve_block(
        self,
        matrix: &Matrix,
        parity: &[(usize, &[u8])],
        syndromes: &[*mut u8],
        targets: &[*mut u8],
        start: usize,
        len: usize,
    ) {
        for (index, group) in parity.chunks(GROUP_MAX).enumerate() {
            let mut sources = Vec::with_capacity(group.len());
            for (place, &(row, shard)) in group.iter().enumerate() {
                // SAFETY: the caller vouches for the syndromes, and nothing else refers to them.
                let syndrome = unsafe { std::slice::from_raw_parts_mut(syndromes[row], len) };
                let received = shard.get(start..).unwrap_or(&[]);
                for (byte, received) in syndrome.iter_mut().zip(received) {
                    *byte ^= received;
                }
                sources.push(Source {
                    column: index * GROUP_MAX + place,
                    bytes: syndrome.as_ptr(),
                });
            }
            // SAFETY: the caller vouches for sources and targets; an earlier group has written the
            // targets where `index` is not 0.
            unsafe { self.panels(matrix, &sources, targets, len, index > 0) };
        }
    }

    /// Values of a chunk to coefficients, which are added to `sums` or, by chunk 0, start it.
    fn inverse(
        self,
        transform: &Transform,
        chunk: usize,
        sources: &[*const u8],
        work: &[*mut u8],
        sums: &[*mut u8],
        len: usize,
    ) {
        let layers = transform.layers;
        let worked: Vec<*const u8> = work.iter().map(|row| row.cast_const()).collect();
        for first in (0..layers).step_by(UNIT_LAYERS_MAX) {
            let count = UNIT_LAYERS_MAX.min(layers - first);
            let is_last = first + count == layers;
            self.pass(
                transform,
                &Pass {
                    first,
                    count,
                    shift: transform.shift(chunk),
                    inverse: true,
                    sources: if first == 0 { sources } else { &worked },
                    targets: if is_last { sums } else { work },
                    scales: transform.column_scales(chunk).filter(|_| first == 0),
                    accumulate: is_last && chunk > 0,
                    len,
                },
            );
        }
    }

    /// Coefficients to values at the points from 0 on; `sums` is used up.
    fn forward(self, transform: &Transform, sums: &[*mut u8], targets: &[*mut u8], len: usize) {
        let sources: Vec<*const u8> = sums.iter().map(|row| row.cast_const()).collect();
        let mut end = transform.layers;
        while end > 0 {
            let count = UNIT_LAYERS_MAX.min(end);
            end -= count;
            self.pass(
                transform,
                &Pass {
                    first: end,
                    count,
                    shift: 0,
                    inverse: false,
                    sources: &sources,
                    targets: if end == 0 { targets } else { sums },
                    scales: transform.row_scales().filter(|_| end == 0),
                    accumulate: false,
                    len,
                },
            );
        }
    }

    /// Every unit of some layers.
    fn pass(self, transform: &Transform, pass: &Pass<'_>) {
        let distance = 1 << pass.first;
        let unit_rows = 1 << pass.count;
        for block in (0..pass.sources.len()).step_by(unit_rows * distance) {
            let mut skews = [0; UNIT_ROWS_MAX - 1];
            for layer in 0..pass.count {
                let blocks = unit_rows >> (layer + 1);
                for index in 0..blocks {
                    let point = pass.shift + block + ((index * distance) << (layer + 1));
                    skews[blocks - 1 + index] = transform.field.skew(pass.first + layer, point);
                }
            }
            for row in block..block + distance {
                let mut sources = [std::ptr::null(); UNIT_ROWS_MAX];
                let mut targets = [std::ptr::null_mut(); UNIT_ROWS_MAX];
                let mut scales = pass.scales.map(|_| [0; UNIT_ROWS_MAX]);
                for index in 0..unit_rows {
                    let row = row + index * distance;
                    sources[index] = pass.sources[row];
                    targets[index] = pass.targets[row];
                    if let (Some(scales), Some(all)) = (&mut scales, pass.scales) {
                        scales[index] = all[row];
                    }
                }
                let unit = Unit {
                    field: transform.field,
                    layers: pass.count,
                    inverse: pass.inverse,
                    sources,
                    targets,
                    skews,
                    scales,
                    accumulate: pass.accumulate,
                    len: pass.len,
                };
                // Every row of `Rows` has room for a block, as have `zeros`, what `stage` gives and
                // the caller's targets.
                // SAFETY: `supported` offers only what the machine has; the rows of a pass have
                // room, are distinct, and are written before they are read or added to.
                unsafe { (self.transform)(&unit) };
            }
        }
    }
}

/// Where `len` bytes from `start` of each output are written.
fn pointers_at(outputs: &mut [&mut [MaybeUninit<u8>]], start: usize, len: usize) -> Vec<*mut u8> {
    outputs
        .iter_mut()
        .map(|output| output[start..start + len].as_mut_ptr().cast())
        .collect()
}

/// What the outputs lack from `start` on, out of rows that begin there.
fn copy_rows(rows: &Rows, outputs: &mut [&mut [MaybeUninit<u8>]], start: usize) {
    for (output, row) in outputs
        .iter_mut()
        .zip(rows.bytes.chunks_exact(rows.row_len))
    {
        let rest = &mut output[start..];
        for (byte, written) in rest.iter_mut().zip(row) {
            byte.write(*written);
        }
    }
}
