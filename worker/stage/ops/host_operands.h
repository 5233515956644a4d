// SPDX-License-Identifier: Apache-2.0
// Operands of an op on the host as floats, until it is over. In float32 they are the arrays
// themselves. In bf16 they are widened copies, and results are rounded back at the end.
#pragma once

#include <vector>

#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/element.h"
#include "worker/stage/ops/team.h"

namespace weir::stage::ops {

inline std::size_t product(int a, int b, int c = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

// Runs body(begin, end) on parts of an array of `count` elements.
template <class Body>
void for_elements(Team& team, std::size_t count, const Body& body) {
  team.run(static_cast<Team::Index>(count), kLeastElements, body);
}

inline void widen(Team& team, std::size_t count, const Bf16* from, float* to) {
  for_elements(team, count, [&](Team::Index begin, Team::Index end) {
    widen(static_cast<std::size_t>(end - begin), from + begin, to + begin);
  });
}

class In {  // read; may be null
 public:
  In(const Element* values, std::size_t count, const Host& host) : values_(as<float>(values)) {
    if (host.precision == Precision::kFp32 || values == nullptr) return;
    wide_.resize(count);
    widen(host.team, count, as<Bf16>(values), wide_.data());
    values_ = wide_.data();
  }
  In(const In&) = delete;
  In& operator=(const In&) = delete;
  operator const float*() const { return values_; }

 private:
  const float* values_;
  std::vector<float> wide_;
};

class Out {  // replaced
 public:
  Out(Element* values, std::size_t count, const Host& host)
      : team_(host.team), values_(values), wide_(host.precision == Precision::kBf16 ? count : 0) {}
  ~Out() {
    for_elements(team_, wide_.size(), [this](Team::Index begin, Team::Index end) {
      round(static_cast<std::size_t>(end - begin), wide_.data() + begin, as<Bf16>(values_) + begin);
    });
  }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  operator float*() { return wide_.empty() ? as<float>(values_) : wide_.data(); }

 protected:
  Team& team_;
  Element* const values_;
  std::vector<float> wide_;
};

class InOut : public Out {  // read and replaced
 public:
  InOut(Element* values, std::size_t count, const Host& host) : Out(values, count, host) {
    widen(team_, wide_.size(), as<Bf16>(values), wide_.data());
  }
};

}  // namespace weir::stage::ops
