// An option of TVM's PassContext, added to a TVM that was built without it.
//
// What adds one is a static member of the compiler library, which exports it but ships no header:
//
//   tvm::transform::PassContext::RegisterConfigOption(
//       const char* key, ffi::String value_type, std::function<ffi::Any(ffi::Any)> legalization)
//
// Python finds its address, by the mangled name, in which the types of the parameters are; what
// they are made of is checked with the version of tvm-ffi before this library is loaded.
#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace byoc {
namespace {

namespace ffi = tvm::ffi;

using Legalization = std::function<ffi::Any(ffi::Any)>;
using RegisterConfigOption = void (*)(const char*, ffi::String, Legalization);

/*!
 * \brief Add the option `key`.
 * \param address Of RegisterConfigOption.
 * \param legalize Gets the value that a user gives, and gives the one that is kept.
 */
void AddPassOption(int64_t address, ffi::String key, ffi::String value_type,
                   ffi::Function legalize) {
  auto add = reinterpret_cast<RegisterConfigOption>(static_cast<intptr_t>(address));
  add(key.c_str(), std::move(value_type),
      [legalize = std::move(legalize)](ffi::Any value) -> ffi::Any { return legalize(value); });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("byoc.pass_option.add", AddPassOption);
}

}  // namespace byoc
