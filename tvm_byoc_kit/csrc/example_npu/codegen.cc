// relax.ext.example_npu: what RunCodegen calls with the regions of the example NPU.
#include <tvm/ffi/reflection/registry.h>

#include "byoc/json_codegen.h"

namespace byoc {
namespace example_npu {

/*! \brief One runtime module for each region, made by the global function that reloads use too. */
ffi::Array<ffi::Module> Compile(ffi::Array<ffi::ObjectRef> functions,
                                ffi::Map<ffi::String, ffi::Any> options,
                                ffi::Map<ffi::ObjectRef, ffi::String> constant_names) {
  ffi::Function create = ffi::Function::GetGlobalRequired("runtime.ExampleNPUJSONRuntimeCreate");
  ffi::Array<ffi::Module> modules;
  for (const ffi::ObjectRef& function : functions) {
    RegionGraph region = SerializeRegion(function, options, constant_names);
    modules.push_back(create(region.symbol, region.json, region.constants).cast<ffi::Module>());
  }
  return modules;
}

TVM_FFI_STATIC_INIT_BLOCK() { ffi::reflection::GlobalDef().def("relax.ext.example_npu", Compile); }

}  // namespace example_npu
}  // namespace byoc
