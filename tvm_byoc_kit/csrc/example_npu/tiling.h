// How a kernel is cut into tiles that fit the SRAM, and what traffic the tiles cause.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "byoc/graph.h"
#include "machine.h"
#include "op_cost.h"

namespace byoc {
namespace example_npu {

/*! \brief One loop per dimension; a tile takes `tile[i]` of its `extents[i]` steps. */
struct Tiling {
  std::vector<std::string> dims;  // "" for a loop that this kind of kernel does not have
  Shape extents;
  Shape tile;
  int64_t tiles = 1;       // how many there are
  int64_t tile_bytes = 0;  // of all operands of the largest one
  Tier tier = Tier::kL1;   // where it fits: L1, or further out when even the smallest tile does not
};

/*! \brief What an operand moves through the port of its tier in one execution of the kernel. */
struct Traffic {
  int64_t bytes = 0;
  int64_t transfers = 0;  // of one tile each
};

/*! \brief An operand as the tiling sees it. */
struct TiledOperand {
  Shape shape;
  int64_t bytes = 0;
  Tier tier = Tier::kL3;  // where the tensor lives
};

struct TilePlan {
  Tiling tiling;
  std::vector<Traffic> traffic;  // of each operand
};

/*!
 * \brief Cut a kernel into tiles.
 *
 * Convolutions and matmuls: of all tiles whose dimensions are the full ones halved any number of
 * times (output channels and reduction down to 16, the side of the MAC array) and which fit, the
 * one that moves the fewest bytes to and from DRAM, then the fewest at all, then the largest.  The
 * input and the weight are read again for every tile that needs them, in the better of two loop
 * orders: weights stay in L1 while inputs pass, or the reverse.  More room in L1 only adds tiles to
 * choose from, so that it never costs DRAM traffic.
 *
 * All other kernels stream: the largest operand is cut along its outermost dimensions, and every
 * operand moves once.
 *
 * \param work The kernel's work.
 * \param operands Inputs in the kernel's order, then outputs; at least one.
 * \param machine Supplies the room.
 */
TilePlan PlanTiles(const Work& work, const std::vector<TiledOperand>& operands,
                   const Machine& machine);

}  // namespace example_npu
}  // namespace byoc
