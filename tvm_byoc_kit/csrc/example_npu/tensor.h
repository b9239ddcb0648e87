// Tensors of the simulator: strided views on buffers from a process-wide pool.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "byoc/graph.h"

namespace byoc {
namespace example_npu {

inline constexpr DLDataType kFloat32{kDLFloat, 32, 1};
inline constexpr DLDataType kFloat16{kDLFloat, 16, 1};
inline constexpr DLDataType kInt8{kDLInt, 8, 1};
inline constexpr DLDataType kInt16{kDLInt, 16, 1};
inline constexpr DLDataType kInt32{kDLInt, 32, 1};
inline constexpr DLDataType kInt64{kDLInt, 64, 1};
inline constexpr DLDataType kUInt8{kDLUInt, 8, 1};

inline bool SameType(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline int64_t ItemBytes(DLDataType type) { return type.bits / 8; }

/*! \brief The type that a value is computed in: float16 is widened for the whole composite. */
inline DLDataType ComputeType(DLDataType type) {
  return SameType(type, kFloat16) ? kFloat32 : type;
}

/*! \brief "[1, 3, ?]", a symbolic dimension being "?". */
std::string ShapeText(const Shape& shape);
/*! \brief "float32[1, 3]". */
std::string TensorText(DLDataType type, const Shape& shape);

/*! \brief Number of elements. \throws ValueError when it does not fit into memory. */
int64_t Count(const Shape& shape);

/*! \brief Strides, in elements, of a dense tensor. */
Shape DenseStrides(const Shape& shape);

/*!
 * \brief A piece of memory.
 *
 * Memory that belongs to a caller is read only, except for an output of the region; the other
 * buffers go back to the pool when their last tensor dies.
 */
class Buffer {
 public:
  /*! \brief Take at least `bytes` bytes from the pool, aligned to 64. */
  static std::shared_ptr<Buffer> Take(int64_t bytes);
  /*! \brief Refer to memory that somebody else owns. */
  static std::shared_ptr<Buffer> Borrow(void* data, bool writable);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data() const { return data_; }
  bool writable() const { return writable_; }

 private:
  Buffer(char* data, int64_t capacity, bool writable)
      : data_(data), capacity_(capacity), writable_(writable) {}
  char* data_;
  int64_t capacity_;  // 0 when borrowed
  bool writable_;
};

/*! \brief A strided view on a buffer; without a buffer it is a shape and a type only. */
struct Tensor {
  Shape shape;
  Shape strides;  // in elements
  DLDataType dtype{};
  std::shared_ptr<Buffer> buffer;
  char* data = nullptr;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t size() const { return Count(shape); }
  int64_t bytes() const { return size() * ItemBytes(dtype); }
  bool dense() const;
  /*! \brief Whether an op may write its result here: nobody else refers to the memory. */
  bool reusable() const {
    return buffer != nullptr && buffer->writable() && buffer.use_count() == 1 && dense();
  }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  /*! \brief The same elements under another shape; the tensor must be dense. */
  Tensor Reshaped(const Shape& to) const;
  /*! \brief A view with dimension `i` being dimension `axes[i]` of this one. */
  Tensor Permuted(const Shape& axes) const;
};

/*! \brief A view on a tensor of the caller. */
Tensor Borrowed(const DLTensor& tensor, bool writable);

/*! \brief Copy the elements of `from` to `to`, which has the same shape, type and no overlap. */
void Copy(const Tensor& from, const Tensor& to);

/*!
 * \brief Memory of one call.
 *
 * When dry, tensors have a shape and no data: kernels then only infer shapes.
 */
class Memory {
 public:
  explicit Memory(bool dry) : dry_(dry) {}
  bool dry() const { return dry_; }

  /*! \brief A dense tensor with undefined contents. */
  Tensor Allocate(const Shape& shape, DLDataType type);
  /*! \brief `tensor` itself when it is dense, else a dense copy. */
  Tensor Dense(const Tensor& tensor);
  /*! \brief `tensor` in `type`, float16 <-> float32; itself when it has that type. */
  Tensor Convert(const Tensor& tensor, DLDataType type);

  /*! \brief Let the next allocation that fits `target` be in its memory: saves copying it there. */
  void Offer(const Tensor& target);
  void Withdraw() { target_ = Tensor(); }

 private:
  bool dry_;
  Tensor target_;
};

}  // namespace example_npu
}  // namespace byoc
