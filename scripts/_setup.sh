# shellcheck shell=bash
# Set-up that the scripts beside this file share; source it from the repository's root.

die() { # MESSAGE…
  printf '%s\n' "${0##*/}: $*" >&2
  exit 1
}

is_new_enough() { # PYTHON
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13 python3.14 python; do
    if is_new_enough "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "needs Python 3.11 or newer, and none of python3.11, python3 and python is that." \
    "Install it, or name it: PYTHON=/path/to/python3.11 $0"
}

# Makes .venv. One that cannot be used (half made, its Python gone, or moved from another folder) is made anew.
make_environment() {
  if [[ -f .venv/.folder && $(<.venv/.folder) == "$PWD" ]] && is_new_enough .venv/bin/python; then
    return
  fi
  # Making it anew would empty the folder behind the link, which is somebody else's.
  [[ ! -L .venv ]] || die ".venv is a link to $(readlink .venv), which was made for another folder." "Remove the link: rm .venv"
  local python
  python=$(find_python) || exit
  echo "Making .venv with $("$python" --version) …" >&2
  "$python" -m venv --clear .venv || die "$python cannot make a virtual environment." \
    "Where the system packages Python in parts, the part with venv and pip is missing."
  printf '%s\n' "$PWD" >.venv/.folder
}

# Installs dragoman, editable, with one of its sets: server, or dev (which holds all of server). Does nothing when that was
# done before and neither pyproject.toml nor constraints.txt changed since, so that a second run starts at once.
install_set() { # SET
  local set=$1 log=.venv/install.log state
  make_environment
  state=$(cat pyproject.toml constraints.txt | cksum)
  for stamp in .venv/.installed-"$set" .venv/.installed-dev; do
    [[ -f $stamp && $(<"$stamp") == "$state" ]] && return
  done
  echo "Installing dragoman[$set] into .venv; the first time takes minutes (log: $log) …" >&2
  if ! .venv/bin/python -m pip install --disable-pip-version-check --prefer-binary --no-input \
    --constraint constraints.txt --editable ".[$set]" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "the installation failed; the whole log is $log"
  fi
  rm -f .venv/.installed-*
  printf '%s\n' "$state" >.venv/.installed-"$set"
}
