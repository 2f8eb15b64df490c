# Everything runs in .venv, which is made when it is first needed.
# PYTHON=... names the Python 3.10 or 3.11 to make it from.

python = .venv/bin/python
user_venv = @PYTHON="$(PYTHON)" sh tools/make_venv.sh requirements.txt
gpu_venv = @PYTHON="$(PYTHON)" sh tools/make_venv.sh requirements-gpu.txt
dev_venv = @PYTHON="$(PYTHON)" sh tools/make_venv.sh requirements-dev.txt

.PHONY: help quickstart gpu test test-all test-gpu test-tpu-compile format \
  bazel-test clean

help:  ## Lists these commands.
	@sed -n 's/^\([a-z-]*\):  ## /  make \1\t/p' Makefile | expand -t 20

quickstart:  ## Corpus to served model in minutes; settings in ARGS="--...".
	$(user_venv)
	@$(python) -m tools.quickstart $(ARGS)

gpu:  ## Installs the CUDA libraries for NVIDIA GPUs into .venv.
	$(gpu_venv)

test:  ## Lint, format and all tests that are not heavy.
	$(dev_venv)
	@$(python) -m ruff check --quiet --output-format concise .
	@$(python) -m ruff format --check . || \
	  { echo "error: run make format." >&2; exit 1; }
	@PYTHONPATH=. .venv/bin/lint-imports --no-cache >.venv/imports \
	  || { cat .venv/imports >&2; exit 1; }
	@$(python) -m pytest $(pytest_options)

# Two to four processes, as many as there are cores; each takes about 1 GB.
pytest_options = --quiet -n auto --maxprocesses 4 --dist loadfile \
  --no-loadscope-reorder

test-all:  ## The heavy tests too, and Bazel's, if it is installed.
	$(dev_venv)
	@if command -v bazel >/dev/null; then $(MAKE) bazel-test; fi
	@$(python) -m ruff check --quiet --output-format concise .
	@$(python) -m ruff format --check .
	@$(python) -m pytest $(pytest_options) -m ""

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

format:  ## Formats the code and sorts imports.
	$(dev_venv)
	@$(python) -m ruff check --quiet --fix . || true
	@$(python) -m ruff format --quiet .

bazel-test:  ## The tests through BUILD, with each target's own deps only.
	$(dev_venv)
	@command -v bazel >/dev/null || { echo "error: Bazel is not installed" \
	  "(Debian: bazel-bootstrap bazel-rules-java bazel-rules-proto)." >&2; \
	  exit 1; }
	@PATH="$(CURDIR)/.venv/bin:$$PATH" bazel test //...

clean:  ## Removes environments and all caches, not what you trained.
	@rm -rf .venv .venv-tpu-compile .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
