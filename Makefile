# Baton's commands. `make serve` and `make test` are all a newcomer needs; both set up first.
PYTHON ?= python3
VENV ?= .venv
# The CPU build of torch where the index carries one; set TORCH=torch for your platform's default.
TORCH ?= torch==2.13.0
MODEL ?= smollm2
ARGS ?=
RUN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup serve test check smoke docs compare chaos profile race vopr explore mutants effects reproduce truth bench-handoff bench-peers bench-router bench-cache bench-sim demo-page demo-ray clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready ## create the virtual environment and install everything

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --disable-pip-version-check "$(TORCH)"
	$(RUN)/python -m pip install --disable-pip-version-check -e '.[serve,nixl,bench,plan,otel,dev]'
	touch $@

serve: setup ## serve $(MODEL) with one prefill and one decode worker (ARGS="--mixed 1 ...")
	@$(RUN)/baton serve --model $(MODEL) $(ARGS)

test: setup ## run the tests
	$(RUN)/python -m pytest -m 'not slow' -n auto --maxprocesses 4
	$(RUN)/python -m pytest -m slow

check: setup ## lint, formatting and types
	$(RUN)/ruff check src tests
	$(RUN)/ruff format --check src tests
	$(RUN)/mypy

smoke: setup ## start `make serve`, get one streamed chat answer, stop
	$(RUN)/python tests/smoke.py

docs: setup ## regenerate the generated parts of docs/
	$(RUN)/python -m baton.protocol.diagrams docs/protocol.md
	$(RUN)/python -m baton.core.remap.page docs/remap.md

compare: setup ## replay prompts colocated and disaggregated and compare bit for bit
	$(RUN)/baton compare --model $(MODEL) $(ARGS)

vopr: setup ## serve simulated requests under random faults for ten minutes (ARGS="--minutes 60")
	$(RUN)/baton vopr --start $$(date +%s) $(or $(ARGS),--minutes 10)

explore: setup ## every interleaving of a small deployment with any one fault (ARGS="--requests 1 --faults 2")
	$(RUN)/baton explore $(ARGS)

mutants: setup ## plant every bug of the catalogue; each must be noticed by its killer (ARGS="--only NAME")
	$(RUN)/python -m tests.mutants $(ARGS)

chaos: setup ## inject faults into a real deployment under load and judge every answer
	$(RUN)/baton chaos $(ARGS)

effects: setup ## measure what handing K/V over does on this machine (ARGS="--only x7,x11")
	$(RUN)/python -m baton.bench.effects --model $(MODEL) $(ARGS)

reproduce: setup ## published results run again, planning and reuse; resumable (ARGS="--only r1,r16 --data DIR --state FILE")
	$(RUN)/python -m baton.planner.reproduce $(ARGS)

truth: setup ## measured runs of vLLM beside their prediction from layer timings (ARGS="--data DIR")
	$(RUN)/python -m baton.planner.truth $(ARGS)

profile: setup ## measure what steps cost on this machine and fit a service profile
	$(RUN)/baton profile --model $(MODEL) $(ARGS)

race: setup ## race colocated arms against the split on the same cores; writes race.html and race.json
	$(RUN)/baton race --model $(MODEL) --html race.html --json race.json \
		$(addprefix --profile ,$(wildcard baton-profile-$(MODEL)*.json)) $(ARGS)

bench-handoff: setup ## measure the handoff, the engine and the gateway against their limits
	$(RUN)/python -m baton.bench.handoff $(ARGS)

bench-peers: setup ## Baton colocated beside llama.cpp and vLLM (ARGS="--vllm-python V/bin/python ...")
	$(RUN)/python -m baton.bench.peers $(ARGS)

bench-router: setup ## the router's index and decisions against their limits (ARGS="--dynamo-python V/bin/python ...")
	$(RUN)/python -m baton.bench.router $(ARGS)

bench-cache: setup ## what each caching milestone saves over turns, and when the disk tier beats recompute
	$(RUN)/python -m baton.bench.cache --model $(MODEL) $(ARGS)

bench-sim: setup ## the fast simulator beside Dynamo's replay and other peers (ARGS="--data DIR --dynamo-python V/bin/python")
	$(RUN)/python -m baton.bench.sim $(ARGS)

demo-page: setup ## a small deployment under load, and screenshots of its page at /dashboard (needs chromium)
	$(RUN)/python -m baton.bench.demo_page $(ARGS)
demo-ray: setup ## two Ray nodes here: a deployment across them, a worker and a node killed, a drain (needs root)
	@$(RUN)/python -c 'import ray' 2>/dev/null || $(RUN)/python -m pip install --disable-pip-version-check -e '.[ray]'
	$(RUN)/python -m baton.bench.ray $(ARGS)

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
