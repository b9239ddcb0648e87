// Options of the example NPU: how it runs and what machine it simulates.
#pragma once

#include <cstdint>
#include <string>

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

  // Rates of the cost model (docs/example_npu_cost_model.md), at high_performance.

  // Cycles per microsecond.  A round clock for NPUs, which run at 0.5 to 1.5 GHz.
  int64_t frequency_mhz = 1000;
  // 32-bit multiply-accumulates per cycle: 16 x 16 units each, upstream's MATRIX_ENGINE_SIZE.
  int64_t matrix_macs_per_cycle = 256;
  int64_t conv_macs_per_cycle = 256;
  // Output channels that the array works on at once, its 16 columns.
  int64_t array_columns = 16;
  // MACs per unit and cycle for narrower operands: upstream says 4x for int8, float16 is halfway.
  int64_t float16_mac_speedup = 2;
  int64_t int8_mac_speedup = 4;
  // Element operations per cycle: 64 lanes, upstream's VECTOR_ENGINE_WIDTH, for each other engine.
  int64_t vector_ops_per_cycle = 64;
  int64_t pooling_ops_per_cycle = 64;
  int64_t activation_ops_per_cycle = 64;
  // L1 feeds 64 lanes of 4 bytes; registers have four such ports (two reads, an accumulator, a
  // write); the bus to L2 is 512 bits wide.
  int64_t l0_bytes_per_cycle = 1024;
  int64_t l1_bytes_per_cycle = 256;
  int64_t l2_bytes_per_cycle = 64;
  // DRAM has its own clock: 16 GB/s, about a 64-bit LPDDR4 at 2133 MT/s, in every power mode.
  int64_t l3_mbytes_per_second = 16000;
  // Cycles for each transfer of a tile, as upstream's GetMemoryAccessCost.
  int64_t l0_access_cycles = 0;
  int64_t l1_access_cycles = 1;
  int64_t l2_access_cycles = 4;
  int64_t l3_access_cycles = 100;
};

/*!
 * \brief Options from their names and values.
 * \throws ValueError naming the key, the value and what is allowed.
 */
Options ParseOptions(const ffi::Map<ffi::String, ffi::Any>& values);

/*! \brief The name that stands for it in the options. */
std::string Name(Mode mode);
std::string Name(PowerMode power_mode);

}  // namespace example_npu
}  // namespace byoc
