#include "machine.h"

namespace byoc {
namespace example_npu {
namespace {

/*! \brief What a power mode leaves of the full clock and of the engines' units, in percent. */
struct PowerScale {
  int64_t clock;
  int64_t units;
};

PowerScale ScaleOf(PowerMode mode) {
  switch (mode) {
    case PowerMode::kHighPerformance:
      return {100, 100};
    case PowerMode::kBalanced:
      return {80, 100};
    case PowerMode::kLowPower:
      return {40, 50};  // half of the lanes and array rows are switched off
  }
  return {100, 100};
}

}  // namespace

const char* EngineName(Engine engine) {
  static constexpr const char* kNames[] = {"matrix", "vector", "conv", "pooling", "activation"};
  return kNames[static_cast<int>(engine)];
}

const char* TierName(Tier tier) {
  static constexpr const char* kNames[] = {"L0", "L1", "L2", "L3"};
  return kNames[static_cast<int>(tier)];
}

Machine MakeMachine(const Options& options) {
  PowerScale scale = ScaleOf(options.power_mode);
  auto units = [&](int64_t rate) { return rate * scale.units / 100.0; };
  Machine machine;
  machine.frequency_mhz = options.frequency_mhz * scale.clock / 100.0;
  machine.matrix_macs = units(options.matrix_macs_per_cycle);
  machine.conv_macs = units(options.conv_macs_per_cycle);
  machine.float16_mac_speedup = options.float16_mac_speedup;
  machine.int8_mac_speedup = options.int8_mac_speedup;
  machine.array_columns = options.array_columns;
  machine.vector_ops = units(options.vector_ops_per_cycle);
  machine.pooling_ops = units(options.pooling_ops_per_cycle);
  machine.activation_ops = units(options.activation_ops_per_cycle);
  // Half of L1 is for tiles, two sets of them: one is computed while the other is moved.  The same
  // half of L0 carries the values between the stages of a fused kernel.
  machine.tile_bytes = options.l1_bytes / 4;
  machine.tiers = {{
      {options.l0_bytes, options.l0_bytes / 2, 1.0 * options.l0_bytes_per_cycle,
       options.l0_access_cycles},
      {options.l1_bytes, options.l1_bytes / 2, 1.0 * options.l1_bytes_per_cycle,
       options.l1_access_cycles},
      {options.l2_bytes, options.l2_bytes, 1.0 * options.l2_bytes_per_cycle,
       options.l2_access_cycles},
      {-1, -1, options.l3_mbytes_per_second / machine.frequency_mhz, options.l3_access_cycles},
  }};
  return machine;
}

}  // namespace example_npu
}  // namespace byoc
