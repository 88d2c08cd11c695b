# Each target does its own set-up: a virtual environment in .venv with the pinned versions of requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.complete

.PHONY: reproduce test check clean

reproduce: $(SETUP)  ## the paper's controlled experiment: all runs, figures, table and verdicts
	$(BIN)/cokl reproduce

test: check  ## everything CI runs
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(SETUP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else f"Python 3.11 to 3.13 is needed, this is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:  ## remove the environment and caches, keep results
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
