// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <string>
#include <typeinfo>

#include "worker/stage/ops/op.h"

namespace weir::test {

// For example "GeluForward" or "LinearForward 768x3072".
inline std::string name_of(const stage::ops::Op& op) {
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

}  // namespace weir::test
