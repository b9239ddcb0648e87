// A value that several threads ask for at once and one of them makes.
#pragma once

#include <tvm/ffi/error.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "without_gil.h"

namespace byoc {

namespace ffi = tvm::ffi;

/*!
 * \brief Makes a value when it is first asked for; meanwhile the other threads that ask wait.
 *
 * Unlike std::call_once, a failure reaches every thread that waited for it, and `make` runs under
 * no lock and waiting threads hold no GIL: `make` may be written in Python.
 */
template <typename T>
class Once {
 public:
  /*!
   * \brief The value, made by `make` unless it is there.
   * \throws ffi::Error what `make` throws; the next call tries again.
   */
  template <typename Make>
  const T& Get(Make make) {
    if (ready_.load(std::memory_order_acquire)) return *value_;
    std::unique_lock<std::mutex> lock(mutex_);
    if (value_.has_value()) return *value_;
    if (attempt_ != nullptr) return Await(&lock);
    attempt_ = std::make_shared<Attempt>();
    lock.unlock();
    try {
      T made = make();
      lock.lock();
      value_.emplace(std::move(made));
      ready_.store(true, std::memory_order_release);
      lock.unlock();
    } catch (const ffi::Error& thrown) {
      Finish(Copy(thrown));
      throw;
    } catch (const std::exception& thrown) {
      Finish(ffi::Error("RuntimeError", thrown.what(), ""));
      throw;
    }
    Finish(std::nullopt);
    return *value_;
  }

 private:
  struct Attempt {
    std::thread::id maker = std::this_thread::get_id();
    std::condition_variable finished;
    bool is_finished = false;
    std::optional<ffi::Error> error;
  };

  /*! \brief On its way up through a thread, that thread adds its frames to an error. */
  static ffi::Error Copy(const ffi::Error& error) {
    return ffi::Error(error.kind(), error.message(), error.backtrace());
  }

  void Finish(std::optional<ffi::Error> error) {
    std::lock_guard<std::mutex> lock(mutex_);
    attempt_->error = std::move(error);
    attempt_->is_finished = true;
    attempt_->finished.notify_all();
    attempt_ = nullptr;
  }

  const T& Await(std::unique_lock<std::mutex>* lock) {
    std::shared_ptr<Attempt> attempt = attempt_;
    if (attempt->maker == std::this_thread::get_id()) {
      TVM_FFI_THROW(RuntimeError) << "it is asked for while it is being made, by its own maker";
    }
    lock->unlock();  // the GIL is never taken or given away under the lock
    {
      WithoutGil waiting;
      lock->lock();
      attempt->finished.wait(*lock, [&] { return attempt->is_finished; });
      lock->unlock();
    }
    if (attempt->error.has_value()) throw Copy(*attempt->error);
    return *value_;
  }

  std::atomic<bool> ready_{false};
  std::mutex mutex_;  // of what follows; value_ does not change once it is there
  std::optional<T> value_;
  std::shared_ptr<Attempt> attempt_;
};

}  // namespace byoc
