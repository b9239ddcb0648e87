// The modelled NPU: engines, memory tiers, rates.  Numbers come from Options, which documents them;
// docs/example_npu_cost_model.md tells what is made of them.
#pragma once

#include <array>
#include <cstdint>

#include "options.h"

namespace byoc {
namespace example_npu {

/*! \brief Unit that executes an op; each runs one op at a time. */
enum class Engine { kMatrix, kVector, kConv, kPooling, kActivation };
constexpr int kEngineCount = 5;

/*! \brief Memory level, nearest to the engines first: registers, SRAM, CMX, DRAM. */
enum class Tier { kL0, kL1, kL2, kL3 };
constexpr int kTierCount = 4;

/*! \brief One number of bytes for each tier. */
using TierBytes = std::array<int64_t, kTierCount>;

const char* EngineName(Engine engine);
const char* TierName(Tier tier);

struct MemoryTier {
  int64_t capacity = 0;        // bytes; -1: unlimited
  int64_t resident = 0;        // bytes of it that hold whole tensors; -1: unlimited
  double bytes_per_cycle = 0;  // of the NPU's clock
  int64_t access_cycles = 0;   // for each transfer of a tile
};

/*! \brief An NPU in one power mode; rates are per cycle of its clock. */
struct Machine {
  double frequency_mhz = 0;
  double matrix_macs = 0;  // 32-bit multiply-accumulates
  double conv_macs = 0;
  double float16_mac_speedup = 1;
  double int8_mac_speedup = 1;
  int64_t array_columns = 1;  // output channels that the MAC array works on at once
  double vector_ops = 0;      // element operations
  double pooling_ops = 0;
  double activation_ops = 0;
  int64_t tile_bytes = 0;  // that the operands of one tile may take in L1
  std::array<MemoryTier, kTierCount> tiers;

  const MemoryTier& operator[](Tier tier) const { return tiers[static_cast<int>(tier)]; }
};

/*! \brief The NPU that `options` describe, in the power mode that they name. */
Machine MakeMachine(const Options& options);

}  // namespace example_npu
}  // namespace byoc
