# Every target sets up what it needs in $(VENV), and is quick the second time.
#   make test PYTHON=python3.13 VENV=.venv-3.13   another interpreter, beside the usual one
#   make test ARGS="-k stop"                      further arguments for pytest

PYTHON ?= python3
VENV   ?= .venv
SEEDS  ?= 1000
FIRST  ?= 0
KILLS  ?= 200
ARGS   ?=
# Most tests wait for processes and sockets: four at a time keep two cores busy.
ATONCE ?= 4

BIN   := $(VENV)/bin
READY := $(VENV)/ready

# The page is built, not committed: what is built goes into the package, and its sources are in page/.
BUILT   := src/turnkeeper/page/index.html
MODULES := page/node_modules/.package-lock.json
NODE     = PATH="$$(sh scripts/node $(BIN)/python):$$PATH"

.DEFAULT_GOAL := help
.PHONY: help setup run page test test-page test-postgres test-surfaces test-agents check bench sim campaign campaign-nodes schedules outcomes diagram pictures conformance format clean force

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

# The environment is made anew when the pins change, or when it belongs to another Python or place.
ifneq ($(filter-out help clean,$(MAKECMDGOALS)),)
IDENTITY := $(shell $(PYTHON) -c 'import sys; print(sys.version.split()[0], sys.base_prefix)' 2>/dev/null) in $(CURDIR)
ifneq ($(IDENTITY),$(shell cat $(READY) 2>/dev/null))
$(READY): force
endif
endif

$(READY): pyproject.toml constraints.txt scripts/make-venv
	@sh scripts/make-venv '$(PYTHON)' '$(VENV)'
	@echo "$$($(PYTHON) -c 'import sys; print(sys.version.split()[0], sys.base_prefix)') in $(CURDIR)" > $@

setup: $(READY) ## Set up the virtual environment and no more

run: $(READY) $(BUILT) ## Begin a demo: agents that show what can go wrong, and the page
	@$(BIN)/turnkeeper demo $(ARGS)

# The page is tested with Debian's Chromium.
CHROMIUM := $(VENV)/chromium
$(CHROMIUM): $(READY)
	@command -v google-chrome >/dev/null 2>&1 || sh scripts/debian-tools chromium:chromium
	@touch $@

test: $(READY) $(BUILT) $(CHROMIUM) test-page ## Run all tests of what it does (how it is written: make check)
	$(BIN)/python -m pytest -n $(ATONCE) --dist worksteal --ignore tests/tidy tests $(ARGS)

POSTGRES := $(VENV)/postgres
$(POSTGRES): $(READY)
	@sh scripts/debian-tools pg_ctlcluster:postgresql
	@touch $@

test-postgres: $(READY) $(POSTGRES) ## Test nodes, and the server, the client and the commands, on PostgreSQL
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "postgres and not agents" tests $(ARGS)
	TURNKEEPER_TEST_STORE=postgres $(BIN)/python -m pytest -n $(ATONCE) --dist worksteal \
		-m "not agents and not surfaces and not file_store and not postgres" \
		tests/gateway tests/client tests/cli $(ARGS)

test-surfaces: $(READY) ## All surfaces at length: every ending, schedules, races, fuzzing
	$(BIN)/python -m pytest -n auto --dist worksteal -m surfaces tests $(ARGS)

test-agents: $(READY) ## Install the real agent programs and test with them, offline
	@$(BIN)/python -m tests.agents.install
	sh scripts/offline $(BIN)/python -m pytest -n auto --dist worksteal -m agents tests $(ARGS)

page: $(BUILT) ## Build the page into the package, with Node from PyPI if there is none

$(MODULES): page/package.json page/package-lock.json page/.npmrc | $(READY)
	@$(NODE) && cd page && npm ci --silent && touch node_modules/.package-lock.json

$(BUILT): $(MODULES) page/index.html page/vite.config.ts page/tsconfig.json $(shell find page/src page/public -type f 2>/dev/null)
	@$(NODE) && cd page && npm run --silent build

test-page: $(MODULES) ## Test what the page knows, without a browser
	@$(NODE) && cd page && npm run --silent test

check: $(READY) ## Check format, lint, types and tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/tidy

bench: $(READY) ## Measure what is promised about cost (ARGS=supervise for that bench alone)
	$(BIN)/python -m bench $(ARGS)

sim: $(READY) ## Simulate SEEDS seeds, beginning with FIRST
	$(BIN)/python -m turnkeeper.testing.simulator --seeds $(SEEDS) --first $(FIRST) $(ARGS)

campaign: $(READY) ## Kill the server KILLS times under load, and judge what is left
	$(BIN)/python -m tests.campaign --kills $(KILLS) $(ARGS)

campaign-nodes: $(READY) ## Break three nodes on one PostgreSQL KILLS times under load, and judge what is left
	sh scripts/offline $(BIN)/python -m tests.campaign --nodes 3 --kills $(KILLS) $(ARGS)

schedules: $(READY) ## Play 500 schedules of approvals and 1,000 races of two endings
	TURNKEEPER_SCHEDULES=500 TURNKEEPER_RACES=1000 $(BIN)/python -m pytest -q -s -m surfaces tests/schedules $(ARGS)

outcomes: $(READY) ## Read every ending on every surface, and make the page of it anew
	@$(BIN)/python -m tests.agents.install
	@rm -f .outcomes
	TURNKEEPER_RESULTS=$(CURDIR)/.outcomes \
		$(BIN)/python -m pytest -q -n 2 -m "surfaces or agents" tests/surfaces/matrix
	$(BIN)/python -m scripts.outcomes_page .outcomes

diagram: $(READY) ## Make the reference pages of the run's table, the events and the metrics anew
	$(BIN)/python -m scripts.diagram
	$(BIN)/python -m scripts.events_page
	$(BIN)/python -m scripts.metrics_page
	$(BIN)/python -m scripts.page_types

pictures: $(READY) $(BUILT) $(CHROMIUM) ## Take the pictures of the page for docs/ anew
	$(BIN)/python -m scripts.page_pictures

conformance: $(READY) ## Play every scenario with every driver, and make the page of it anew
	@$(BIN)/python -m tests.agents.install
	@rm -f .agents/results
	TURNKEEPER_RESULTS=$(CURDIR)/.agents/results \
		$(BIN)/python -m pytest -q -n auto tests/conformance/drivers
	TURNKEEPER_RESULTS=$(CURDIR)/.agents/results sh scripts/offline \
		$(BIN)/python -m pytest -q -n 2 -m agents tests/conformance/drivers
	$(BIN)/python -m scripts.conformance_page .agents/results

format: $(READY) ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove what make made
	@for venv in '$(VENV)' .venv .venv-*; do \
		if [ -e "$$venv/made-by-make" ]; then rm -rf "$$venv"; fi; \
	done
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .agents .node page/node_modules src/turnkeeper/page
	@find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} +
