#include "tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "simd.h"

namespace byoc {
namespace example_npu {

std::string ShapeText(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    out += (i ? ", " : "") + (shape[i] < 0 ? std::string("?") : std::to_string(shape[i]));
  }
  return out + "]";
}

std::string TensorText(DLDataType type, const Shape& shape) {
  return std::string(ffi::DLDataTypeToString(type)) + ShapeText(shape);
}

int64_t Count(const Shape& shape) {
  // Far beyond any memory, and times an item's bytes or a stride still no overflow.
  constexpr int64_t kMostElements = int64_t{1} << 38;
  int64_t product = 1;  // dimensions of 0 left out, since strides are products of the others
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0 || dim > kMostElements / product) {
      TVM_FFI_THROW(ValueError) << "example_npu: a tensor of shape " << ShapeText(shape)
                                << " cannot exist";
    }
    empty |= dim == 0;
    product *= std::max<int64_t>(dim, 1);
  }
  return empty ? 0 : product;
}

Shape DenseStrides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

namespace {

/*! \brief Freed buffers by size, so that calls do not pay for fresh pages; bounded. */
class Pool {
 public:
  /*! \brief Never destroyed: buffers may outlive static objects. */
  static Pool& Get() {
    static Pool* pool = new Pool();
    return *pool;
  }

  std::pair<char*, int64_t> Take(int64_t bytes) {
    int64_t size = (std::max<int64_t>(bytes, 64) + 63) / 64 * 64;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto it = free_.lower_bound(size);
      if (it != free_.end() && it->first <= 2 * size) {
        std::pair<char*, int64_t> found{it->second, it->first};
        held_ -= it->first;
        free_.erase(it);
        return found;
      }
    }
    auto data = static_cast<char*>(std::aligned_alloc(64, size));
    if (data == nullptr) {
      TVM_FFI_THROW(RuntimeError) << "example_npu: cannot allocate " << size << " bytes";
    }
    return {data, size};
  }

  void Give(char* data, int64_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.emplace(size, data);
    held_ += size;
    while (held_ > kMaxHeld || free_.size() > kMaxBuffers) {
      auto largest = std::prev(free_.end());
      held_ -= largest->first;
      std::free(largest->second);
      free_.erase(largest);
    }
  }

 private:
  static constexpr int64_t kMaxHeld = int64_t{256} << 20;
  static constexpr size_t kMaxBuffers = 256;
  std::mutex mutex_;
  std::multimap<int64_t, char*> free_;
  int64_t held_ = 0;
};

BYOC_MULTIVERSION void Widen(const uint16_t* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, HalfToFloat(Load<VecH>(x + i)));
  if (i < n) {
    uint16_t half[kLanes] = {};
    float wide[kLanes];
    std::memcpy(half, x + i, (n - i) * sizeof(uint16_t));
    Store(wide, HalfToFloat(Load<VecH>(half)));
    std::memcpy(y + i, wide, (n - i) * sizeof(float));
  }
}

BYOC_MULTIVERSION void Narrow(const float* x, uint16_t* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, FloatToHalf(Load<VecF>(x + i)));
  if (i < n) {
    float wide[kLanes] = {};
    uint16_t half[kLanes];
    std::memcpy(wide, x + i, (n - i) * sizeof(float));
    Store(half, FloatToHalf(Load<VecF>(wide)));
    std::memcpy(y + i, half, (n - i) * sizeof(uint16_t));
  }
}

/*! \brief Two inner dimensions by blocks, so that reads along `across` share cache lines. */
template <typename T>
void CopyPlane(const T* from, T* to, int64_t rows, int64_t cols, int64_t row_stride,
               int64_t col_stride, int64_t to_row_stride, int64_t to_col_stride) {
  constexpr int64_t kBlock = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
      int64_t r1 = std::min(r0 + kBlock, rows), c1 = std::min(c0 + kBlock, cols);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          to[r * to_row_stride + c * to_col_stride] = from[r * row_stride + c * col_stride];
        }
      }
    }
  }
}

/*! \brief Dimensions of a copy: contiguous neighbours merged, those of one element dropped. */
struct Dim {
  int64_t count, from, to;
};

std::vector<Dim> MergedDims(const Tensor& from, const Tensor& to) {
  std::vector<Dim> dims;
  for (int64_t i = 0; i < from.rank(); ++i) {
    if (from.shape[i] == 1) continue;
    Dim dim{from.shape[i], from.strides[i], to.strides[i]};
    if (!dims.empty() && dims.back().from == dim.from * dim.count &&
        dims.back().to == dim.to * dim.count) {
      dims.back() = {dims.back().count * dim.count, dim.from, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

template <typename T>
void CopyDims(const std::vector<Dim>& dims, size_t depth, const T* from, T* to) {
  size_t left = dims.size() - depth;
  const Dim& inner = dims.back();
  if (left == 1 && inner.from == 1 && inner.to == 1) {
    std::memcpy(to, from, inner.count * sizeof(T));
  } else if (left == 1) {
    for (int64_t i = 0; i < inner.count; ++i) to[i * inner.to] = from[i * inner.from];
  } else if (left == 2 && inner.from != 1) {
    CopyPlane(from, to, dims[depth].count, inner.count, dims[depth].from, inner.from,
              dims[depth].to, inner.to);
  } else {
    const Dim& dim = dims[depth];
    for (int64_t i = 0; i < dim.count; ++i) {
      CopyDims(dims, depth + 1, from + i * dim.from, to + i * dim.to);
    }
  }
}

/*! \brief Moves the dimension that is contiguous in the source next to the innermost one. */
void BringContiguousInwards(std::vector<Dim>* dims) {
  if (dims->size() < 3 || dims->back().from == 1) return;
  auto contiguous =
      std::find_if(dims->begin(), dims->end(), [](const Dim& d) { return d.from == 1; });
  if (contiguous != dims->end()) std::rotate(contiguous, contiguous + 1, dims->end() - 1);
}

template <typename T>
void CopyAs(const Tensor& from, const Tensor& to) {
  std::vector<Dim> dims = MergedDims(from, to);
  BringContiguousInwards(&dims);
  if (dims.empty()) dims.push_back({1, 1, 1});
  CopyDims<T>(dims, 0, from.as<T>(), to.as<T>());
}

}  // namespace

std::shared_ptr<Buffer> Buffer::Take(int64_t bytes) {
  auto [data, capacity] = Pool::Get().Take(bytes);
  return std::shared_ptr<Buffer>(new Buffer(data, capacity, true));
}

std::shared_ptr<Buffer> Buffer::Borrow(void* data, bool writable) {
  return std::shared_ptr<Buffer>(new Buffer(static_cast<char*>(data), 0, writable));
}

Buffer::~Buffer() {
  if (capacity_ > 0) Pool::Get().Give(data_, capacity_);
}

bool Tensor::dense() const {
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

Tensor Tensor::Reshaped(const Shape& to) const {
  Tensor out = *this;
  out.shape = to;
  out.strides = DenseStrides(to);
  return out;
}

Tensor Tensor::Permuted(const Shape& axes) const {
  Tensor out = *this;
  for (size_t i = 0; i < axes.size(); ++i) {
    out.shape[i] = shape[axes[i]];
    out.strides[i] = strides[axes[i]];
  }
  return out;
}

Tensor Borrowed(const DLTensor& tensor, bool writable) {
  Tensor out;
  out.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  out.dtype = tensor.dtype;
  if (tensor.strides != nullptr) {
    out.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  } else {
    out.strides = DenseStrides(out.shape);
  }
  out.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  out.buffer = Buffer::Borrow(out.data, writable);
  return out;
}

void Copy(const Tensor& from, const Tensor& to) {
  if (from.size() == 0) return;
  if (from.dense() && to.dense()) {
    std::memcpy(to.data, from.data, from.bytes());
    return;
  }
  switch (ItemBytes(from.dtype)) {
    case 1:
      return CopyAs<uint8_t>(from, to);
    case 2:
      return CopyAs<uint16_t>(from, to);
    case 4:
      return CopyAs<uint32_t>(from, to);
    default:
      return CopyAs<uint64_t>(from, to);
  }
}

void Memory::Offer(const Tensor& target) {
  target_ = target;
  // A buffer of its own, so that ops may work in place: nobody else holds it.
  target_.buffer = Buffer::Borrow(target.data, /*writable=*/true);
}

Tensor Memory::Allocate(const Shape& shape, DLDataType type) {
  if (target_.buffer != nullptr && target_.shape == shape && SameType(target_.dtype, type)) {
    Tensor out = std::move(target_);
    target_ = Tensor();
    return out;
  }
  Tensor out;
  out.shape = shape;
  out.dtype = type;
  int64_t bytes = out.bytes();  // refuses what is too large
  out.strides = DenseStrides(shape);
  if (!dry_) {
    out.buffer = Buffer::Take(bytes);
    out.data = out.buffer->data();
  }
  return out;
}

Tensor Memory::Dense(const Tensor& tensor) {
  if (tensor.dense()) return tensor;
  Tensor out = Allocate(tensor.shape, tensor.dtype);
  if (!dry_) Copy(tensor, out);
  return out;
}

Tensor Memory::Convert(const Tensor& tensor, DLDataType type) {
  if (SameType(tensor.dtype, type)) return tensor;
  Tensor from = Dense(tensor);
  Tensor out = Allocate(from.shape, type);
  if (dry_) return out;
  if (SameType(type, kFloat32)) {
    Widen(from.as<uint16_t>(), out.as<float>(), out.size());
  } else {
    Narrow(from.as<float>(), out.as<uint16_t>(), out.size());
  }
  return out;
}

}  // namespace example_npu
}  // namespace byoc
