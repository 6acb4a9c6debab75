//! Measures every case and prints a table: `cargo run --release [-- FILTER [RESULTS.json]]`.
//!
//! FILTER keeps the cases whose name contains it. The ratio is the first candidate to each other.

use std::error::Error;
use std::{env, fs};

use serde_json::json;
use shardwire_benches::{erasure, keccak, measure, reassemble};

/// An odd number, so that the median is one of the rounds.
const ROUNDS: usize = 21;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let filter = arguments.next().unwrap_or_default();
    let results_path = arguments.next();

    let cases = keccak::cases()
        .into_iter()
        .chain(erasure::cases())
        .chain(reassemble::cases());
    let mut results = Vec::new();
    println!("| case | candidate | GB/s | ours / peer |\n|---|---|---|---|");
    for mut case in cases.filter(|case| case.name.contains(&filter)) {
        let measurements = measure(&mut case, ROUNDS);
        let ours = measurements[0].gigabytes_per_second;
        for measurement in &measurements {
            let (name, rate) = (measurement.name, measurement.gigabytes_per_second);
            println!(
                "| {} | {name} | {rate:.3} | {:.2} |",
                case.name,
                ours / rate
            );
            results.push(json!({"case": case.name, "candidate": name, "gb_per_s": rate}));
        }
    }
    if let Some(path) = results_path {
        fs::write(path, serde_json::to_string_pretty(&results)?)?;
    }
    Ok(())
}
