#!/usr/bin/env bash
# The whole suite in two halves side by side: what computes, and what mostly waits for real processes. Where the core is
# compiled, from these sources, its own tests run on the compiled one, and plain only those that the compiled one cannot
# take. The exit status is 0 if everything passed.
set -uo pipefail
python=.venv/bin/python
waits=(tests/processes tests/python_tests/harness/commands tests/python_tests/harness/stress python_tests)
core=(tests/broker_plugin/amqp tests/broker_plugin/embedded tests/ha tests/txobserver)
said=$(mktemp)
unset PYTHONDONTWRITEBYTECODE  # hundreds of processes are started, and each would compile every module anew
trap 'rm -f "$said"' EXIT

computes() {
  local status=0
  "$python" -m pytest tests "${waits[@]/#/--ignore=}" "${core[@]/#/--ignore=}" || status=1
  if "$python" -c 'import sys; from broker_plugin.compiled import available; sys.exit(not available())'; then
    echo "== the tests of the core, compiled"
    TXHA_CORE=compiled "$python" -m pytest -m "not plain and not fuzz and not slice" "${core[@]}" || status=1
    echo "== those of them that only the plain core can take"
    "$python" -m pytest -m "(plain or fuzz) and not slice" "${core[@]}" || status=1
  else
    echo "== the tests of the core; it is not compiled from these sources (make install does that)"
    "$python" -m pytest "${core[@]}" || status=1
  fi
  return "$status"
}

echo "== tests with real processes; those that only compute run beside them and are told afterwards"
computes >"$said" 2>&1 &
half=$!
"$python" -m pytest "${waits[@]}"
first=$?
wait "$half"
second=$?
echo "== tests that only compute"
cat "$said"
[ "$first" -eq 0 ] && [ "$second" -eq 0 ]
