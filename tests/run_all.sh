#!/usr/bin/env bash
# The linters and the whole suite in six lanes side by side: four of what mostly waits, for real processes or for time,
# and two of what computes, which make room for the others. Where the core is compiled, from these sources, its own tests
# run on the compiled one, and plain only those that the compiled one cannot take. The exit status is 0 if everything
# passed.
set -uo pipefail
. tests/lanes.sh
processes=(tests/processes)
commands=(tests/python_tests/harness/commands tests/python_tests/harness/stress tests/broker_plugin/cli tests/packaging)
parts=(tests/broker_plugin/coordination tests/broker_plugin/node)
# python_tests comes last: its cluster runs on to the end of the lane.
clients=(tests/recovery/pipeline python_tests)
core=(tests/broker_plugin/amqp tests/broker_plugin/embedded tests/ha tests/txobserver)

computes() {
  local status=0 waits=("${processes[@]}" "${commands[@]}" "${clients[@]}" "${parts[@]}")
  make --no-print-directory lint || status=1
  "$python" -m pytest tests "${waits[@]/#/--ignore=}" "${core[@]/#/--ignore=}" || status=1
  return "$status"
}

of_the_core() {
  local status=0
  if compiled; then
    echo "== the tests of the core, compiled"
    TXHA_CORE=compiled "$python" -m pytest -m "not plain and not fuzz and not slice and not every" "${core[@]}" || status=1
    echo "== those of them that only the plain core can take"
    "$python" -m pytest -m "(plain or fuzz) and not slice and not every" "${core[@]}" || status=1
  else
    echo "== the tests of the core; it is not compiled from these sources (make install does that)"
    "$python" -m pytest "${core[@]}" || status=1
  fi
  return "$status"
}

lane "clients of real nodes, Spark" "$python" -m pytest "${clients[@]}"
lane "commands, packages" "$python" -m pytest "${commands[@]}"
lane "parts of nodes, coordination stores" "$python" -m pytest "${parts[@]}"
computing "what computes" computes
computing "the core" of_the_core
shown "real nodes; the other lanes are told afterwards" "$python" -m pytest "${processes[@]}"
lanes_end
