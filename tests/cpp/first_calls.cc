// Eight threads call a region of a backend in C++ for the first time at once; there is no Python.
//
//   first_calls LIBBYOC_CORE
#include <dlfcn.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace ffi = tvm::ffi;

std::atomic<int> made{0};

/*! \brief Whether all threads but this one exist and sleep. */
bool OthersSleep() {
  int asleep = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat{std::istreambuf_iterator<char>(file), {}};
    asleep += stat.find(") S ") != std::string::npos;
  }
  return asleep == 8;  // the main thread, and seven that call
}

ffi::Function MakeExecutor(const ffi::Bytes&, const ffi::Array<ffi::Any>&) {
  // Until the others wait for this: they sleep at so many looks in a row.
  for (int looks = 0, left = 4000; looks < 20 && left > 0; --left) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    looks = OthersSleep() ? looks + 1 : 0;
  }
  if (++made == 1) TVM_FFI_THROW(ValueError) << "the first attempt fails";
  return ffi::Function::FromPacked([](ffi::PackedArgs, ffi::Any*) {});
}

int main(int, char** argv) {
  if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::cerr << dlerror() << "\n";
    return 1;
  }
  ffi::Function::SetGlobal("byoc.runtime.cpp", ffi::Function::FromTyped(MakeExecutor));
  auto create = ffi::Function::GetGlobalRequired("byoc.payload.create");
  auto module = create("cpp", "", "region", ffi::Bytes("payload", 7), ffi::Array<ffi::String>())
                    .cast<ffi::Module>();
  ffi::Function call = module->GetFunction("region").value();
  for (const char* outcome : {"failed", "succeeded"}) {
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        try {
          call();
        } catch (const ffi::Error& error) {
          failed += error.message() == "the first attempt fails";
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    int count = outcome[0] == 'f' ? failed.load() : 8 - failed.load();
    std::cout << outcome << ": " << count << ", built: " << made << "\n";
  }
  return 0;
}
