#!/usr/bin/env bash
# Docker for real:  bash ops/test.sh containers
#   1. docker-compose.yml: up, healthy, the sp500 example through it, down
#   2. the integration tests against a broker of testcontainers
# A Docker that answers is used as it is, with the official images. Where none does, and this is
# root on Debian, one is installed and started for the time of the test, and all images are built
# from Debian's packages: no image registry is needed. BASE_TAR=FILE reuses a base made before.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
[ -n "${VIRTUAL_ENV:-}" ] && [ "$VIRTUAL_ENV" = "$root/.venv" ] || . ops/env.sh dev
work=$(mktemp -d /tmp/rowmill-containers.XXXXXX)
project=rowmilltest$$
dockerd_pid=
provider=

say() { echo "-- $*"; }

quiet() { # COMMAND...: its output only where it fails
  "$@" > "$work/output.log" 2>&1 || { cat "$work/output.log" >&2; return 1; }
}

clean_up() {
  local code=$?
  trap - EXIT INT TERM
  set +e
  [ -z "$provider" ] || docker rm -f "$provider" >/dev/null 2>&1
  if [ -f "$work/src/docker-compose.yml" ]; then
    [ "$code" = 0 ] || [ -z "$(compose_containers)" ] || (cd "$work/src" && compose logs --tail=40)
    (cd "$work/src" && compose down -v --remove-orphans --timeout 20) >/dev/null 2>&1
  fi
  if [ -n "$dockerd_pid" ]; then
    kill "$dockerd_pid" && wait "$dockerd_pid" 2>/dev/null
    awk -v under="$work/" 'index($2, under) == 1 {print $2}' /proc/mounts | sort -r | xargs -r umount -l
  fi
  rm -rf "$work"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

compose() {
  if docker compose version >/dev/null 2>&1; then docker compose -p "$project" "$@"
  else docker-compose -p "$project" "$@"; fi
}

compose_containers() { docker ps -aq --filter "label=com.docker.compose.project=$project"; }

free_port() { python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

storage_driver() { # vfs copies the whole image for each build step: only where nothing else works
  mkdir -p "$work"/overlay/{lower,upper,work,merged}
  if mount -t overlay overlay -o "lowerdir=$work/overlay/lower,upperdir=$work/overlay/upper,workdir=$work/overlay/work" \
    "$work/overlay/merged" 2>/dev/null; then
    umount "$work/overlay/merged"
    echo overlay2
  else
    echo vfs
  fi
}

own_docker() {
  [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] ||
    { echo "No Docker answers, and one can only be set up as root on Debian. Start Docker first." >&2; exit 3; }
  local package missing=()
  for package in docker.io docker-compose iptables mmdebstrap; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
  export DOCKER_HOST=unix://$work/docker.sock DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0
  dockerd --storage-driver="$(storage_driver)" --data-root "$work/docker" --exec-root "$work/exec" \
    -H "$DOCKER_HOST" --pidfile "$work/docker.pid" > "$work/dockerd.log" 2>&1 &
  dockerd_pid=$!
  local tries
  for tries in $(seq 100); do
    docker info >/dev/null 2>&1 && break
    kill -0 "$dockerd_pid" 2>/dev/null && [ "$tries" != 100 ] ||
      { echo "dockerd did not start:" >&2; tail -n 5 "$work/dockerd.log" >&2; exit 3; }
    sleep 0.2
  done
  say "dockerd $(docker version --format '{{.Server.Version}}') started for this test"
}

own_images() {
  local base=${BASE_TAR:-$work/base.tar}
  if [ ! -f "$base" ]; then
    say "base image from Debian bookworm"
    mmdebstrap --quiet --variant=minbase \
      --include=python3,python3-venv,openjdk-17-jre-headless,postgresql bookworm "$base"
  fi
  docker import "$base" rowmill-base >/dev/null

  say "Kafka and PostgreSQL images"
  mkdir "$work/kafka" "$work/postgres"
  python - "$work/kafka/jars" <<'PYTHON'
import shutil, sys
from pathlib import Path
from rowmill.ops.kafka.jars import class_path
target = Path(sys.argv[1])
target.mkdir()
for jar in class_path(print).split(":"):
    shutil.copy(jar, target)
PYTHON
  cp ops/compose/kafka-entry.sh "$work/kafka"
  cp ops/compose/postgres-entry.sh "$work/postgres"
  export KAFKA_IMAGE=rowmill-kafka:4.1.0 POSTGRES_IMAGE=rowmill-postgres:15
  quiet docker build -q -f ops/compose/kafka.Dockerfile --build-arg BASE_IMAGE=rowmill-base -t "$KAFKA_IMAGE" "$work/kafka"
  quiet docker build -q -f ops/compose/postgres.Dockerfile --build-arg BASE_IMAGE=rowmill-base -t "$POSTGRES_IMAGE" "$work/postgres"

  say "the locked wheels, for a build without a registry"
  local python
  python=$(docker run --rm rowmill-base python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  # A virtual environment that uv made has no pip.
  local pip=(python -m pip)
  "${pip[@]}" --version >/dev/null 2>&1 || pip=(uv run --quiet --no-project --with pip python -m pip)
  "${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version "$python" --require-hashes -r requirements/runtime.lock -d "$work/src/wheels"
  export BASE_IMAGE=rowmill-base PIP_OPTIONS='--no-index --find-links=/src/wheels'
}

healthy() { # SERVICE...: wait until each container's healthcheck passes
  local service id tries
  for service in "$@"; do
    id=$(compose ps -q "$service")
    for tries in $(seq 120); do
      [ "$(docker inspect -f '{{.State.Health.Status}}' "$id")" = healthy ] && break
      [ "$tries" != 120 ] || { echo "$service is not healthy" >&2; exit 1; }
      sleep 1
    done
    say "$service healthy"
  done
}

example_through_compose() {
  cd "$work/src"
  mkdir -p .rowmill/compose
  export ROWMILL_USER="$(id -u):$(id -g)" ROWMILL_IMAGE=rowmill KAFKA_PORT
  KAFKA_PORT=$(free_port)
  say "compose build and up"
  quiet compose build --quiet rows
  quiet compose up -d
  healthy kafka postgres rows dispatch sink
  # In dispatch's network, so that the play's own address of the practice provider holds there.
  provider=$(docker run -d --network "container:$(compose ps -q dispatch)" rowmill provider serve --port 8090 --latency-ms 50)

  say "the sp500 example through it"
  ROWMILL_HOME=$PWD/.rowmill/compose ROWMILL_KAFKA=127.0.0.1:$KAFKA_PORT \
    rowmill run examples/sp500/play.py --input examples/sp500/sp500-constituents.csv \
    --out "$work/out.csv" --json > "$work/run.json"
  cat "$work/run.json"
  python - "$work/run.json" "$work/out.csv" <<'PYTHON'
import csv, json, sys
report = json.loads(open(sys.argv[1]).read().strip().splitlines()[-1])
rows = list(csv.DictReader(open(sys.argv[2], newline="")))
assert report["total"] == report["completed"] == len(rows) == 503, (report, len(rows))
PYTHON
  docker rm -f "$provider" >/dev/null
  provider=
  say "compose down"
  quiet compose down -v --timeout 45
  [ -z "$(compose_containers)" ] || { echo "containers are left after compose down" >&2; return 1; }
  cd "$root"
}

integration_on_testcontainers() {
  say "integration tests, broker: testcontainers, image ${KAFKA_IMAGE:-apache/kafka:4.1.0}"
  env -u ROWMILL_KAFKA ROWMILL_TEST_CONTAINERS=1 TESTCONTAINERS_RYUK_DISABLED=true \
    python -m pytest -q tests/integration --ignore=tests/integration/ops/kafka
}

mkdir "$work/src"
git ls-files -co --exclude-standard -z | tar --null -T - --ignore-failed-read -cf - 2>/dev/null | tar -xf - -C "$work/src"
if docker info >/dev/null 2>&1; then
  say "Docker $(docker version --format '{{.Server.Version}}'), official images"
else
  own_docker
  own_images
fi
example_through_compose
integration_on_testcontainers
say "containers: all passed"
