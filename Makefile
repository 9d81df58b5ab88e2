# Everything is set up on demand: `make demo` and `make test` need git, make and Python 3.11 or newer, and
# package registries; no Docker, no root. Tests of the queue route need an installed RabbitMQ, see README.md.

# Unset, the first of PYTHONS that is new enough is taken.
PYTHON ?=
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Arguments of `cronless demo`, of pytest, and the number of test processes (0: all tests in one).
ARGS ?=
TESTS ?= tests
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install demo test check format bench constraints clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@set -e; python="$(PYTHON)"; \
	if [ -z "$$python" ]; then for found in $(PYTHONS); do \
	  if "$$found" -c "$(NEW_ENOUGH)" >/dev/null 2>&1; then python="$$found"; break; fi; done; fi; \
	if [ -z "$$python" ] || ! "$$python" -c "$(NEW_ENOUGH)" >/dev/null 2>&1; then \
	  echo "Python 3.11 or newer is needed, and was not found as: $${python:-$(PYTHONS)}; install it, or name it by 'make PYTHON=/path/to/python3'" >&2; exit 1; fi; \
	if ! $(BIN)/python -c "import pip; $(NEW_ENOUGH)" >/dev/null 2>&1; then \
	  "$$python" -m venv --clear $(VENV) || { rm -rf $(VENV); \
	    echo "No virtual environment could be made: on Debian and Ubuntu, install the package python3-venv" >&2; exit 1; }; fi
	@echo "Installing into $(VENV): this takes a minute or two the first time" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

install: $(STAMP) ## Set up the virtual environment in .venv

demo: $(STAMP) ## Real schedules become runs in the Dagster UI; ARGS="--exit-after-runs 3" ends by itself, ARGS=--broker adds workers
	@exec $(BIN)/cronless demo $(ARGS)

test: check ## Run the checks, then all tests; TESTS=tests/store ARGS="-k word" for some
	@test -n "$$CRONLESS_TEST_BROKER_URL" || .ci/install rabbitmq-server:rabbitmq-server chromium:chromium || true
	@exec $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS) $(TESTS)

check: $(STAMP) ## Lint, formatting, types, and that imports go down only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Put imports and layout in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## Measure, and print ratios
	@exec $(BIN)/python -m benchmarks $(ARGS)

constraints: ## Write constraints.txt anew from what is installed
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude-editable; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## Remove the virtual environment and caches; the demo's data in .cronless stay
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
