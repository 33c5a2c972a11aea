# Headway. `make help` lists the targets.
PYTHON := .venv/bin/python
TRACE ?=
PORT ?= 8000
PREFILL ?=
DECODE ?=
REGIONS ?=
SOAK_MINUTES ?= 2
SOAK_SEEDS ?= $(shell seq 1 20)
FUZZ_EXAMPLES ?= 10000
FUZZED := tests/fuzz tests/gateway/server/http/test_json_body.py tests/gateway/server/http/test_large_body.py tests/gateway/pools/engines/test_engine_metrics.py \
	tests/kvstore/events/test_kv_events.py tests/kvstore/transfer/test_frames.py \
	tests/kvstore/tiers/test_slot_file.py tests/controlplane/platform/api/test_schemathesis.py \
	tests/controlplane/platform/api/test_schemathesis_gateway.py tests/gateway/requests/formats/test_engine_answer.py \
	tests/gateway/requests/formats/test_api_prompts.py tests/simulator/regions/test_sovereignty_holds.py
# Tests sometimes wait for browsers and processes, so use one worker more than there are cores.
TEST_WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

# Rules that `make check` tests; empty where `make test` follows, which runs them, too.
HOUSE ?= tests/house
# Not empty: compile all tests in one process beside mypy, which on a fresh clone each worker of `make test` would do.
COMPILE ?=

# Files with such tests; to collect all others takes half a minute.
marked = $$(grep -rl "mark\.$(1)" tests --include="test_*.py")

# Without bytecode, programs that tests start would compile all modules again each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install setup run up test test-thorough test-proxies test-packages test-vllm test-mooncake fuzz check check-types check-rest format dist image bench bench-peers evidence removals soak soak-kv soak-regions soak-slow soak-sessions clean

help: ## list these targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

install: ## install what Headway needs to run (run and up do it first)
	@.ci/setup-python
	@.ci/setup-frontend

setup: ## install what development needs, too (all other targets do it first)
	@.ci/setup-python requirements-dev.lock
	@.ci/setup-frontend

run: install ## start a demo fleet with replayed traffic and the console on http://127.0.0.1:8000 (TRACE=file, PORT=n, PREFILL=n DECODE=n, REGIONS=3)
	@exec $(PYTHON) manage.py up --demo --with-parent --port $(PORT) --trace "$(TRACE)" $(if $(PREFILL),--prefill $(PREFILL)) $(if $(DECODE),--decode $(DECODE)) $(if $(REGIONS),--regions $(REGIONS))

up: install ## start Headway for your own engines (manage.py connect URL…; PORT=n)
	@exec $(PYTHON) manage.py up --with-parent --port $(PORT)

test: setup ## run all tests except the longest
	@HEADWAY_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" $(PYTHON) -m pytest -m "not alone and not thorough" -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder
	@HEADWAY_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" $(PYTHON) -m pytest -m "alone and not thorough" $(call marked,alone)

test-thorough: setup ## run the longest tests (CI does not; also the first part of soak)
	@HEADWAY_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" $(PYTHON) -m pytest -m "thorough and not alone" -n 2 --dist loadfile $(call marked,thorough)
	@HEADWAY_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" $(PYTHON) -m pytest -m "thorough and alone" $(call marked,alone)

test-proxies: setup ## run the tests of deploy/ with the real nginx, HAProxy, and Envoy, installed if possible
	@eval export $$(.ci/setup-proxies) && HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest -n $(TEST_WORKERS) tests/deploy

test-packages: setup ## run the tests of the container image, compose, Helm chart, systemd, monitoring, restore, and wheels
	@eval export $$(.ci/setup-proxies) && path="$$PYTHONPATH" && eval export $$(.ci/setup-packages) && export PYTHONPATH="$$PYTHONPATH:$$path" && \
	  HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest tests/deploy/packages tests/end_to_end/test_restore.py

test-vllm: setup ## run the tests with two real vLLM engines, installed into var/vllm
	@eval export $$(.ci/setup-vllm) && HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest tests/vllm

test-mooncake: setup ## run the KV store's backend tests with the real Mooncake Store, installed into var/mooncake
	@eval export $$(.ci/setup-mooncake) && HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest tests/kvstore/backends

fuzz: setup ## run FUZZ_EXAMPLES inputs through each parser test (make test: 40)
	@FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest -n $(TEST_WORKERS) $(FUZZED)

check: setup ## run linters, type checks, import contracts, and house rules
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-types check-rest
	@$(if $(HOUSE),HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest -q $(HOUSE))

check-types:
	@$(PYTHON) -m mypy

check-rest:
	@.ci/check-frontend
	@HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) manage.py makemigrations --check --dry-run
	@$(if $(COMPILE),HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest --collect-only -qq >/dev/null || \
	  { echo "some tests cannot be collected: see pytest --collect-only" >&2; exit 1; })

format: setup ## format all Python files and console scripts
	@$(PYTHON) -m ruff check --fix . && $(PYTHON) -m ruff format .
	@.ci/check-frontend format

dist: setup ## build the Helm chart, and the wheels of application, client, and vLLM connector, into dist/
	@$(PYTHON) -m deploy.packages

image: ## build the container image with buildah, podman, or docker (IMAGE=name, PLATFORM=linux/arm64, BASE=debootstrap)
	@$(if $(IMAGE),IMAGE="$(IMAGE)") $(if $(PLATFORM),PLATFORM="$(PLATFORM)") $(if $(BASE),BASE="$(BASE)") sh deploy/container/image.sh

bench: setup ## run the benchmarks; results in var/bench
	@$(PYTHON) -m bench

bench-peers: setup ## compare with other products, installed into var/peers (needs the traces)
	@$(PYTHON) -m bench.peers.dynamo_replay
	@$(PYTHON) -m bench.peers.dynamo_decision
	@$(PYTHON) -m bench.gateway.proxy
	@$(PYTHON) -m bench.gateway.openai_proxy
	@$(PYTHON) -m bench.kv.transfer --mooncake --json var/bench/kv_transfer_mooncake.json

evidence: setup ## generate docs/evidence.md and its figures from bench/results
	@$(PYTHON) -m bench.evidence

removals: setup ## remove each part of each requirement's mechanism in a copy of the tree, and run the tests that docs/reliability.md names
	@HEADWAY_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" nice $(PYTHON) -m bench.house.removals --json bench/results/reports/removals.json

soak: test-thorough ## run the longest tests, then kill random processes of a complete installation, SOAK_MINUTES per seed
	@failed=0; for seed in $(SOAK_SEEDS); do \
	  $(PYTHON) -m bench.installation.soak --minutes $(SOAK_MINUTES) --seed $$seed --json var/bench/soak-$$seed.json --log var/bench/soak-$$seed.log || failed=1; \
	done; \
	KILL_SEEDS="$$(seq -s, 20)" HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest tests/end_to_end/test_separate_processes.py || failed=1; \
	exit $$failed

soak-kv: setup ## kill node managers, fill disks, and flip bits, SOAK_MINUTES per seed, and check every block that was read
	@failed=0; for seed in $(SOAK_SEEDS); do \
	  $(PYTHON) -m bench.kv.soak --minutes $(SOAK_MINUTES) --seed $$seed --json var/bench/kv_soak-$$seed.json --log var/bench/kv_soak-$$seed.log || failed=1; \
	done; exit $$failed

soak-regions: setup ## cut, stall, and reset links between three regions and kill gateways, one run per seed, and check the history of every request
	@failed=0; for seed in $(SOAK_SEEDS); do \
	  $(PYTHON) -m bench.regions.soak --seconds 60 --seed $$seed --json var/bench/region_soak-$$seed.json || failed=1; \
	done; exit $$failed

soak-slow: setup ## serve through engines that are slow, and dead ones among them, under a virtual clock in 20 seeds
	@SLOW_SEEDS="$$(seq -s, 20)" HEADWAY_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest -n $(TEST_WORKERS) tests/soaks/test_slow_engines.py

soak-sessions: ## repeat the session simulations of all systems and seeds (about 50 minutes on two cores), and fail if a committed figure differs
	@$(PYTHON) -m bench.evidence --measure session_loads session_limits session_agents session_priorities
	@git diff --exit-code bench/results docs/evidence.md

clean: ## remove installed and built files (keeps var/, your data)
	rm -rf .venv node_modules web/static/dist
