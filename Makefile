# statelake: run `make` to see what there is to run. Each target sets up what it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# one worker more than cores, as many tests wait; a module stays with one (tests/support/costs.py)
SPREAD := -n 3 --dist loadscope
# which tests, all if none are named, and options of pytest
TESTS  ?=
MEMORY    := /dev/shm
# what must be available: servers and workers take up to 13 GB themselves
MEMORY_KB := 20000000
# what there must be room for, and programs must run there
FILES_KB  := 8000000
# the tree that is compared with, of 23 November 2026: imports were to take 0.8 of its time
COMMIT ?= 10512502
ENTRIES ?= 5000000
# of all targets together, which are all there are if none is named
MINUTES ?= 10
TARGETS ?=

export STATELAKE_CACHE ?= $(CURDIR)/.cache
export MYPY_CACHE_DIR  ?= $(STATELAKE_CACHE)/mypy
export DAGSTER_HOME    ?= $(CURDIR)/.dagster
# each process would compile all modules again, of which there are hundreds here
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-live ui test test-full costs test-nightly fuzz docs lint bench against dist check-dist version clean java

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Make .venv with everything pinned, fetch the JARs of Delta, have Spark start sooner

demo: $(READY)  ## The whole way on bundled real savepoints, restored by real Flink at the end
	@$(BIN)/statelake demo --dir demo
	@$(BIN)/python -m tests.integration.flink.restore_demo demo/exports/tuesday-erased
	@echo
	@echo "Look on:  make ui                                      the runs, in Dagster"
	@echo "          .venv/bin/statelake snapshots --lake demo/lake  the archive"
	@echo "          .venv/bin/statelake --help                    what else there is"

demo-live: $(READY)  ## A real Flink cluster: scheduled savepoints, a rescale, and one that is put back
	@$(BIN)/python -m tests.integration.live.demo_live --dir demo-live

ui: $(READY)  ## Open Dagster's UI on the demo's lake, or on STATELAKE_LAKE
	@mkdir -p $(DAGSTER_HOME) && ln -sf $(CURDIR)/dagster.yaml $(DAGSTER_HOME)/dagster.yaml
	STATELAKE_SAVEPOINTS=$${STATELAKE_SAVEPOINTS:-$(CURDIR)/demo/savepoints} \
	STATELAKE_LAKE=$${STATELAKE_LAKE:-$(CURDIR)/demo/lake} \
	STATELAKE_EXPORTS=$${STATELAKE_EXPORTS:-$(CURDIR)/demo/exports} \
	STATELAKE_JOB=$${STATELAKE_JOB:-demo} $(BIN)/dagster dev

# lint beside the tests that are selected, kernels compiled before them, and JARs fetched meanwhile;
# tests write thousands of small lakes: in memory if there is enough, and gone if all passed
define run-tests
	@$(MAKE) --no-print-directory lint & lint=$$!; export NUMBA_CACHE_DIR=$(STATELAKE_CACHE)/kernels; \
	$(BIN)/python -m tests.integration.prepare & \
	if [ -w $(MEMORY) ] && awk '/^MemAvailable/ {exit $$2 < $(MEMORY_KB)}' /proc/meminfo && \
	  df -Pk $(MEMORY) | awk 'NR == 2 {exit $$4 < $(FILES_KB)}'; \
	then TMPDIR=$$(mktemp -d $(MEMORY)/statelake-tests.XXXXXX) && export TMPDIR; \
	  cp /bin/sh $$TMPDIR/runs && $$TMPDIR/runs -c true || unset TMPDIR; fi; \
	$(BIN)/statelake warm && $(BIN)/pytest $(SPREAD) -m "$(1)" $(TESTS); tests=$$?; \
	case $$tests.$$TMPDIR in 0.$(MEMORY)/statelake-tests.*) rm -rf "$$TMPDIR";; esac; \
	wait $$lint && exit $$tests
endef

test: $(READY)  ## Lint, beside all tests but the longest
	$(call run-tests,not full and not nightly)

test-full: export HYPOTHESIS_PROFILE = full
test-full: $(READY)  ## Lint, beside all tests but the nightly ones: what CI runs
	$(call run-tests,not nightly)

costs:  ## The same, and keep what each module took in tests/costs.json
	@$(MAKE) --no-print-directory test-full TESTS=--keep-costs

test-nightly: $(READY)  ## What takes too long for CI, and each property with 500 examples
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest $(SPREAD) -m "nightly or hypothesis" $(TESTS)

fuzz: $(READY)  ## Fuzz what reads others' bytes, guided by coverage: make fuzz MINUTES=60 TARGETS="sst java"
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet atheris==3.0.0
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(TARGETS)

docs: $(READY)  ## Build the documentation as a site in site/; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open $(CURDIR)/site/index.html in a browser: no server is needed, for the search neither"

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary

bench: $(READY)  ## Benchmarks against Flink's State Processor API, as ratios of one run
	$(BIN)/python -m benchmarks

against: $(READY)  ## Processor time of an import and an export, as a ratio to an earlier commit's: COMMIT=...
	$(BIN)/python -m benchmarks.against $(COMMIT) --entries $(ENTRIES)

dist: $(READY)  ## Build the wheel and the source distribution, in dist/; the same bytes each time
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

check-dist: dist  ## Build twice and compare; use the wheel in a new environment, beside others' packages
	STATELAKE_DIST=$(CURDIR)/dist $(BIN)/pytest tests/pipelines/cli/test_light_install.py

version:  ## Print the version
	@sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml

clean:  ## Remove what the other targets made, but not downloaded JARs
	rm -rf $(VENV) .dagster .fuzz demo dist demo-live site .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse

java:
	@command -v java >/dev/null || { [ -n "$$JAVA_HOME" ] && [ -x "$$JAVA_HOME/bin/java" ]; } || \
	  { echo "statelake's pipelines run on Spark, which needs Java 17: install it, or set JAVA_HOME" >&2; exit 1; }

$(READY): pyproject.toml constraints.txt | java
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "statelake needs Python 3.10 or later; set PYTHON=... to one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]' || \
	  $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m statelake.pipelines.spark.class_archiving
	@mkdir -p $(DAGSTER_HOME) && ln -sf $(CURDIR)/dagster.yaml $(DAGSTER_HOME)/dagster.yaml
	@touch $@
