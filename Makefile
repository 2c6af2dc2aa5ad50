# `make demo` and `make test` are all a fresh machine needs: each builds the environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MUTANTS_VENV ?= .venv-mutants
DOCS_VENV ?= .venv-docs
LOWEST_VENV ?= .venv-lowest
NEWEST_VENV ?= .venv-newest
PACKAGE_VENV ?= .venv-package
LOWEST_TESTS := $(foreach name,command_line dask encoding ledger_file refusals regressors sources text_streams,$(wildcard tests/*/test_$(name).py))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The build for processors alone; the default one on Linux brings gigabytes of libraries for graphics cards.
TORCH ?= $(if $(filter Darwin,$(shell uname)),torch,torch==2.13.0+cpu)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: demo test test-slow test-lowest test-newest lint types unit examples bench docs package mutants fuzz clean

demo: $(VENV)/demo
	$(BIN)/dpdescent demo

# Types and examples are checked beside the tests, which wait for processes and disks now and then.
test: lint $(VENV)/torch
	$(MAKE) --jobs 2 unit types examples

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

unit: $(VENV)/ready $(VENV)/torch
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal tests

examples: $(VENV)/ready $(VENV)/torch
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --doctest-modules src

# About six minutes: what is marked `slow`, such as the replays of every estimator, method and option.
test-slow: $(VENV)/ready $(VENV)/torch
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal -m slow tests

# Five minutes: a short suite with the lowest versions that pyproject.toml allows.
test-lowest: $(LOWEST_VENV)/ready
	OPENBLAS_NUM_THREADS=1 $(LOWEST_VENV)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS)

# The same suite with the newest versions, and with another Python: make test-newest PYTHON=python3.14
test-newest: $(NEWEST_VENV)/ready
	OPENBLAS_NUM_THREADS=1 $(NEWEST_VENV)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS)

# Ratios to plain computations, appended to benchmarks/history.jsonl and drawn on docs/speed.md; on an idle machine.
bench: $(VENV)/ready
	$(BIN)/python benchmarks/history.py run

# What the demonstration needs: the base dependencies and matplotlib, none of the tools of developers.
$(VENV)/demo: pyproject.toml
	@echo "building an environment in $(VENV): pip installs numpy, pandas, scikit-learn and others, which takes about a minute"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[plots]'
	@touch $@

# The manual, in docs/_build/html/dev or a folder named by the version; every warning is an error. Manuals of other
# versions stay, and docs/versions.py leads from one to another.
docs: $(DOCS_VENV)/ready
	$(eval manual := docs/_build/html/$(shell $(PYTHON) docs/versions.py folder))
	rm -rf $(manual) docs/_build/doctrees docs/api docs/pictures
	$(DOCS_VENV)/bin/python -m sphinx --builder html --doctree-dir docs/_build/doctrees --fail-on-warning --keep-going --quiet docs $(manual)
	$(DOCS_VENV)/bin/python docs/versions.py publish docs/_build/html
	@echo "open docs/_build/html/index.html"

# The wheel and the source, in dist/, checked by twine and by what is in the wheel.
package: $(PACKAGE_VENV)/ready
	rm -rf dist
	$(PACKAGE_VENV)/bin/python -m build --outdir dist .
	$(PACKAGE_VENV)/bin/twine check --strict dist/*
	$(PACKAGE_VENV)/bin/check-wheel-contents dist/*.whl
	$(PACKAGE_VENV)/bin/cffconvert --validate

# Hours: changes the accounting, the curator and the ledger one operator at a time, and lists what no test notices.
# MUTANTS="curator.lattice_noise" is a part of it. See docs/mutants.md.
mutants: $(MUTANTS_VENV)/ready
	$(MUTANTS_VENV)/bin/python tests/mutants.py $(MUTANTS)

# Ten minutes: random arguments and damaged files through every command. MINUTES=60 is longer. See docs/fuzzing.md.
fuzz: $(VENV)/ready $(VENV)/atheris
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz.py --minutes $(or $(MINUTES),10)

# Where atheris cannot be had, hypothesis alone draws the examples.
$(VENV)/atheris: $(VENV)/ready
	@$(INSTALL) atheris 2>/dev/null || echo "atheris is not installed: hypothesis draws the examples alone"
	@touch $@

# An environment of its own, for mutmut and a pytest that it works with.
$(MUTANTS_VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(MUTANTS_VENV)
	$(MUTANTS_VENV)/bin/python -m pip install --quiet -e '.[dev]' 'mutmut>=3.8' 'pytest>=8.3,<9'
	@touch $@

$(VENV)/ready: pyproject.toml
	@echo "building an environment in $(VENV): pip installs what the tests need, which takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	$(INSTALL) -e '.[dev]'
	@touch $@

$(LOWEST_VENV)/ready: pyproject.toml tests/lowest.py
	rm -rf $(LOWEST_VENV)
	$(PYTHON) -m venv $(LOWEST_VENV)
	$(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e . $$($(PYTHON) tests/lowest.py)
	@touch $@

$(NEWEST_VENV)/ready: pyproject.toml tests/lowest.py
	rm -rf $(NEWEST_VENV)
	$(PYTHON) -m venv $(NEWEST_VENV)
	$(NEWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e . $$($(PYTHON) tests/lowest.py newest)
	@touch $@

$(PACKAGE_VENV)/ready:
	$(PYTHON) -m venv $(PACKAGE_VENV)
	$(PACKAGE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check build twine check-wheel-contents cffconvert
	@touch $@

$(DOCS_VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

# Where torch cannot be had its tests are skipped and say so; nothing else needs it.
$(VENV)/torch: $(VENV)/ready
	@$(INSTALL) '$(TORCH)' 2>/dev/null \
	|| $(INSTALL) --retries 1 --timeout 20 '$(TORCH)' --extra-index-url $(TORCH_INDEX) 2>/dev/null \
	|| echo "torch is not installed: the tests of dpdescent.torch will be skipped"
	@touch $@

clean:
	rm -rf $(VENV) $(DOCS_VENV) $(LOWEST_VENV) $(NEWEST_VENV) $(PACKAGE_VENV) dist docs/_build docs/api docs/pictures .mypy_cache .pytest_cache .ruff_cache .hypothesis
