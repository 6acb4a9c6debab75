# `make demo` and `make test` set everything up by themselves; stamps make repeats quick.
SHELL := bash
BIN := .venv/bin
RUST_SOURCES := $(shell find rust proto -name '*.rs' -o -name '*.proto' -o -name 'Cargo.toml' -o -name 'pyo3.cfg') Cargo.toml crates.lock .cargo/config.toml
NATIVE := .venv/native.stamp
WHEELS := target/wheels

.PHONY: demo waku pinned crates test mutants interop python-versions spark-versions miri test-aarch64 sim fuzz docs lint format bench wheel wheel-check release-wheels cluster-check clean build
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make demo [FILE=path]  send a file through a lossy network and reconstruct it, live and on Spark"
	@echo "make waku              run three go-waku nodes on this machine, to try channels on (minutes the first time)"
	@echo "make test [SEARCH=1] [JOBS=3]  run every test; with SEARCH=1 on new random examples"
	@echo "make mutants [ONLY=text]  break the library on purpose, and see that its tests notice"
	@echo "make python-versions   run the unit tests on the other versions of Python that are found"
	@echo "make spark-versions    run the chosen part of the Spark tests on PySpark 3.5, 4.0 and 4.1"
	@echo "make interop           run channels through real servers, and beside other implementations (part of make test)"
	@echo "make miri              run the kernels under Miri (needs nightly Rust)"
	@echo "make test-aarch64      run the core's tests on aarch64 under emulation"
	@echo "make sim [SEED=0] [COUNT=1]  run simulated networks, each from one seed"
	@echo "make fuzz [SECONDS=60] [TARGET=name]  look for inputs that break a decoder, the reassembler or SDS"
	@echo "make docs              build the site into target/site; a warning is an error"
	@echo "make lint              formatting, types, lints and the architecture"
	@echo "make format            rewrite the sources as lint wants them"
	@echo "make crates [ALL=1]    take over what cargo resolves for changed manifests; with ALL=1 the newest crates too"
	@echo "make bench [BENCH=text]  run the benchmarks beside their peers, or those with the text in their names"
	@echo "make wheel             build the wheel and the source distribution into $(WHEELS)"
	@echo "make wheel-check       check both, and use the wheel in a clean environment"
	@echo "make release-wheels    build every wheel for Linux that is released, and check them: a quarter of an hour"
	@echo "make cluster-check     run the jobs with the wheel on a standalone Spark cluster"
	@echo "make clean             remove what was built"

demo: $(NATIVE)
	$(BIN)/shardwire demo $(if $(FILE),"$(FILE)")

# Cargo.lock is what crates.lock says, whatever made it before.
pinned:
	@scripts/setup.sh crates

crates:
	scripts/setup.sh crates update $(if $(ALL),--all)

# Tests that draw their examples draw the same ones at every run; with SEARCH=1 new ones.
ifdef SEARCH
test: export HYPOTHESIS_PROFILE := search
else
test: export PROPTEST_RNG_SEED := 20260101
endif
# Spark sessions of tests live for seconds: optimising their code would take longer than running it.
test: export JDK_JAVA_OPTIONS ?= -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
# So many files of tests side by side: on two cores a third of the time goes by in waiting, for clocks, servers and JVMs.
JOBS ?= 3
test: build
	@echo "shardwire: testing the Rust crates: 2 minutes, and 2 of compiling the first time"
	cargo test --quiet --locked --workspace
	@cd tests && ../$(BIN)/python waku_servers.py --build
	@echo "shardwire: testing the Python package: 25 minutes"
	$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile
	@echo "make test: the tests of the Rust core (cargo test) and of the Python package (pytest) passed"

# A sample of these is part of `make test`.
mutants: build
	$(BIN)/python -m tests.mutants --only "$(ONLY)"

python-versions: build
	scripts/python_versions.sh

# Older versions of PySpark, each in an environment of its own below .venv.
spark-versions: export JDK_JAVA_OPTIONS ?= -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark-versions: build
	scripts/spark_versions.sh

# Ends with Ctrl-C.
waku: .venv/requirements.stamp
	@cd tests && ../$(BIN)/python waku_servers.py

interop: build
	$(BIN)/python -m pytest tests/interop
	scripts/spark_connectors.sh

# Not part of `make test`: Miri takes minutes and needs nightly Rust.
miri: pinned
	scripts/miri.sh

# Needs Rust's aarch64-unknown-linux-gnu target, a cross linker and QEMU (Debian: gcc-aarch64-linux-gnu, qemu-user-static).
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER ?= aarch64-linux-gnu-gcc
test-aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER ?= qemu-aarch64-static -L /usr/aarch64-linux-gnu
test-aarch64: pinned
	cargo $(AARCH64_TOOLCHAIN) test --quiet --locked --package shardwire-core --target aarch64-unknown-linux-gnu -- keccak erasure vandermonde leopard

sim: build
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),0) --count $(or $(COUNT),1)

fuzz: pinned
	@scripts/setup.sh toolchain
	@scripts/fuzz.sh "$(or $(SECONDS),60)" "$(TARGET)"

# The site, into target/site; a warning is an error.
docs: export NO_MKDOCS_2_WARNING := 1
docs: build
	PYTHONPATH=python $(BIN)/mkdocs build --quiet --strict
	@echo "make docs: the site is in target/site"

lint: build
	scripts/setup.sh crates check
	cargo fmt --all --check
	cargo fmt --manifest-path benches/rust/Cargo.toml --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest shardwire._native
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_purity.py
	@echo "make lint: passed"

format: .venv/requirements.stamp
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# BENCH=text keeps the cases that have it in their names, and leaves out criterion and pytest-benchmark, which have none.
BENCH_OUT ?= benches/results/local
BENCH_RUST := cargo run --quiet --locked --release --manifest-path benches/rust/Cargo.toml
BENCH_PYTHON := PYTHONPATH=.:python $(BIN)/python
bench: build
	@scripts/setup.sh module --release
	@mkdir -p $(BENCH_OUT)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r benches/python/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r benches/python/requirements-optional.txt || \
		echo "make bench: no wheel of pyeclib here: this peer is left out"
	$(BENCH_RUST) -- "$(BENCH)" $(BENCH_OUT)/core.json
	RUSTFLAGS=-Ctarget-cpu=native $(BENCH_RUST) --target-dir benches/rust/target/native -- "$(or $(BENCH),keccak)" $(BENCH_OUT)/core-native.json
	$(BENCH_PYTHON) -m benches.python.peers --only "$(BENCH)" --results $(BENCH_OUT)/python.json
	$(BENCH_PYTHON) -m benches.python.segmentation_ratios --only "$(BENCH)" --results $(BENCH_OUT)/segmentation.json
	$(BIN)/python benches/report.py $(BENCH_OUT)
ifndef BENCH
	cargo bench --quiet --locked --manifest-path benches/rust/Cargo.toml
	$(BENCH_PYTHON) -m pytest benches/bench_*.py benches/python/bench_*.py --benchmark-only --benchmark-max-time 0.3
endif
	@echo "make bench: results, tables and a plot are in $(BENCH_OUT)"

# maturin builds the wheel from the source distribution, with nothing compiled before. The linker's map names what the
# library without symbols no longer does: how the kernels were compiled.
LINK_MAP := $(if $(filter Linux,$(shell uname)),-- -C link-arg=-Xlinker -C link-arg=-Map=$(CURDIR)/$(WHEELS)/native.map)
wheel: .venv/demo.stamp pinned
	@echo "shardwire: building the wheel as it is released: 4 minutes, 8 beside other work"
	rm -rf $(WHEELS)
	mkdir -p $(WHEELS)
	$(BIN)/maturin build --quiet --release --strip --sdist --out $(WHEELS) $(LINK_MAP)
	@ls -l $(WHEELS)/*.whl $(WHEELS)/*.tar.gz

wheel-check: wheel
	scripts/check_wheel.sh $(WHEELS)

# For other machines than this one: zig links for old C libraries and other architectures.
release-wheels:
	scripts/release_wheels.sh target/release-wheels
	scripts/check_wheel.sh target/release-wheels

cluster-check: build wheel
	scripts/check_cluster.sh $(WHEELS)/*.whl

clean:
	rm -rf .venv target dist benches/rust/target tests/interop/node_modules demo-output demo.png .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find python spark_jobs tests scripts benches -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f python/shardwire/_native*.so

build: pinned .venv/requirements.stamp $(NATIVE)

# What runs the demo. The Rust crates are compiled meanwhile, where there are none yet.
.venv/demo.stamp: requirements-demo.txt scripts/setup.sh | pinned
	@scripts/setup.sh toolchain
	@scripts/setup.sh demo $(NATIVE)
	@touch $@

# What the other targets need beside it.
.venv/requirements.stamp: requirements-dev.txt requirements-docs.txt .venv/demo.stamp
	@scripts/setup.sh development
	@touch $@

$(NATIVE): .venv/demo.stamp pyproject.toml $(RUST_SOURCES) | pinned
	@scripts/setup.sh module
	@touch $@
