#!/usr/bin/env bash
# Fixed slices of the long runs in four lanes side by side: three of what waits for real processes, and what computes. The
# slices of the core run on the compiled one, where that is built. The exit status is 0 if everything passed.
set -uo pipefail
. tests/lanes.sh
core=(tests/broker_plugin/amqp tests/ha)
rest=(tests/simulation tests/recovery/store)
spark=(python_tests/suites/spark_queues)
stress=(tests/python_tests/harness/commands)

computes() {
  local status=0 core_of=pure
  compiled && core_of=compiled
  TXHA_CORE=$core_of "$python" -m pytest -m slice "${core[@]}" || status=1
  "$python" -m pytest -m slice "${rest[@]}" || status=1
  return "$status"
}

computing "recorded programs, each step of a copy, seeds and seeded faults, each page of a damaged store" computes
others=("${core[@]}" "${rest[@]}" "${spark[@]}" "${stress[@]}")
lane "queues on Spark" "$python" -m pytest -m slice "${spark[@]}"
lane "rounds of stress" "$python" -m pytest -m slice "${stress[@]}"
shown "real processes; the other lanes are told afterwards" \
  "$python" -m pytest -m slice tests python_tests "${others[@]/#/--ignore=}"
lanes_end
