# Three commands do everything on a fresh machine: `make optimize`, `make demo` and `make test`.
PYTHON ?= python3
# without MimicKit and without a GPU, a search of about a minute and a half that shows everything
STUDY ?= $(if $(or $(MIMICKIT_ROOT),$(shell command -v nvidia-smi)),pi_plus,demo)
VENV := .venv
BIN := $(VENV)/bin
# --no-compile: Python compiles what it imports; to compile all of torch and its like took half of the installation
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# where it is set, every process that is started would compile anew what it imports
unexport PYTHONDONTWRITEBYTECODE

.PHONY: optimize demo test check docs lint clean

## optimize: install, then run or resume the study STUDY (pi_plus where it can run, else demo)
optimize: $(VENV)/installed
	$(BIN)/tuner optimize --study $(STUDY)
	@echo "next: source $(BIN)/activate   (so that this shell finds the command tuner)"

## demo: install, then make a script faster that waits for its data, in a minute
demo: $(VENV)/installed
	$(BIN)/tuner optimize --yes --n-trials 4 -- $(BIN)/python examples/slow_data.py --batch-size 32 --workers 0

## test: install with the tools, then run the tests, four at a time: many of them wait for processes
# With a thread of numpy's per core in each of the four, the four would wait for each other.
# All tests of a file run in the same one of the four, because they share a trainer or a server.
# On two idle cores, three, four and six took 178, 159 and 175 s: more of them compute longer, fewer wait longer.
test: export OMP_NUM_THREADS := 1
test: $(VENV)/installed-dev
	$(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

## check: what must pass before each commit
check: lint test

lint: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

# torch first and by its exact version: a range could take another build than the pinned one
$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable '.[dashboard,postgresql,reference,report]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[dev,dashboard,postgresql,notebook,reference,report,slurm]'
	touch $@

## docs: install what builds the documentation site, then build it into build/site; a broken link is an error
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/installed-docs
	$(BIN)/mkdocs build --strict --quiet

$(VENV)/installed-docs: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) 'mkdocs-material' 'mkdocstrings[python]'
	touch $@

clean:
	rm -rf $(VENV) build/site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
