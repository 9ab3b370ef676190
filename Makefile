# txha: `make demo` and `make test` do everything on a machine that has Python 3.11+ with venv and pip, and make.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
COMPILED := build/compiled/.made

.PHONY: help install demo test slices every-case lint takeover bench profile bench-growth bench-restart bench-dtx bench-spark dtx-crashes spark-crashes spark-crash-table spark-cluster sim coordinator-seeds mutants attacks calls-storm handovers upgrade alerts fuzz stress money amqp-programs docs image clean

help: ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(STAMP) $(COMPILED) ## Build the locked environment in .venv; the command is .venv/bin/txha

$(STAMP): requirements.lock pyproject.toml
	@echo "== building the environment in $(VENV) (a minute on a fresh machine)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

$(COMPILED): $(STAMP) $(shell find txobserver ha broker_plugin recovery/pipeline/rows/walker.py -name '*.py')
	@echo "== compiling the hot path (a minute or two)"
	@$(VENV)/bin/python -m broker_plugin.compiled.build
	@touch $@

demo: install ## Kill two primaries under load and print what the clients saw
	@echo "== demo: three nodes, two kills, every transaction judged from the clients' own records"
	@$(VENV)/bin/txha demo

test: install ## Run the linters and the whole suite, without the slices
	@echo "== tests"
	@bash tests/system_packages.sh
	@bash tests/run_all.sh

slices: install ## Fixed slices of the long runs: seeds, seeded faults, rounds of stress, cases on Spark; CI runs them behind make test
	@echo "== slices: of what make sim, make stress and make spark-crashes draw"
	@bash tests/system_packages.sh
	@bash tests/run_slices.sh

every-case: install ## What make test leaves out of the tests of real nodes and Spark: crash points, hung disks, crashes
	@echo "== every case: what make test leaves out, and what stands beside it"
	@bash tests/system_packages.sh
	@$(VENV)/bin/python -m pytest -m "not standalone and not image" $$(grep -rlE --include='test_*.py' 'some_of\(|mark\.every' tests python_tests)

lint: $(STAMP) ## ruff, mypy strict, import directions
	@echo "== lint: ruff, mypy, import-linter"
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

alerts: ## The example alert rules through Prometheus' own promtool: each fires, and is silent, where it should
	@bash tests/system_packages.sh
	@promtool check rules docs/metrics/alerts.yml
	@promtool test rules docs/metrics/alerts_test.yml

takeover: install ## Distribution of the time to take over, 20 trials with each coordination store
	@echo "== takeover: SIGKILL of the primary, 20 times with the record in a file and 20 times in etcd"
	@$(VENV)/bin/txha takeover; file=$$?; $(VENV)/bin/txha takeover --coordination etcd && exit $$file

bench: install ## txha beside RabbitMQ (needs rabbitmq-server), about six minutes; writes docs/benchmarks
	@echo "== bench: txha and RabbitMQ in turn on this machine"
	@$(VENV)/bin/python -m python_tests.benchmarks.compare

profile: install ## CPU per message, by process, thread and stage of the core; half a minute
	@echo "== profile: where the processors' time goes"
	@$(VENV)/bin/python -m python_tests.benchmarks.cpu
	@$(VENV)/bin/python -m tests.stages --compiled
	@$(VENV)/bin/python -m tests.stages

OPTIONS ?=
bench-growth: install ## Curves over depth, queues, body size …, about 15 minutes; writes docs/benchmarks (OPTIONS=--quick: 3)
	@echo "== bench-growth: what happens when there is more of it"
	@$(VENV)/bin/python -m python_tests.benchmarks.growth $(OPTIONS)

bench-restart: install ## Restart, catch-up, take-over, leaders of etcd; 30 minutes; writes docs/benchmarks (OPTIONS=--quick: 3)
	@echo "== bench-restart: how long it takes to come back"
	@$(VENV)/bin/python -m python_tests.benchmarks.restart $(OPTIONS)

bench-dtx: install ## Branches/s through prepare and commit beside plain tx; two minutes (OPTIONS=--quick: 20 seconds)
	@echo "== bench-dtx: distributed transactions beside plain ones"
	@$(VENV)/bin/python -m python_tests.benchmarks.dtx $(OPTIONS)

bench-spark: install ## The pipeline on Spark: source, growth, start, audit; 20 minutes; writes docs/benchmarks (OPTIONS=--quick: 2)
	@echo "== bench-spark: rows a second, growth, start-up"
	@$(VENV)/bin/python -m python_tests.benchmarks.spark $(OPTIONS)

dtx-crashes: install ## SIGKILL of everything at every step of a distributed transaction; ten minutes; writes docs
	@echo "== dtx-crashes: coordinator, brokers and PostgreSQL, killed in turn"
	@bash tests/system_packages.sh
	@$(VENV)/bin/python -m python_tests.suites.coordinator.crash_table

spark-crash-table: install ## SIGKILL of everything at every step of a Spark query over queues; 20 minutes; writes docs
	@echo "== spark-crash-table: tasks, drivers and brokers, killed in turn"
	@$(VENV)/bin/python -m python_tests.suites.spark_queues.crash_table

CASES ?= 200
spark-crashes: SEED := $(or $(SEED),1)
spark-crashes: install ## Pairs of crashes of queues on Spark, drawn: make spark-crashes CASES=200 SEED=1 [OPTIONS=--json]
	@echo "== spark-crashes: $(CASES) cases from seed $(SEED); drivers, brokers, operators; each row counted"
	@$(VENV)/bin/python -m python_tests.suites.spark_queues.drawn --cases $(CASES) --seed $(SEED) $(OPTIONS)

spark-cluster: install ## The pipeline by spark-submit on a standalone cluster; jobs killed at their steps; a node from an archive; ten minutes
	@echo "== spark-cluster: a master and two workers on loopback; jobs killed at each step; a node made from an archive"
	@$(VENV)/bin/python -m pytest -m standalone tests/recovery/pipeline

SEEDS ?= 2000
FIRST ?= 0
SIM_FILE ?=
sim: $(STAMP) ## Simulated clusters on virtual time: make sim SEEDS=2000 FIRST=0 [SIM_FILE=remembers what is done]
	@echo "== simulation: $(SEEDS) seeds from $(FIRST), and that of the commit"
	@$(VENV)/bin/python -m tests.simulation run --seeds $(SEEDS) --first $(FIRST) $(if $(SIM_FILE),--file $(SIM_FILE))

coordinator-seeds: $(STAMP) ## Coordinators in a model of databases, brokers, disks and people: make coordinator-seeds SEEDS=2000 FIRST=0 [OPTIONS=--json|--help]
	@echo "== coordinator-seeds: $(SEEDS) seeds from $(FIRST)" >&2
	@$(VENV)/bin/python -m tests.coordinator_model run --seeds $(SEEDS) --first $(FIRST) $(OPTIONS)

MUTANTS ?= 300
ONLY ?=
MUTANTS_SEED := $(or $(SEED),1)
mutants: $(STAMP) ## Faults put into the product, drawn by seed: make mutants MUTANTS=300 SEED=1 [ONLY=ha/] [OPTIONS=--json]
	@echo "== mutants: $(MUTANTS) by seed $(MUTANTS_SEED); at least 95 % must die"
	@$(VENV)/bin/python -m tests.mutants --mutants $(MUTANTS) --seed $(MUTANTS_SEED) $(if $(ONLY),--only $(ONLY)) $(OPTIONS)

PROGRAMS ?= 2000
PROGRAMS_SEED := $(or $(SEED),0)
amqp-programs: $(STAMP) ## Random AMQP programs against txha and RabbitMQ: make amqp-programs PROGRAMS=2000 SEED=7 [OPTIONS=--races]
	@echo "== amqp-programs: $(PROGRAMS) from seed $(PROGRAMS_SEED), answers and contents compared" >&2
	@$(VENV)/bin/python -m python_tests.suites.amqp_programs --programs $(PROGRAMS) --first $(PROGRAMS_SEED) $(OPTIONS)

MONEY_ROUNDS := $(or $(ROUNDS),20)
MONEY_SEED := $(or $(SEED),1)
money: install ## Money between two databases while everything is killed: make money ROUNDS=20 SEED=1 [OPTIONS=--json]
	@echo "== money: $(MONEY_ROUNDS) rounds from seed $(MONEY_SEED); nodes, applications, pooler and PostgreSQL; each transfer counted" >&2
	@bash tests/system_packages.sh >&2
	@$(VENV)/bin/python -m python_tests.suites.money --rounds $(MONEY_ROUNDS) --seed $(MONEY_SEED) $(OPTIONS)

CALLS ?= 768
CALLS_SEED := $(or $(SEED),1)
calls-storm: install ## Cluster calls from three nodes at once while these are killed: make calls-storm CALLS=768 SEED=1 [OPTIONS=--json|--help]
	@echo "== calls-storm: $(CALLS) calls by seed $(CALLS_SEED); then how fast a node catches up; about five minutes" >&2
	@$(VENV)/bin/python -m python_tests.suites.calls_storm --calls $(CALLS) --seed $(CALLS_SEED) $(OPTIONS)

HANDOVERS ?= 50
handovers: install ## Handovers under load, by promote and SIGTERM: outcomes unknown, longest pause; make handovers HANDOVERS=50 [OPTIONS=--json]
	@echo "== handovers: $(HANDOVERS), of three nodes under load" >&2
	@$(VENV)/bin/python -m python_tests.suites.handovers --handovers $(HANDOVERS) $(OPTIONS)

upgrade: install ## Nodes of the last release and of this version in one cluster, one by one, there, back and there again: make upgrade [OPTIONS=--json|--help]
	@echo "== upgrade: three nodes of the release under load, each replaced by this version, and back; some minutes" >&2
	@$(VENV)/bin/python -m python_tests.suites.upgrade $(OPTIONS)

attacks: install ## What harms, at every port of three nodes: make attacks [OPTIONS="--rabbitmq|--only NAME|--list|--slice|--help"]; writes docs/attacks.md
	@echo "== attacks: one after the other, while a well-behaved client commits" >&2
	@$(VENV)/bin/python -m python_tests.suites.attacks $(if $(filter --only --list --slice --scale --others-only,$(OPTIONS)),,--write docs/attacks.md) $(OPTIONS)

EXAMPLES ?= 20000
SEED := $(or $(SEED),$(shell date +%s))
fuzz: $(STAMP) ## New generated cases for models and decoders: make fuzz EXAMPLES=20000 SEED=7
	@echo "== fuzz: $(EXAMPLES) examples for each test, seed $(SEED)"
	@TXHA_EXAMPLES=$(EXAMPLES) $(VENV)/bin/python -m pytest -m fuzz --timeout=0 -o faulthandler_timeout=0 --hypothesis-seed=$(SEED)

ROUNDS ?= 100
stress: install ## Faults of every kind under load, as many rounds as you like: make stress ROUNDS=100 SEED=7 [OPTIONS="--coordination etcd"]
	@echo "== stress: $(ROUNDS) rounds of load and faults, about 20 seconds each"
	@$(VENV)/bin/txha stress --rounds $(ROUNDS) --seed $(SEED) $(OPTIONS)

DOCS := build/docs-venv
docs: ## The documentation as a site, into build/site; a link that leads nowhere is an error
	@echo "== docs: mkdocs, strict"
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

image: install ## The Dockerfile's steps in roots of their own, without a container engine; as root; needs debootstrap
	@echo "== image: each step of the Dockerfile in a new Debian; about five minutes"
	@[ "$$(id -u)" = 0 ] || { echo "make image makes roots of its own: run it as root" >&2; exit 2; }
	@command -v debootstrap >/dev/null || { echo "make image needs debootstrap: apt-get install debootstrap" >&2; exit 2; }
	@$(VENV)/bin/python -m pytest -m image -o faulthandler_timeout=0 tests/packaging

clean: ## Remove the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
