// Reading TVM's IR through tvm-ffi's reflection.
//
// The wheel ships no compiler headers, so the IR's C++ classes cannot be named.  Their type keys
// and fields can be looked up by name instead, which also survives a change of their memory layout.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/string.h>

#include <optional>
#include <string>
#include <string_view>

namespace byoc {

namespace ffi = tvm::ffi;

inline std::string_view View(const TVMFFIByteArray& bytes) { return {bytes.data, bytes.size}; }

/*! \brief Whether `ref` is an instance of the type registered as `type_key`, or of a child. */
inline bool IsA(const ffi::ObjectRef& ref, std::string_view type_key) {
  if (!ref.defined()) return false;
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(ref->type_index());
  if (View(info->type_key) == type_key) return true;
  for (int32_t depth = 1; depth < info->type_depth; ++depth) {
    if (View(info->type_ancestors[depth]->type_key) == type_key) return true;
  }
  return false;
}

/*! \brief Whether `ref` is an instance of one of the types; releases spell some differently. */
template <typename... Keys>
inline bool IsAnyOf(const ffi::ObjectRef& ref, Keys... type_keys) {
  return (IsA(ref, type_keys) || ...);
}

/*!
 * \brief The reflected field `name` of `ref`.
 * \throws TypeError naming the type and the field when there is none.
 */
inline ffi::Any Field(const ffi::ObjectRef& ref, std::string_view name) {
  if (!ref.defined()) TVM_FFI_THROW(TypeError) << "null object has no field `" << name << "`";
  const TVMFFIFieldInfo* found = nullptr;
  ffi::reflection::ForEachFieldInfoWithEarlyStop(TVMFFIGetTypeInfo(ref->type_index()),
                                                 [&](const TVMFFIFieldInfo* field) {
                                                   if (View(field->name) == name) found = field;
                                                   return found != nullptr;
                                                 });
  if (found == nullptr) {
    TVM_FFI_THROW(TypeError) << ref->GetTypeKey() << " has no reflected field `" << name
                             << "`; this TVM is not one that the plugin knows";
  }
  return ffi::reflection::FieldGetter(found)(ref.get());
}

/*! \brief The reflected field `name` of `ref`, as T. */
template <typename T>
inline T Field(const ffi::ObjectRef& ref, std::string_view name) {
  return Field(ref, name).cast<T>();
}

using Refs = ffi::Array<ffi::ObjectRef>;

/*! \brief A string attribute of a Relax function, such as `Composite` or `global_symbol`. */
inline std::optional<std::string> FunctionAttr(const ffi::ObjectRef& function,
                                               const std::string& key) {
  ffi::Any attrs = Field(function, "attrs");
  if (attrs == nullptr) return std::nullopt;
  auto dict = Field<ffi::Map<ffi::String, ffi::Any>>(attrs.cast<ffi::ObjectRef>(), "__dict__");
  auto it = dict.find(key);
  if (it == dict.end()) return std::nullopt;
  return std::string((*it).second.cast<ffi::String>());
}

}  // namespace byoc
