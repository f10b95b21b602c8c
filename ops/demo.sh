#!/usr/bin/env bash
# 503 real companies through Kafka, Faust and an HTTP provider into a sheet, from a fresh clone.
#   bash ops/demo.sh [arguments of `rowmill run`: --json, --limit 20, --run-id NAME, --out FILE ...]
# Starts the practice provider and what `rowmill run` misses, and stops what it started.
# The exit code is the run's; with --json, standard output is one JSON object.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. ops/env.sh runtime

# How the user started this, for the command that resumes; the run adds its own --run-id.
ROWMILL_AGAIN="bash ops/demo.sh"
skip=''
for argument in "$@"; do
  if [ -n "$skip" ]; then skip=''; continue; fi
  case "$argument" in
    --run-id) skip=1 ;;
    --run-id=*) ;;
    *) ROWMILL_AGAIN+=$(printf ' %q' "$argument") ;;
  esac
done
export ROWMILL_AGAIN

mkdir -p "$ROWMILL_HOME"
provider_log="$ROWMILL_HOME/demo-provider.log"
echo "starting the practice provider on a free port, 50 ms a call ..." >&2
# Its own process group: on Ctrl-C the run still needs it to end its open calls.
set -m
rowmill provider serve --port 0 --latency-ms 50 > "$provider_log" 2>&1 < /dev/null &
provider=$!
set +m
trap 'kill "$provider" 2>/dev/null || true; wait "$provider" 2>/dev/null || true' EXIT

url=''
for _ in $(seq 300); do
  url=$(grep -o 'http://127\.0\.0\.1:[0-9]*' "$provider_log" | head -n 1) || true
  [ -z "$url" ] && kill -0 "$provider" 2>/dev/null || break
  sleep 0.05
done
if [ -z "$url" ]; then
  cat "$provider_log" >&2
  echo "The practice provider did not start; its output is above." >&2
  exit 3
fi

# In the foreground: Ctrl-C reaches the run, which pauses, says how to resume, and exits with 130.
code=0
rowmill run examples/sp500/play.py --input examples/sp500/sp500-constituents.csv \
  --param "base_url=$url" --out "$ROWMILL_HOME/sp500-enriched.csv" "$@" || code=$?
exit "$code"
