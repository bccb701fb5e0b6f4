# make demo   a year of real flights joined with the weather of their hour, on Spark      BACKEND=rocksdb|lmdb|memory
# make test   the tests, in two processes; ARGS=-n0 is for one, as a debugger needs it, ARGS=tests/stores for a folder's
# make lint   ruff and mypy --strict
# make site   the documentation as a site, in build/site; what is wrong with a link or with the reference is an error
#
# make test-rest     what else a change must pass: most tests on Spark, the slow ones, and hundreds of lives of verbs;
#                    tests/parts.py tells the two apart
# make test-long     what takes longer: Spark Connect, deaths, faults, a minute of fuzzing and, without ARGS, a sample of
#                    the golden topologies on Spark
# make test-mutants  small faults planted in operators, checkpoint and encoding, and which test without Spark kills each
#                    of them; SEED draws others                                                          SEED=1
# make test-exhaustive  what others take a part of: on Spark, deaths at every step of every change of a job, all
#                    workloads of the benchmark, and orders and types for each verb; and, without ARGS, all cases of
#                    the tests that draw theirs, all backends, and deaths at all steps, of which make test has a part
# make soak          faults at every step of random histories, for as long as one likes                 SECONDS=3600
# make fuzz          bytes of an attacker's making for everything that reads, guided by coverage        SECONDS=3600
# make test-oldest   what depends on versions of packages, with the oldest that pyproject.toml admits, in .venv-oldest,
#                    which is made from the oldest Python
# make test-versions the same tests with another Python or PySpark, in an environment of its own
#                                                                                    PYTHON=python3.13 PYSPARK=4.2.1
# make test-kafka    from Kafka to Kafka on a real broker, beside the real Kafka Streams; needs Maven and a JDK, whose
#                    jars it puts into build/kafka
# make test-delta    Delta tables as sinks, appended to and merged into; in .venv-oldest, as Delta Lake comes later than
#                    Spark; needs Maven, whose jars it puts into build/delta
# make test-plugins  wheels of Millpond and of plugins/ in .venv-plugins pass the kit and run the demo; needs redis-server
# make test-flink    Flink SQL answers what Millpond does, in the benchmarks; in .venv-flink, which takes 850 MB
#
# Each makes .venv if it is missing, installs what it needs into it, and installs again only when pyproject.toml changes.
# PYTHON chooses the interpreter that .venv is made from.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
PYSPARK ?= 4.3.0
BACKEND ?= rocksdb
OUT ?= demo-out/$(firstword $(subst :, ,$(BACKEND)))
SECONDS ?= 3600
SEED ?= 1
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# A test that does not come to an end ends them all after 20 minutes, by its name and where it stood; pytest 8, which
# .venv-oldest has, only tells where it stands.
LIMITED := -q --durations=40 --durations-min=5 --max-worker-restart=0 -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true
PYTEST := $(BIN)/python -m pytest $(LIMITED)

OLDEST := .venv-oldest/bin/python
# What depends on releases of packages: engines and their files, Arrow's columns, and what of Spark is called or read.
OLDEST_TESTS := tests/contract/test_backends.py tests/stores/rows tests/stores/test_serdes.py \
	tests/stores/test_struct_serde.py tests/stores/test_timestamps.py tests/stores/test_partitions.py \
	tests/stores/test_versioned_columns.py tests/stores/test_window_batches.py tests/formats \
	tests/durability/test_state.py tests/durability/test_inspection.py tests/demo/test_command_line.py \
	tests/spark/test_expressions.py tests/spark/test_generated_code.py tests/spark/test_group_keys.py \
	tests/spark/test_headers.py tests/spark/test_diagnosed.py tests/spark/test_monitoring.py \
	tests/spark/test_outputs.py tests/spark/test_pushed_filters.py \
	tests/spark/test_read_store.py tests/spark/test_refusals.py tests/spark/test_sent.py \
	tests/spark/test_session.py tests/spark/test_several_sinks.py tests/spark/test_shared_operators.py \
	tests/spark/test_sink.py tests/spark/test_state_source.py tests/spark/test_streams.py tests/spark/test_tables.py \
	tests/spark/test_ticks.py tests/spark/test_values.py tests/spark/test_verb_times.py tests/spark/test_verb_types.py \
	tests/spark/test_verbs.py tests/spark/test_continued_query.py tests/spark/test_seeds.py \
	tests/spark/test_top_n.py tests/processors/verbs/test_top_n.py tests/spark/test_deduplicate.py \
	tests/processors/verbs/test_deduplicate.py tests/spark/test_over.py tests/processors/verbs/test_over.py \
	tests/processors/test_buffer_columns.py tests/spark/test_what_if.py tests/spark/test_explained_matches.py \
	tests/pond/test_lookup_join.py tests/spark/test_lookup_join.py
OLDEST_ARGS = -m pytest $(LIMITED) -n 2 --dist worksteal -m 'not slow and not long' $(OLDEST_TESTS) $(ARGS)
VERSIONS := .venv-$(notdir $(PYTHON))-pyspark$(PYSPARK)

FLINK := .venv-flink/bin/python

.PHONY: demo test test-rest test-long test-exhaustive test-mutants test-oldest test-versions test-plugins test-flink \
	test-kafka test-delta soak fuzz lint site clean java redis-server
.DELETE_ON_ERROR:

demo: java .venv/demo.stamp
	$(BIN)/millpond demo --backend '$(BACKEND)' --out '$(OUT)' $(ARGS)

test: java .venv/dev.stamp .venv/spark-classes.jsa
	$(PYTEST) -n 2 --dist worksteal -m 'not long' --part first $(ARGS)

test-rest: java .venv/dev.stamp .venv/spark-classes.jsa
	$(PYTEST) -n 2 --dist worksteal -m 'not long' --part rest $(ARGS)

test-long: java .venv/dev.stamp .venv/spark-classes.jsa
	$(PYTEST) -n 2 --dist worksteal -m 'long and not exhaustive' $(ARGS)
	$(if $(ARGS),,$(PYTEST) -n 2 tests/golden --engine spark)

test-exhaustive: java .venv/dev.stamp .venv/spark-classes.jsa
	$(PYTEST) -m exhaustive $(ARGS)
	$(if $(ARGS),,MILLPOND_ALL_CASES=1 $(PYTEST) -n 2 -m 'not spark and not long')

test-mutants: .venv/dev.stamp
	$(BIN)/python -m tests.mutation.survivors --seed '$(SEED)' $(ARGS)

test-oldest: java .venv-oldest/stamp .venv-oldest/spark-classes.jsa
	$(OLDEST) $(OLDEST_ARGS)

test-versions: java $(VERSIONS)/stamp $(VERSIONS)/spark-classes.jsa
	$(VERSIONS)/bin/python $(OLDEST_ARGS)

test-plugins: java redis-server .venv/dev.stamp .venv/spark-classes.jsa
	$(BIN)/python -m tests.plugins.environment .venv-plugins
	$(PYTEST) -n 2 --dist worksteal tests/plugins/check_plugins.py $(ARGS)

test-flink: java .venv/dev.stamp .venv-flink/stamp
	MILLPOND_FLINK_PYTHON='$(CURDIR)/$(FLINK)' $(PYTEST) tests/spark/flink_answers.py $(ARGS)

test-kafka: java needs-mvn needs-javac .venv/dev.stamp .venv/spark-classes.jsa
	$(PYTEST) -n0 $(wildcard tests/kafka/check_*.py) $(ARGS)

test-delta: java needs-mvn .venv-oldest/stamp .venv-oldest/spark-classes.jsa
	$(OLDEST) -m pytest $(LIMITED) -n0 tests/delta/check_tables.py $(ARGS)

soak: .venv/dev.stamp
	MILLPOND_SOAK_SECONDS='$(SECONDS)' $(BIN)/python -m pytest -q -s tests/crash/test_soak.py -k soak_for $(ARGS)
	MILLPOND_SOAK_SECONDS='$(SECONDS)' $(BIN)/python -m pytest -q -k so_may tests/evolution

fuzz: .venv/dev.stamp
	$(BIN)/python -m tests.fuzz.fuzzer --seconds '$(SECONDS)' $(ARGS)

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests examples docs/site
	$(BIN)/mypy plugins

site: .venv/site.stamp
	$(BIN)/python -m docs.site.build $(ARGS)

clean:
	rm -rf .venv .venv-* build dist *.egg-info demo-out

# Classes, files and workers with which Spark is sooner ready: see tests/quick_spark.py.
# Without them, tests on Spark only take longer.
.venv/spark-classes.jsa: .venv/dev.stamp
.venv-oldest/spark-classes.jsa: .venv-oldest/stamp
$(VERSIONS)/spark-classes.jsa: $(VERSIONS)/stamp
%/spark-classes.jsa: tests/quick_spark.py tests/quick_workers.py tests/QuickFiles.java
	@$*/bin/python -m tests.quick_spark >$*/spark-classes.log 2>&1 && test -f $@ || \
		echo "No archive of Spark's classes could be made (see $*/spark-classes.log); the tests go on without."

# Spark looks for Java where this does: in JAVA_HOME if that is set, else on the PATH.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	if ! command -v "$$java" >/dev/null 2>&1; then found="$$java was not found"; else \
		release=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
		[ "$${release:-0}" -ge 17 ] && exit 0; found="$$java is release $${release:-unknown}"; fi; \
	echo "Spark needs Java 17 or later, and $$found." >&2; \
	echo "On Debian or Ubuntu: apt-get install openjdk-17-jre-headless" >&2; \
	echo "If it is installed elsewhere, set JAVA_HOME to its directory$${JAVA_HOME:+ (now $$JAVA_HOME)}." >&2; exit 1

needs-%:
	@command -v $* >/dev/null 2>&1 || [ -x "$$JAVA_HOME/bin/$*" ] || { \
		echo "These tests need $*, which was not found." >&2; \
		echo "On Debian or Ubuntu: apt-get install maven openjdk-17-jdk-headless" >&2; exit 1; }

redis-server:
	@command -v redis-server >/dev/null 2>&1 || { \
		echo "The tests of millpond-redis need redis-server, which was not found." >&2; \
		echo "On Debian or Ubuntu: apt-get install redis-server" >&2; exit 1; }

.venv/demo.stamp: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet --editable '.[demo]'
	@touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch .venv/demo.stamp .venv/site.stamp $@

.venv/site.stamp: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet --editable '.[docs]'
	@touch $@

.venv-oldest/stamp: pyproject.toml tests/packaging/oldest.py | $(OLDEST)
	$(OLDEST) tests/packaging/oldest.py > .venv-oldest/constraints.txt
	$(OLDEST) -m pip --disable-pip-version-check install --quiet --editable '.[metrics,sketches,spark,testing]' \
		pytest-xdist --constraint .venv-oldest/constraints.txt
	@touch $@

$(VERSIONS)/stamp: pyproject.toml | $(VERSIONS)/bin/python
	$(VERSIONS)/bin/python -m pip --disable-pip-version-check install --quiet \
		--editable '.[metrics,sketches,spark,testing]' pytest-xdist 'pyspark[sql]==$(PYSPARK)'
	@touch $@

.venv-flink/stamp: bench/flink/requirements.txt | $(FLINK)
	$(FLINK) -m pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

$(OLDEST) $(FLINK): PYTHON := python3.11

.venv/bin/python $(OLDEST) $(FLINK) $(VERSIONS)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "Millpond needs Python 3.11 or later, and found none." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Millpond needs Python 3.11 or later; $(PYTHON) is not one. Name one: make PYTHON=python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	"$(PYTHON)" -m venv '$(@:/bin/python=)'
