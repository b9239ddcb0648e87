# Sourced by the other scripts: makes a virtual environment with this checkout installed.
# shellcheck shell=bash

# fail <message>: stop with the message on stderr.
fail() {
  echo "error: $*" >&2
  exit 1
}

# check_machine: what pip cannot install must be here; say how to add it.
check_machine() {
  command -v "$PYTHON" > /dev/null ||
    fail "$PYTHON not found; on Debian or Ubuntu: apt install python3 python3-venv"
  "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' ||
    fail "$PYTHON is $("$PYTHON" --version); Python 3.10 to 3.13 is needed," \
      "choose one with PYTHON=/path/to/python"
  "$PYTHON" -c 'import ensurepip, venv' 2> /dev/null ||
    fail "$PYTHON has no venv module; on Debian or Ubuntu: apt install python3-venv"
  command -v "${CXX:-c++}" > /dev/null || command -v g++ > /dev/null ||
    command -v clang++ > /dev/null ||
    fail "no C++ compiler; on Debian or Ubuntu: apt install g++"
}

# make_env <directory> <extras>: the environment, with the versions of constraints.txt.
make_env() {
  local venv=$1 extras=$2
  check_machine
  [[ -x $venv/bin/pip ]] || "$PYTHON" -m venv "$venv"
  echo "Installing tvm-byoc-kit[$extras] into $venv"
  # A plugin that does not compile is an error here, not a reason to install without it.
  TVM_BYOC_REQUIRE_PLUGIN=1 "$venv/bin/pip" install --quiet --disable-pip-version-check \
    --constraint scripts/constraints.txt ".[$extras]"
}

PYTHON=${PYTHON:-python3}
