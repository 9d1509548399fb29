# Two commands matter to a newcomer: `make demo` and `make test`. Each sets up all it needs in .venv first.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
ROWS ?=
SUITES ?=
# Tests start some thousand Python processes, which would each compile all of our modules again.
unexport PYTHONDONTWRITEBYTECODE
# The tests of what opens no socket and starts no loop.
UNIT := tests/unit
LEDGER_CORES := $(addprefix $(UNIT)/bookkeeper/ledger/test_,add.py degraded.py recovery.py striping.py outstanding.py)
BOOKIE_CORES := $(addprefix $(UNIT)/bookkeeper/bookie/test_,garbage.py index.py lac_watchers.py ledgers.py memtable.py turns.py)
BROKER_CORES := $(addprefix $(UNIT)/rocketmq/broker/test_,copy_proof.py hold.py locks.py offsets.py pull_rules.py resets.py rounds.py untaken.py)
HA_CORES := $(addprefix $(UNIT)/rocketmq/ha/test_,acks.py admission.py feed.py follow.py proof.py)
CLIENT_CORES := $(addprefix $(UNIT)/rocketmq/client/test_,delivery.py sending.py)
QUICK := $(LEDGER_CORES) $(BOOKIE_CORES) $(BROKER_CORES) $(HA_CORES) $(CLIENT_CORES) $(UNIT)/rocketmq/nameserver/test_routes.py $(UNIT)/codec $(UNIT)/bookkeeper/wire $(UNIT)/rocketmq/wire tests/wire

.PHONY: setup check quick test test-full sim fuzz bench bench-others bench-growth profile wheels demo clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml setup.py constraints.txt $(wildcard src/tallystick/codec/native/*)
	@$(PYTHON) tools/preflight.py python
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

check: setup ## format, lint, types, import contracts, leftovers, dead names
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(PY) tools/tidy.py
	$(PY) tools/dead.py
	$(PY) tools/conformance.py --check
	$(PY) tools/events.py --check

quick: setup ## while you work, in half a minute: lint, types, import contracts, and the tests of cores, wire formats and codec
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache >/dev/null || $(VENV)/bin/lint-imports --no-cache
	HYPOTHESIS_PROFILE=quick $(VENV)/bin/pytest -q -n 2 $(QUICK)

test: setup ## check, then every suite, with the time of each (SUITES="unit wire" for some)
	@$(PY) tools/suites.py $(SUITES)

test-full: test ## test, then the whole kill matrix (docs/kill-matrix.md): an hour more
	$(VENV)/bin/pytest -q tests/spark/test_kill_matrix.py --all-cells --kill-report docs/kill-matrix.md

sim: setup ## a minute of the deterministic simulator: whole clusters, storage of bookies, streams, sinks, replication, metadata of brokers, whole brokers
	$(VENV)/bin/tally sim run --seconds 60 $(if $(CI),--first $$($(PY) tests/support/seeds.py))

fuzz: setup ## a minute of bytes that strangers might send, guided by the code they reach (FUZZ_SECONDS=60 for each decoder)
	$(PY) tools/fuzz.py $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS))

bench: setup ## all that has a goal, in half an hour: ours with either codec and the original in turn; JSON in out/, a table at the end
	@mkdir -p out
	@rm -f $(addprefix out/,ledger.json broker.json starts.json spark.json spark-python.json) # else a former run's would pass for this one's
	-$(PY) bench/ledger.py --json out/ledger.json $(if $(KEEP),--docs docs/benchmarks.md)
	-$(PY) bench/broker.py --json out/broker.json $(if $(KEEP),--docs docs/benchmarks.md)
	-$(PY) bench/starts.py --json out/starts.json $(if $(KEEP),--docs docs/benchmarks.md)
	-$(PY) bench/spark.py --json out/spark.json
	-TALLY_CODEC=python $(PY) bench/spark.py --json out/spark-python.json
	$(PY) bench/summary.py $(if $(KEEP),--keep --docs docs/benchmarks.md)
	$(if $(KEEP),$(PY) bench/plots.py)

bench-others: setup ## what has no goal beside an original: half an hour
	@mkdir -p out
	$(PY) bench/codec.py --json out/codec.json
	$(PY) bench/restart.py --json out/restart.json
	$(PY) bench/sinks.py --json out/sinks.json
	$(PY) bench/triggers.py --json out/triggers.json
	$(PY) bench/micro_batches.py --json out/micro_batches.json
	$(PY) bench/many_ledgers.py --json out/many_ledgers.json
	$(PY) bench/stream.py --json out/stream.json
	$(PY) bench/repair.py --json out/repair.json

bench-growth: setup ## what an operation costs as entries, ledgers, topics and clients grow (ENTRIES=1000,100000; LEDGERS, TOPICS, CLIENTS)
	@mkdir -p out
	$(PY) bench/growth.py --json out/growth.json $(if $(ENTRIES),--entries $(ENTRIES)) $(if $(LEDGERS),--ledgers $(LEDGERS)) $(if $(TOPICS),--topics $(TOPICS)) $(if $(CLIENTS),--clients $(CLIENTS))

profile: setup ## a flame graph of a bench and all its processes in Python (NAME=ledger; OPTIONS="…" instead of --quick): out/flame-NAME.svg
	$(PY) bench/flame.py $(NAME) $(OPTIONS)

wheels: ## wheels with the compiled codec for Linux on x86-64 and ARM, into dist/
	$(PYTHON) tools/wheels.py

demo: ## the main job on real data (ROWS=20000 for a quick look)
	@$(PYTHON) tools/preflight.py python java
	@$(MAKE) --no-print-directory setup
	$(PY) -m examples.flights $(if $(ROWS),--rows $(ROWS))

clean:
	rm -rf $(VENV) out build
