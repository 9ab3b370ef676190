# Sourced by run_all.sh and run_slices.sh: several runs of tests side by side. One is shown as it goes, and of the others
# what they said is shown in the end.
#
# Each lane of real processes has a network of its own, where this user may make one (root may): no lane can take the port
# that another has found to be free. What computes is nice to what waits: a node that has to wait for a
# processor would lose its lease.
python=.venv/bin/python
export PYTEST_ADDOPTS="--durations=15 --durations-min=5 ${PYTEST_ADDOPTS:-}"
unset PYTHONDONTWRITEBYTECODE  # hundreds of processes are started, and each would compile every module anew
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
names=() pids=() status=0

compiled() { # whether the core is, from these sources
  "$python" -c 'import sys; from broker_plugin.compiled import available; sys.exit(not available())'
}

apart() { # a command in a network of its own, unless it needs servers that others run
  if [ -z "${TXHA_AMQP_URL:-}${TXHA_TEST_SERVERS:-}" ] && unshare --net true 2>/dev/null; then
    unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$@"
  else
    "$@"
  fi
}

told() { # name, process: to be shown in the end
  names+=("$1") pids+=("$2")
}

timed() { # name, command: says how long it took
  local from=$SECONDS status=0
  "${@:2}" || status=$?
  echo "== $1: $((SECONDS - from)) s"
  return "$status"
}

lane() { # name, command: beside the others
  timed "$1" apart "${@:2}" >"$said/${#names[@]}" 2>&1 &
  told "$1" $!
}

computing() { # name, function: the same, with a lower priority and in the network of the machine
  (renice -n 5 "$BASHPID" >/dev/null; timed "$1" "$2") >"$said/${#names[@]}" 2>&1 &
  told "$1" $!
}

shown() { # name, command: as it goes
  echo "== $1"
  timed "$1" apart "${@:2}" || status=1
}

lanes_end() { # wait for all, show them, and end
  local at
  for at in "${!names[@]}"; do
    wait "${pids[at]}" || status=1
    echo "== ${names[at]}"
    cat "$said/$at"
  done
  exit "$status"
}
