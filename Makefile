# Every target sets up .venv by itself. Another Python: make test PYTHON=python3.12
PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
CSRC := $(shell find csrc -name "*.h" -o -name "*.cpp")
INSTALLED := .venv/.installed
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(CSRC)
CMAKE := $(or $(shell command -v cmake),$(BIN)/cmake)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs docs-version notebooks kernel-test sanitize format stub clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(INSTALLED)  ## Train a translation model and show what its heads learned, in minutes
	$(BIN)/adasparse demo

# Each worker gets its share of the cores, so that they do not crowd each other out.
test: $(INSTALLED)  ## Run the tests, those in docstrings and the README included
	OMP_NUM_THREADS=$$($(BIN)/python -c 'import os; print(max(1, os.cpu_count() // $(WORKERS)))') \
		$(BIN)/pytest -n $(WORKERS)

check: $(INSTALLED)  ## Check format, lint, types and the direction of imports
	$(BIN)/clang-format --dry-run --Werror $(CSRC)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)  ## Time operators and attention against their baselines, in some minutes
	$(BIN)/adasparse bench ops
	$(BIN)/adasparse bench attention

docs: $(INSTALLED)  ## Build the documentation into build/site
	$(BIN)/mkdocs build --quiet

docs-version: $(INSTALLED)  ## Commit the documentation as VERSION=0.2.0 to the branch gh-pages; PUSH=--push
	test -n "$(VERSION)" || (echo "Give a version: make docs-version VERSION=0.2.0" && false)
	$(BIN)/mike deploy $(PUSH) --update-aliases $(VERSION) latest
	$(BIN)/mike set-default $(PUSH) latest

notebooks: $(INSTALLED)  ## Run the notebooks in examples/ and store their outputs
	$(BIN)/python examples/execute.py

kernel-test: $(if $(shell command -v cmake),,$(INSTALLED))  ## Build and run the C++ tests; FILTER=name picks some
	$(CMAKE) -S . -B build/kernel-test -DADASPARSE_TESTS=ON
	$(CMAKE) --build build/kernel-test --parallel $(WORKERS)
	build/kernel-test/kernel_tests $(FILTER)

sanitize: sanitize-address,undefined sanitize-thread  ## Run the C++ tests under the sanitizers

sanitize-%: $(if $(shell command -v cmake),,$(INSTALLED))
	$(CMAKE) -S . -B build/sanitize-$* -DADASPARSE_TESTS=ON -DADASPARSE_SANITIZE=$*
	$(CMAKE) --build build/sanitize-$* --parallel
	build/sanitize-$*/kernel_tests

format: $(INSTALLED)  ## Format the code and fix what can be fixed
	$(BIN)/clang-format -i $(CSRC)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

stub: $(INSTALLED)  ## Write the types of the compiled extension after a change to its bindings
	$(BIN)/python -m nanobind.stubgen -m adasparse.kernels._native \
		-o src/adasparse/kernels/_native.pyi

clean:  ## Remove what was built; .venv stays, and is brought up to date by the next target
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -exec rm -rf {} +
	rm -f $(INSTALLED)

# torch comes first and pinned: left to choose, pip would take the newest with all its dependencies.
# triton, for the tests of the GPU kernels under its interpreter, comes without dependencies.
$(INSTALLED): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -c constraints.txt torch
	$(BIN)/pip install -c constraints.txt -e ".[dev]"
	test "$$(uname -s)" != Linux || $(BIN)/pip install -c constraints.txt --no-deps triton
	touch $@
