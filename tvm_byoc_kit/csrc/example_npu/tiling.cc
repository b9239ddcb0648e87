#include "tiling.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <tuple>

namespace byoc {
namespace example_npu {
namespace {

/*! \brief The loops of a convolution or matmul, in this order in a Tiling. */
enum MacDim { kBatch, kGroup, kRow, kColumn, kChannel, kReduce, kMacDims };
using MacTile = std::array<int64_t, kMacDims>;

/*! \brief Side of the MAC array; smaller blocks of output channels or reduction leave it idle. */
constexpr int64_t kArraySide = 16;

/*! \brief `bytes` * `part` / `whole`, rounded up. */
int64_t Share(int64_t bytes, double part, double whole) {
  if (whole <= 0) return bytes;
  // Just under one, for the product may be a hair above the integer that it stands for.
  return std::min(bytes, static_cast<int64_t>(bytes * (part / whole) + 0.999999));
}

double Product(const Shape& dims) {
  return std::accumulate(dims.begin(), dims.end(), 1.0, std::multiplies<double>());
}

int64_t TileCount(int64_t extent, int64_t tile) { return tile == 0 ? 1 : CeilDiv(extent, tile); }

/*! \brief The lowest tier, from L1 on, with room for a tile. */
Tier FittingTier(int64_t tile_bytes, const Machine& machine) {
  if (tile_bytes <= machine.tile_bytes) return Tier::kL1;
  return tile_bytes <= machine[Tier::kL2].capacity ? Tier::kL2 : Tier::kL3;
}

/*! \brief `extent` and its halves, down to `least`. */
std::vector<int64_t> Halvings(int64_t extent, int64_t least) {
  std::vector<int64_t> sizes = {extent};
  while (sizes.back() > least) sizes.push_back(std::max(CeilDiv(sizes.back(), 2), least));
  return sizes;
}

/*! \brief Finds the tile of a convolution or matmul. */
class MacTiler {
 public:
  MacTiler(const MacLoops& loops, const std::vector<TiledOperand>& operands)
      : loops_(loops), operands_(operands), extents_{loops.batch,   loops.groups,   loops.rows,
                                                     loops.columns, loops.channels, loops.reduce} {}

  TilePlan Plan(const Machine& machine) const {
    MacTile best = Search(machine.tile_bytes);
    TilePlan plan;
    Tiling& tiling = plan.tiling;
    using Names = std::vector<std::string>;
    tiling.dims = loops_.is_conv ? Names{"batch", "group", "row", "column", "channel", "reduce"}
                                 : Names{"batch", "", "m", "", "n", "k"};
    tiling.extents.assign(extents_.begin(), extents_.end());
    tiling.tile.assign(best.begin(), best.end());
    tiling.tiles = Tiles(best);
    tiling.tile_bytes = TileBytes(best);
    tiling.tier = FittingTier(tiling.tile_bytes, machine);
    plan.traffic = OperandTraffic(best);
    return plan;
  }

 private:
  /*! \brief Times that the input and the weight are read in full. */
  struct Passes {
    int64_t input = 1, weight = 1;
  };
  struct MacTraffic {
    Traffic input, weight;
  };
  /*! \brief What the search makes small, in this order: DRAM bytes, all bytes, tiles. */
  using Cost = std::tuple<int64_t, int64_t, int64_t>;

  MacTile Search(int64_t room) const {
    std::array<std::vector<int64_t>, kMacDims> sizes;
    MacTile smallest{};
    for (int dim = 0; dim < kMacDims; ++dim) {
      sizes[dim] = Halvings(extents_[dim], dim == kChannel || dim == kReduce ? kArraySide : 1);
      smallest[dim] = sizes[dim].back();
    }
    MacTile best = smallest;
    Cost best_cost = CostOf(smallest);
    std::array<size_t, kMacDims> at{};
    for (bool more = true; more; more = Advance(sizes, &at)) {
      MacTile tile{};
      for (int dim = 0; dim < kMacDims; ++dim) tile[dim] = sizes[dim][at[dim]];
      if (TileBytes(tile) > room) continue;
      Cost cost = CostOf(tile);
      if (cost >= best_cost) continue;
      best = tile;
      best_cost = cost;
    }
    return best;
  }

  /*! \brief Step to the next combination; false after the last. */
  static bool Advance(const std::array<std::vector<int64_t>, kMacDims>& sizes,
                      std::array<size_t, kMacDims>* at) {
    for (int dim = 0; dim < kMacDims; ++dim) {
      if (++(*at)[dim] < sizes[dim].size()) return true;
      (*at)[dim] = 0;
    }
    return false;
  }

  int64_t Count(const MacTile& tile, MacDim dim) const {
    return TileCount(extents_[dim], tile[dim]);
  }

  int64_t Tiles(const MacTile& tile) const {
    int64_t tiles = 1;
    for (int dim = 0; dim < kMacDims; ++dim) tiles *= Count(tile, static_cast<MacDim>(dim));
    return tiles;
  }

  /*! \brief Bytes of all operands of one tile. */
  int64_t TileBytes(const MacTile& tile) const {
    auto spanned = [](int64_t steps, int64_t stride, int64_t window, int64_t size) {
      return std::min(size, (steps - 1) * stride + window);
    };
    double rows = spanned(tile[kRow], loops_.stride_h, loops_.window_h, loops_.input_rows);
    double columns = spanned(tile[kColumn], loops_.stride_w, loops_.window_w, loops_.input_columns);
    auto input = [](const MacTile& t) { return 1.0 * t[kBatch] * t[kGroup] * t[kReduce]; };
    auto output = [](const MacTile& t) {
      return 1.0 * t[kBatch] * t[kGroup] * t[kRow] * t[kColumn] * t[kChannel];
    };
    auto weight = [this](const MacTile& t) {
      return 1.0 * t[kGroup] * t[kChannel] * t[kReduce] * (loops_.batched_weight ? t[kBatch] : 1);
    };
    int64_t bytes = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(operands_.size()); ++i) {
      int64_t size = operands_[i].bytes;
      if (i == loops_.input) {
        bytes += Share(size, input(tile) * rows * columns,
                       input(extents_) * loops_.input_rows * loops_.input_columns);
      }
      if (i == loops_.weight) bytes += Share(size, weight(tile), weight(extents_));
      if (i != loops_.input && i != loops_.weight) {
        bytes += Share(size, output(tile), output(extents_));
      }
    }
    return bytes;
  }

  /*! \brief Input bytes of one pass over all tiles; what two windows share is read for both. */
  int64_t InputBytesWithHalo(const MacTile& tile) const {
    auto grown = [](int64_t size, int64_t tiles, int64_t window, int64_t stride) {
      return size + (tiles - 1) * std::max<int64_t>(window - stride, 0);
    };
    int64_t rows = grown(loops_.input_rows, Count(tile, kRow), loops_.window_h, loops_.stride_h);
    int64_t columns =
        grown(loops_.input_columns, Count(tile, kColumn), loops_.window_w, loops_.stride_w);
    int64_t plane = loops_.input_rows * loops_.input_columns;
    int64_t bytes = operands_[loops_.input].bytes;
    return plane == 0 ? bytes : static_cast<int64_t>(1.0 * bytes / plane * rows * columns + 0.5);
  }

  MacTraffic TrafficOf(const MacTile& tile, Passes passes) const {
    int64_t images = Count(tile, kBatch), groups = Count(tile, kGroup);
    int64_t pixels = Count(tile, kRow) * Count(tile, kColumn);
    int64_t channels = Count(tile, kChannel), parts = Count(tile, kReduce);
    MacTraffic traffic;
    if (loops_.input >= 0) {
      traffic.input = {passes.input * InputBytesWithHalo(tile),
                       passes.input * images * groups * pixels * parts};
    }
    if (loops_.weight >= 0) {
      int64_t tiles = groups * channels * parts * (loops_.batched_weight ? images : 1);
      traffic.weight = {passes.weight * operands_[loops_.weight].bytes, passes.weight * tiles};
    }
    return traffic;
  }

  std::pair<int64_t, int64_t> BytesOf(const MacTraffic& traffic) const {
    int64_t dram = 0;
    if (loops_.input >= 0 && operands_[loops_.input].tier == Tier::kL3) {
      dram += traffic.input.bytes;
    }
    if (loops_.weight >= 0 && operands_[loops_.weight].tier == Tier::kL3) {
      dram += traffic.weight.bytes;
    }
    return {dram, traffic.input.bytes + traffic.weight.bytes};
  }

  /*! \brief Traffic of input and weight in the better loop order. */
  MacTraffic BestTraffic(const MacTile& tile) const {
    // A tile stays in place from one step to the next only if it holds the whole reduction.
    bool whole = Count(tile, kReduce) == 1;
    int64_t channels = Count(tile, kChannel);
    int64_t pixels = Count(tile, kRow) * Count(tile, kColumn) *
                     (loops_.batched_weight ? 1 : Count(tile, kBatch));
    MacTraffic weight_stays = TrafficOf(tile, {channels, whole ? 1 : pixels});
    MacTraffic input_stays = TrafficOf(tile, {whole ? 1 : channels, pixels});
    return BytesOf(input_stays) < BytesOf(weight_stays) ? input_stays : weight_stays;
  }

  Cost CostOf(const MacTile& tile) const {
    auto [dram, all] = BytesOf(BestTraffic(tile));
    return {dram, all, Tiles(tile)};
  }

  std::vector<Traffic> OperandTraffic(const MacTile& tile) const {
    // The reduction is the innermost loop: a tile of the result moves once, when it is complete.
    int64_t transfers = Tiles(tile) / Count(tile, kReduce);
    std::vector<Traffic> traffic;
    for (const TiledOperand& operand : operands_) traffic.push_back({operand.bytes, transfers});
    MacTraffic mac = BestTraffic(tile);
    // Cleared before adding, for one operand may be both: x * x is moved for each.
    if (loops_.input >= 0) traffic[loops_.input] = {};
    if (loops_.weight >= 0) traffic[loops_.weight] = {};
    for (auto [index, part] :
         {std::make_pair(loops_.input, mac.input), std::make_pair(loops_.weight, mac.weight)}) {
      if (index < 0) continue;
      traffic[index].bytes += part.bytes;
      traffic[index].transfers += part.transfers;
    }
    return traffic;
  }

  const MacLoops& loops_;
  const std::vector<TiledOperand>& operands_;
  MacTile extents_;
};

/*! \brief Cuts the largest operand along its outermost dimensions; the others follow it. */
TilePlan PlanStream(const std::vector<TiledOperand>& operands, const Machine& machine) {
  const TiledOperand* largest = &operands.back();
  for (const TiledOperand& operand : operands) {
    if (Elements(operand.shape) > Elements(largest->shape)) largest = &operand;
  }
  TilePlan plan;
  Tiling& tiling = plan.tiling;
  tiling.extents = tiling.tile = largest->shape;
  auto tile_bytes = [&] {
    int64_t bytes = 0;
    for (const TiledOperand& operand : operands) {
      bytes += Share(operand.bytes, Product(tiling.tile), Product(tiling.extents));
    }
    return bytes;
  };
  tiling.tile_bytes = tile_bytes();
  for (size_t dim = 0; dim < tiling.tile.size(); ++dim) {
    int64_t& size = tiling.tile[dim];
    while (tiling.tile_bytes > machine.tile_bytes && size > 1) {
      size = CeilDiv(size, 2);
      tiling.tile_bytes = tile_bytes();
    }
    tiling.dims.push_back("d" + std::to_string(dim));
    tiling.tiles *= TileCount(tiling.extents[dim], size);
  }
  tiling.tier = FittingTier(tiling.tile_bytes, machine);
  for (const TiledOperand& operand : operands) {
    plan.traffic.push_back({operand.bytes, tiling.tiles});
  }
  return plan;
}

}  // namespace

TilePlan PlanTiles(const Work& work, const std::vector<TiledOperand>& operands,
                   const Machine& machine) {
  if (work.loops.has_value()) return MacTiler(*work.loops, operands).Plan(machine);
  return PlanStream(operands, machine);
}

}  // namespace example_npu
}  // namespace byoc
