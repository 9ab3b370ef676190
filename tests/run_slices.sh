#!/usr/bin/env bash
# Fixed slices of the long runs in two halves side by side, as tests/run_all.sh: what computes, and what waits for real
# processes. The exit status is 0 if everything passed.
set -uo pipefail
said=$(mktemp)
trap 'rm -f "$said"' EXIT
.venv/bin/python -m pytest -m slice tests/simulation >"$said" 2>&1 &
half=$!
.venv/bin/python -m pytest -m slice --ignore=tests/simulation
first=$?
wait "$half"
second=$?
echo "== seeded faults of the simulator"
cat "$said"
[ "$first" -eq 0 ] && [ "$second" -eq 0 ]
