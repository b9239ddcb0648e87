// Reads what backends/openvino/payload.py writes; the format is described there.
#pragma once

#include <tvm/ffi/string.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace byoc::openvino {

namespace ffi = tvm::ffi;

/*! \brief A payload, taken apart; the views are into the payload's own memory. */
struct Payload {
  std::string device;
  std::map<std::string, std::string> properties;
  std::vector<size_t> inputs;   //!< for each port of the model, the number of its argument
  std::vector<size_t> outputs;  //!< the same
  std::vector<std::pair<size_t, size_t>> copies;  //!< from argument to argument
  size_t constants = 0;  //!< given beside the payload, for the model's last parameters
  std::string_view model;
  std::string_view weights;

  /*! \brief The number of arguments that a call has at least. */
  size_t NumArguments() const;
};

/*!
 * \brief Takes a payload apart.
 * \throws ffi::Error ValueError for bytes that the codegen did not make.
 */
Payload ReadPayload(const ffi::Bytes& bytes);

}  // namespace byoc::openvino
