// Convolution: depthwise directly, everything else as a matrix product over windows.
#include <algorithm>
#include <cstring>

#include "gemm.h"
#include "kernels_mac.h"
#include "simd.h"

namespace byoc {
namespace example_npu {
namespace {

/*! \brief Attributes of a convolution, a 1-D one being a 2-D one of height 1. */
struct ConvAttrs {
  Shape strides, dilation;  // height, width
  Shape padding;            // top, left, bottom, right
  int64_t groups;
  std::string data, kernel, out;  // layouts, of the letters N C H W or O I H W
};

/*! \brief `layout` with H inserted before W when it is 1-D. */
std::string Layout2D(std::string layout) {
  if (layout.size() == 3 && layout.find('W') != std::string::npos) {
    layout.insert(layout.find('W'), "H");
  }
  return layout;
}

bool IsLayout(std::string layout, std::string letters) {
  std::sort(layout.begin(), layout.end());
  std::sort(letters.begin(), letters.end());
  return layout == letters;
}

/*! \brief `count` integers, those for the height of a 1-D convolution being `fill`. */
Shape Ints2D(const OpRef& op, const char* key, size_t count, int64_t least, int64_t fill) {
  if (op.op->name != "relax.nn.conv1d") return op.Ints(key, count, least);
  Shape values = op.Ints(key, count / 2, least);
  for (size_t i = 0; i < count; i += 2) values.insert(values.begin() + i, fill);
  return values;
}

ConvAttrs ParseConv(const OpRef& op) {
  bool is_1d = op.op->name == "relax.nn.conv1d";
  ConvAttrs attrs;
  attrs.strides = Ints2D(op, "strides", 2, 1, 1);
  attrs.dilation = Ints2D(op, "dilation", 2, 1, 1);
  attrs.padding = Ints2D(op, "padding", 4, 0, 0);
  attrs.groups = op.attrs().Int("groups", 1);
  op.Require(attrs.groups >= 1, "groups must be at least 1");
  attrs.data = Layout2D(op.attrs().Str("data_layout", is_1d ? "NCW" : "NCHW"));
  attrs.kernel = Layout2D(op.attrs().Str("kernel_layout", is_1d ? "OIW" : "OIHW"));
  attrs.out = Layout2D(op.attrs().Str("out_layout", attrs.data));
  for (const std::string& layout : {attrs.data, attrs.out}) {
    if (!IsLayout(layout, "NCHW")) op.Fail("data layout `" + layout + "` has other axes than NCHW");
  }
  if (!IsLayout(attrs.kernel, "OIHW")) {
    op.Fail("kernel layout `" + attrs.kernel + "` has other axes than OIHW");
  }
  return attrs;
}

/*! \brief Positions in `layout` of the letters of `wanted`. */
Shape Positions(const std::string& layout, const std::string& wanted) {
  Shape out;
  for (char letter : wanted) out.push_back(layout.find(letter));
  return out;
}

/*! \brief `tensor` with a height of 1 inserted where `layout` has its H, when it has rank 3. */
Tensor With2D(const Tensor& tensor, const std::string& layout) {
  Tensor out = tensor;
  if (out.rank() == 3) {
    size_t height = layout.find('H');
    out.shape.insert(out.shape.begin() + height, 1);
    out.strides.insert(out.strides.begin() + height, 0);
  }
  return out;
}

/*! \brief A convolution ready to be computed; x and w are views in the order NCHW and OIHW. */
struct ConvProblem {
  ConvAttrs attrs;
  Tensor x, w;
  Shape out;  // N, O, H, W
  int64_t group_channels() const { return w.shape[1]; }
  int64_t group_outputs() const { return out[1] / attrs.groups; }
  int64_t pixels() const { return out[2] * out[3]; }
  bool depthwise() const { return group_channels() == 1 && attrs.groups == x.shape[1]; }
};

int64_t OutputSize(const Call& call, int64_t in, int64_t before, int64_t after, int64_t window,
                   int64_t dilation, int64_t stride) {
  int64_t padded = in + before + after;
  bool fits = window >= 1 && window <= padded && dilation * (window - 1) < padded;
  call.Require(fits, "the window is larger than the padded input");
  return (padded - dilation * (window - 1) - 1) / stride + 1;
}

ConvProblem MakeProblem(const Call& call) {
  ConvProblem p;
  p.attrs = ParseConv(call);
  int64_t rank = call.op->name == "relax.nn.conv1d" ? 3 : 4;
  for (const Tensor& input : call.inputs) {
    call.Require(input.rank() == rank, "data and weight must have the rank of their layouts");
  }
  p.x = With2D(call.inputs[0], p.attrs.data).Permuted(Positions(p.attrs.data, "NCHW"));
  p.w = With2D(call.inputs[1], p.attrs.kernel).Permuted(Positions(p.attrs.kernel, "OIHW"));
  const Shape &x = p.x.shape, &w = p.w.shape, &pad = p.attrs.padding;
  int64_t groups = p.attrs.groups;
  if (x[1] % groups != 0 || x[1] / groups != w[1] || w[0] % groups != 0) {
    call.Fail("data with " + std::to_string(x[1]) + " channels does not go with " +
              std::to_string(groups) + " groups of weights " + ShapeText(w) + " (OIHW)");
  }
  p.out = {x[0], w[0],
           OutputSize(call, x[2], pad[0], pad[2], w[2], p.attrs.dilation[0], p.attrs.strides[0]),
           OutputSize(call, x[3], pad[1], pad[3], w[3], p.attrs.dilation[1], p.attrs.strides[1])};
  return p;
}

/*! \brief Copies rows of a dense tensor into a larger one of the given strides. */
void CopyInto(const Tensor& from, size_t depth, int64_t from_at, char* to,
              const Shape& to_strides) {
  int64_t item = ItemBytes(from.dtype);
  if (depth + 1 == from.shape.size()) {
    std::memcpy(to, from.data + from_at * item, from.shape[depth] * item);
    return;
  }
  for (int64_t i = 0; i < from.shape[depth]; ++i) {
    CopyInto(from, depth + 1, from_at + i * from.strides[depth], to + i * to_strides[depth] * item,
             to_strides);
  }
}

/*! \brief Puts zeros around height and width, keeping the order of the axes in memory. */
void PadInput(const Call& call, ConvProblem* p) {
  const Shape& pad = p->attrs.padding;
  if (std::all_of(pad.begin(), pad.end(), [](int64_t n) { return n == 0; })) return;
  const std::string& layout = p->attrs.data;
  Tensor x = call.memory->Dense(p->x.Permuted(Positions("NCHW", layout)));
  Shape shape = x.shape;
  size_t h = layout.find('H'), w = layout.find('W');
  shape[h] += pad[0] + pad[2];
  shape[w] += pad[1] + pad[3];
  Tensor padded = call.Allocate(shape, x.dtype);
  std::memset(padded.data, 0, padded.bytes());
  int64_t first = pad[0] * padded.strides[h] + pad[1] * padded.strides[w];
  if (x.size() > 0) {
    CopyInto(x, 0, 0, padded.data + first * ItemBytes(x.dtype), padded.strides);
  }
  p->x = padded.Permuted(Positions(layout, "NCHW"));
}

/*! \brief Offsets in the input of the elements of a window, in the order of the weights' rows. */
std::vector<int64_t> WindowOffsets(const ConvProblem& p, const std::string& order) {
  const Shape& s = p.x.strides;
  const Shape& d = p.attrs.dilation;
  auto count = [&](char axis) { return p.w.shape[std::string("OIHW").find(axis)]; };
  auto step = [&](char axis) {
    return axis == 'I' ? s[1] : axis == 'H' ? d[0] * s[2] : d[1] * s[3];
  };
  std::vector<int64_t> offsets = {0};
  for (char axis : order) {
    std::vector<int64_t> next;
    next.reserve(offsets.size() * count(axis));
    for (int64_t offset : offsets) {
      for (int64_t i = 0; i < count(axis); ++i) next.push_back(offset + i * step(axis));
    }
    offsets = std::move(next);
  }
  return offsets;
}

std::vector<int64_t> PixelOffsets(const ConvProblem& p) {
  std::vector<int64_t> offsets;
  offsets.reserve(p.pixels());
  for (int64_t y = 0; y < p.out[2]; ++y) {
    for (int64_t x = 0; x < p.out[3]; ++x) {
      offsets.push_back(y * p.attrs.strides[0] * p.x.strides[2] +
                        x * p.attrs.strides[1] * p.x.strides[3]);
    }
  }
  return offsets;
}

void ConvByGemm(const Call& call, const ConvProblem& p, const Tensor& out) {
  std::string order = p.attrs.kernel;  // of a row of weights: their order in memory without O
  order.erase(order.find('O'), 1);
  Tensor w = AsFloat(call, p.w.Permuted(Positions("OIHW", "O" + order)));
  std::vector<int64_t> k_offsets = WindowOffsets(p, order), n_offsets = PixelOffsets(p);
  GemmProblem gemm;
  gemm.m = p.group_outputs();
  gemm.n = p.pixels();
  gemm.k = gemm.a_stride = static_cast<int64_t>(k_offsets.size());
  gemm.b_type = p.x.dtype;
  gemm.k_offsets = k_offsets.data();
  gemm.n_offsets = n_offsets.data();
  gemm.c_stride = gemm.n;
  gemm.integer = SameType(out.dtype, kInt32);
  int64_t item = ItemBytes(p.x.dtype);
  for (int64_t n = 0; n < p.out[0]; ++n) {
    for (int64_t g = 0; g < p.attrs.groups; ++g) {
      gemm.a = w.as<float>() + g * gemm.m * gemm.k;
      gemm.b = p.x.data + (n * p.x.strides[0] + g * p.group_channels() * p.x.strides[1]) * item;
      gemm.c = out.as<float>() + (n * p.out[1] + g * gemm.m) * gemm.n;
      Gemm(gemm);
    }
  }
}

/*! \brief One output channel of a depthwise convolution. */
struct Plane {
  int64_t rows, columns, window_h, window_w;
  int64_t step_y, step_x;      // between neighbouring outputs, in elements of the input
  int64_t window_y, window_x;  // between neighbouring elements of the window
};

template <typename T, typename Sum>
BYOC_INLINE void ComputePlane(const Plane& p, const T* x, const T* w, Sum* out) {
  for (int64_t row = 0; row < p.rows; ++row, out += p.columns) {
    for (int64_t i = 0; i < p.columns; ++i) out[i] = 0;
    for (int64_t y = 0; y < p.window_h; ++y) {
      for (int64_t k = 0; k < p.window_w; ++k) {
        const T* from = x + row * p.step_y + y * p.window_y + k * p.window_x;
        Sum weight = w[y * p.window_w + k];
        if (p.step_x == 1) {
          for (int64_t i = 0; i < p.columns; ++i) out[i] += weight * from[i];
        } else {
          for (int64_t i = 0; i < p.columns; ++i) out[i] += weight * from[i * p.step_x];
        }
      }
    }
  }
}

BYOC_MULTIVERSION void PlaneOf(const Plane& p, const float* x, const float* w, float* out) {
  ComputePlane(p, x, w, out);
}
BYOC_MULTIVERSION void PlaneOf(const Plane& p, const int8_t* x, const int8_t* w, int32_t* out) {
  ComputePlane(p, x, w, out);
}
BYOC_MULTIVERSION void PlaneOf(const Plane& p, const uint8_t* x, const uint8_t* w, int32_t* out) {
  ComputePlane(p, x, w, out);
}

template <typename T, typename Sum>
void Depthwise(const Call& call, const ConvProblem& p, const Tensor& out) {
  Tensor x = call.memory->Dense(p.x), w = call.memory->Dense(p.w);
  Plane plane{p.out[2],
              p.out[3],
              p.w.shape[2],
              p.w.shape[3],
              p.attrs.strides[0] * x.strides[2],
              p.attrs.strides[1],
              p.attrs.dilation[0] * x.strides[2],
              p.attrs.dilation[1]};
  int64_t window = plane.window_h * plane.window_w;
  for (int64_t n = 0; n < p.out[0]; ++n) {
    for (int64_t o = 0; o < p.out[1]; ++o) {
      int64_t channel = o / p.group_outputs();
      PlaneOf(plane, x.as<T>() + n * x.strides[0] + channel * x.strides[1], w.as<T>() + o * window,
              out.as<Sum>() + (n * p.out[1] + o) * p.pixels());
    }
  }
}

void ComputeConv(const Call& call, ConvProblem* p, const Tensor& out) {
  if (out.size() == 0) return;
  PadInput(call, p);
  bool same_types = SameType(p->x.dtype, p->w.dtype);
  if (!p->depthwise() || !same_types) return ConvByGemm(call, *p, out);
  if (SameType(p->x.dtype, kFloat32)) return Depthwise<float, float>(call, *p, out);
  if (SameType(p->x.dtype, kInt8)) return Depthwise<int8_t, int32_t>(call, *p, out);
  Depthwise<uint8_t, int32_t>(call, *p, out);
}

/*! \brief The view of a result in NCHW order that the op's own output is. */
Tensor InOutputLayout(const Tensor& result, const ConvAttrs& attrs, int64_t rank) {
  Tensor out = result.Permuted(Positions("NCHW", attrs.out));
  if (rank == 3) {
    size_t height = attrs.out.find('H');
    out.shape.erase(out.shape.begin() + height);
    out.strides.erase(out.strides.begin() + height);
  }
  return out;
}

}  // namespace

void CheckConv(const OpRef& op) { ParseConv(op); }

std::vector<Tensor> Conv(Call& call) {
  ConvProblem p = MakeProblem(call);
  Tensor sums = call.Allocate(p.out, SumType(p.x.dtype));
  if (!call.dry()) ComputeConv(call, &p, sums);
  return {InOutputLayout(CutTo(call, sums, call.type()), p.attrs, call.inputs[0].rank())};
}

}  // namespace example_npu
}  // namespace byoc
