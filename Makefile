# Everything runs in .venv, which is made when it is first needed; VENV=... names
# another folder, which begins with .venv so that git and ruff ignore it.
# PYTHON=... names the Python 3.10 to 3.13 to make it from, and with it the set of
# versions; OTHER_PYTHON=... the one that tests the other set.

VENV = .venv
python = $(VENV)/bin/python
other_python = $(VENV)-other/bin/python
# The first of these versions that runs; a name on the PATH may be for nothing.
first = $(firstword $(foreach v,$(1),$(shell python$(v) -c \
  'import sys; print(sys.executable)' 2>/dev/null)))
version = $(shell $(1) -c \
  'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PYTHON = $(call first,3.11 3.12 3.13 3.10)
OTHER_PYTHON = $(call first,$(if $(filter 3.10 3.11,$(call version,$(python))),\
  3.12 3.13,3.11 3.10))

ifeq ($(origin PYTHON),command line)
ifeq ($(filter 3.10 3.11 3.12 3.13,$(call version,$(PYTHON))),)
$(error PYTHON=$(PYTHON) is not the command or path of a Python 3.10 to 3.13)
endif
ifneq ($(wildcard $(python)),)
ifneq ($(call version,$(PYTHON)),$(call version,$(python)))
$(error $(VENV) is not of the version of PYTHON=$(PYTHON): remove the folder, or \
name another one, such as VENV=.venv-newer)
endif
endif
endif

# $(call install,FOLDER,PYTHON,its variable): the packages of the rule's first
# prerequisite, with uv, which takes seconds where pip takes minutes, or with pip,
# if uv fails or pip's settings name another index. The clone is installed in
# place, so `import official_albert` and the command `albert` work in any folder.
define install
@test -n "$(2)" || { echo "error: no Python for $(1) found: install 3.11 or 3.12, \
or name one of 3.10 to 3.13: make $(3)=/path/to/python" >&2; exit 1; }
@test -x $(1)/bin/pip || "$(2)" -m venv $(1)
@echo "Installing $< into $(1): TensorFlow among it, about 2 GB, a few minutes"
@$(1)/bin/pip config list | grep -q '[.]\(index-url\|no-index\)=' || \
  $(1)/bin/pip install --quiet --disable-pip-version-check uv || true
@for installer in "$(1)/bin/uv pip install --python $(1)/bin/python" \
    "$(1)/bin/pip install --disable-pip-version-check"; do \
  test -x $${installer%% *} && $$installer --quiet -r $< && \
    $$installer --quiet --no-deps -e . && break; \
done
@cp $< $@
endef

dev = $(VENV)/requirements-dev.txt
other = $(VENV)-other/requirements-dev.txt

# A copy of the file says that all of it is installed.
$(VENV)/%.txt: %.txt requirements.txt pyproject.toml
	$(call install,$(VENV),$(PYTHON),PYTHON)

$(VENV)-other/%.txt: %.txt requirements.txt pyproject.toml | $(dev)
	$(call install,$(VENV)-other,$(OTHER_PYTHON),OTHER_PYTHON)

.PHONY: help venv quickstart record gpu lint test test-other-lane test-all test-gpu \
  test-tpu-compile pins docs format bazel-test clean

help:  ## Lists these commands.
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' Makefile | expand -t 24

venv: $(VENV)/requirements.txt  ## Makes .venv, and runs nothing.

quickstart: venv  ## Corpus to served model in minutes; settings in ARGS="--...".
	@$(python) -m tools.quickstart $(ARGS)

record: venv  ## A portion of a pretraining, and its line in the log; ARGS="--...".
	@$(python) -m tools.run_portion $(ARGS) \
	  --log_file=docs/results/data/record_log.jsonl

gpu: $(VENV)/requirements-gpu.txt  ## Installs CUDA for NVIDIA GPUs into .venv.

test: lint  ## Lint, format, types and all tests that are not heavy.
	@$(python) -m pytest $(pytest_options)

lint: $(dev)
	@$(python) -m ruff check --quiet --output-format concise .
	@$(python) -m ruff format --check . || \
	  { echo "error: run make format." >&2; exit 1; }
	@PYTHONPATH=. $(VENV)/bin/lint-imports --no-cache >$(VENV)/imports \
	  || { cat $(VENV)/imports >&2; exit 1; }
	@$(python) -m mypy --no-error-summary

# Two processes more than cores, as some tests wait, and four at most; each takes
# 1 to 2 GB.
pytest_options = --quiet -n $(shell expr $$(nproc) + 2) --maxprocesses 4 \
  --dist loadfile --no-loadscope-reorder

test-other-lane: $(dev) $(other)  ## Reference numbers, and both sets together.
	@$(other_python) -m mypy --no-error-summary  # Its NumPy has other types.
	@OTHER_PYTHON=$(abspath $(python)) $(other_python) -m pytest \
	  $(pytest_options) -m "not heavy" -k "golden or lanes_test" \
	  tools/lanes_test.py $$(grep -rl --include='*_test.py' 'mark[.]golden' \
	    official_albert tasks tools tfrecords)

test-all: lint $(other)  ## All tests on both sets, and Bazel's, if it is there.
	@if command -v bazel >/dev/null; then $(MAKE) bazel-test; fi
	@$(other_python) -m mypy --no-error-summary
	@OTHER_PYTHON=$(abspath $(other_python)) $(python) -m pytest \
	  $(pytest_options) -m ""
	@$(other_python) -m pytest $(pytest_options) -m ""

test-gpu: $(dev) gpu  ## The tests that need an NVIDIA GPU.
	@TF_FORCE_GPU_ALLOW_GROWTH=true $(python) -m pytest --quiet -m gpu \
	  tools/gpu_test.py

test-tpu-compile: $(dev)  ## A small step through the TPU's compiler (1.3 GB).
	@$(python) -m venv .venv-tpu-compile
	@.venv-tpu-compile/bin/python -m pip install --quiet -r requirements-tpu-compile.txt
	@$(python) -m pytest --quiet -m "" tools/tpu_compile \
	  tools/compile_for_tpu_test.py

# $(call pin,file,extras[,options[,Python]]): versions that a file has stay if they
# fit; `make pins ARGS=--upgrade` takes the newest that do.
pin = $(VENV)/bin/uv pip compile --quiet --universal --fork-strategy fewest \
  --no-annotate --python-version $(or $(4),3.10) $(ARGS) pyproject.toml \
  -c requirements.in $(patsubst %,--extra %,$(2)) $(3) -o $(1)

pins: $(dev)  ## Writes the files of pinned versions (uv; needs PyPI).
	$(call pin,requirements.txt,addons)
	$(call pin,requirements-dev.txt,dev,-c requirements.txt)
	$(call pin,requirements-gpu.txt,addons gpu,-c requirements.txt)
	$(call pin,requirements-tpu.txt,addons tpu,-c requirements.txt \
	  --no-emit-package tensorflow)
	echo './tools/tensorflow_for_tpu ; python_version >= "3.12"' \
	  >>requirements-tpu.txt
	$(call pin,requirements-beam.txt,addons beam)  # Beam needs other versions.
	$(call pin,requirements-docs.txt,addons docs,-c requirements.txt,3.11)

docs: $(VENV)/requirements-docs.txt  ## A site in build/docs; checks its links.
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build

format: $(dev)  ## Formats the code and sorts imports.
	@$(python) -m ruff check --quiet --fix . || true
	@$(python) -m ruff format --quiet .

bazel-test: $(dev)  ## The tests that are not heavy, through Bazel.
	@command -v bazel >/dev/null || { echo "error: Bazel is not installed" \
	  "(Debian: bazel-bootstrap bazel-rules-java bazel-rules-proto)." >&2; \
	  exit 1; }
	@PATH="$(abspath $(VENV))/bin:$$PATH" bazel test //...

clean:  ## Removes environments and all caches, not what you trained.
	@rm -rf $(VENV) $(VENV)-other .venv-tpu-compile .mypy_cache .pytest_cache \
	  .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
