# Headrace: `make` or `make help` lists what there is. Nothing but Python ≥ 3.10, git and make is needed.
#
#   PYTHON=python3.12     which interpreter makes the environment (default: the best on PATH)
#   DEMO_ARGS="…"         passed to `headrace demo`, e.g. DEMO_ARGS="--seconds 60 --keep"
#   PYTEST_ARGS="…"       passed to pytest, e.g. PYTEST_ARGS="-x -k compose"
#   MINUTES=…             `make deep` begins no further file after so many minutes
#   GOLDEN_ARGS="…"       passed to the recorder, e.g. GOLDEN_ARGS="--extensions postgresql://postgres@localhost/postgres"
#   SEEDS=…               how many storms `make storm` lets rage, each of a fresh seed
#   STORM_ARGS="…"        passed to the storms, e.g. STORM_ARGS="--seeds 1 --faults 10 --seed 7"
#   BENCH_ARGS="…"        passed to the benchmarks, e.g. BENCH_ARGS="--only 'apply.redis*' --runs 7"

PYTHON ?=
DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
SEEDS ?=
STORM_ARGS ?=
GOLDEN_ARGS ?=
SINK ?= redis

BIN := .venv/bin
READY := .venv/.ready
# Any order of sets and dicts must do: a new seed per run, printed so that a run can be repeated.
ifndef HASHSEED
HASHSEED := $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')
endif
PYTEST = env PYTHONHASHSEED=$(HASHSEED) HEADRACE_TEST_LEVEL=$@ HEADRACE_TEST_CHOSEN=$(if $(PYTEST_ARGS),yes) \
    $(BIN)/pytest $(PYTEST_ARGS)
# Two halves of the tests on real servers, for they mostly wait: each has a stack of its own.
STORES := tests/property tests/contract tests/e2e tests/faults
CONTROL := tests/unit tests/integration
SUITE := $(STORES) $(CONTROL)
# So that both halves take as long.
SOURCES := $(wildcard tests/integration/test_source_*.py)
# All long tests take hours of two cores, so they come in parts: each has a stack and a row of docs/evidence.md
# of its own, can be run alone, and is over within half an hour beside one other. They start servers and drivers
# again and again: a training of two minutes, once for a clone, pays. With MINUTES no file begins after so long; the next
# run of the part goes on with the others, as long as nothing has changed (tests/support/sittings.py).
deep-faults-1 := $(wildcard tests/faults/test_[a-d]*.py)
deep-faults-2 := $(wildcard tests/faults/test_[e-j]*.py)
deep-faults-3 := $(wildcard tests/faults/test_k*.py)
deep-faults-4 := $(wildcard tests/faults/test_[l-q]*.py tests/faults/test_re*.py)
deep-faults-5 := $(wildcard tests/faults/test_r[f-z]*.py tests/faults/test_[s-z]*.py)
deep-control-1 := $(wildcard tests/integration/test_[a-d]*.py)
deep-control-2 := $(wildcard tests/integration/test_[e-q]*.py)
deep-control-3 := $(wildcard tests/integration/test_re*.py)
deep-control-4 := $(wildcard tests/integration/test_r[f-z]*.py)
deep-control-5 := $(wildcard tests/integration/test_s*.py)
deep-control-6 := $(wildcard tests/integration/test_[t-z]*.py)
deep-stores := $(filter-out tests/faults tests/integration,$(SUITE))
DEEP := deep-faults-1 deep-faults-2 deep-faults-3 deep-faults-4 deep-faults-5 deep-control-1 deep-control-2 deep-control-3 deep-control-4 deep-control-5 deep-control-6 deep-stores
# What PYTEST_ARGS choose may all be in the other half.
NONE = $(if $(PYTEST_ARGS),[ $$? -eq 5 ],false)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory

.PHONY: help demo up down status test unit stores control deep $(DEEP) trained test-deep storm e2e faults bench bench-full profile-sink lint types fmt docs golden lock clean distclean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(READY) ## Run everything for real: Postgres → Debezium → Kafka → PySpark → Elasticsearch, Redis, Delta
	@$(BIN)/headrace demo $(DEMO_ARGS)

up: $(READY) ## Start the local stack of real servers (again: repair it)
	@$(BIN)/headrace up

down: $(READY) ## Stop the local stack
	@$(BIN)/headrace down

status: $(READY) ## Show the servers of the local stack and where they listen
	@$(BIN)/headrace status

test: $(READY) ## Run the tests, but for the long ones (make deep): those without servers beside those with real ones
	@echo "PYTHONHASHSEED=$(HASHSEED)"
	@own=$$(mktemp); trap 'rm -f "$$own"' EXIT; \
	    export HEADRACE_TEST_TALLY=$${HEADRACE_TEST_TALLY:-$$own}; \
	    $(MAKE) -j3 HASHSEED=$(HASHSEED) unit stores control && \
	    $(BIN)/python -m tests.support.tally --few "$$HEADRACE_TEST_TALLY"

deep: $(READY) ## Run the long tests that `make test` leaves out, in parts (make deep-stores): all, or some (MINUTES=35)
	@echo "PYTHONHASHSEED=$(HASHSEED)"
	@own=$$(mktemp); trap 'rm -f "$$own"' EXIT; \
	    export HEADRACE_TEST_TALLY=$${HEADRACE_TEST_TALLY:-$$own}; \
	    $(MAKE) -k -j2 HASHSEED=$(HASHSEED) $(DEEP) && \
	    $(BIN)/python -m tests.support.tally --few "$$HEADRACE_TEST_TALLY"

deep-faults-1 deep-faults-2 deep-faults-3 deep-faults-4 deep-faults-5 deep-control-1 deep-control-2 deep-control-3 deep-control-4 deep-control-5 deep-control-6 deep-stores: $(READY) trained
	@$(PYTEST) -m "deep and not fresh" --durations=15 $(if $(MINUTES),--minutes $(MINUTES)) $($@) || $(NONE)

trained: $(READY)
	@$(BIN)/python -m headrace.local.training

test-deep: $(READY) ## Run the simulation with fresh seeds for HEADRACE_TEST_BUDGET_SECS seconds (600)
	@$(BIN)/python -m tests.property

unit: $(READY) ## Run the tests that need no server
	@nice $(PYTEST) -m "not stack and not deep" $(SUITE) || $(NONE)

stores: $(READY) ## Run the tests on real servers of what stores hold in the end, and of sources
	@$(PYTEST) -m "stack and not deep" $(STORES) $(SOURCES) || $(NONE)

control: $(READY) ## Run the tests on real servers of commands, status and faults
	@$(PYTEST) -m "stack and not deep" tests/unit $(filter-out $(SOURCES),$(wildcard tests/integration/test_*.py)) \
	    || $(NONE)

e2e: $(READY) ## Run the whole chain end to end
	@$(PYTEST) tests/e2e

faults: $(READY) ## Kill each part and show that nothing is lost and nothing doubled
	@$(PYTEST) tests/faults

storm: $(READY) ## Let seeded faults rage over a shop and check every word of status, in the end every row
	@$(BIN)/python -m tests.storm $(if $(SEEDS),--seeds $(SEEDS)) $(STORM_ARGS)

bench: $(READY) ## Measure the headline results and write docs/benchmarks.md (about 20 minutes)
	@$(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-full: $(READY) ## Measure everything, in larger sizes where there are some (up to two hours)
	@$(BIN)/python -m tests.bench --full $(BENCH_ARGS)

profile-sink: $(READY) ## Show where the time of a row goes: SINK=elasticsearch|redis|redis-hash|delta
	@$(BIN)/python -m tests.bench.profile $(SINK) $(BENCH_ARGS)

lint: $(READY) ## Check style, format and the import rule
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(READY) ## Check types (mypy, strict)
	@$(BIN)/mypy

fmt: $(READY) ## Format, and mend what can be mended
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

docs: $(READY) ## Write docs/cli.md, docs/types.md and docs/benchmarks.md anew from what they tell of
	@$(BIN)/python -m typer headrace.cli.main utils docs --name headrace --output docs/cli.md
	@$(BIN)/python -m tests.golden.page
	@$(BIN)/python -m tests.bench render docs/benchmarks/results.jsonl

golden: $(READY) ## Record anew what the real connector says of every Postgres type
	@$(BIN)/python -m tests.golden.record $(GOLDEN_ARGS)

lock: $(READY) ## Pin every dependency anew, with hashes (needs the network)
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes \
	    --python-version 3.10 --no-header --quiet --output-file requirements.lock

clean: ## Remove caches and build products; data of stacks and the environment stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## As clean, and remove the environment (the next target makes it again)
	@rm -rf .venv *.egg-info

# The environment. The stamp holds the path it was made for: an environment that was moved, or whose
# interpreter went away, is made again; one whose stamp is fresh is left alone, so that no network is needed.

ifneq ($(shell $(BIN)/python -c "print(open('$(READY)').read())" 2>/dev/null),$(CURDIR))
$(shell rm -f $(READY))
endif

$(READY): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" sh deploy/venv.sh
