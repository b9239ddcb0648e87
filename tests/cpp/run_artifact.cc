// Runs an exported artifact without Python: what a deployed application does.
//
//   run_artifact ARTIFACT INPUT DIMS LIBRARY...
//
// Loads the libraries (TVM's runtime, the backend's plugin), then the artifact, and calls its
// function "main" with one float32 tensor of the comma-separated DIMS, read raw from INPUT.  Prints
// the values of the output, one a line, and to stderr the shared libraries that the process holds.
#include <dlfcn.h>
#include <link.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace ffi = tvm::ffi;

// Value of AllocatorType::kPooled, the virtual machine's usual allocator.
constexpr int kPooledAllocator = 2;

void LoadLibrary(const char* path) {
  if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == nullptr) {
    TVM_FFI_THROW(RuntimeError) << "cannot load " << path << ": " << dlerror();
  }
}

struct HeapAllocator {
  void AllocData(DLTensor* tensor) { tensor->data = std::malloc(ffi::GetDataSize(*tensor)); }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

ffi::Tensor ReadInput(const char* path, const std::string& dims) {
  std::vector<int64_t> shape;
  std::istringstream stream(dims);
  for (std::string dim; std::getline(stream, dim, ',');) shape.push_back(std::stoll(dim));
  ffi::Tensor tensor = ffi::Tensor::FromNDAlloc(HeapAllocator(), ffi::Shape(shape),
                                                DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(tensor.data_ptr()), ffi::GetDataSize(tensor));
  if (!file) TVM_FFI_THROW(RuntimeError) << path << " is shorter than a tensor of " << dims;
  return tensor;
}

ffi::Any RunMain(const char* artifact, const ffi::Tensor& input) {
  ffi::Module library = ffi::Module::LoadFromFile(artifact);
  ffi::Module vm = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  vm->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, kPooledAllocator);
  return vm->GetFunction("main").value()(input);
}

void PrintOutput(const ffi::Any& result) {
  auto tuple = result.as<ffi::Array<ffi::Tensor>>();
  ffi::Tensor tensor = tuple.has_value() ? (*tuple)[0] : result.cast<ffi::Tensor>();
  const float* data = static_cast<const float*>(tensor.data_ptr());
  for (int64_t i = 0; i < tensor.numel(); ++i) std::printf("%.9g\n", data[i]);
}

int PrintLibrary(dl_phdr_info* info, size_t, void*) {
  std::cerr << info->dlpi_name << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: run_artifact ARTIFACT INPUT DIMS LIBRARY...\n";
    return 2;
  }
  try {
    for (int i = 4; i < argc; ++i) LoadLibrary(argv[i]);
    PrintOutput(RunMain(argv[1], ReadInput(argv[2], argv[3])));
  } catch (const std::exception& error) {
    std::cerr << "run_artifact: " << error.what() << "\n";
    return 1;
  }
  dl_iterate_phdr(PrintLibrary, nullptr);
  return 0;
}
