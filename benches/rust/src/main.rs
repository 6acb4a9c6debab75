//! Measures every case and prints a table: `cargo run --release [-- FILTER [RESULTS.json]]`.
//!
//! FILTER keeps the cases whose name contains it. The ratio is the first candidate to each other.

use std::error::Error;
use std::process::Command;
use std::{env, fs};

use serde_json::{Value, json};
use shardwire_benches::{erasure, keccak, measure, reassemble, sds};

/// An odd number, so that the median is one of the rounds.
const ROUNDS: usize = 21;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let filter = arguments.next().unwrap_or_default();
    let results_path = arguments.next();

    let cases = keccak::cases()
        .into_iter()
        .chain(erasure::cases())
        .chain(reassemble::cases())
        .chain(sds::cases());
    let mut results = Vec::new();
    println!("| case | candidate | GB/s | messages/s | ours / peer |\n|---|---|---|---|---|");
    for mut case in cases.filter(|case| case.name.contains(&filter)) {
        let measurements = measure(&mut case, ROUNDS);
        let ours = measurements[0].gigabytes_per_second;
        for measurement in &measurements {
            let (name, rate) = (measurement.name, measurement.gigabytes_per_second);
            let mut result = json!({"case": case.name, "candidate": name, "gb_per_s": rate});
            let mut messages = String::new();
            if case.messages > 0 {
                result["messages_per_s"] = measurement.messages_per_second.round().into();
                messages = format!("{:.0}", measurement.messages_per_second);
            }
            println!(
                "| {} | {name} | {rate:.3} | {messages} | {:.2} |",
                case.name,
                ours / rate
            );
            results.push(result);
        }
    }
    if let Some(path) = results_path.filter(|_| !results.is_empty()) {
        let run = json!({"context": context(&filter), "results": results});
        fs::write(path, serde_json::to_string_pretty(&run)? + "\n")?;
    }
    Ok(())
}

/// What a figure depends on beside the code.
fn context(filter: &str) -> Value {
    // A baseline build for x86-64 has no AVX2; one for the native processor has all that it has.
    let native = cfg!(target_feature = "avx2");
    let flags = if native {
        "RUSTFLAGS=-Ctarget-cpu=native "
    } else {
        ""
    };
    json!({
        "machine": processor(),
        "commit": commit(),
        "command": format!("{flags}cargo run --release --manifest-path benches/rust/Cargo.toml -- '{filter}'"),
        "build": if native { "native" } else { "baseline" },
        "rounds": ROUNDS,
        "clock": "thread CPU time",
        "load_1m": load(),
        "erasure_kernel": shardwire_core::erasure::instruction_set().as_str(),
        "keccak_kernel": shardwire_core::keccak::instruction_set().as_str(),
    })
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value_of = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = value_of("model name").unwrap_or_else(|| env::consts::ARCH.to_owned());
    let flags = value_of("flags").unwrap_or_default();
    let has = |flag: &&str| flags.split(' ').any(|listed| listed == *flag);
    let (with, without): (Vec<&str>, Vec<&str>) =
        ["avx2", "avx512f", "gfni"].into_iter().partition(has);
    let (with, without) = (with.join(" "), without.join(" "));
    let family = value_of("cpu family").unwrap_or_default();
    format!("{name}, family {family}; with: {with}; without: {without}")
}

fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output()
        .ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}
