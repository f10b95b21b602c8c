#!/usr/bin/env bash
# Writes the lock files again from pyproject.toml: bash ops/lock.sh [--upgrade]
# Hashes, for every platform and Python that the project supports; no registry is named in them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. ops/env.sh dev

lock() { # FILE ARGUMENTS...
  local file="requirements/$1"
  shift
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header --no-annotate "$@" --output-file "$file"
}
lock runtime.lock pyproject.toml --extra embedded --group build "${@}"
lock dev.lock pyproject.toml --extra embedded --group build --group dev \
  --constraint requirements/runtime.lock "${@}"
lock uv.lock requirements/uv.in "${@}"
