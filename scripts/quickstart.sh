#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine with Python and a C++ compiler to a trained model that runs
# on the example NPU.  Arguments are passed on to `tvm-byoc quickstart`.
#
#   PYTHON      interpreter to use (python3)
#   BYOC_VENV   where the virtual environment is made and found again (.venv-quickstart)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/env.sh

venv=${BYOC_VENV:-.venv-quickstart}
make_env "$venv" onnx
exec "$venv/bin/tvm-byoc" quickstart "$@"
