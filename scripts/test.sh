#!/usr/bin/env bash
# The whole test suite, in an environment of its own.  Arguments are passed on to pytest.
#
#   PYTHON      interpreter to use (python3)
#   BYOC_VENV   where the virtual environment is made and found again (.venv-test)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

venv=$(realpath -m "${BYOC_VENV:-.venv-test}")
make_env "$venv" test
# On PATH: the tests call cmake and tvm-byoc as a user would.
export PATH="$venv/bin:$PATH"
exec pytest --numprocesses auto --dist loadscope "$@"
