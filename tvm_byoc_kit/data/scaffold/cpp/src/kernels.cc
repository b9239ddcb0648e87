#include "kernels.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

namespace {

struct Task {
  const byoc::InnerOp& op;
  const std::vector<Tensor>& in;
  const byoc::Shape& shape;  // of `out`
  float* out;
  bool bfloat16;
};

// The upper half of the number's bits.
float Cut(float value, bool bfloat16) {
  if (!bfloat16) return value;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits &= 0xFFFF0000u;
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

// Calls visit(offset of the result, n, channel, top, left of the window) for each result.
template <typename Visit>
void ForEachWindow(const Task& t, Visit visit) {
  byoc::Shape strides = t.op.attrs.Ints("strides"), padding = t.op.attrs.Ints("padding");
  int64_t at = 0;
  for (int64_t n = 0; n < t.shape[0]; ++n)
    for (int64_t c = 0; c < t.shape[1]; ++c)
      for (int64_t y = 0; y < t.shape[2]; ++y)
        for (int64_t x = 0; x < t.shape[3]; ++x, ++at)
          visit(at, n, c, y * strides[0] - padding[0], x * strides[1] - padding[1]);
}

// Calls visit(offset in the image, row, column of the window) for what lies in the image.
template <typename Visit>
void ForEachPixel(const byoc::Shape& image, int64_t plane, int64_t top, int64_t left,
                  int64_t height, int64_t width, Visit visit) {
  for (int64_t i = std::max<int64_t>(0, -top); i < std::min(height, image[2] - top); ++i)
    for (int64_t j = std::max<int64_t>(0, -left); j < std::min(width, image[3] - left); ++j)
      visit((plane * image[2] + top + i) * image[3] + left + j, i, j);
}

void Conv2d(const Task& t) {
  const byoc::Shape &image = t.in[0].shape, &kernel = t.in[1].shape;
  ForEachWindow(t, [&](int64_t at, int64_t n, int64_t o, int64_t top, int64_t left) {
    float sum = 0;
    for (int64_t c = 0; c < kernel[1]; ++c) {
      const float* weight = t.in[1].data + (o * kernel[1] + c) * kernel[2] * kernel[3];
      ForEachPixel(image, n * image[1] + c, top, left, kernel[2], kernel[3],
                   [&](int64_t pixel, int64_t i, int64_t j) {
                     sum += Cut(t.in[0].data[pixel], t.bfloat16) *
                            Cut(weight[i * kernel[3] + j], t.bfloat16);
                   });
    }
    t.out[at] = sum;
  });
}

void MaxPool2d(const Task& t) {
  const byoc::Shape image = t.in[0].shape, size = t.op.attrs.Ints("pool_size");
  ForEachWindow(t, [&](int64_t at, int64_t n, int64_t c, int64_t top, int64_t left) {
    float most = -std::numeric_limits<float>::infinity();
    ForEachPixel(
        image, n * image[1] + c, top, left, size[0], size[1],
        [&](int64_t pixel, int64_t, int64_t) { most = std::max(most, t.in[0].data[pixel]); });
    t.out[at] = most;
  });
}

void Matmul(const Task& t) {
  int64_t rows = t.shape[0], columns = t.shape[1], depth = t.in[0].shape[1];
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < columns; ++j)
        t.out[i * columns + j] += Cut(t.in[0].data[i * depth + k], t.bfloat16) *
                                  Cut(t.in[1].data[k * columns + j], t.bfloat16);
}

// Where element `at` of a result lies in an operand that is broadcast to its shape.
int64_t Broadcast(int64_t at, const byoc::Shape& result, const byoc::Shape& operand) {
  int64_t offset = 0, step = 1;
  for (size_t axis = 1; axis <= operand.size(); ++axis) {
    int64_t extent = operand[operand.size() - axis], whole = result[result.size() - axis];
    if (extent != 1) offset += at % whole * step;
    at /= whole;
    step *= extent;
  }
  return offset;
}

void Add(const Task& t) {
  for (int64_t at = 0; at < Size(t.shape); ++at)
    t.out[at] = t.in[0].data[Broadcast(at, t.shape, t.in[0].shape)] +
                t.in[1].data[Broadcast(at, t.shape, t.in[1].shape)];
}

void Relu(const Task& t) {
  std::transform(t.in[0].data, t.in[0].data + Size(t.shape), t.out,
                 [](float value) { return std::max(value, 0.0f); });
}

void Reshape(const Task& t) { std::copy_n(t.in[0].data, Size(t.shape), t.out); }

const std::map<std::string, std::function<void(const Task&)>> kKernels = {
    {"relax.nn.conv2d", Conv2d}, {"relax.nn.max_pool2d", MaxPool2d},
    {"relax.matmul", Matmul},    {"relax.add", Add},
    {"relax.nn.relu", Relu},     {"relax.reshape", Reshape},
};

}  // namespace

int64_t Size(const byoc::Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

void CheckKernel(const byoc::InnerOp& op) {
  if (kKernels.count(op.name) == 0 || op.outputs.size() != 1) {
    TVM_FFI_THROW(ValueError) << "my_backend/patterns.py takes " << op.name << " with "
                              << op.outputs.size() << " result(s), which kKernels in "
                              << "src/kernels.cc does not have; add a kernel";
  }
}

Tensor RunOp(const byoc::InnerOp& op, const std::vector<Tensor>& operands, bool bfloat16) {
  Tensor out{op.outputs[0].shape, nullptr, nullptr};
  out.memory = std::make_shared<std::vector<float>>(Size(out.shape));
  out.data = out.memory->data();
  kKernels.at(op.name)({op, operands, out.shape, out.memory->data(), bfloat16});
  return out;
}
