# Everything runs in .venv, which is made when it is first needed; VENV=... names
# another folder, which begins with .venv so that git and ruff ignore it.
# PYTHON=... names the Python 3.10 to 3.13 to make it from, and with it the lane;
# OTHER_PYTHON=... the one that tests the other lane.

VENV = .venv
python = $(VENV)/bin/python
other_python = $(VENV)-other/bin/python
make_venv = @VENV="$(VENV)" PYTHON="$(PYTHON)" sh tools/make_venv.sh
user_venv = $(make_venv) requirements.txt
gpu_venv = $(make_venv) requirements-gpu.txt
dev_venv = $(make_venv) requirements-dev.txt
docs_venv = $(make_venv) requirements-docs.txt
other_venv = @VENV="$(VENV)" PYTHON="$(OTHER_PYTHON)" sh tools/make_venv.sh \
  requirements-dev.txt other-lane

.PHONY: help venv quickstart gpu lint test test-other-lane test-all test-gpu \
  test-tpu-compile docs format bazel-test clean

help:  ## Lists these commands.
	@sed -n 's/^\([a-z-]*\):[a-z ]*## /  make \1\t/p' Makefile | expand -t 24

venv:  ## Makes .venv with the pinned versions, and runs nothing.
	$(user_venv)

quickstart:  ## Corpus to served model in minutes; settings in ARGS="--...".
	$(user_venv)
	@$(python) -m tools.quickstart $(ARGS)

gpu:  ## Installs the CUDA libraries for NVIDIA GPUs into .venv.
	$(gpu_venv)

test: lint  ## Lint, format, types and all tests that are not heavy.
	@$(python) -m pytest $(pytest_options)

lint:
	$(dev_venv)
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

test-other-lane:  ## The other lane's goldens; runs and exports cross lanes.
	$(dev_venv)
	$(other_venv)
	@OTHER_PYTHON=$(abspath $(python)) $(other_python) -m pytest \
	  $(pytest_options) -m "not heavy" -k "golden or lanes_test" \
	  tools/lanes_test.py $$(grep -rl --include='*_test.py' 'mark[.]golden' \
	    official_albert tasks tools tfrecords)

test-all: lint  ## All tests on both lanes, and Bazel's, if it is installed.
	$(other_venv)
	@if command -v bazel >/dev/null; then $(MAKE) bazel-test; fi
	@OTHER_PYTHON=$(abspath $(other_python)) $(python) -m pytest \
	  $(pytest_options) -m ""
	@$(other_python) -m pytest $(pytest_options) -m ""

test-gpu:  ## The tests that need an NVIDIA GPU.
	$(dev_venv)
	$(gpu_venv)
	@TF_FORCE_GPU_ALLOW_GROWTH=true $(python) -m pytest --quiet -m gpu \
	  tools/gpu_test.py

test-tpu-compile:  ## A small step through the TPU's compiler (1.3 GB).
	$(dev_venv)
	@$(python) -c "from tools.tpu_compile import rows; rows.make_environment()"
	@$(python) -m pytest --quiet -m "" tools/tpu_compile \
	  tools/compile_for_tpu_test.py

docs:  ## The documentation as a site in build/docs; checks its links.
	$(docs_venv)
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build

format:  ## Formats the code and sorts imports.
	$(dev_venv)
	@$(python) -m ruff check --quiet --fix . || true
	@$(python) -m ruff format --quiet .

bazel-test:  ## The tests that are not heavy, through Bazel.
	$(dev_venv)
	@command -v bazel >/dev/null || { echo "error: Bazel is not installed" \
	  "(Debian: bazel-bootstrap bazel-rules-java bazel-rules-proto)." >&2; \
	  exit 1; }
	@PATH="$(abspath $(VENV))/bin:$$PATH" bazel test //...

clean:  ## Removes environments and all caches, not what you trained.
	@rm -rf .venv .venv-other .venv-tpu-compile .mypy_cache .pytest_cache \
	  .ruff_cache
	@for venv in "$(VENV)" "$(VENV)-other"; do \
	  if [ "$$(ls "$$venv/installing" "$$venv"/installed-* 2>/dev/null)" ]; then \
	    rm -rf "$$venv"; fi; done
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
