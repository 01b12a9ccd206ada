# minitorch: every common task. `make` alone lists them. On a fresh machine `make demo` or `make test` does everything.
PYTHON ?= python3
VENV ?= .venv
BUILD ?= build/release
JOBS ?= 2

PY := $(VENV)/bin/python
export PATH := $(abspath $(VENV))/bin:$(PATH)
export MINITORCH_BUILD_DIR := $(BUILD)

SOURCES := CMakeLists.txt setup.py pyproject.toml $(shell find csrc -type f)
REQUIREMENTS := $(VENV)/.requirements
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-cpp cuda test-python poison conformance coverage accuracy lint format bench benchmarks-page debug clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(REQUIREMENTS): requirements.txt requirements-dev.txt tools/setup_system.sh
	@tools/setup_system.sh $(PYTHON)
	@test -x $(PY) || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing torch and the tools that requirements-dev.txt pins (some minutes: torch is large)"
	@$(PY) -m pip install --quiet -r requirements-dev.txt
	@touch $@

$(INSTALLED): $(REQUIREMENTS) $(SOURCES)
	@echo "Building minitorch (the first time takes some minutes)"
	@$(PY) setup.py -q build_ext --inplace
	@$(PY) -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

setup: $(INSTALLED) ## make .venv, install the pinned torch and tools, build and install minitorch (editable)

demo: $(INSTALLED) ## train a CNN and a small GPT on minitorch and on native CPU, or on a GPU native CUDA
	@$(PY) examples/side_by_side.py

test: test-cpp cuda test-python ## C++ tests, the CUDA sources where nvcc is found, then all Python tests

cuda: $(INSTALLED) test-cpp ## compile the CUDA library (sm_90a, or what the build was configured for), GPU or not
	@tools/build_cuda.sh $(BUILD) $(JOBS)

test-cpp: $(INSTALLED) ## C++ tests of core, runtime and kernels (no Python)
	@tools/test_cpp.sh $(BUILD)

# Two workers with two threads each on two cores: idle OpenMP threads must sleep, not spin.
test-python: $(INSTALLED) test-cpp cuda ## Python tests: devices, operators, conformance (a thinned choice), models
	@OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive MINITORCH_FALLBACK=error $(PY) -m pytest -n $(JOBS) --dist worksteal tests

poison: $(INSTALLED) ## Python tests with memory checks: fresh memory is NaN, every block stands between canaries
	@OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive MINITORCH_FALLBACK=error MINITORCH_POISON=1 \
		$(PY) -m pytest -n $(JOBS) --dist worksteal tests

conformance: $(INSTALLED) ## every conformance row of the claimed operators, in all dtypes; an interrupted run goes on
	@$(PY) -m tests.conformance.run --whole --timeout 300 --jobs $(JOBS) --results --json out/conformance.json --resume

coverage: $(INSTALLED) ## rewrite docs/coverage.md: which operators are there, which conformance rows pass
	@$(PY) tools/coverage.py --write

accuracy: $(INSTALLED) ## rewrite docs/accuracy.md: errors of operators in ulp, beside native's
	@$(PY) tools/accuracy.py --write docs/accuracy.md

lint: $(INSTALLED) ## ruff, clang-format, include layers, symbols per instruction set, vectorised loops
	@ruff check .
	@ruff format --check --quiet .
	@clang-format --dry-run -Werror $(shell git ls-files 'csrc/*.h' 'csrc/*.cpp' 'csrc/*.cu' 'csrc/*.cuh' 'tests/cpp/*.cpp' 'tests/cpp/*.h')
	@$(PY) tools/check_sources.py
	@$(PY) tools/check_docs.py
	@$(PY) tools/readme_figures.py
	@$(PY) tools/check_isa_symbols.py $(BUILD)
	@$(PY) tools/check_vectorised.py $(BUILD)

format: $(REQUIREMENTS) ## rewrite Python and C++ sources in the project's format
	@ruff check --fix --quiet . ; ruff format --quiet .
	@$(PY) tools/check_docs.py --fix
	@clang-format -i $(shell git ls-files 'csrc/*.h' 'csrc/*.cpp' 'csrc/*.cu' 'csrc/*.cuh' 'tests/cpp/*.cpp' 'tests/cpp/*.h')

bench: $(INSTALLED) ## race every case against native torch: ratios, memory, share of the machine's limits (20 minutes)
	@$(VENV)/bin/minitorch bench --check --plots out/bench

benchmarks-page: $(INSTALLED) ## rewrite docs/benchmarks.md, its pictures and README's figures from benchmarks/results
	@$(PY) tools/benchmarks_page.py
	@$(PY) tools/readme_figures.py --write

debug: $(REQUIREMENTS) ## build with AddressSanitizer and UBSan in its own folder; C++ tests, a smoke test and 200 conformance rows on it
	@ASAN_OPTIONS=detect_leaks=0 tools/test_cpp.sh build/debug-cpp -DMINITORCH_SANITIZE=ON -DMINITORCH_ISAS="baseline;avx2"
	@MINITORCH_ISAS=avx2 tools/debug_smoke.sh build/debug $(PY)

clean: ## remove build results; .venv stays
	rm -rf build out dist *.egg-info minitorch_backend/lib minitorch_backend/_build_info.json
	rm -f minitorch_backend/*.so $(INSTALLED)
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
