"""The Spark pipeline beside Spark's own plans over the same files: medians of rounds in turn, ratios within a round.

Two ratios: of seconds on the wall, and of the processor's time in Java and all Python workers, which other work on the
machine moves less.

    python benches/spark/bench_pipeline.py --data /var/tmp/traffic --prepare
    python benches/spark/bench_pipeline.py --data /var/tmp/traffic --only big --save benches/results/pipeline

Sections: big (1 GB, 10,240 segments of 100 KB in 1,024 messages), small (300,000 segments of 1 KB in 30,000 messages),
hash, archive (1 GB in messages of 0.5 MB, c of them at once), alone (without Spark), memory (ten times *small*, and a
key of 2 GB), stream (100,000 messages of one segment in one micro-batch). `i2` is the floor: a shuffle by hash and one
way into Python, where nothing is done. Further floors are the plans themselves with nothing of ours in them. versions:
the same on other versions of PySpark,
of which `--versions` names an interpreter each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import traffic
from figure_rows import Row, line_of, save
from measure import WorkerMemory, commit, drained, interleaved, machine, ratio
from other_version import OtherVersion
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from shardwire.archive import reconstruct_files
from shardwire.spark import functions as sw
from shardwire.spark import reconstruct, reconstruct_archive, reconstruct_stream, with_keccak256
from shardwire.spark.functions import keccak256_array
from shardwire.spark.java import ensure_java
from shardwire.spark.reconstruct import absent_columns, unwrapped_segments
from shardwire.spark.session import configure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Messages at once, and the most that an archive may take beside `reconstruct`, with payloads.
IN_FLIGHT = {2: 0.60, 10: 0.75, 20: 0.95}


def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes everything in and gives back a count."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows])})


def with_zeros(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What hashing costs without the hashing: a digest of zeros beside each payload."""
    for batch in batches:
        zeros = pa.array([bytes(32)] * batch.num_rows, pa.binary())
        yield pa.RecordBatch.from_arrays([batch.column(0), zeros], names=["payload", "digest"])


def as_it_came(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A way through Python on which nothing is done."""
    yield from batches


def hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes everything in, hashes every payload, and gives back a count."""
    rows = sum(len(keccak256_array(batch.column("payload"))) for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows])})


def zeros_alone(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same without the payloads."""
    for batch in with_zeros(batches):
        yield batch.select(["digest"])


class Bench:
    """One session, one data directory, and the rows of the table."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self.rounds: int = options.rounds
        self.cores: int = options.cores
        self.versions: list[str] = options.versions
        self.shapes = traffic.shapes(options.scale)
        self.directory = directory
        self.rows: list[Row] = []

    def prepare(self, sections: list[str]) -> None:
        """Makes the files that the sections read."""
        for section, name in (
            ("big", "big"),
            ("hash", "big"),
            ("versions", "big"),
            ("small", "small"),
            ("versions", "small"),
            ("memory", "small"),
            ("stream", "ones"),
        ):
            if section in sections:
                traffic.shuffled(self.directory, self.shapes[name])
        if "memory" in sections:
            traffic.shuffled(self.directory, self.shapes["small10"])
            traffic.hot(self.directory, 2 * self.shapes["big"].total_bytes)
        if "archive" in sections:
            for in_flight in IN_FLIGHT:
                traffic.archive(self.directory, self.shapes["half"], in_flight)
        if "alone" in sections:
            traffic.archive(self.directory, self.shapes["big"], 10)

    @contextlib.contextmanager
    def session(self, partitions: int = 4) -> Iterator[SparkSession]:
        """A session with as many partitions after a shuffle, and the settings that the guide recommends."""
        spark = configure(
            SparkSession.builder.master(f"local[{self.cores}]")
            .config("spark.driver.memory", "4g")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", partitions)
            .getOrCreate()
        )
        try:
            yield spark
        finally:
            spark.stop()

    def compare(
        self, section: str, base: str, runs: dict[str, Callable[[], object]], targets: dict[str, float]
    ) -> None:
        """Runs in turn; a row each, as a multiple of `base`."""
        taken = interleaved(runs, self.rounds)
        for name, one in taken.items():
            self.add(
                section,
                name,
                seconds=round(statistics.median(one.seconds), 2),
                spread=[round(min(one.seconds), 2), round(max(one.seconds), 2)],
                processor=round(statistics.median(one.processor), 2),
                ratio=round(ratio(one.seconds, taken[base].seconds), 2),
                processor_ratio=round(ratio(one.processor, taken[base].processor), 2),
                of=base,
                target=targets.get(name),
            )

    def add(self, section: str, name: str, **values: Any) -> None:
        """A row of the table, printed at once."""
        given = {key: value for key, value in values.items() if value is not None}
        row = {
            "section": section,
            "case": name,
            **given,
            "rounds": self.rounds,
            "load_1m": round(os.getloadavg()[0], 1),
        }
        self.rows.append(row)
        print(line_of(row), flush=True)

    def run_big(self) -> None:
        self._reconstruct("big", 1.20)

    def run_small(self) -> None:
        self._reconstruct("small", 1.65)

    def _reconstruct(self, name: str, target: float) -> None:
        shape = self.shapes[name]
        with self.session() as spark:
            df = spark.read.parquet(traffic.shuffled(self.directory, shape))

            absent = absent_columns(df, (), None, None, is_keyed=False)

            def together(rows: DataFrame, end: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
                plan = rows.repartition("digest").sortWithinPartitions("digest")
                drained(plan.mapInArrow(end, "rows bigint"))

            runs = {
                "i2": lambda: drained(df.repartition("digest").mapInArrow(consume, "rows bigint")),
                "no-op plan": lambda: together(df, consume),
                "the floor with key=: no-op plan and hash": lambda: together(df, hashed),
                "the floor from bare: through Python as well": lambda: together(
                    df.mapInArrow(as_it_came, df.schema), hashed
                ),
                "reconstruct(key=)": lambda: drained(
                    reconstruct(df, shape.config, key="digest", include_payload=False)
                ),
                "reconstruct from bare payloads": lambda: drained(
                    reconstruct(df.select("payload"), shape.config, include_payload=False)
                ),
                "of that the decode pass": lambda: drained(
                    unwrapped_segments(df.select("payload"), shape.config, "payload", [], (), None, None, absent)
                ),
            }
            self.compare(name, "i2", runs, {"reconstruct(key=)": target, "reconstruct from bare payloads": 1.5})

    def run_stream(self) -> None:
        """100,000 messages of one segment in one micro-batch, from a new checkpoint, beside all that is done to them
        before the state."""
        shape = self.shapes["ones"]
        source = Path(traffic.shuffled(self.directory, shape)).parent
        with self.session() as spark:
            df = spark.readStream.schema("payload binary").parquet(str(source))

            def run(plan: DataFrame) -> None:
                with self._sink() as checkpoint:
                    stream = plan.writeStream.format("noop").option("checkpointLocation", checkpoint)
                    stream.trigger(availableNow=True).start().awaitTermination()

            runs = {
                "unwrapped alone": lambda: run(unwrapped_segments(df, shape.config, "payload", [], (), None, None)),
                "reconstruct_stream": lambda: run(reconstruct_stream(df, shape.config)),
            }
            self.compare("stream", "unwrapped alone", runs, {})

    def run_versions(self) -> None:
        """Each version in a process of its own, which is asked for one plan at a time."""
        for name in ("big", "small"):
            path = traffic.shuffled(self.directory, self.shapes[name])
            with contextlib.ExitStack() as stack:
                sessions = [stack.enter_context(OtherVersion(python, self.cores)) for python in self.versions]
                newest = sessions[-1]
                for plan in ("i2", "key", "bare"):
                    runs = {
                        f"{plan} on {one.version}": partial(one.run, plan, path, self.shapes[name].segment_size_bytes)
                        for one in sessions
                    }
                    targets = {} if plan == "i2" else {f"{plan} on {one.version}": 1.15 for one in sessions[:-1]}
                    self.compare(f"versions, {name}", f"{plan} on {newest.version}", runs, targets)

    def run_hash(self) -> None:
        """1 GB of payloads: the digests alone, and the rows with their digest."""
        with self.session() as spark:
            payloads = spark.read.parquet(traffic.shuffled(self.directory, self.shapes["big"])).select("payload")
            runs = {
                "sha2(payload, 256)": lambda: drained(payloads.select(F.sha2("payload", 256))),
                "the floor: no hash, digests alone": lambda: drained(payloads.mapInArrow(zeros_alone, "digest binary")),
                "the floor: no hash, whole rows": lambda: drained(
                    payloads.mapInArrow(with_zeros, "payload binary, digest binary")
                ),
                "with_keccak256, digests alone": lambda: drained(with_keccak256(payloads, keep_column=False)),
                "with_keccak256, whole rows": lambda: drained(with_keccak256(payloads)),
                "sw.keccak256, digests alone": lambda: drained(payloads.select(sw.keccak256("payload"))),
                "sw.keccak256, whole rows": lambda: drained(payloads.withColumn("digest", sw.keccak256("payload"))),
            }
            self.compare("hash", "sha2(payload, 256)", runs, {"with_keccak256, digests alone": 1.5})

    def run_archive(self) -> None:
        """Both write Parquet files; `reconstruct` shuffles every segment, an archive only what is not whole locally."""
        for in_flight, target in IN_FLIGHT.items():
            with self.session() as spark:
                shuffled = [self._archive(spark, in_flight, kind, target) for kind in (False, True)]
            share = max(shuffled) / self.shapes["half"].total_bytes
            self.add(f"archive c={in_flight}", "bytes shuffled", share=round(share, 4))
            self._archive_memory(in_flight)

    def _archive_memory(self, in_flight: int) -> None:
        """The peaks of the Python workers of both, each in a session of its own."""
        shape = self.shapes["half"]
        source = traffic.archive(self.directory, shape, in_flight)
        peaks = {}
        for name in ("reconstruct", "reconstruct_archive"):
            with self.session() as spark, WorkerMemory() as memory, self._sink() as sink:
                if name == "reconstruct":
                    reconstruct(spark.read.parquet(source), shape.config).write.parquet(sink)
                else:
                    reconstruct_archive(spark, source, sink, shape.config)
            peaks[name] = memory.peak
            self.add(f"archive c={in_flight}", f"memory of {name}", peak_mib=memory.peak >> 20)
        times = peaks["reconstruct_archive"] / peaks["reconstruct"]
        self.add(f"archive c={in_flight}", "memory beside reconstruct's", ratio=round(times, 2), target=1.5)

    def run_alone(self) -> None:
        """Without Spark: the same files read and hashed segment by segment, on as many threads."""
        shape = self.shapes["big"]
        paths = sorted(Path(traffic.archive(self.directory, shape, 10)).parent.glob("*.parquet"))

        def hashed(path: Path) -> None:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(64, columns=["payload"]):
                    keccak256_array(batch.column(0))

        def floor() -> None:
            with ThreadPoolExecutor(self.cores) as pool:
                list(pool.map(hashed, paths))

        def files(include_payload: bool) -> None:
            with self._sink() as sink:
                report = reconstruct_files(
                    paths, sink, shape.config, include_payload=include_payload, threads=self.cores, compression="none"
                )
            if report.messages != {"complete": shape.messages}:
                raise SystemExit(f"the archive gave {report.messages}")

        runs: dict[str, Callable[[], object]] = {
            "read and hash": floor,
            "reconstruct_files, no payloads": partial(files, False),
            "reconstruct_files, payloads": partial(files, True),
        }
        self.compare("alone", "read and hash", runs, {"reconstruct_files, no payloads": 1.3})

    def _archive(self, spark: SparkSession, in_flight: int, include_payload: bool, target: float) -> int:
        """Compares the two on one archive; returns the bytes shuffled."""
        shape = self.shapes["half"]
        source = traffic.archive(self.directory, shape, in_flight)
        shuffled = 0

        def across() -> None:
            with self._sink() as sink:
                found = reconstruct(spark.read.parquet(source), shape.config, include_payload=include_payload)
                found.write.parquet(sink)

        def local() -> None:
            nonlocal shuffled
            with self._sink() as sink:
                report = reconstruct_archive(spark, source, sink, shape.config, include_payload=include_payload)
            if report.messages != {"complete": shape.messages}:
                raise SystemExit(f"the archive gave {report.messages}")
            shuffled = report.bytes_shuffled

        def through() -> None:
            with self._sink() as sink:
                rows = spark.read.parquet(source)
                rows.mapInArrow(as_it_came, rows.schema).write.parquet(sink)

        kind = "payloads" if include_payload else "no payloads"
        base, name = f"reconstruct, {kind}", f"reconstruct_archive, {kind}"
        runs: dict[str, Callable[[], object]] = {base: across, name: local}
        if include_payload:
            runs["the floor: through Python and written"] = through
        self.compare(f"archive c={in_flight}", base, runs, {name: target})
        return shuffled

    @contextlib.contextmanager
    def _sink(self) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="sink-", dir=self.directory) as parent:
            yield f"{parent}/out"

    def run_memory(self) -> None:
        """Time and the peak of a Python worker at ten times the rows, and where one key has 2 GB."""
        medians = {}
        for name, partitions in (("small", 4), ("small10", 40)):
            shape = self.shapes[name]
            with self.session(partitions) as spark, WorkerMemory() as memory:
                df = spark.read.parquet(traffic.shuffled(self.directory, shape))
                run = partial(drained, reconstruct(df, shape.config, key="digest", include_payload=False))
                medians[name] = statistics.median(interleaved({name: run}, 3)[name].seconds)
            self.add("memory", name, seconds=round(medians[name], 2), peak_mib=memory.peak >> 20)
        self.add("memory", "small10 to small", ratio=round(medians["small10"] / medians["small"], 2), target=11)
        with self.session() as spark, WorkerMemory() as memory:
            df = spark.read.parquet(traffic.hot(self.directory, 2 * self.shapes["big"].total_bytes))
            run = partial(drained, reconstruct(df, self.shapes["big"].config, key="digest"))
            seconds = interleaved({"hot": run}, 1)["hot"].seconds[0]
        self.add("memory", "a key of 2 GB", seconds=round(seconds, 2), peak_mib=memory.peak >> 20)


def main() -> None:
    sections = ["big", "small", "hash", "archive", "alone", "memory", "stream"]
    extra = ["versions"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", choices=[*sections, *extra], default=sections, help="sections (default: all)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="after one that warms up")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--versions", nargs="*", default=[], help="interpreters with other versions, the newest last")
    parser.add_argument("--data", type=Path, help="where the files are kept (default: a temporary directory)")
    parser.add_argument("--prepare", action="store_true", help="make the files and end")
    parser.add_argument("--save", type=Path, help="write the results to this path with .json and .md")
    options = parser.parse_args()
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    directory = options.data or Path(tempfile.mkdtemp(prefix="shardwire-bench-"))
    bench = Bench(options, directory)
    try:
        bench.prepare(options.only)
        if not options.prepare:
            for section in options.only:
                getattr(bench, f"run_{section}")()
    finally:
        if options.data is None:
            shutil.rmtree(directory)
    if options.save:
        import pyspark

        context = {
            "machine": machine(),
            "cores": options.cores,
            "spark": pyspark.__version__,
            "scale": options.scale,
            "commit": commit(),
        }
        save(options.save, bench.rows, {**context, "command": "python benches/spark/bench_pipeline.py --save PATH"})


if __name__ == "__main__":
    main()
