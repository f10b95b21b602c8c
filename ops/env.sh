# Sourced by the scripts beside it: . ops/env.sh [runtime|dev]
# Leaves an up-to-date .venv first in PATH and ROWMILL_HOME set. Says what it does on stderr.
# Quick when nothing changed: a stamp keeps the digest of what was installed.

rowmill_env() { # runtime|dev
  local root kind=$1 venv stamp digest
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || return
  venv="$root/.venv"
  stamp="$venv/.installed-$kind"
  export ROWMILL_HOME="${ROWMILL_HOME:-$root/.rowmill}"
  export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
  # Without bytecode every process compiles all it imports anew, half of a worker's start.
  unset PYTHONHOME PYTHONDONTWRITEBYTECODE

  digest=$(cat "$root/pyproject.toml" "$root/requirements/$kind.lock" | cksum)
  [ -x "$venv/bin/rowmill" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ] && return 0
  rowmill_venv "$venv" || return
  echo "installing the $kind set into .venv ..." >&2
  rowmill_install "$venv" --require-hashes -r "$root/requirements/$kind.lock" || return
  # Its dependencies are in, its build backend too: nothing else is fetched.
  rowmill_install "$venv" --no-deps --no-build-isolation -e "$root" || return
  echo "$digest" > "$stamp"
}

rowmill_venv() { # VENV: make it unless it is there and works
  "$1/bin/python" -c '' 2>/dev/null && return 0
  local python
  for python in python3 python3.13 python3.12 python3.11 ''; do
    if [ -z "$python" ]; then
      echo "Rowmill needs Python 3.11 or later as python3; found: $(python3 --version 2>/dev/null || echo none)." >&2
      return 3
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
  done
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    command -v uv >/dev/null || { echo "$python can't make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; return 3; }
    uv venv --quiet --clear --python "$python" "$1" || return 3
    return 0
  fi
  echo "making .venv with $("$python" --version 2>&1) ..." >&2
  "$python" -m venv --clear "$1" || return 3
}

rowmill_install() { # VENV ARGUMENTS OF pip install...
  local venv=$1 root
  shift
  root=$(dirname "$venv")
  # uv installs four times as fast as pip; it comes from the same registry.
  if ! command -v uv >/dev/null; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
      --require-hashes -r "$root/requirements/uv.lock" >/dev/null 2>&1 || echo "no uv; going on with pip" >&2
  fi
  if command -v uv >/dev/null; then
    uv pip install --quiet --python "$venv/bin/python" "$@" >&2
  else
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
  fi || { echo "The install failed (network?); run the same command again." >&2; return 3; }
}

# Sourced without an argument, $1 is the caller's own: only our two words count.
case "${1:-}" in
  dev) rowmill_env dev ;;
  *) rowmill_env runtime ;;
esac
