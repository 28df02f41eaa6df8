# The same verbs on a laptop and in CI: install fmt lint type test demo bench.
# Building checkpoints: analyze capture generation report rootfs-requirements clean-artifacts, FLAVOR=cpu|gpu.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

FLAVOR ?= cpu
RUNTIME ?= gvisor
PLAN_DIR ?= pipeline/out/$(FLAVOR)-plan
OUT := pipeline/out/$(FLAVOR)
# The plan is made anew, unless one that was made before is named.
CAPTURE := $(if $(REUSE_PLAN_DIR),build --plan-dir $(REUSE_PLAN_DIR),capture --save-plan $(PLAN_DIR))
READIE_PLANNER ?= greedy
READIE_MAX_CHECKPOINTS ?= 15
READIE_SIZE_BUDGET_MB ?= 2048.0
READIE_ALPHA ?= 0.002
ANALYZE_EXCLUDE ?= google
analyze capture rootfs-requirements: export READIE_PIPELINE_DATA := pipeline/data
analyze capture rootfs-requirements: export FLAVOR := $(FLAVOR)
analyze: export ANALYZE_EXCLUDE := $(ANALYZE_EXCLUDE)
capture rootfs-requirements: export READIE_PLANNER := $(READIE_PLANNER)
capture rootfs-requirements: export READIE_MAX_CHECKPOINTS := $(READIE_MAX_CHECKPOINTS)
capture rootfs-requirements: export READIE_SIZE_BUDGET_MB := $(READIE_SIZE_BUDGET_MB)
capture rootfs-requirements: export READIE_ALPHA := $(READIE_ALPHA)

.DEFAULT_GOAL := help
.PHONY: help install fmt lint type test chaos demo bench docs-reference clean \
	analyze capture generation report docs-picture rootfs-requirements clean-artifacts

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

chaos: install ## Stop and kill parts while calls flow; CHAOS_SEED=, CHAOS_SECONDS= choose the run
	CHAOS_SEED=$${CHAOS_SEED:-new} CHAOS_SECONDS=$${CHAOS_SECONDS:-60} $(BIN)/python -m pytest -s tests/chaos

demo: install ## Run a pandas function cold and behind its imports, then by curl
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo/run.sh

bench: install ## Measure this machine; writes benchmarks/results/
	$(BIN)/python -m benchmarks

docs-reference: install ## Write docs/reference/ anew from the code
	$(BIN)/python docs/reference.py

analyze: install ## Measure every package of the environment; writes pipeline/data/metadata/
	$(BIN)/readie-pipeline analyze $(ARGS)

# A generation without some planned checkpoint is one all the same, and its catalogue goes with it.
capture: install ## Plan and capture checkpoints (RUNTIME=gvisor|fork, or REUSE_PLAN_DIR=); writes pipeline/out/, catalogues/
	$(BIN)/readie-pipeline $(CAPTURE) --runtime $(RUNTIME) --out $(OUT) $(ARGS); status=$$?; \
	test -f $(OUT)/manifest.json || { echo "nothing was captured: no $(OUT)/manifest.json" >&2; exit 1; }; \
	cp $(OUT)/catalogue.json catalogues/$(FLAVOR).json; exit $$status

generation: capture ## The same, and what to do next
	@echo "next: readie up --generations $(OUT), docker compose up -d, or readie-pipeline publish --generation $(OUT)"

report: install ## Write pipeline/out/FLAVOR.html, a page about the generation that was captured
	$(BIN)/readie-pipeline report --generation $(OUT) --data pipeline/data --out $(OUT).html

docs-picture: report ## Take the picture of that page which the docs show, in chromium
	$(BIN)/python docs/picture.py $(OUT).html docs/how-to/report.png

rootfs-requirements: install ## Write the distributions that a plan needs to PLAN_DIR
	$(BIN)/readie-pipeline plan --plan-dir $(PLAN_DIR)

clean-artifacts: ## Remove a flavor's generation, and what an interrupted capture has left
	rm -rf $(OUT) $(dir $(OUT)).$(FLAVOR).partial

clean: ## Remove .venv and every cache
	rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
