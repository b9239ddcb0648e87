// Ops that move data or only see it under another shape; most give views.
#include <algorithm>
#include <cstring>

#include "kernels.h"

namespace byoc {
namespace example_npu {
namespace {

/*! \brief The shape a reshape asks for: an argument, or a tensor when the shape is symbolic. */
Shape WantedShape(const Call& call) {
  if (call.inputs.size() == 2) {
    const Tensor& shape = call.inputs[1];
    call.Require(SameType(shape.dtype, kInt64) && shape.rank() == 1 && shape.data != nullptr,
                 "the shape must be an R.Shape");
    return Shape(shape.as<int64_t>(), shape.as<int64_t>() + shape.shape[0]);
  }
  call.Require(call.op->args.size() == 2 && call.op->args[1].kind == Arg::Kind::kShape,
               "the new shape is missing");
  return call.op->args[1].shape;
}

/*! \brief `shape` with its one unknown dimension made to fit `count` elements. */
Shape Completed(const Call& call, Shape shape, int64_t count) {
  auto unknown = std::find(shape.begin(), shape.end(), -1);
  if (unknown != shape.end()) {
    if (std::count(shape.begin(), shape.end(), -1) > 1) {
      call.Fail("the new shape " + ShapeText(shape) +
                " has more than one symbolic dimension; give it as one R.Shape parameter, or keep "
                "this op on the host");
    }
    *unknown = 1;
    int64_t known = Count(shape);
    *unknown = known > 0 ? count / known : 0;
  }
  if (Count(shape) != count) {
    call.Fail("cannot reshape " + ShapeText(call.inputs[0].shape) + " to " + ShapeText(shape));
  }
  return shape;
}

}  // namespace

std::vector<Tensor> Reshape(Call& call) {
  Shape shape = Completed(call, WantedShape(call), call.inputs[0].size());
  return {call.Dense(0).Reshaped(shape)};
}

std::vector<Tensor> Flatten(Call& call) {
  return {call.Dense(0).Reshaped({call.inputs[0].size()})};
}

std::vector<Tensor> PermuteDims(Call& call) {
  int64_t rank = call.inputs[0].rank();
  Shape reversed(rank);
  for (int64_t i = 0; i < rank; ++i) reversed[i] = rank - 1 - i;
  Shape axes = call.Axes("axes", rank, reversed);
  call.Require(static_cast<int64_t>(axes.size()) == rank, "axes must name every dimension");
  return {call.inputs[0].Permuted(axes)};
}

std::vector<Tensor> Concat(Call& call) {
  int64_t rank = call.inputs[0].rank();
  if (!call.attrs().Has("axis")) {  // of the flattened tensors
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      call.inputs[i] = call.Dense(i).Reshaped({call.inputs[i].size()});
    }
    rank = 1;
  }
  int64_t axis = call.Axis(call.attrs().Int("axis", 0), rank);
  Shape shape = call.inputs[0].shape;
  shape[axis] = 0;
  for (const Tensor& input : call.inputs) {
    Shape same = input.shape;
    if (input.rank() == rank) same[axis] = shape[axis];
    if (same != shape) {
      call.Fail("cannot concatenate " + ShapeText(call.inputs[0].shape) + " and " +
                ShapeText(input.shape) + " along axis " + std::to_string(axis));
    }
    shape[axis] += input.shape[axis];
  }
  Tensor out = call.Allocate(shape, call.inputs[0].dtype);
  if (call.dry()) return {out};
  int64_t outer = Count(Shape(shape.begin(), shape.begin() + axis));
  int64_t row = outer > 0 ? out.bytes() / outer : 0;
  char* to = out.data;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Tensor from = call.Dense(i);
    int64_t piece = outer > 0 ? from.bytes() / outer : 0;
    for (int64_t o = 0; o < outer; ++o) {
      std::memcpy(to + o * row, from.data + o * piece, piece);
    }
    to += piece;
  }
  return {out};
}

std::vector<Tensor> Squeeze(Call& call) {
  const Tensor& x = call.inputs[0];
  Shape ones;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (x.shape[i] == 1) ones.push_back(i);
  }
  Shape axes = call.Axes("axis", x.rank(), ones);
  Tensor out = x;
  out.shape.clear();
  out.strides.clear();
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) {
      out.shape.push_back(x.shape[i]);
      out.strides.push_back(x.strides[i]);
    } else if (x.shape[i] != 1) {
      call.Fail("cannot squeeze axis " + std::to_string(i) + " of " + ShapeText(x.shape));
    }
  }
  return {out};
}

std::vector<Tensor> ExpandDims(Call& call) {
  const Tensor& x = call.inputs[0];
  int64_t rank = x.rank() + static_cast<int64_t>(call.attrs().Ints("axis").size());
  Shape axes = call.Axes("axis", rank, {});
  Tensor out = x;
  out.shape.assign(rank, 1);
  out.strides.assign(rank, 0);
  for (int64_t i = 0, from = 0; i < rank; ++i) {
    if (std::find(axes.begin(), axes.end(), i) != axes.end()) continue;
    out.shape[i] = x.shape[from];
    out.strides[i] = x.strides[from++];
  }
  return {out};
}

}  // namespace example_npu
}  // namespace byoc
