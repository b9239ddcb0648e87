// What TVM calls with the regions of a model, when it is built.
#include <tvm/ffi/reflection/registry.h>

#include "kernels.h"
#include "runtime.h"

namespace {

namespace ffi = tvm::ffi;

ffi::Array<ffi::Module> Compile(ffi::Array<ffi::ObjectRef> functions,
                                ffi::Map<ffi::String, ffi::Any> options,
                                ffi::Map<ffi::ObjectRef, ffi::String> constant_names) {
  ffi::Array<ffi::Module> modules;
  for (const ffi::ObjectRef& function : functions) {
    byoc::RegionGraph region = byoc::SerializeRegion(function, options, constant_names);
    for (const byoc::Node& node : byoc::ParseGraph(region.json).nodes) {
      for (const byoc::InnerOp& op : node.ops) CheckKernel(op);
    }
    modules.push_back(MakeRegion(std::move(region)));
  }
  return modules;
}

TVM_FFI_STATIC_INIT_BLOCK() { ffi::reflection::GlobalDef().def("relax.ext.my_backend", Compile); }

}  // namespace
