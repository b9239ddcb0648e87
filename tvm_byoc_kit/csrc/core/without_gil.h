// Waiting without Python's GIL, in a plugin that knows nothing of Python.
#pragma once

#include <dlfcn.h>

namespace byoc {

/*!
 * \brief Gives Python's GIL away for as long as it lives, where the calling thread holds it.
 *
 * A thread that calls into a plugin from Python may hold the GIL
 * (TVM_FFI_RELEASE_GIL_BY_DEFAULT=0). Were it to wait like that for a thread that needs the GIL,
 * neither could go on.
 *
 * The interpreter is looked up by name: where there is none, or it is not running, nothing is done.
 * Its functions are visible to every library, since Python's own extension modules need them so.
 */
class WithoutGil {
 public:
  WithoutGil() {
    auto is_initialized = Find<int()>("Py_IsInitialized");
    auto this_thread = Find<void*()>("PyGILState_GetThisThreadState");
    auto holds_gil = Find<int()>("PyGILState_Check");
    auto save = Find<void*()>("PyEval_SaveThread");
    restore_ = Find<void(void*)>("PyEval_RestoreThread");
    if (!is_initialized || !this_thread || !holds_gil || !save || !restore_) return;
    // The check alone says yes for any thread once there are subinterpreters.
    if (is_initialized() && this_thread() != nullptr && holds_gil()) state_ = save();
  }
  ~WithoutGil() {
    if (state_ != nullptr) restore_(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  template <typename Signature>
  static Signature* Find(const char* name) {
    return reinterpret_cast<Signature*>(dlsym(RTLD_DEFAULT, name));
  }

  void (*restore_)(void*) = nullptr;
  void* state_ = nullptr;
};

}  // namespace byoc
