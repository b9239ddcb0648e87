# What a plugin for tvm_byoc_kit is built with.  Used by the kit itself and, through
# find_package(TvmByocKit CONFIG), by the projects of vendors.
#
# Target TvmByocKit::headers: the kit's headers (byoc/graph.h, ...), tvm-ffi's headers and library.
# Functions: tvm_byoc_add_plugin, tvm_byoc_write_build_info.

include_guard(GLOBAL)

# Python of the environment that has tvm-ffi; a caller chooses it with -DPython_EXECUTABLE=...
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m tvm_ffi.config --cmakedir
  OUTPUT_VARIABLE tvm_ffi_DIR
  ERROR_VARIABLE _tvm_byoc_error
  RESULT_VARIABLE _tvm_byoc_result
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _tvm_byoc_result EQUAL 0)
  message(
    FATAL_ERROR
      "TvmByocPlugin: ${Python_EXECUTABLE} cannot import tvm_ffi: ${_tvm_byoc_error}\n"
      "Install it there (pip install apache-tvm-ffi) or choose another Python with "
      "-DPython_EXECUTABLE=/path/to/python.")
endif()
find_package(tvm_ffi CONFIG REQUIRED)

# From the package's metadata: importing tvm_ffi would import torch where it is installed.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
          "import importlib.metadata as m; print(m.version('apache-tvm-ffi'))"
  OUTPUT_VARIABLE TVM_BYOC_FFI_VERSION
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

set(TVM_BYOC_CMAKE_DIR "${CMAKE_CURRENT_LIST_DIR}")

# cmake/ stands beside tvm_byoc_kit/ in the source tree and inside it once installed.
foreach(_candidate IN ITEMS "${CMAKE_CURRENT_LIST_DIR}/../csrc"
                            "${CMAKE_CURRENT_LIST_DIR}/../tvm_byoc_kit/csrc")
  if(EXISTS "${_candidate}/include/byoc/graph.h")
    get_filename_component(TVM_BYOC_CSRC_DIR "${_candidate}" ABSOLUTE)
    break()
  endif()
endforeach()
if(NOT TVM_BYOC_CSRC_DIR)
  message(FATAL_ERROR "TvmByocPlugin: no csrc/include/byoc/graph.h near ${CMAKE_CURRENT_LIST_DIR}; "
                      "the installation of tvm-byoc-kit is incomplete, reinstall it.")
endif()

add_library(TvmByocKit::headers INTERFACE IMPORTED GLOBAL)
target_compile_features(TvmByocKit::headers INTERFACE cxx_std_17)
target_include_directories(TvmByocKit::headers INTERFACE "${TVM_BYOC_CSRC_DIR}/include")
target_link_libraries(TvmByocKit::headers INTERFACE tvm_ffi::header tvm_ffi::shared)

# tvm_byoc_add_plugin(<target> SOURCES <file>... [<keyword> <value>...])
#
# Add the shared library lib<target>.so that a process loads to get a backend's global functions.
# It is C++17, exports nothing but what plugin.map lists, links tvm-ffi and the C/C++ runtime, and
# fails to link when a symbol is undefined (rather than failing to load later).
#
# <target>              name of the CMake target and, after "lib", of the file
# SOURCES               the plugin's C++ files (at least one), relative to the calling CMakeLists
# INCLUDE_DIRECTORIES   private include directories, beyond the kit's and tvm-ffi's
# LINK_LIBRARIES        further libraries or targets (a vendor's runtime); they become NEEDED entries
# COMPILE_OPTIONS       private compile options
# COMPILE_DEFINITIONS   private preprocessor definitions
# DESTINATION           install directory, relative to the install prefix; without it the plugin is
#                       only built
# RPATH                 where the installed plugin looks for its libraries.  Default
#                       "$ORIGIN/../../tvm_ffi/lib": right for site-packages/<package>/lib
function(tvm_byoc_add_plugin target)
  set(one_value DESTINATION RPATH)
  set(multi_value SOURCES INCLUDE_DIRECTORIES LINK_LIBRARIES COMPILE_OPTIONS COMPILE_DEFINITIONS)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "${one_value}" "${multi_value}")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tvm_byoc_add_plugin(${target}): unknown arguments "
                        "\"${ARG_UNPARSED_ARGUMENTS}\"; allowed are ${one_value};${multi_value}.")
  endif()
  if(ARG_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR
              "tvm_byoc_add_plugin(${target}): no value after \"${ARG_KEYWORDS_MISSING_VALUES}\".")
  endif()
  if(NOT ARG_SOURCES)
    message(FATAL_ERROR "tvm_byoc_add_plugin(${target}): SOURCES is required; "
                        "give the plugin's .cc files.")
  endif()
  if(TARGET "${target}")
    message(FATAL_ERROR "tvm_byoc_add_plugin(${target}): a target of that name already exists.")
  endif()
  if(NOT ARG_RPATH)
    set(ARG_RPATH "$ORIGIN/../../tvm_ffi/lib")
  endif()

  add_library(${target} MODULE ${ARG_SOURCES})
  target_include_directories(${target} PRIVATE ${ARG_INCLUDE_DIRECTORIES})
  target_link_libraries(${target} PRIVATE TvmByocKit::headers ${ARG_LINK_LIBRARIES})
  target_link_options(
    ${target} PRIVATE LINKER:--no-undefined LINKER:--as-needed
    "LINKER:--version-script=${TVM_BYOC_CMAKE_DIR}/plugin.map")
  target_compile_options(${target} PRIVATE ${ARG_COMPILE_OPTIONS})
  target_compile_definitions(${target} PRIVATE ${ARG_COMPILE_DEFINITIONS})
  set_target_properties(
    ${target}
    PROPERTIES PREFIX lib
               CXX_EXTENSIONS OFF
               LINK_DEPENDS "${TVM_BYOC_CMAKE_DIR}/plugin.map"
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               INSTALL_RPATH "${ARG_RPATH}"
               BUILD_WITH_INSTALL_RPATH ON)
  if(ARG_DESTINATION)
    install(TARGETS ${target} LIBRARY DESTINATION "${ARG_DESTINATION}")
  endif()
endfunction()

# tvm_byoc_write_build_info(<version> DESTINATION <dir> PLUGINS <name>...)
#
# Install <dir>/build_info.json, which the loader compares with the running tvm-ffi: its ABI has no
# check of its own, and a mismatch corrupts memory instead of failing.
#
# <version>     of the package that carries the plugins
# DESTINATION   install directory, relative to the install prefix
# PLUGINS       the names of the plugins in that directory, without "libbyoc_" and ".so"
function(tvm_byoc_write_build_info version)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "DESTINATION" "PLUGINS")
  if(NOT ARG_DESTINATION OR NOT ARG_PLUGINS OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tvm_byoc_write_build_info(${version}): expects "
                        "DESTINATION <dir> PLUGINS <name>..., got \"${ARGN}\".")
  endif()
  list(JOIN ARG_PLUGINS "\", \"" plugins)
  set(file "${CMAKE_CURRENT_BINARY_DIR}/build_info.json")
  set(compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  file(
    WRITE "${file}"
    "{\n"
    "  \"kit\": \"${version}\",\n"
    "  \"tvm_ffi\": \"${TVM_BYOC_FFI_VERSION}\",\n"
    "  \"compiler\": \"${compiler}\",\n"
    "  \"plugins\": [\"${plugins}\"]\n"
    "}\n")
  install(FILES "${file}" DESTINATION "${ARG_DESTINATION}")
endfunction()
