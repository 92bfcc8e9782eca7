PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
STUDY ?= paper
STUDIES = $(basename $(notdir $(wildcard config/*.yaml)))
LAYERS = $(filter-out paper,$(STUDY))
LAYER = $(strip $(if $(filter-out $(STUDIES),$(STUDY)),\
	$(error STUDY is $(STUDY), allowed are the files of config/: $(STUDIES)),\
	$(if $(LAYERS),--configfile $(LAYERS:%=config/%.yaml))))

.PHONY: help quick paper study plan figures report archive verify test test-slurm bench lint clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

quick: $(READY) ## a small study, from training to figures, in minutes on two cores: results/quick/
	$(BIN)/snakemake all --profile local --configfile config/quick.yaml

paper: $(READY) ## the paper at full size, on this machine: results/paper/ (on a cluster: snakemake --profile slurm all)
	$(BIN)/snakemake all --profile local

study: $(READY) ## a study of your own, files of config/ laid over one another: make study STUDY="quick mine"
	$(BIN)/snakemake all --profile local $(LAYER)

plan: $(READY) ## what would run, why, and how long it should take, running nothing: make plan STUDY=quick
	$(BIN)/snakemake all --profile local $(LAYER) --dry-run --quiet

figures: $(READY) ## every figure and table of the paper from the cubes that are there, without training: results/paper/
	$(BIN)/snakemake figures --profile local $(LAYER)

report: $(READY) ## one page that shows a study: make report STUDY=quick writes results/quick/report.html
	$(BIN)/snakemake report --profile local $(LAYER)

archive: $(READY) ## a study as one zip to publish: make archive STUDY=quick writes results/quick/inverse-depth-quick.zip
	$(BIN)/snakemake archive --profile local $(LAYER)

verify: $(READY) ## check an archive and draw its figures again: make verify ARCHIVE=results/quick/inverse-depth-quick.zip
	$(BIN)/python -m inverse_depth.verify "$(ARCHIVE)"

test: lint ## every check: style, types, the workflow's lint, and the tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4 --dist loadscope

test-slurm: $(READY) ## a cut of the quick study on a Slurm cluster of its own, on this machine (as root, Debian or Ubuntu)
	$(BIN)/pytest -s tests/slurm/check_*.py

bench: $(READY) ## a training step against the paper's formulation, and stacked models: results/bench/ (needs an idle machine)
	$(BIN)/python benchmarks/suite.py
	$(BIN)/python benchmarks/stacking.py

lint: $(READY) ## style, types and the workflow's lint alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check .
	$(BIN)/snakemake --lint
	$(BIN)/mypy

clean: ## remove the environment, the quick study and caches; other results stay
	rm -rf .venv results/quick .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made once, and again when the lock or the package's metadata change.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install -r requirements.lock
	$(BIN)/pip install --no-deps --no-build-isolation --editable .
	@touch $@
