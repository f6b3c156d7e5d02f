# Every target works on a fresh checkout with nothing but Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint mutants serve bench lock clean

$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

demo: $(VENV)/.installed
	$(BIN)/layby demo

lint: $(VENV)/.installed
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest

# Changes of single lines of the peek path and the worker, chosen at random, that no test notices
# (tests/peek/README.md).
MUTANTS ?= 60
mutants: $(VENV)/.installed
	$(BIN)/python tools/mutate.py --sample $(MUTANTS) src/layby/peek/*.py src/layby/compute/worker.py \
		--tests tests/peek tests/processes/test_walk_processes.py \
		tests/compute/test_replica.py tests/compute/test_worker.py

serve: $(VENV)/.installed
	$(BIN)/layby serve

bench: $(VENV)/.installed
	$(BIN)/layby bench isolation
	$(BIN)/layby bench lookup
	$(BIN)/layby bench walk
	$(BIN)/layby bench saturation

# Resolve pyproject.toml's ranges anew into requirements.lock.
lock: $(VENV)/.installed
	$(BIN)/pip-compile --quiet --all-extras --allow-unsafe --strip-extras --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header \
		--output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
