#!/usr/bin/env bash
# A TVM of your own, with the example NPU and what you ask for built in, in a virtual environment
# with the kit.
#
#   scripts/build_tvm.sh --source DIR [options]
#
#   --source DIR      source tree of Apache TVM, with its submodules
#   --cuda            with CUDA (nvcc must be there)
#   --tensorrt DIR    with TensorRT 10, unpacked in DIR; needs --cuda
#   --llvm CONFIG     llvm-config of LLVM 15 or newer (llvm-config); OFF: without code for CPUs
#   --jobs N          compilers at once (all cores)
#   --venv DIR        the virtual environment (.venv-tvm)
#   --configure-only  check, and run CMake's configure step, which takes seconds
#   --dry-run         check, and print the commands
#
#   PYTHON            interpreter to use (python3)
#   SETUPTOOLS_SCM_PRETEND_VERSION_FOR_APACHE_TVM
#                     version of a source tree that does not say which it is
set -euo pipefail
kit=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=env.sh
source "$kit/scripts/env.sh"

# Everything of TVM's build that the kit's users may ask for: CMake options, without -D.
defines=(USE_EXAMPLE_NPU_CODEGEN=ON USE_EXAMPLE_NPU_RUNTIME=ON HIDE_PRIVATE_SYMBOLS=ON)
# What runs on the built TVM, beside TVM itself.
tools=("cmake>=3.26" ninja scikit-build-core ml_dtypes numpy onnx onnxruntime pytest pytest-timeout
  rich typer typing_extensions)
smoke_tests=(tests/integration/test_custom_tvm.py)

# ---------------------------------------------------------------- the command line

read_arguments() {
  source_dir='' cuda='' tensorrt='' llvm=llvm-config jobs=$(nproc) venv=.venv-tvm dry_run='' until=''
  while (($#)); do
    case $1 in
      --cuda) cuda=1 ;;
      --configure-only) until=configure ;;
      --dry-run) dry_run=1 ;;
      --source | --tensorrt | --llvm | --jobs | --venv)
        (($# > 1)) || fail "$1 needs a value; see the head of $0"
        case $1 in
          --source) source_dir=$2 ;;
          --tensorrt) tensorrt=$2 ;;
          --llvm) llvm=$2 ;;
          --jobs) jobs=$2 ;;
          --venv) venv=$2 ;;
        esac
        shift
        ;;
      *) fail "unknown argument $1; see the head of $0" ;;
    esac
    shift
  done
  [[ -n $source_dir ]] || fail "--source DIR is missing: $clone, then name it"
  [[ $jobs =~ ^[1-9][0-9]*$ ]] || fail "--jobs $jobs: expected a number from 1 on"
  venv=$(realpath -m "$venv")
}

clone='git clone --recursive https://github.com/apache/tvm'

# ---------------------------------------------------------------- what must be there

check_source() {
  grep -qs '^project(tvm ' "$source_dir/CMakeLists.txt" ||
    fail "$source_dir is no source tree of Apache TVM; $clone"
  source_dir=$(cd "$source_dir" && pwd)
  check_version
  local file
  for file in CMakeLists.txt 3rdparty/dlpack/include/dlpack/dlpack.h \
    3rdparty/libbacktrace/backtrace.h; do
    [[ -f $source_dir/3rdparty/tvm-ffi/$file ]] ||
      fail "3rdparty/tvm-ffi/$file is missing:" \
        "git -C $source_dir submodule update --init --recursive 3rdparty/tvm-ffi"
  done
}

# The minor version that the kit works with, from its own requirement.
check_version() {
  local wanted found
  wanted=$(sed -n 's/^ *"apache-tvm>=\([0-9.]*\),.*/\1/p' "$kit/pyproject.toml")
  found=${SETUPTOOLS_SCM_PRETEND_VERSION_FOR_APACHE_TVM:-}
  if [[ -z $found && -e $source_dir/.git ]]; then
    found=$(git -C "$source_dir" describe --tags --match 'v*' 2> /dev/null || true)
  fi
  [[ -n $found ]] ||
    fail "$source_dir does not say its version: git -C $source_dir fetch --tags, or name it:" \
      "export SETUPTOOLS_SCM_PRETEND_VERSION_FOR_APACHE_TVM=$wanted.0"
  [[ ${found#v} == "$wanted".* ]] ||
    fail "$source_dir is TVM ${found#v}, the kit works with $wanted:" \
      "git -C $source_dir checkout --recurse-submodules v$wanted.0"
  echo "TVM ${found#v} in $source_dir"
}

# is_older <version> <minimum>
is_older() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n1) != "$2" ]]; }

check_tools() {
  check_machine
  local version
  version=$(cmake --version 2> /dev/null | sed -n 's/^cmake version //p' || true)
  [[ -n $version ]] || fail 'cmake not found: pip install "cmake>=3.26"'
  ! is_older "$version" 3.26 ||
    fail "cmake is $version, TVM needs 3.26: pip install \"cmake>=3.26\""
  command -v ninja > /dev/null || fail 'ninja not found: pip install ninja'
}

check_llvm() {
  [[ $llvm != OFF ]] || return 0
  local command version
  read -r command _ <<< "$llvm" # options may follow
  version=$("$command" --version 2> /dev/null || true)
  [[ -n $version ]] ||
    fail "$command does not run; on Debian or Ubuntu: apt install llvm-dev, or --llvm OFF for a" \
      "TVM without code for CPUs"
  ! is_older "$version" 15 ||
    fail "$command is LLVM $version, TVM needs 15; on Debian or Ubuntu: apt install llvm-15-dev," \
      "then --llvm llvm-config-15"
}

check_cuda() {
  [[ -n $cuda ]] || return 0
  command -v nvcc > /dev/null ||
    fail "nvcc not found: install https://developer.nvidia.com/cuda-downloads, with its bin on PATH"
}

check_tensorrt() {
  [[ -n $tensorrt ]] || return 0
  local get="unpack TensorRT 10 from https://developer.nvidia.com/tensorrt and name that folder"
  [[ -n $cuda ]] || fail "--tensorrt needs --cuda too"
  [[ -f $tensorrt/include/NvInfer.h && -e $tensorrt/lib/libnvinfer.so ]] ||
    fail "$tensorrt has no include/NvInfer.h and lib/libnvinfer.so: $get"
  local major
  major=$(sed -nE 's/^#define (NV_TENSORRT_MAJOR|TRT_MAJOR_ENTERPRISE) ([0-9]+).*/\2/p' \
    "$tensorrt/include/NvInferVersion.h" | head -n1)
  [[ $major == 10 ]] ||
    fail "$tensorrt has TensorRT ${major:-of an unknown version}, TVM's runtime is for 10: $get"
  tensorrt=$(cd "$tensorrt" && pwd)
}

# ---------------------------------------------------------------- the build

# step <what> <command...>: print the command, and run it unless this is a dry run.
step() {
  local what=$1 log
  shift
  printf '+'
  printf ' %q' "$@"
  echo
  [[ -z $dry_run ]] || return 0
  log=$venv/log/${what// /-}.log
  mkdir -p "$venv/log"
  "$@" > "$log" 2>&1 || fail "$what failed: $(first_error "$log") (all of it: $log)"
}

# first_error <log>: the line that says most; pip's own, of a process that failed, says nothing.
first_error() { grep -i error "$1" | grep -v subprocess-exited | sed 's/^ *//' | head -n1 || true; }

add_defines() {
  defines+=("USE_LLVM=$llvm")
  [[ -z $cuda ]] || defines+=(USE_CUDA=ON)
  [[ -z $tensorrt ]] ||
    defines+=(USE_TENSORRT_CODEGEN=ON "USE_TENSORRT_RUNTIME=$tensorrt")
}

build() {
  local pip=("$venv/bin/pip" install --quiet --disable-pip-version-check)
  # By itself first: what is wrong shows in seconds.
  step "configuring" cmake -G Ninja -S "$source_dir" -B "$venv/configured" "${defines[@]/#/-D}"
  [[ -z $until ]] || return 0
  step "making the environment" "$PYTHON" -m venv "$venv"
  step "installing the tools" "${pip[@]}" --constraint "$kit/scripts/constraints.txt" "${tools[@]}"
  step "building tvm-ffi" "${pip[@]}" --no-deps "$source_dir/3rdparty/tvm-ffi"
  step "building TVM" env "CMAKE_BUILD_PARALLEL_LEVEL=$jobs" "${pip[@]}" --no-deps \
    --config-settings="build-dir=$venv/build" \
    "${defines[@]/#/--config-settings=cmake.define.}" "$source_dir"
  # Against this tvm-ffi, whatever the kit's own pin says: ABIs of two of them may differ.
  step "building the kit" env TVM_BYOC_REQUIRE_PLUGIN=1 "${pip[@]}" --no-deps \
    --no-build-isolation "$kit"
  step "testing" "$venv/bin/python" -m pytest --rootdir "$kit" --config-file "$kit/pyproject.toml" \
    "${smoke_tests[@]/#/$kit/}"
}

read_arguments "$@"
check_source
check_tools
check_llvm
check_cuda
check_tensorrt
add_defines
build
[[ -n $dry_run$until ]] || echo "Done: source $venv/bin/activate"
