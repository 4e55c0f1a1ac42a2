# A fresh machine needs only Python >= 3.11 (with venv and pip), git and make. What is installed is pinned by hash in
# requirements/ (SECURITY.md says how); pip takes the package index from its own configuration.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One BLAS thread per process: the tests run in parallel, and more BLAS threads would compete with them.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

help:  ## list every target
	@sed -n 's/^\([a-z0-9-]*\):.*##  *\(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

.PHONY: help demo sf1 test test-all pytest mutants lint format bench paper paper-quick docs dist sbom audit lock clean

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What a user needs, and the small package that builds hdmm itself. Modules are compiled when they are first used, because
# to compile all of them takes as long as the rest of the installation.
$(BIN)/.user: pyproject.toml requirements/user.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hdmm needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --require-hashes --requirement requirements/user.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# The same environment with the tools of developers.
$(BIN)/.installed: $(BIN)/.user requirements/dev.txt
	$(PIP) --require-hashes --requirement requirements/dev.txt
	@touch $@

$(BIN)/.bench: $(BIN)/.installed requirements/bench.txt
	$(PIP) --require-hashes --requirement requirements/bench.txt
	@touch $@

$(BIN)/.docs: $(BIN)/.installed requirements/docs.txt
	$(PIP) --require-hashes --requirement requirements/docs.txt
	@touch $@

# Without dependencies, because the lock names them all and dp-accounting asks for an older attrs than dev.txt.
$(BIN)/.referee: $(BIN)/.installed requirements/referee.txt
	$(PIP) --no-deps --require-hashes --requirement requirements/referee.txt
	@touch $@

$(BIN)/.tools: $(BIN)/.installed requirements/tools.txt
	$(PIP) --require-hashes --requirement requirements/tools.txt
	@touch $@

demo: $(BIN)/.user  ## tables of 100,000 made-up persons from check to report, in build/demo
	rm -rf build/demo
	$(BIN)/hdmm demo build/demo

sf1: $(BIN)/.installed  ## the SF1 workload: its size, the error of the plain strategies and of a selected one
	$(BIN)/python -m examples.sf1

# Python keeps what it compiles, whatever the environment says, because the tests start a hundred processes.
test test-all: export PYTHONDONTWRITEBYTECODE =
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal -q
test: $(BIN)/.installed  ## everything that must hold before a change lands
	$(MAKE) --no-print-directory --jobs=2 lint pytest

pytest: $(BIN)/.installed
	$(PYTEST)

test-all: lint $(BIN)/.referee  ## the same and the slow tests: statistical ones, the referee, and PostgreSQL if it is installed
	HDMM_EXAMPLES=all $(PYTEST) -rs -m ''

mutants: $(BIN)/.installed  ## a fixed sample of small changes to the private path; the tests must notice every one
	$(BIN)/python -m tests.mutants

lint: $(BIN)/.installed  ## format, lint, types and the security linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src

format: $(BIN)/.installed  ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BIN)/.bench  ## Kronecker products against numpy.einsum, noise against OpenDP
	$(BIN)/python -m benchmarks.kron
	$(BIN)/python -m benchmarks.noise

DATA ?=
paper-quick: $(BIN)/.bench  ## the paper's tables and figures, small cells only: under 10 minutes (DATA=folder for DAWA, PrivBayes)
	$(BIN)/python -m benchmarks.paper all --quick $(if $(DATA),--data $(DATA))

paper: $(BIN)/.bench  ## all of them, which takes hours; what is done is kept in benchmarks/results and not run again
	$(BIN)/python -m benchmarks.paper all $(if $(DATA),--data $(DATA))

docs: $(BIN)/.docs build/demo/out/report.html  ## the site in build/site; every warning ends the build
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo 'The site is in build/site. To search it, serve it: $(BIN)/python -m http.server --bind 127.0.0.1 -d build/site'

build/demo/out/report.html:
	$(MAKE) demo

# Each copy is of the last commit, in a folder and with a mask of its own, so that neither can make a difference.
dist: $(BIN)/.user  ## the wheel and the source archive of the last commit in dist/, built twice: the bytes must be equal
	rm -rf build/dist dist
	for mask in 022 077; do \
	  (umask $$mask && mkdir -p build/dist/$$mask && git archive HEAD | tar --extract --directory build/dist/$$mask && \
	  cd build/dist/$$mask && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct HEAD) $(abspath $(BIN))/python -m hatchling build) \
	  || exit 1; \
	done
	diff --recursive build/dist/022/dist build/dist/077/dist
	mv build/dist/022/dist dist
	cd dist && sha256sum hdmm-* > SHA256SUMS && cat SHA256SUMS

# Of an environment that holds hdmm and what it needs, and nothing else, so that licenses and dependencies are those that
# the packages themselves declare.
sbom: $(BIN)/.tools dist  ## what an installation of dist/ holds, with licenses and dependencies, as CycloneDX in build/sbom.json
	rm -rf build/user
	$(PYTHON) -m venv --without-pip build/user
	sed -n 's|^\([0-9a-f]*\)  \(.*\.whl\)$$|dist/\2 --hash=sha256:\1|p' dist/SHA256SUMS > build/wheel.txt
	PIP_PYTHON=build/user/bin/python $(PIP) --require-hashes --constraint requirements/user.txt --requirement build/wheel.txt
	build/user/bin/hdmm --version
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct HEAD) $(BIN)/cyclonedx-py environment build/user --pyproject pyproject.toml \
	  --mc-type library --spec-version 1.6 --output-format JSON --output-reproducible --validate --output-file build/sbom.json

audit: $(BIN)/.tools  ## look up what requirements/ pins among known vulnerabilities; needs the package index's service
	for lock in user dev bench docs referee tools; do \
	  $(BIN)/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r requirements/$$lock.txt || exit 1; \
	done

# UPGRADE=--upgrade takes the newest versions; otherwise pins stay if possible. The package index comes from uv's
# configuration (UV_DEFAULT_INDEX and so on), and is not written down.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --custom-compile-command 'make lock' $(UPGRADE) pyproject.toml
UPGRADE ?=
lock: $(BIN)/.tools  ## pin what pyproject.toml asks for, by hash, for every Python and system
	$(COMPILE) --extra dev --output-file requirements/dev.txt
	printf 'editables\nhatchling\n' | $(COMPILE) - --extra studio --extra xlsx --constraint requirements/dev.txt --output-file requirements/user.txt
	$(COMPILE) --extra bench --constraint requirements/dev.txt --output-file requirements/bench.txt
	$(COMPILE) --extra docs --constraint requirements/dev.txt --output-file requirements/docs.txt
	echo 'attrs>=22.2' | $(COMPILE) --extra referee --constraint requirements/dev.txt --constraint requirements/bench.txt \
	  --override - --output-file requirements/referee.txt
	$(COMPILE) --extra tools --constraint requirements/dev.txt --output-file requirements/tools.txt

clean:  ## remove the environment and all that was built
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist
