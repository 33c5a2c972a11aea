# Switchyard. `make help` lists what there is.
PYTHON := .venv/bin/python
TRACE ?=
PORT ?= 8000
PREFILL ?=
DECODE ?=
SOAK_MINUTES ?= 2
SOAK_SEEDS ?= $(shell seq 1 20)
FUZZ_EXAMPLES ?= 10000
FUZZED := tests/fuzz tests/gateway/http/test_json_body.py tests/gateway/http/test_large_body.py tests/gateway/engines/test_engine_metrics.py \
	tests/kvstore/events/test_kv_events.py tests/kvstore/events/test_kv_event_forms.py tests/controlplane/api/test_schemathesis.py \
	tests/controlplane/api/test_schemathesis_gateway.py
# Browsers and processes wait much, so there may be more workers than cores.
TEST_WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)

.DEFAULT_GOAL := help
.PHONY: help setup run test test-thorough fuzz check format bench bench-peers evidence soak clean

help: ## list these targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: ## install what the other targets need (they call it themselves)
	@.ci/setup-python
	@.ci/setup-frontend

run: setup ## start a demo fleet with replayed traffic and the console on http://127.0.0.1:8000 (TRACE=file, PORT=n; PREFILL=n DECODE=n: engines of one role)
	@exec $(PYTHON) manage.py up --demo --with-parent --port $(PORT) --trace "$(TRACE)" $(if $(PREFILL),--prefill $(PREFILL)) $(if $(DECODE),--decode $(DECODE))

test: setup ## run all tests
	@SWITCHYARD_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" $(PYTHON) -m pytest -m "not alone and not thorough" -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder
	@SWITCHYARD_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" $(PYTHON) -m pytest -m "alone and not thorough"

test-thorough: setup ## run the long walks that make test leaves out
	@SWITCHYARD_STATE_DIR="$$(mktemp -d)" CHROMIUM="$$(.ci/setup-chromium)" $(PYTHON) -m pytest -m thorough

fuzz: setup ## try FUZZ_EXAMPLES inputs on each test of what arrives on a wire (make test tries 100)
	@FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) SWITCHYARD_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest -n $(TEST_WORKERS) $(FUZZED)

check: setup ## lint, types, import directions, house rules
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy
	@.venv/bin/lint-imports
	@SWITCHYARD_STATE_DIR="$$(mktemp -d)" $(PYTHON) -m pytest -q tests/house
	@SWITCHYARD_STATE_DIR="$$(mktemp -d)" $(PYTHON) manage.py makemigrations --check --dry-run

format: setup ## format all Python files
	@$(PYTHON) -m ruff check --fix . && $(PYTHON) -m ruff format .

bench: setup ## run the benchmarks that need no other product; results in var/bench
	@$(PYTHON) -m bench

bench-peers: setup ## compare with other products, each installed into var/peers first (needs the traces)
	@$(PYTHON) -m bench.peers.dynamo_replay
	@$(PYTHON) -m bench.peers.dynamo_decision

evidence: setup ## write docs/evidence.md and its pictures from the committed results in bench/results
	@$(PYTHON) -m bench.evidence

soak: setup ## kill processes of a whole installation at random, SOAK_MINUTES for each of SOAK_SEEDS, and check every request and effect
	@failed=0; for seed in $(SOAK_SEEDS); do \
	  $(PYTHON) -m bench.soak --minutes $(SOAK_MINUTES) --seed $$seed --json var/bench/soak-$$seed.json --log var/bench/soak-$$seed.log || failed=1; \
	done; exit $$failed

clean: ## remove what was set up and built (not var/, which holds your data)
	rm -rf .venv node_modules web/static/dist
