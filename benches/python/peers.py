"""What the wheel is measured beside, and the runner that takes turns between them.

    python -m benches.python.peers [--only TEXT] [--results FILE.json]

Every candidate of every case is measured once a round, so that whatever the machine does meanwhile weighs on all alike;
medians of thread CPU time are printed. A peer that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from shardwire import erasure, keccak256, keccak256_many

ROUNDS = 21
"""Odd, so that the median is one of the rounds."""

DATA_COUNT, PARITY_COUNT, SHARD_SIZE_BYTES, SET_COUNT = 10, 2, 102_400, 200


@dataclass
class Case:
    """Work that several candidates do, ours first."""

    name: str
    size_bytes: int
    candidates: dict[str, Callable[[], object]]
    absent: list[str] = field(default_factory=list)


def peer(case: Case, module_name: str) -> ModuleType | None:
    """The module, or `None` and a note in the case."""
    try:
        return importlib.import_module(module_name)
    except ImportError:
        case.absent.append(module_name)
        return None


def keccak_one(size_bytes: int) -> Case:
    message = random.Random(1).randbytes(size_bytes)
    repeats = max(1, 200_000 // (size_bytes + 100))

    def repeat(function: Callable[[bytes], object]) -> Callable[[], object]:
        return lambda: [function(message) for _ in range(repeats)]

    case = Case(f"keccak256 of {size_bytes} B", repeats * size_bytes, {"shardwire": repeat(keccak256)})
    if sha3 := peer(case, "sha3"):
        case.candidates["safe-pysha3"] = repeat(lambda message: sha3.keccak_256(message).digest())
    if crypto := peer(case, "Crypto.Hash.keccak"):
        case.candidates["pycryptodome"] = repeat(lambda message: crypto.new(digest_bits=256, data=message).digest())
    case.candidates["hashlib sha3_256 (OpenSSL)"] = repeat(lambda message: hashlib.sha3_256(message).digest())
    return case


def keccak_many(count: int, size_bytes: int) -> Case:
    messages = [random.Random(seed).randbytes(size_bytes) for seed in range(count)]
    case = Case(f"keccak256_many, {count} messages of {size_bytes} B", count * size_bytes, {})
    case.candidates["shardwire"] = lambda: keccak256_many(messages)
    if sha3 := peer(case, "sha3"):
        case.candidates["safe-pysha3"] = lambda: [sha3.keccak_256(message).digest() for message in messages]
    return case


def shard_sets() -> list[list[bytes]]:
    """More than any cache holds: every set is cold."""
    one = random.Random(1).randbytes(SHARD_SIZE_BYTES)
    return [[bytes([seed % 256, index]) + one[2:] for index in range(DATA_COUNT)] for seed in range(SET_COUNT)]


def encode() -> Case:
    sets = shard_sets()
    k, m = DATA_COUNT, PARITY_COUNT
    case = Case(f"encode ({k}, {m}), {SET_COUNT} sets", SET_COUNT * k * SHARD_SIZE_BYTES, {})
    for code in ("leopard", "vandermonde"):
        case.candidates[f"shardwire {code}"] = lambda code=code: [
            erasure.encode(shards, m, erasure_code=code) for shards in sets
        ]
    if driver := eclib(case):
        payloads = [b"".join(shards) for shards in sets]
        case.candidates["pyeclib isa_l_rs_vand"] = lambda: [driver.encode(payload) for payload in payloads]
    if leopard := peer(case, "reed_solomon_leopard"):
        case.candidates["reed-solomon-leopard"] = lambda: [leopard.encode(shards, m) for shards in sets]
    if zfec := peer(case, "zfec"):
        encoder = zfec.Encoder(k, k + m)
        parity = list(range(k, k + m))
        case.candidates["zfec"] = lambda: [encoder.encode(shards, parity) for shards in sets]
    return case


def decode() -> Case:
    """The first two data shards are lost."""
    sets = shard_sets()
    k, m = DATA_COUNT, PARITY_COUNT
    case = Case(f"decode ({k}, {m}), {m} lost, {SET_COUNT} sets", SET_COUNT * k * SHARD_SIZE_BYTES, {})
    for code in ("leopard", "vandermonde"):
        present = [[None] * m + shards[m:] + erasure.encode(shards, m, erasure_code=code) for shards in sets]
        case.candidates[f"shardwire {code}"] = lambda code=code, present=present: [
            erasure.reconstruct(shards, k, m, erasure_code=code) for shards in present
        ]
    if driver := eclib(case):
        fragments = [driver.encode(b"".join(shards))[m:] for shards in sets]
        case.candidates["pyeclib isa_l_rs_vand"] = lambda: [driver.decode(shards) for shards in fragments]
    if leopard := peer(case, "reed_solomon_leopard"):
        coded = [(dict(enumerate(shards[m:], m)), dict(enumerate(leopard.encode(shards, m)))) for shards in sets]
        case.candidates["reed-solomon-leopard"] = lambda: [leopard.decode(k, m, *shards) for shards in coded]
    if zfec := peer(case, "zfec"):
        decoder, encoder = zfec.Decoder(k, k + m), zfec.Encoder(k, k + m)
        places = [10, 11, *range(m, k)]
        received = [encoder.encode(shards, list(range(k, k + m))) + shards[m:] for shards in sets]
        case.candidates["zfec"] = lambda: [decoder.decode(shards, places) for shards in received]
    return case


def eclib(case: Case) -> object | None:
    """pyeclib with ISA-L, or `None` and a note in the case."""
    module = peer(case, "pyeclib.ec_iface")
    if module is None:
        return None
    try:
        return module.ECDriver(k=DATA_COUNT, m=PARITY_COUNT, ec_type="isa_l_rs_vand")
    except module.ECDriverError:
        case.absent.append("ISA-L for pyeclib")
        return None


KECCAK_PEERS = ("safe-pysha3", "pycryptodome", "hashlib sha3_256 (OpenSSL)")
ERASURE_PEERS = ("shardwire vandermonde", "pyeclib isa_l_rs_vand", "reed-solomon-leopard", "zfec")

CASES: dict[str, tuple[Callable[[], Case], tuple[str, ...]]] = {
    "keccak256-32B": (lambda: keccak_one(32), ("shardwire", *KECCAK_PEERS)),
    "keccak256-1KiB": (lambda: keccak_one(1 << 10), ("shardwire", *KECCAK_PEERS)),
    "keccak256-100KiB": (lambda: keccak_one(100 << 10), ("shardwire", *KECCAK_PEERS)),
    "keccak256_many-64x100KiB": (lambda: keccak_many(64, 100 << 10), ("shardwire", "safe-pysha3")),
    "keccak256_many-10000x32B": (lambda: keccak_many(10_000, 32), ("shardwire", "safe-pysha3")),
    "encode": (encode, ("shardwire leopard", *ERASURE_PEERS)),
    "decode": (decode, ("shardwire leopard", *ERASURE_PEERS)),
}
"""Each case by its short name, and the candidates that it has where every peer is installed."""


def measure(case: Case) -> dict[str, float]:
    """Seconds of thread CPU time that each candidate takes: the median of the rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in case.candidates}
    for round_index in range(-1, ROUNDS):
        for name, run in case.candidates.items():
            start = time.thread_time()
            run()
            if round_index >= 0:
                seconds[name].append(time.thread_time() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def context(command: str, rounds: int = ROUNDS) -> dict[str, object]:
    """What a figure depends on beside the code."""
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = said.get("flags", "").split()
    known = ("avx2", "avx512f", "gfni")
    return {
        "machine": f"{said.get('model name', platform.machine())}, family {said.get('cpu family', 'unknown')}; "
        f"with: {' '.join(flag for flag in known if flag in flags)}; "
        f"without: {' '.join(flag for flag in known if flag not in flags)}",
        "python": platform.python_version(),
        "commit": described.stdout.strip(),
        "command": command,
        "rounds": rounds,
        "clock": "thread CPU time",
        "load_1m": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure the cases with this in their names")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    results = []
    started = context(f"python -m benches.python.peers --only '{arguments.only}'")
    print("| case | candidate | GB/s | ours / peer |\n|---|---|---|---|")
    for make, _ in CASES.values():
        case = make()
        if arguments.only not in case.name:
            continue
        medians = measure(case)
        ours = next(iter(medians.values()))
        for name, seconds in medians.items():
            rate = case.size_bytes / seconds / 1e9
            print(f"| {case.name} | {name} | {rate:.3f} | {seconds / ours:.2f} |", flush=True)
            results.append({"case": case.name, "candidate": name, "gb_per_s": rate})
        for name in case.absent:
            print(f"| {case.name} | {name} | not installed | |")
    if arguments.results and results:
        arguments.results.write_text(json.dumps({"context": started, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
