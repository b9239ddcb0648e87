#include "schedule.h"

#include <tvm/ffi/extra/json.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "op_cost.h"

namespace byoc {
namespace example_npu {
namespace {

/*! \brief A node's output: node, output. */
using TensorKey = std::pair<int64_t, int64_t>;

TensorKey KeyOf(const ValueRef& ref) { return {ref.id, ref.output}; }

/*! \brief A tensor of the region and the kernels, by position, during which it is needed. */
struct Lifetime {
  int64_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
  bool intermediate = false;  // made and used up inside the region
  bool used = false;          // by a kernel, or as an output of the region
  Tier preferred = Tier::kL3;
  Tier tier = Tier::kL3;
};

using Lifetimes = std::map<TensorKey, Lifetime>;

/*!
 * \brief Gives each intermediate tensor the nearest tier with room for its whole life.
 *
 * The tiers are inclusive: a tensor in L1 holds its place in L2 too, as in a cache.  So one order
 * serves all of them: again and again the tensor that raises the use of memory least is taken next,
 * and the most bytes that are in use during its life, itself included, is its depth.  A tier holds
 * the tensors whose depth it has room for.  The order does not depend on the sizes of the tiers, so
 * that a larger one keeps all that a smaller one keeps; and depths only grow along the order, so
 * that a tensor is left out only where it does not fit beside those that are in.
 */
class Placement {
 public:
  Placement(const Machine& machine, int64_t steps) : machine_(machine), used_(steps, 0) {}

  TierBytes Place(Lifetimes* tensors) {
    std::vector<Lifetime*> waiting;
    for (auto& [key, tensor] : *tensors) {
      if (tensor.intermediate) waiting.push_back(&tensor);
    }
    std::vector<Lifetime*> placed = waiting;
    while (!waiting.empty()) {
      auto next = std::min_element(
          waiting.begin(), waiting.end(),
          [this](const Lifetime* a, const Lifetime* b) { return Depth(*a) < Depth(*b); });
      Take(*next);
      waiting.erase(next);
    }
    return Peaks(placed);
  }

 private:
  int64_t Depth(const Lifetime& tensor) const {
    auto first = used_.begin() + tensor.first, last = used_.begin() + tensor.last + 1;
    return tensor.bytes + *std::max_element(first, last);
  }

  void Take(Lifetime* tensor) {
    tensor->tier = Holder(Depth(*tensor));
    // On an empty chip it would lie in L0 or, as every other tensor should, in L1.
    tensor->preferred = std::min(Holder(tensor->bytes), Tier::kL1);
    for (int64_t step = tensor->first; step <= tensor->last; ++step) used_[step] += tensor->bytes;
  }

  Tier Holder(int64_t depth) const {
    for (Tier tier : {Tier::kL0, Tier::kL1, Tier::kL2}) {
      if (depth <= machine_[tier].resident) return tier;
    }
    return Tier::kL3;
  }

  /*! \brief Most bytes of tensors that live in each tier at one time. */
  TierBytes Peaks(const std::vector<Lifetime*>& tensors) const {
    std::vector<TierBytes> live(used_.size(), TierBytes{});
    TierBytes peaks{};
    for (const Lifetime* tensor : tensors) {
      int tier = static_cast<int>(tensor->tier);
      for (int64_t step = tensor->first; step <= tensor->last; ++step) {
        peaks[tier] = std::max(peaks[tier], live[step][tier] += tensor->bytes);
      }
    }
    return peaks;
  }

  const Machine& machine_;
  std::vector<int64_t> used_;  // bytes of the tensors taken so far, at each step
};

class Planner {
 public:
  Planner(const Graph& graph, const Options& options,
          const std::vector<std::vector<TensorInfo>>& node_outputs)
      : graph_(graph), outputs_(node_outputs) {
    schedule_.options = options;
    schedule_.machine = MakeMachine(options);
  }

  Schedule Plan() {
    CheckShapes();
    FindLifetimes();
    int64_t kernels = static_cast<int64_t>(kernels_.size());
    schedule_.peak = Placement(schedule_.machine, kernels).Place(&tensors_);
    for (int64_t node : kernels_) schedule_.ops.push_back(PlanOp(node));
    PlaceInTime();
    return std::move(schedule_);
  }

 private:
  void CheckShapes() const {
    if (outputs_.size() != graph_.nodes.size()) {
      TVM_FFI_THROW(ValueError) << "example_npu schedule: shapes of " << outputs_.size()
                                << " nodes given for a graph of " << graph_.nodes.size();
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (outputs_[i].size() != node.outputs.size()) {
        TVM_FFI_THROW(ValueError) << "example_npu schedule: " << outputs_[i].size()
                                  << " shapes given for node " << i << " `" << node.name
                                  << "`, which has " << node.outputs.size() << " outputs";
      }
      for (const TensorInfo& output : outputs_[i]) {
        if (std::find(output.shape.begin(), output.shape.end(), -1) == output.shape.end()) continue;
        TVM_FFI_THROW(ValueError) << "example_npu schedule: a dimension of node " << i << " `"
                                  << node.name << "` is symbolic; call the region once, or give"
                                  << " its shapes";
      }
    }
  }

  const TensorInfo& Info(const TensorKey& key) const { return outputs_[key.first][key.second]; }

  void FindLifetimes() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      bool kernel = node.kind == Node::Kind::kKernel;
      int64_t step = static_cast<int64_t>(kernels_.size());
      if (kernel) {
        for (const ValueRef& ref : node.inputs) {
          tensors_[KeyOf(ref)].last = step;
          tensors_[KeyOf(ref)].used = true;
        }
        kernels_.push_back(static_cast<int64_t>(i));
      }
      for (size_t output = 0; output < node.outputs.size(); ++output) {
        Lifetime& tensor = tensors_[{static_cast<int64_t>(i), static_cast<int64_t>(output)}];
        tensor.bytes = Bytes(Info({static_cast<int64_t>(i), static_cast<int64_t>(output)}));
        tensor.first = tensor.last = step;
        tensor.intermediate = kernel;
      }
    }
    for (const ValueRef& head : graph_.heads) {
      tensors_[KeyOf(head)].intermediate = false;
      tensors_[KeyOf(head)].used = true;
    }
    for (int64_t node : kernels_) {
      // A result that nobody reads (the statistics of a batch_norm) is not written, unless it is
      // all that the kernel does.
      if (!IsUsed(node)) tensors_[{node, 0}].used = true;
    }
    for (auto& [key, tensor] : tensors_) tensor.intermediate &= tensor.used;
  }

  bool IsUsed(int64_t node) const {
    auto first = tensors_.lower_bound({node, 0}), last = tensors_.lower_bound({node + 1, 0});
    return std::any_of(first, last, [](const auto& item) { return item.second.used; });
  }

  ScheduledOp PlanOp(int64_t index) const {
    const Node& node = graph_.nodes[index];
    const Machine& machine = schedule_.machine;
    std::vector<TensorInfo> inputs;
    for (const ValueRef& ref : node.inputs) inputs.push_back(Info(KeyOf(ref)));
    Work work = CountWork(node, inputs, outputs_[index], machine);

    ScheduledOp op;
    op.node = index;
    op.name = node.name;
    for (const InnerOp& inner : node.ops) op.ops.push_back(inner.name);
    op.engine = work.engine;
    op.fused = work.fused;
    op.macs = work.macs;
    op.element_ops = work.element_ops;
    op.operands = Operands(index, work);
    std::vector<TiledOperand> tiled;
    for (const Operand& operand : op.operands) {
      tiled.push_back({operand.info.shape, operand.bytes, operand.tier});
    }
    TilePlan tiles = PlanTiles(work, tiled, machine);
    op.tiling = std::move(tiles.tiling);
    for (size_t i = 0; i < op.operands.size(); ++i) op.operands[i].traffic = tiles.traffic[i];
    CountTraffic(work, &op);
    op.compute_cycles = work.compute_cycles;
    op.memory_cycles = MemoryCycles(op);
    // At least one: an op without elements still has its turn on the engine.
    op.cycles = std::max<int64_t>({op.compute_cycles, op.memory_cycles, 1});
    return op;
  }

  /*! \brief Inputs one for one, so that they keep their numbers; then the outputs that are used. */
  std::vector<Operand> Operands(int64_t index, const Work& work) const {
    const Node& node = graph_.nodes[index];
    std::vector<Operand> operands;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& source = graph_.nodes[node.inputs[i].id];
      bool weight = source.kind == Node::Kind::kConst ||
                    (source.kind == Node::Kind::kInput && work.parameters[i]);
      operands.push_back(MakeOperand(weight ? Role::kWeight : Role::kInput, KeyOf(node.inputs[i])));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      TensorKey key{index, static_cast<int64_t>(i)};
      if (tensors_.at(key).used) operands.push_back(MakeOperand(Role::kOutput, key));
    }
    return operands;
  }

  Operand MakeOperand(Role role, const TensorKey& key) const {
    const Node& source = graph_.nodes[key.first];
    const Lifetime& tensor = tensors_.at(key);
    Operand operand;
    operand.role = role;
    operand.name =
        source.kind == Node::Kind::kKernel
            ? source.name + "#" + std::to_string(key.first) + "." + std::to_string(key.second)
            : source.name;
    operand.info = Info(key);
    operand.bytes = tensor.bytes;
    operand.preferred = tensor.preferred;
    operand.tier = tensor.tier;
    return operand;
  }

  /*! \brief What comes from behind L1 passes through L1, where the engines read and write. */
  static void CountTraffic(const Work& work, ScheduledOp* op) {
    auto add = [op](Tier tier, const Traffic& traffic) {
      op->bytes[static_cast<int>(tier)] += traffic.bytes;
      op->transfers[static_cast<int>(tier)] += traffic.transfers;
    };
    for (const Operand& operand : op->operands) {
      add(operand.tier, operand.traffic);
      if (operand.tier > Tier::kL1) add(Tier::kL1, operand.traffic);
    }
    // Inside a fused kernel a value is written to the registers and read from them.
    add(Tier::kL0, {2 * work.inner_bytes, 0});
  }

  int64_t MemoryCycles(const ScheduledOp& op) const {
    double streaming = 0;
    int64_t access = 0;
    for (int tier = 0; tier < kTierCount; ++tier) {
      const MemoryTier& memory = schedule_.machine.tiers[tier];
      streaming += op.bytes[tier] / memory.bytes_per_cycle;
      access += op.transfers[tier] * memory.access_cycles;
    }
    return Cycles(streaming, 1) + access;
  }

  /*! \brief A kernel starts when its inputs are there and its engine has done the ones before. */
  void PlaceInTime() {
    std::vector<int64_t> ready(graph_.nodes.size(), 0);
    std::array<int64_t, kEngineCount> free{};
    for (ScheduledOp& op : schedule_.ops) {
      int64_t& engine_free = free[static_cast<int>(op.engine)];
      op.start_cycle = engine_free;
      for (const ValueRef& ref : graph_.nodes[op.node].inputs) {
        op.start_cycle = std::max(op.start_cycle, ready[ref.id]);
      }
      engine_free = ready[op.node] = op.end_cycle();
      schedule_.cycles = std::max(schedule_.cycles, op.end_cycle());
    }
    schedule_.microseconds = schedule_.cycles / schedule_.machine.frequency_mhz;
  }

  const Graph& graph_;
  const std::vector<std::vector<TensorInfo>>& outputs_;
  std::vector<int64_t> kernels_;  // node ids, in program order
  Lifetimes tensors_;
  Schedule schedule_;
};

// JSON -------------------------------------------------------------------------------------------

namespace json = ffi::json;

using Fields = std::vector<std::pair<const char*, ffi::Any>>;

json::Object Object(Fields fields) {
  json::Object object;
  for (auto& field : fields) object.Set(ffi::String(field.first), std::move(field.second));
  return object;
}

template <typename Range>
json::Array Integers(const Range& values) {
  return json::Array(values.begin(), values.end());
}

const char* RoleName(Role role) {
  static constexpr const char* kNames[] = {"input", "weight", "output"};
  return kNames[static_cast<int>(role)];
}

json::Object OperandJson(const Operand& operand) {
  return Object({{"role", ffi::String(RoleName(operand.role))},
                 {"name", ffi::String(operand.name)},
                 {"shape", Integers(operand.info.shape)},
                 {"dtype", ffi::DLDataTypeToString(operand.info.dtype)},
                 {"bytes", operand.bytes},
                 {"preferred_tier", ffi::String(TierName(operand.preferred))},
                 {"tier", ffi::String(TierName(operand.tier))},
                 {"spilled", operand.spilled()},
                 {"moved_bytes", operand.traffic.bytes},
                 {"transfers", operand.traffic.transfers}});
}

json::Object TilingJson(const Tiling& tiling) {
  json::Array dims, extents, tile;
  for (size_t i = 0; i < tiling.dims.size(); ++i) {
    if (tiling.dims[i].empty()) continue;
    dims.push_back(ffi::String(tiling.dims[i]));
    extents.push_back(tiling.extents[i]);
    tile.push_back(tiling.tile[i]);
  }
  return Object({{"dims", dims},
                 {"extents", extents},
                 {"tile", tile},
                 {"tiles", tiling.tiles},
                 {"tile_bytes", tiling.tile_bytes},
                 {"tier", ffi::String(TierName(tiling.tier))}});
}

json::Object OpJson(const ScheduledOp& op) {
  json::Array ops, operands;
  for (const std::string& name : op.ops) ops.push_back(ffi::String(name));
  for (const Operand& operand : op.operands) operands.push_back(OperandJson(operand));
  return Object({{"node", op.node},
                 {"name", ffi::String(op.name)},
                 {"ops", ops},
                 {"engine", ffi::String(EngineName(op.engine))},
                 {"fused", op.fused},
                 {"macs", op.macs},
                 {"element_ops", op.element_ops},
                 {"operands", operands},
                 {"tiling", TilingJson(op.tiling)},
                 {"moved_bytes", Integers(op.bytes)},
                 {"transfers", Integers(op.transfers)},
                 {"compute_cycles", op.compute_cycles},
                 {"memory_cycles", op.memory_cycles},
                 {"cycles", op.cycles},
                 {"bound", ffi::String(op.compute_bound() ? "compute" : "memory")},
                 {"start_cycle", op.start_cycle}});
}

json::Array TiersJson(const Schedule& schedule) {
  json::Array tiers;
  for (int tier = 0; tier < kTierCount; ++tier) {
    const MemoryTier& memory = schedule.machine.tiers[tier];
    int64_t moved = 0;
    for (const ScheduledOp& op : schedule.ops) moved += op.bytes[tier];
    tiers.push_back(Object({{"name", ffi::String(TierName(static_cast<Tier>(tier)))},
                            {"capacity_bytes", memory.capacity},
                            {"bytes_per_cycle", memory.bytes_per_cycle},
                            {"access_cycles", memory.access_cycles},
                            {"peak_bytes", schedule.peak[tier]},
                            {"moved_bytes", moved}}));
  }
  return tiers;
}

}  // namespace

Schedule PlanSchedule(const Graph& graph, const Options& options,
                      const std::vector<std::vector<TensorInfo>>& node_outputs) {
  return Planner(graph, options, node_outputs).Plan();
}

std::string ScheduleJson(const Schedule& schedule) {
  json::Array ops;
  int64_t macs = 0;
  for (const ScheduledOp& op : schedule.ops) {
    ops.push_back(OpJson(op));
    macs += op.macs;
  }
  return std::string(
      json::Stringify(Object({{"version", static_cast<int64_t>(1)},
                              {"mode", ffi::String(Name(schedule.options.mode))},
                              {"power_mode", ffi::String(Name(schedule.options.power_mode))},
                              {"frequency_mhz", schedule.machine.frequency_mhz},
                              {"macs", macs},
                              {"cycles", schedule.cycles},
                              {"microseconds", schedule.microseconds},
                              {"tiers", TiersJson(schedule)},
                              {"ops", ops}})));
}

}  // namespace example_npu
}  // namespace byoc
