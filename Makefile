# Everything a person types. `make` alone lists it; each target sets up what it needs by itself.
SHELL := /bin/sh
.DEFAULT_GOAL := help
VENV ?= .venv
PY := $(VENV)/bin/python
ARGS ?=
STACK ?= local
MINUTES ?= 10
SEED ?=
export PYTHONUNBUFFERED := 1

.PHONY: help demo up test chaos check bench proof lock clean ready

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

demo: ready ## Run the main job for 40 seconds, with crashes, and judge it (STACK=full: on RabbitMQ and Redis)
	@exec $(PY) -m scheduler_app.local demo --stack $(STACK) $(ARGS)

up: ready ## Run web, beat and worker on 127.0.0.1 until Ctrl-C
	@exec $(PY) -m scheduler_app.local up $(ARGS)

test: ready ## Run the tests on private PostgreSQL, RabbitMQ and Redis (ARGS="-k name")
	@exec $(PY) -m scheduler_app.local test -m "not proof" $(ARGS)

proof: ready ## Run the tests that take minutes by nature, and hold promised times strictly
	@EVERYSLOT_STRICT=1 exec $(PY) -m scheduler_app.local test -m "proof or timed" $(ARGS)

chaos: ready ## Break everything by chance for MINUTES=10, then judge (SEED=n replays, STACK=full: on RabbitMQ and Redis)
	@exec $(PY) -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --stack $(if $(filter full,$(STACK)),full,embedded)

check: ready ## Lint, types, import contract, migrations, deployment checks
	@exec $(PY) -m scheduler_app.local check $(ARGS)

bench: ready ## Measure: schedules, no-op runs beside plain Celery tasks, the way of a single call (minutes)
	@exec $(PY) -m scheduler_app.local run $(PY) -m tests.bench $(ARGS)

lock: ready ## Write requirements.lock anew from pyproject.toml
	@$(PY) -m pip install --quiet uv
	@$(PY) -m uv pip compile pyproject.toml --all-extras --generate-hashes --no-header --universal \
	  --python-version 3.11 --quiet -o requirements.lock

clean: ## Remove the virtual environment, local data and caches
	@[ ! -f .local/data-folder ] || rm -rf "$$(cat .local/data-folder)"
	@rm -rf $(VENV) .local .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

ready:
	@VENV="$(VENV)" sh scheduler_app/local/prepare.sh
