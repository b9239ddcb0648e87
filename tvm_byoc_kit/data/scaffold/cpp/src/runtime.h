#pragma once

#include <byoc/json_codegen.h>

// A region that TVM can call, save and load.
tvm::ffi::Module MakeRegion(byoc::RegionGraph graph);
