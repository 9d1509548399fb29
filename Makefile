# Two commands matter to a newcomer: `make demo` and `make test`. Each sets up all it needs in .venv first.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
ROWS ?=
SUITES ?=

.PHONY: setup check test sim bench demo clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) tools/preflight.py python
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

check: setup ## format, lint, types, import contracts, leftovers
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache
	$(PY) tools/tidy.py
	$(PY) tools/conformance.py --check
	$(PY) tools/events.py --check

test: setup ## check, then every suite, with the time of each (SUITES="unit wire" for some)
	@$(PY) tools/suites.py $(SUITES)

sim: setup ## a minute of the deterministic simulator: ledgers, whole clusters, storage of bookies, replication, metadata of brokers
	$(VENV)/bin/tally sim run --seconds 60

bench: setup ## ours and the original in turn; JSON in out/
	@mkdir -p out
	$(PY) bench/ledger.py --json out/ledger.json
	$(PY) bench/broker.py --json out/broker.json
	$(PY) bench/restart.py --json out/restart.json
	$(PY) bench/spark.py --json out/spark.json
	$(PY) bench/many_ledgers.py --json out/many_ledgers.json

demo: ## the main job on real data (ROWS=20000 for a quick look)
	@$(PYTHON) tools/preflight.py python java
	@$(MAKE) --no-print-directory setup
	$(PY) -m examples.flights $(if $(ROWS),--rows $(ROWS))

clean:
	rm -rf $(VENV) out build
