// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/op.h"

#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <memory>
#include <type_traits>
#include <typeinfo>

namespace weir::stage::ops {
namespace {

// Shapes have only members of four bytes, so they contain no padding.
template <class T>
bool same_bits(const T& a, const T& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

std::string name_of(const Op& op) {
  return std::visit(
      []<class T>(const T& one) {
        const std::unique_ptr<char, decltype(&std::free)> full(
            abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr), &std::free);
        std::string name(full.get());
        name.erase(0, name.rfind(':') + 1);
        if constexpr (requires { one.shape.inputs; }) {
          name += " " + std::to_string(one.shape.inputs) + "x" + std::to_string(one.shape.outputs);
        }
        return name;
      },
      op);
}

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
