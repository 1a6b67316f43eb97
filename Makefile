# Every target does its own set-up: a virtual environment in .venv, pinned by constraints.txt, which is rebuilt only when
# pyproject.toml or constraints.txt change. After that no target needs a network.

PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready# what the demo and its service need
WHOLE := .venv/.whole# what tests, benchmarks and clusters need, too
export OMP_WAIT_POLICY := PASSIVE
export MPLBACKEND := Agg

.DEFAULT_GOAL := help
.PHONY: demo test test-all lint style types checks suite bench reproduce reproduce-full docs release help clean

demo: $(READY) ## a raw log with several biases: diagnosis, a table of methods, a ranker to serve, a report (a minute)
	@$(BIN)/clickprism demo --out runs/demo

test: SELECTED := -m "not long"
test: checks ## everything that must hold: lint, types, imports, tests, doctests, README commands

test-all: SELECTED := --hypothesis-profile=random
test-all: checks ## make test and the long tests: statistical sweeps, a Spark cluster, kills at every point, the site

checks: $(WHOLE) style
	@scripts/java
	@scripts/debian redis-server chromium pg_ctlcluster:postgresql
	@$(MAKE) --no-print-directory --jobs 2 suite types SELECTED='$(SELECTED)'

suite: $(WHOLE)
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(SELECTED)

lint: style types ## ruff, mypy --strict, import-linter

style: $(WHOLE)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: $(WHOLE)
	@$(BIN)/mypy

bench: $(WHOLE) ## every benchmark: our figure, the peer's or the limit's, ratio, bar, ok or short
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@scripts/debian redis-server wrk
	@$(BIN)/python -m benchmarks $(BENCHMARKS)

reproduce: $(WHOLE) ## the tables and figures of three papers, in small (half an hour): report.html in out and out/inforank, report.md in out/adr
	@$(BIN)/python -m reproduce.lbd --quick --out out
	@$(BIN)/python -m reproduce.inforank --quick --out out/inforank
	@$(BIN)/python -m reproduce.adr --quick --out out/adr

reproduce-full: $(WHOLE) ## the published networks and lengths at coupling .1, the whole sweep at a smaller size (about 11 hours)
	@$(BIN)/python -m reproduce.lbd --full --published --tables 1,4 --seeds 0,1 --out out/full \
		--methods labels,dla,click,unlimited,lbd-ber,lbd_paper,lbd_code,lbd
	@$(BIN)/python -m reproduce.lbd --published --figures 3a,3b --out out/sweep
	@$(BIN)/python -m reproduce.inforank --full --tables 2 --seeds 0 --methods labels,click,inforank_paper,inforank --out out/full/inforank
	@$(BIN)/python -m reproduce.adr --out out/full/adr

docs: $(WHOLE) ## the site, in site/: docs/reference/cli.md and the API generated from the code, every link checked
	@$(BIN)/python -m clickprism.cli.reference > docs/reference/cli.md.new && mv docs/reference/cli.md.new docs/reference/cli.md
	@$(BIN)/python -m docs.build --out site

release: ## build the wheel and try it in new environments, with each extra alone (needs the package registry; minutes)
	@PYTHON=$(PYTHON) scripts/release

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

clean: ## remove the environment and all generated files
	rm -rf .venv runs site dist

# Byte-compile packages on all cores (pip uses one); files that are not valid Python, such as templates, are skipped.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[$(EXTRAS)]'
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true
endef

$(READY): EXTRAS := demo
$(READY): pyproject.toml constraints.txt
	$(install)
	@touch $@

$(WHOLE): EXTRAS := neural,trees,log,spark,lm,serve,dev
$(WHOLE): pyproject.toml constraints.txt
	$(install)
	@touch $(READY) $@
