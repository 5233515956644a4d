// SPDX-License-Identifier: Apache-2.0
// A file that holds tokens and nothing else.
#include "worker/data/token_layout.h"

namespace weir::data {

Result<TokenLayout> flat_layout(std::uint64_t size, TokenType type) {
  if (size % bytes_of(type) != 0) {
    return invalid(std::to_string(size) + " bytes are no whole number of tokens of " +
                   name_of(type));
  }
  return TokenLayout{.type = type, .tokens = size / bytes_of(type)};
}

}  // namespace weir::data
