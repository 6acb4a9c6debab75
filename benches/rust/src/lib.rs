//! shardwire's core beside its peers.
//!
//! Ours and the peers take turns within one run, and the thread's CPU time counts: what the machine
//! does meanwhile then weighs on all of them alike.

pub mod erasure;
pub mod keccak;
pub mod reassemble;
pub mod sds;

use std::time::Duration;

use cpu_time::ThreadTime;

/// A measured way to do a case's work.
pub struct Candidate {
    /// `shardwire`, or the peer's name.
    pub name: &'static str,
    /// Does the work once.
    pub run: Box<dyn FnMut()>,
}

impl Candidate {
    /// A candidate that does `run`.
    pub fn new(name: &'static str, run: impl FnMut() + 'static) -> Self {
        Self {
            name,
            run: Box::new(run),
        }
    }
}

/// Work that several candidates do, ours first.
pub struct Case {
    /// What is done, with its sizes.
    pub name: String,
    /// Message or data bytes that the work covers.
    pub bytes: usize,
    /// How many messages those are, where that is what counts; else 0.
    pub messages: usize,
    /// Ours, then the peers.
    pub candidates: Vec<Candidate>,
}

/// The median of a candidate's rounds.
pub struct Measurement {
    /// The candidate.
    pub name: &'static str,
    /// Bytes of the case per second of thread CPU time, in units of 10^9.
    pub gigabytes_per_second: f64,
    /// Messages of the case per second, where they count; else 0.
    pub messages_per_second: f64,
}

/// Enough work for a clock that ticks in microseconds.
const ROUND_MIN: Duration = Duration::from_millis(4);

/// Measures every candidate of a case, one after the other, `rounds` times over.
pub fn measure(case: &mut Case, rounds: usize) -> Vec<Measurement> {
    let repeats: Vec<u32> = case.candidates.iter_mut().map(repeats_of).collect();
    let mut seconds = vec![Vec::with_capacity(rounds); case.candidates.len()];
    for _ in 0..rounds {
        for ((candidate, seconds), &repeats) in
            case.candidates.iter_mut().zip(&mut seconds).zip(&repeats)
        {
            let start = ThreadTime::now();
            for _ in 0..repeats {
                (candidate.run)();
            }
            seconds.push(start.elapsed().as_secs_f64() / f64::from(repeats));
        }
    }
    let medians = seconds.into_iter().map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    });
    case.candidates
        .iter()
        .zip(medians)
        .map(|(candidate, seconds)| Measurement {
            name: candidate.name,
            gigabytes_per_second: case.bytes as f64 / seconds / 1e9,
            messages_per_second: case.messages as f64 / seconds,
        })
        .collect()
}

/// How often a candidate runs in a round; running it also warms it up.
fn repeats_of(candidate: &mut Candidate) -> u32 {
    let mut repeats = 1;
    loop {
        let start = ThreadTime::now();
        for _ in 0..repeats {
            (candidate.run)();
        }
        if start.elapsed() >= ROUND_MIN || repeats >= 1 << 20 {
            return repeats;
        }
        repeats *= 2;
    }
}

/// Bytes without a pattern, the same in every run.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}
