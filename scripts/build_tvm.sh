#!/usr/bin/env bash
# A TVM of your own, with the example NPU and what you ask for built in, in a virtual environment
# with the kit.
#
#   scripts/build_tvm.sh --source DIR [options] [-- -DNAME=VALUE ...]
#
#   --source DIR      source tree of Apache TVM, with its submodules
#   --cuda            with CUDA (nvcc must be there)
#   --tensorrt DIR    with TensorRT 10, unpacked in DIR; needs --cuda
#   --llvm CONFIG     llvm-config of LLVM 15 or newer (llvm-config); OFF: without code for CPUs
#   --jobs N          compilers at once (all cores)
#   --venv DIR        the virtual environment (.venv-tvm)
#   --configure-only  check, and run CMake's configure step, which takes seconds
#   --dry-run         check, and print the commands
#   -- -DNAME=VALUE   further options for TVM's CMake, such as -DUSE_VULKAN=ON; they win
#
#   PYTHON            interpreter to use (python3)
#   SETUPTOOLS_SCM_PRETEND_VERSION_FOR_APACHE_TVM, ..._APACHE_TVM_FFI
#                     versions of a source tree that does not say which they are
set -euo pipefail
kit=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=env.sh
source "$kit/scripts/env.sh"

# CMake options of TVM's build; what follows "--" is added, and wins. Z3 is off: the library that
# TVM takes from PyPI, mlc-z3-static, needs the libstdc++ of GCC 14, which shows in the last link.
declare -A defines=([USE_EXAMPLE_NPU_CODEGEN]=ON [USE_EXAMPLE_NPU_RUNTIME]=ON
  [HIDE_PRIVATE_SYMBOLS]=ON [USE_Z3]=OFF)
# What runs on the built TVM, beside TVM itself.
tools=(ml_dtypes numpy onnx onnxruntime pytest pytest-timeout rich typer typing_extensions)
# What builds TVM and the kit. Not from a folder that pip makes anew each time (its "isolation"):
# the paths in there would be other ones after an interrupted build, and everything built again.
builders=("cmake>=3.26" ninja "scikit-build-core>=0.11" "setuptools-scm>=8" "cython>=3.2.8")
smoke_tests=(tests/integration/test_custom_tvm.py)

# ---------------------------------------------------------------- the command line

read_arguments() {
  source_dir='' cuda='' tensorrt='' llvm=llvm-config jobs=$(nproc) venv=.venv-tvm
  dry_run='' until='' extra=()
  while (($#)); do
    case $1 in
      --)
        extra=("${@:2}")
        break
        ;;
      -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit
        ;;
      --cuda) cuda=1 ;;
      --configure-only) until=configure ;;
      --dry-run) dry_run=1 ;;
      --source | --tensorrt | --llvm | --jobs | --venv)
        (($# > 1)) || fail "$1 needs a value; see $0 --help"
        case $1 in
          --source) source_dir=$2 ;;
          --tensorrt) tensorrt=$2 ;;
          --llvm) llvm=$2 ;;
          --jobs) jobs=$2 ;;
          --venv) venv=$2 ;;
        esac
        shift
        ;;
      *) fail "unknown argument $1; see $0 --help" ;;
    esac
    shift
  done
  [[ -n $source_dir ]] || fail "--source DIR is missing: $clone, then name it"
  [[ -n $venv ]] || fail "--venv needs a value; see $0 --help"
  [[ $jobs =~ ^[1-9][0-9]*$ ]] || fail "--jobs $jobs: expected a number from 1 on"
  venv=$(realpath -m "$venv")
}

clone='git clone --recursive https://github.com/apache/tvm'

# ---------------------------------------------------------------- what must be there

check_source() {
  grep -qs '^project(tvm ' "$source_dir/CMakeLists.txt" ||
    fail "$source_dir is no source tree of Apache TVM; $clone"
  source_dir=$(cd "$source_dir" && pwd)
  no_space "$source_dir" "move it"
  check_version
  local file wanted ffi=$source_dir/3rdparty/tvm-ffi
  for file in CMakeLists.txt 3rdparty/dlpack/include/dlpack/dlpack.h \
    3rdparty/libbacktrace/backtrace.h; do
    [[ -f $ffi/$file ]] ||
      fail "3rdparty/tvm-ffi/$file is missing:" \
        "git -C $source_dir submodule update --init --recursive 3rdparty/tvm-ffi"
  done
  # The oldest that this TVM works with is the one of its tree.
  wanted=$(sed -n 's/^ *"apache-tvm-ffi>=\([0-9a-z.]*\)".*/\1/p' "$source_dir/pyproject.toml")
  read_version "$ffi" SETUPTOOLS_SCM_PRETEND_VERSION_FOR_APACHE_TVM_FFI "$wanted"
}

# no_space <path> <remedy>: tvm-ffi's libbacktrace is built by autotools, which cannot.
no_space() { [[ $1 != *[[:space:]]* ]] || fail "$1 has spaces, which TVM's build cannot take: $2"; }

# The minor version that the kit works with, from its own requirement.
check_version() {
  local wanted
  wanted=$(sed -n 's/^ *"apache-tvm>=\([0-9.]*\),.*/\1/p' "$kit/pyproject.toml")
  read_version "$source_dir" SETUPTOOLS_SCM_PRETEND_VERSION_FOR_APACHE_TVM "$wanted.0"
  [[ $version == "$wanted".[0-9]* ]] || # not .dev0, which lacks what the release has
    fail "$source_dir is TVM $version, the kit works with $wanted:" \
      "git -C $source_dir checkout --recurse-submodules v$wanted.0"
  echo "TVM $version in $source_dir"
}

# read_version <tree> <variable> <likely version>: $version, from the variable or from git's tags.
read_version() {
  version=${!2:-}
  if [[ -z $version && -e $1/.git ]]; then
    version=$(git -C "$1" describe --tags --match 'v*' 2> /dev/null || true)
  fi
  [[ -n $version ]] ||
    fail "$1 does not say its version: git -C $1 fetch --tags, or name it: export $2=$3"
  version=${version#v}
}

# is_older <version> <minimum>
is_older() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n1) != "$2" ]]; }

# In an environment: the system's pip installs nothing on Debian and Ubuntu.
get_tools="python3 -m venv ~/tools && ~/tools/bin/pip install \"cmake>=3.26\" ninja &&"
get_tools+=" PATH=~/tools/bin:\$PATH"

check_tools() {
  check_machine
  local version
  version=$(cmake --version 2> /dev/null | sed -n 's/^cmake version //p' || true)
  [[ -n $version ]] || fail "cmake not found: $get_tools"
  ! is_older "$version" 3.26 || fail "cmake is $version, TVM needs 3.26: $get_tools"
  command -v ninja > /dev/null || fail "ninja not found: $get_tools"
}

# What TVM is written in; clang before 16 fails on it, halfway through.
check_compiler() {
  local cxx=${defines[CMAKE_CXX_COMPILER]:-${CXX:-c++}}
  "$cxx" -std=c++20 -fsyntax-only -x c++ - 2> /dev/null <<< '
    struct Pair { int x, y; };
    int f(Pair p) { auto [a, b] = p; return [&] { return a + b; }(); }' ||
    fail "$cxx does not compile TVM's C++20; GCC 10, clang 16 and later do: on Debian or Ubuntu" \
      "apt install g++, and choose it with CXX=g++ CC=gcc"
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

# The environment: a folder that can be written to, of this Python, with room for what is built.
check_venv() {
  local parent=$venv python free
  no_space "$venv" "choose another --venv"
  if [[ -f $venv/pyvenv.cfg ]]; then
    python=$("$venv/bin/python" -c "$minor" 2> /dev/null || true)
    [[ $python == "$("$PYTHON" -c "$minor")" ]] ||
      fail "$venv has Python ${python:-that does not run}, $PYTHON is $("$PYTHON" -c "$minor"):" \
        "rm -r $venv, choose another --venv, or PYTHON=/path/to/python"
  fi
  until [[ -e $parent ]]; do parent=$(dirname "$parent"); done
  [[ -d $parent && -w $parent ]] || fail "$parent cannot be written to: choose another --venv"
  free=$(df -Pm "$parent" | awk 'END { print $4 }')
  ((free > room)) || fail "$parent has $free MB free, a build takes $room: choose another --venv"
}

minor='import sys; print("%d.%d" % sys.version_info[:2])'
room=3000

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
first_error() {
  awk '/subprocess-exited/ { next }
    { sub(/^ +/, "") }
    lines == 3 || lines && /^Call Stack/ { exit }
    lines && NF { text = text " " $0; ++lines }
    !lines && /CMake Error at .*:$/ { text = $0; lines = 1 }
    !lines && tolower($0) ~ /error: ./ { text = $0; exit }
    END { print text }' "$1"
}

# The options as NAME=VALUE, each name once: pip makes a list of one that is given twice.
add_options() {
  local option name
  defines[USE_LLVM]=$llvm
  [[ -z $cuda ]] || defines[USE_CUDA]=ON
  [[ -z $tensorrt ]] || defines+=([USE_TENSORRT_CODEGEN]=ON [USE_TENSORRT_RUNTIME]=$tensorrt)
  for option in "${extra[@]}"; do
    [[ $option =~ ^-D([A-Za-z_][A-Za-z0-9_]*)=(.*)$ ]] ||
      fail "after --, $option: expected -DNAME=VALUE, an option of TVM's CMake"
    defines[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
  done
  options=()
  for name in "${!defines[@]}"; do options+=("$name=${defines[$name]}"); done
}

build() {
  local pip=(env "CMAKE_BUILD_PARALLEL_LEVEL=$jobs" "$venv/bin/pip" install --quiet
    --disable-pip-version-check) build=(--no-deps --no-build-isolation)
  trap 'fail "interrupted: the same command goes on from where it was"' INT TERM
  # By itself first: what is wrong shows in seconds.
  step "configuring" cmake -G Ninja --fresh -S "$source_dir" -B "$venv/configured" \
    "${options[@]/#/-D}"
  [[ -z $until ]] || return 0
  # Or options of an earlier run would stay; what it compiled does.
  [[ -n $dry_run ]] || rm -f "$venv/build/CMakeCache.txt"
  step "making the environment" "$PYTHON" -m venv "$venv"
  step "installing the tools" "${pip[@]}" --constraint "$kit/scripts/constraints.txt" \
    "${builders[@]}" "${tools[@]}"
  step "building tvm-ffi" "${pip[@]}" "${build[@]}" \
    --config-settings="build-dir=$venv/build-ffi" "$source_dir/3rdparty/tvm-ffi"
  step "building TVM" "${pip[@]}" "${build[@]}" --config-settings="build-dir=$venv/build" \
    "${options[@]/#/--config-settings=cmake.define.}" "$source_dir"
  # Against this tvm-ffi, whatever the kit's own pin says: ABIs of two of them may differ.
  step "building the kit" env TVM_BYOC_REQUIRE_PLUGIN=1 "${pip[@]}" "${build[@]}" "$kit"
  # What is installed: neither the checkout that this may be started in nor one on PYTHONPATH.
  step "testing" env -u PYTHONPATH "$venv/bin/pytest" --rootdir "$kit" \
    --config-file "$kit/pyproject.toml" "${smoke_tests[@]/#/$kit/}"
}

read_arguments "$@"
check_source
check_tools
check_llvm
check_cuda
check_tensorrt
check_venv
add_options
check_compiler
build
[[ -n $dry_run$until ]] || echo "Done: source $venv/bin/activate"
