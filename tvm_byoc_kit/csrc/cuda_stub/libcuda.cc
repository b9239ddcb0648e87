// What TVM's CUDA runtime library links of NVIDIA's driver, for machines without a driver.
//
// TVM puts machine code instead of CUDA source into an artifact only where that library is loaded,
// though it calls none of these functions while it compiles. Each of them fails as the driver does
// where it sees no GPU.
namespace {

constexpr int kErrorNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

int Text(const char* text, const char** out) {
  *out = text;
  return 0;
}

}  // namespace

#define BYOC_EXPORT __attribute__((visibility("default")))
#define BYOC_NO_DEVICE(name) \
  BYOC_EXPORT int name() { return kErrorNoDevice; }

extern "C" {

BYOC_NO_DEVICE(cuDeviceGetName)
BYOC_NO_DEVICE(cuFuncSetAttribute)
BYOC_NO_DEVICE(cuLaunchKernelEx)
BYOC_NO_DEVICE(cuModuleGetFunction)
BYOC_NO_DEVICE(cuModuleLoadData)
BYOC_NO_DEVICE(cuModuleUnload)
BYOC_NO_DEVICE(cuTensorMapEncodeTiled)

BYOC_EXPORT int cuGetErrorName(int /*error*/, const char** out) {
  return Text("CUDA_ERROR_NO_DEVICE", out);
}

BYOC_EXPORT int cuGetErrorString(int /*error*/, const char** out) {
  return Text("a stub of the driver, for compiling only", out);
}

}  // extern "C"
