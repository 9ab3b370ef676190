#!/usr/bin/env bash
# The whole suite in two halves side by side: what computes, and what mostly waits for real processes. Where the core is
# compiled, from these sources, its own tests run once more on the compiled one, behind the half that ends first. The exit
# status is 0 if everything passed.
set -uo pipefail
python=.venv/bin/python
waits=(tests/processes tests/python_tests/harness/stress python_tests)
core=(tests/broker_plugin/amqp tests/broker_plugin/embedded tests/ha tests/txobserver)
tester=tests/broker_plugin/amqp/test_amqp_programs.py
said=$(mktemp)
unset PYTHONDONTWRITEBYTECODE  # hundreds of processes are started, and each would compile every module anew
trap 'rm -f "$said"' EXIT

compiled() {
  if "$python" -c 'import sys; from broker_plugin.compiled import available; sys.exit(not available())'; then
    echo "== the tests of the core again, compiled"
    TXHA_CORE=compiled "$python" -m pytest -m "not plain and not fuzz and not slice" --ignore="$tester" "${core[@]}" || return
  elif [ -f build/compiled/fingerprints.json ]; then
    echo "== the compiled core is of other sources, so it is not tested; build it again with make install"
  fi
}

echo "== tests with real processes; those that only compute run beside them and are told afterwards"
"$python" -m pytest tests "${waits[@]/#/--ignore=}" >"$said" 2>&1 &
half=$!
"$python" -m pytest "${waits[@]}"
first=$?
compiled
second=$?
wait "$half"
third=$?
echo "== tests that only compute"
cat "$said"
[ "$first" -eq 0 ] && [ "$second" -eq 0 ] && [ "$third" -eq 0 ]
