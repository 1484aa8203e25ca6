# `make serve` and `make test` need nothing but Python and a package registry: each makes the virtual environment
# that it runs in, once, and again when pyproject.toml, constraints.txt or api/llmfw_engine.py change.

PYTHON ?= python3
VENV ?= .venv
PEER ?= .venv-bench
PEERS ?= .peers
EXAMPLES ?= $(VENV)-examples
LIGHT ?= $(VENV)-light
OLDEST ?= $(VENV)-oldest
ARGS ?=
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help serve test test-all test-light test-oldest attack examples mutants soak soak-server drill lint types docs surface site model-table size bench peers bench-peers \
	simulate-bench gpu gpu-wheels python

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' Makefile | expand -t 16

serve: $(VENV)/installed  ## serve the demo model on port 30000; options by ARGS="--port 8000"
	$(BIN)/llmfw serve $(ARGS)

# Modules that are compiled anew in every process of the tests cost a fifth of their time.
unexport PYTHONDONTWRITEBYTECODE

# A process for each core and one more, because a fifth of the tests wait for other processes. Each has one thread:
# threads of OpenMP in several processes would wait for each other.
PROCESSES ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# The attacks are not among these tests, as they measure how long others wait: that needs the machine alone.
PARALLEL = OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(PROCESSES) --maxprocesses 8 --dist worksteal --ignore=tests/attack

test: $(VENV)/installed-dev  ## run the tests, in about six minutes on two cores; a part of them by ARGS="tests/core -x"
	$(PARALLEL) -m "not long" $(ARGS)

test-all: $(VENV)/installed-dev  ## run all tests in full length, in about half an hour; a part of them by ARGS
	LLMFW_TEST_LENGTH=full $(PARALLEL) $(ARGS)

# Folders whose tests, and what they start, need no torch.
LIGHT_TESTS = $(addprefix tests/,core/base core/interfaces core/ipc core/plugin core/schedule core/terminal \
	plugins/parsers_families plugins/policies api/access api/background api/batches api/files api/http api/text)

test-light: $(LIGHT)/installed  ## run the tests that need no torch, on another Python: PYTHON=python3.13
	OMP_NUM_THREADS=1 $(LIGHT)/bin/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal \
		-m "not long" $(LIGHT_TESTS) $(ARGS)

# What depends on how transformers' models, caches, tokenizers and configs are made.
OLDEST_TESTS = $(addprefix tests/,core/model core/engine core/imports plugins/adapters_families plugins/weights_gguf \
	plugins/test_chat_jinja.py api/test_demo_server.py)

test-oldest: $(OLDEST)/installed  ## run the tests of models and engine with the oldest transformers that is allowed; takes two minutes
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal \
		-m "not long" $(OLDEST_TESTS) $(ARGS)

attack: $(VENV)/installed-dev  ## attack a served model, and measure a second client meanwhile; needs an idle machine
	$(BIN)/pytest tests/attack $(ARGS)

examples: $(EXAMPLES)/installed  ## install the packages of docs/examples beside llmfw, and run their tests
	@for folder in docs/examples/*/; do \
		echo "$$folder"; (cd "$$folder" && \
		LLMFW_STRICT_PLUGINS=1 "$(abspath $(EXAMPLES))/bin/python" -P -m pytest -q $(ARGS)) || exit; \
	done

# Tests that run longer than any other test may; `faulthandler_timeout` in pyproject.toml ends the others.
UNLIMITED = -o faulthandler_timeout=0

chaos: $(VENV)/installed-dev  ## kill and stop the processes of a loaded server 90 times; takes about 25 minutes
	LLMFW_TEST_LENGTH=full LLMFW_CHAOS=real $(BIN)/pytest $(UNLIMITED) tests/crash/test_chaos.py -s
	LLMFW_TEST_LENGTH=full LLMFW_KILLS=49 $(BIN)/pytest $(UNLIMITED) tests/crash/test_killed.py

saturate: $(VENV)/installed-dev  ## an hour of long prompts, in which the watchdog must not raise an alarm
	LLMFW_SATURATION_S=3600 LLMFW_SATURATION_WATCHDOG_S=300 $(BIN)/pytest $(UNLIMITED) tests/crash/test_false_alarms.py -s

mutants: $(VENV)/installed-dev  ## plant mistakes in bundled components, and count those that the tests find; ARGS="eviction"
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation.run $(ARGS)

soak: $(VENV)/installed-dev  ## a million random operations on the scheduler; takes about ten minutes
	LLMFW_TEST_OPERATIONS=1000000 $(BIN)/pytest $(UNLIMITED) tests/core/schedule/test_everything.py

DRILL_ROUNDS ?= 5

drill: $(VENV)/installed-dev  ## five times every fault under load, beside Prometheus, which must be installed; takes half an hour
	LLMFW_DRILL=real LLMFW_DRILL_ROUNDS=$(DRILL_ROUNDS) $(BIN)/pytest $(UNLIMITED) tests/crash/test_drill.py -s

SOAK_FOLDER ?= build/soak
SOAK_HOURS ?= 2

soak-server: $(VENV)/installed-dev  ## two hours of mixed requests, in which no memory and no descriptor may be lost
	nice $(BIN)/python -m tests.soak.run $(SOAK_FOLDER) --hours $(SOAK_HOURS) $(ARGS)
	$(BIN)/python -m tests.soak.report $(SOAK_FOLDER)

lint: $(VENV)/installed-dev  ## ruff: rules and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/installed-dev  ## mypy
	$(BIN)/mypy

docs: $(VENV)/installed-dev  ## write anew the parts of docs/ that are made from the code
	$(BIN)/python docs/generate.py

surface: $(VENV)/installed-dev  ## record what is public now (docs/compatibility.md); refuses to drop what was released
	$(BIN)/python docs/generate.py --surface

site: $(VENV)/installed-docs  ## the documentation as a site, in build/site; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs/site \
		--doctree-dir build/doctrees docs build/site

model-table: $(VENV)/installed-dev  ## try every model type of transformers, write docs/models.md; takes five minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.models.table --page docs/models.md $(ARGS)

size: $(VENV)/installed-dev  ## the largest files and functions
	$(BIN)/python tests/size.py

bench: $(VENV)/installed $(PEER)/installed  ## measure llmfw and `transformers serve`, write docs/benchmarks.md; takes long
	$(BIN)/python docs/benchmarks/compare.py --page docs/benchmarks.md $(ARGS)

peers: $(VENV)/installed  ## install the servers that bench-peers measures, as far as they can be
	$(BIN)/python docs/benchmarks/install_peers.py --folder $(PEERS) $(ARGS)

bench-peers: $(VENV)/installed  ## measure llmfw and what is in .peers, write docs/benchmarks.md; takes hours
	$(BIN)/python docs/benchmarks/bench_peers.py --folder $(PEERS) --page docs/benchmarks.md $(ARGS)

simulate-bench: $(VENV)/installed  ## replay TRACE=FILE with several policies, write docs/benchmarks.md
	$(BIN)/python docs/benchmarks/policies.py $(TRACE) --page docs/benchmarks.md $(ARGS)

gpu: $(VENV)/installed-dev  ## measure llmfw on a GPU, next to what the GPU can do; without one: ARGS=--dry
	$(BIN)/python docs/benchmarks/gpu/run.py $(ARGS)

# For a bare GPU machine without a network. pip matches these tags exactly, and takes an older release where one lacks.
GPU_TAGS = manylinux_2_31 manylinux_2_28 manylinux_2_27 manylinux_2_26 manylinux_2_24 manylinux_2_17 manylinux2014 \
	manylinux1
GPU_PYTHON ?= 3.12

gpu-wheels: python  ## download into .whl/ what a bare GPU machine lacks; see docs/benchmarks/gpu.md
	$(PYTHON) -m pip download --no-deps --only-binary=:all: --python-version $(GPU_PYTHON) --implementation cp \
		$(GPU_TAGS:%=--platform %_x86_64) --dest .whl --requirement docs/benchmarks/gpu/wheels.txt

# The links serve the editable install alone; git brings them, an unpacked sdist does not.
LINKS = .links/llmfw/core .links/llmfw/plugins .links/llmfw/api .links/llmfw_engine.py

.links/llmfw/%:
	@mkdir -p $(@D)
	ln -s ../../$* $@

.links/llmfw_engine.py:
	@mkdir -p $(@D)
	ln -s ../api/llmfw_engine.py $@

# An editable install copies api/llmfw_engine.py; the copy of an older one would stay.
$(VENV)/installed: pyproject.toml constraints.txt api/llmfw_engine.py | python $(LINKS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) uninstall --quiet --yes llmfw 2>/dev/null # another project of that name, or llmfw before it was llmfw-engine
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --group dev
	@# torch for CUDA brings its own; beside torch for CPUs stands the one that the GPUs were to be measured with.
	$(BIN)/python -c 'import triton' 2>/dev/null || $(PIP) install --no-deps triton==3.6.0
	$(PIP) install --constraint constraints.txt --no-deps flashinfer-python apache-tvm-ffi nvidia-ml-py # its arguments alone
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(PIP) install --constraint constraints.txt --group docs
	@touch $@

# llmfw without torch, which weighs gigabytes where there is no build of it for CPUs.
$(LIGHT)/installed: pyproject.toml constraints.txt tests/light_requirements.py | python $(LINKS)
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(LIGHT)/bin/python tests/light_requirements.py > $(LIGHT)/requirements.txt
	$(LIGHT)/bin/python -m pip install --quiet --constraint constraints.txt --requirement $(LIGHT)/requirements.txt
	$(LIGHT)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The oldest transformers of pyproject.toml, and what it requires in other versions; all else is seen in llmfw's environment.
OLDEST_TRANSFORMERS = $(shell sed -n 's/.*"transformers>=\([0-9.]*\)".*/\1/p' pyproject.toml)

$(OLDEST)/installed: $(VENV)/installed-dev
	$(PYTHON) -m venv --clear --without-pip $(OLDEST)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(OLDEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/llmfw.pth
	grep -v -e '^transformers==' -e '^huggingface-hub==' constraints.txt > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $(OLDEST)/constraints.txt \
		'transformers==$(OLDEST_TRANSFORMERS).*'
	$(OLDEST)/bin/python -c 'import transformers as t; assert t.__version__.startswith("$(OLDEST_TRANSFORMERS)."), t.__version__'
	@touch $@

# An environment of their own, in which that of llmfw can be seen: what is installed here, llmfw's own tests do not see.
# The packages are installed as users would, with what they require.
$(EXAMPLES)/installed: $(VENV)/installed-dev $(shell find docs/examples -name '*.py' -o -name pyproject.toml)
	$(PYTHON) -m venv --without-pip $(EXAMPLES)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(EXAMPLES)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/llmfw.pth
	$(EXAMPLES)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--no-build-isolation $(wildcard docs/examples/*/)
	@touch $@

$(PEER)/installed: docs/benchmarks/requirements.txt | python
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --requirement $<
	@touch $@

python:
	@command -v $(PYTHON) >/dev/null || { echo 'There is no $(PYTHON). llmfw needs Python 3.11 to 3.14:' \
		'name one that you have, as in `make serve PYTHON=python3.12`.' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || { \
		echo "$(PYTHON) is `$(PYTHON) -V 2>&1`. llmfw needs Python 3.11 to 3.14:" \
		'name one that you have, as in `make serve PYTHON=python3.12`.' >&2; exit 1; }
