# A fresh machine needs Python >= 3.11 (with venv and pip), git and make. Nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One BLAS thread a process: the tests run in parallel, and threads of BLAS would fight them.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo sf1 test test-all lint format bench paper paper-quick clean

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hdmm needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(BIN)/.installed  ## tables of 100,000 made-up persons from check to report, in build/demo
	rm -rf build/demo
	$(BIN)/hdmm demo build/demo

sf1: $(BIN)/.installed  ## the SF1 workload: its size, the error of the plain strategies and of a selected one
	$(BIN)/python -m examples.sf1

test: lint  ## everything that must hold before a change lands
	$(BIN)/python -m pytest -n auto -q

test-all: lint  ## the same and the slow tests: statistical ones, and PostgreSQL where it is installed
	$(BIN)/python -m pytest -n auto -q -rs -m ''

lint: $(BIN)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: $(BIN)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BIN)/.installed  ## Kronecker products against numpy.einsum, noise against OpenDP (pip install '.[bench]')
	$(BIN)/python -m benchmarks.kron
	$(BIN)/python -m benchmarks.noise

DATA ?=
paper-quick: $(BIN)/.installed  ## the paper's tables and figures, small cells only: under 10 minutes (DATA=folder for DAWA, PrivBayes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plots]'
	$(BIN)/python -m benchmarks.paper all --quick $(if $(DATA),--data $(DATA))

paper: $(BIN)/.installed  ## all of it, hours; what is done is kept in benchmarks/results and not run again
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plots]'
	$(BIN)/python -m benchmarks.paper all $(if $(DATA),--data $(DATA))

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist
