# find_package(TvmByocKit CONFIG) with the directory that `tvm-byoc cmake-dir` prints:
#   cmake -S . -B build -DTvmByocKit_DIR="$(tvm-byoc cmake-dir)"
# gives TvmByocKit::headers, tvm_byoc_add_plugin and tvm_byoc_write_build_info.
include("${CMAKE_CURRENT_LIST_DIR}/TvmByocPlugin.cmake")
