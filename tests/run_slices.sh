#!/usr/bin/env bash
# Fixed slices of the long runs in two halves side by side, as tests/run_all.sh: what computes, and what waits for real
# processes. The exit status is 0 if everything passed.
set -uo pipefail
said=$(mktemp)
unset PYTHONDONTWRITEBYTECODE  # as tests/run_all.sh
trap 'rm -f "$said"' EXIT
computes=(tests/simulation tests/ha tests/recovery/store)
.venv/bin/python -m pytest -m slice "${computes[@]}" >"$said" 2>&1 &
half=$!
.venv/bin/python -m pytest -m slice "${computes[@]/#/--ignore=}"
first=$?
wait "$half"
second=$?
echo "== the simulator's seeds and seeded faults, each step of a copy, each page of a damaged store"
cat "$said"
[ "$first" -eq 0 ] && [ "$second" -eq 0 ]
