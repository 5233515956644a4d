// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/op.h"

#include <cstring>
#include <type_traits>

namespace weir::stage::ops {
namespace {

// Shapes have only members of four bytes, so they contain no padding.
template <class T>
bool same_bits(const T& a, const T& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

// Structs with several fields may contain padding, so these are compared one by one.
bool same(const Op& a, const Op& b) {
  const auto same_fields = [&b]<class T>(const T& one) {
    const T* other = std::get_if<T>(&b);
    if (other == nullptr) return false;
    return std::apply(
        [&](const auto&... mine) {
          return std::apply([&](const auto&... theirs) { return (... && same_bits(mine, theirs)); },
                            other->fields());
        },
        one.fields());
  };
  return std::visit(same_fields, a);
}

}  // namespace weir::stage::ops
