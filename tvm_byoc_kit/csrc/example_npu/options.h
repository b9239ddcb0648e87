// Options of the example NPU: how it runs and what machine it simulates.
#pragma once

#include <cstdint>

#include "byoc/graph.h"

namespace byoc {
namespace example_npu {

/*! \brief `kSimulate` computes; `kRecord` only decides, as upstream's teaching runtime does. */
enum class Mode { kSimulate, kRecord };

enum class PowerMode { kHighPerformance, kBalanced, kLowPower };

struct Options {
  Mode mode = Mode::kSimulate;
  PowerMode power_mode = PowerMode::kBalanced;
  int64_t l0_bytes = 4 * 1024;    // register file
  int64_t l1_bytes = 256 * 1024;  // SRAM
  int64_t l2_bytes = 512 * 1024;  // CMX
};

/*!
 * \brief Options from their names and values.
 * \throws ValueError naming the key, the value and what is allowed.
 */
Options ParseOptions(const ffi::Map<ffi::String, ffi::Any>& values);

}  // namespace example_npu
}  // namespace byoc
