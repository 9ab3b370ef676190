#!/usr/bin/env bash
# Fixed slices of the long runs in six lanes side by side: four of what waits for real processes, and two of what
# computes. The slices of the core run on the compiled one, where that is built. The exit status is 0 if everything
# passed.
set -uo pipefail
. tests/lanes.sh
core=(tests/broker_plugin/amqp tests/ha)
rest=(tests/simulation tests/recovery/store)
rounds=(tests/python_tests/harness/commands tests/python_tests/harness/stress)
commands=(tests/broker_plugin/cli tests/packaging)
clients=(tests/recovery/pipeline python_tests)

of_the_core() {
  local core_of=pure
  compiled && core_of=compiled
  TXHA_CORE=$core_of "$python" -m pytest -m "$slice" "${core[@]}"
}

simulates() {
  "$python" -m pytest -m "$slice" "${rest[@]}"
}

slice="slice and not every"
computing "recorded programs, each step of a copy" of_the_core
computing "seeds and seeded faults, each page of a damaged store" simulates
others=("${core[@]}" "${rest[@]}" "${clients[@]}" "${rounds[@]}" "${commands[@]}")
lane "clients of real nodes, Spark" "$python" -m pytest -m "$slice" "${clients[@]}"
lane "rounds of stress" "$python" -m pytest -m "$slice" "${rounds[@]}"
lane "commands, packages" "$python" -m pytest -m "$slice" "${commands[@]}"
shown "real processes; the other lanes are told afterwards" \
  "$python" -m pytest -m "$slice" tests "${others[@]/#/--ignore=}"
lanes_end
