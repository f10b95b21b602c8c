#!/usr/bin/env bash
# The one door to all checks:  bash ops/test.sh [STAGE [OPTION ...] ...]
#   lint types unit property simulation fuzz integration faults docs   what runs without a name, in this order
#   containers                                         Docker: compose and testcontainers, for real
#   simulation --seeds 1000000 [--from N] [--jobs J]   its long form
#   faults --seeds 300 [--from N] [--jobs J]           its long form: seeds of faults, by hand
# Each stage's time is printed. The exit code is 0 only if every stage passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stages=()
declare -A options # of a stage: what follows its name, up to the next one
for word in "$@"; do
  case "$word" in
    -* | [0-9]*)
      [ ${#stages[@]} -gt 0 ] || { echo "$word: an option stands after its stage, as in: faults --seeds 300" >&2; exit 2; }
      options[${stages[-1]}]+="$word "
      ;;
    *) stages+=("$word") ;;
  esac
done
. ops/env.sh dev
[ ${#stages[@]} -gt 0 ] || stages=(lint types unit property simulation fuzz integration faults docs)

lint() {
  ruff check . && ruff format --check . && codespell && lint-imports --no-cache
}

types() {
  mypy && mypy examples/*/*.py
}

run_tests() { # ARGUMENTS of pytest: its exit 5, no test found, is a folder that waits for its first
  local code=0
  pytest -q "$@" || code=$?
  [ "$code" = 5 ] || return "$code"
}

tests() { # FOLDER ARGUMENTS
  local folder="tests/$1"
  shift
  [ ! -d "$folder" ] || run_tests "$folder" "$@"
}

unit() { tests unit -n 2; }
# Any input at every door, 20,000 times each; ROWMILL_TEST_FUZZ=1000000 by hand.
fuzz() { tests fuzz -n 2 --dist worksteal; }
property() { tests property && tests conformance; }
# Dispatch's real code in simulated worlds: 10,000 seeds, and the bugs planted in it.
simulation() {
  # shellcheck disable=SC2086 # words, not one
  python -m tests.simulation ${options[simulation]:---seeds 10000} && { [ -n "${options[simulation]:-}" ] || tests simulation -n 2; }
}
# Mostly waiting for processes to start and die, so more of them than cores; each has its own broker.
integration() { say_broker && tests integration -n 4 --dist worksteal; }
faults() {
  say_broker
  # shellcheck disable=SC2086 # words, not one
  if [ -n "${options[faults]:-}" ]; then python -m tests.faults ${options[faults]}; else tests faults -n 3 --dist worksteal; fi
}
docs() { run_tests --doctest-modules rowmill && tests docs; }
containers() { bash ops/compose/containers.sh; }

say_broker() {
  if [ -n "${ROWMILL_KAFKA:-}" ]; then
    echo "broker: the cluster that ROWMILL_KAFKA names, $ROWMILL_KAFKA"
  else
    echo "broker: embedded, Apache Kafka $(python -c 'from rowmill.ops.kafka.jars import KAFKA_VERSION as v; print(v)')"
  fi
}

failed=()
summary=()
for stage in "${stages[@]}"; do
  case "$stage" in
    lint | types | unit | property | simulation | fuzz | integration | faults | docs | containers) ;;
    *) echo "no stage \"$stage\": lint types unit property simulation fuzz integration faults docs containers" >&2; exit 2 ;;
  esac
  echo "== $stage"
  began=$SECONDS
  if "$stage"; then outcome=passed; else outcome=FAILED; failed+=("$stage"); fi
  summary+=("$(printf '%-12s %s %4d s' "$stage" "$outcome" $((SECONDS - began)))")
done
echo "=="
printf '%s\n' "${summary[@]}"
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]} ($SECONDS s)"; exit 1; }
echo "all passed ($SECONDS s)"
