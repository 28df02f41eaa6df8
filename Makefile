# The same verbs on a laptop and in CI: install fmt lint type test demo bench.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install fmt lint type test demo bench docs-reference clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with everything in it; does nothing when pyproject.toml is unchanged

# Bytecode is compiled here, so that a cold import later is not charged for compiling.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --compile --editable '.[all,demo,dev]'
	touch $@

fmt: install ## Format the code and apply the safe lint fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: install ## Check formatting, lint rules and who may import whom
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports

type: install ## Check types (mypy --strict)
	$(BIN)/mypy

test: install ## Run the tests; ARGS='-k name' narrows them
	$(BIN)/python -m pytest $(ARGS)

demo: install ## Run a pandas function cold and behind its imports, then by curl
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo/run.sh

bench: install ## Measure this machine; writes benchmarks/results/
	$(BIN)/python -m benchmarks

docs-reference: install ## Write docs/reference/ anew from the code
	$(BIN)/python docs/reference.py

clean: ## Remove .venv and every cache
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
