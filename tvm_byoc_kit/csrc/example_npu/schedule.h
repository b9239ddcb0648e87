// What the example NPU decides about a region: engines, memory tiers, tiles, cycles, a timeline.
//
// A schedule is computed from the graph alone; it neither runs nor needs the kernels.  The model
// and its formulas are in docs/example_npu_cost_model.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "byoc/graph.h"
#include "machine.h"
#include "options.h"
#include "tiling.h"

namespace byoc {
namespace example_npu {

enum class Role { kInput, kWeight, kOutput };

/*! \brief A tensor that a kernel reads or writes. */
struct Operand {
  Role role = Role::kInput;
  std::string name;  // parameter or constant; "<composite>#<node>.<output>" of a kernel
  TensorInfo info;
  int64_t bytes = 0;
  // Tensors that enter or leave the region live in L3.  Others would like L0 when they are small
  // enough for it, and L1 when they are not; one that got a tier further out is spilled.
  Tier preferred = Tier::kL3;
  Tier tier = Tier::kL3;
  Traffic traffic;

  bool spilled() const { return tier > preferred; }
};

/*! \brief One kernel node. */
struct ScheduledOp {
  int64_t node = 0;
  std::string name;              // of the composite
  std::vector<std::string> ops;  // its Relax ops
  Engine engine = Engine::kVector;
  bool fused = false;
  int64_t macs = 0;
  int64_t element_ops = 0;
  std::vector<Operand> operands;
  Tiling tiling;
  TierBytes bytes{};      // moved through each tier's port
  TierBytes transfers{};  // of tiles, likewise
  int64_t compute_cycles = 0;
  int64_t memory_cycles = 0;
  int64_t cycles = 0;  // the greater of the two
  int64_t start_cycle = 0;

  bool compute_bound() const { return compute_cycles >= memory_cycles; }
  int64_t end_cycle() const { return start_cycle + cycles; }
};

/*! \brief All kernels of a region, in program order. */
struct Schedule {
  Options options;
  Machine machine;
  std::vector<ScheduledOp> ops;
  TierBytes peak{};    // most bytes of intermediate tensors that lived there at one time
  int64_t cycles = 0;  // until the last kernel has finished
  double microseconds = 0;
};

/*!
 * \brief Schedule a region.
 * \param graph The region.
 * \param options Machine and power mode.
 * \param node_outputs Actual outputs of every node of the graph: no dimension is -1.
 * \throws ValueError when the shapes do not fit the graph.
 */
Schedule PlanSchedule(const Graph& graph, const Options& options,
                      const std::vector<std::vector<TensorInfo>>& node_outputs);

/*!
 * \brief A schedule as JSON.
 *
 *   {"version": 1, "mode": "simulate", "power_mode": "balanced", "frequency_mhz": 800.0,
 *    "macs": M, "cycles": C, "microseconds": T,
 *    "tiers": [{"name": "L0", "capacity_bytes": B or -1, "bytes_per_cycle": R, "access_cycles": A,
 *               "peak_bytes": B, "moved_bytes": B}, ... L1, L2, L3],
 *    "ops": [{"node": N, "name": "example_npu.conv2d", "ops": ["relax.nn.conv2d"],
 *             "engine": "matrix" | "vector" | "conv" | "pooling" | "activation",
 *             "fused": false, "macs": M, "element_ops": E,
 *             "operands": [{"role": "input" | "weight" | "output", "name": "x",
 *                           "shape": [1, 3, 32, 32], "dtype": "float32", "bytes": B,
 *                           "preferred_tier": "L3", "tier": "L3", "spilled": false,
 *                           "moved_bytes": B, "transfers": N}, ...],
 *             "tiling": {"dims": ["batch", ...], "extents": [1, ...], "tile": [1, ...],
 *                        "tiles": N, "tile_bytes": B, "tier": "L1"},
 *             "moved_bytes": [L0, L1, L2, L3], "transfers": [L0, L1, L2, L3],
 *             "compute_cycles": C, "memory_cycles": C, "cycles": C,
 *             "bound": "compute" | "memory", "start_cycle": C}, ...]}
 */
std::string ScheduleJson(const Schedule& schedule);

}  // namespace example_npu
}  // namespace byoc
