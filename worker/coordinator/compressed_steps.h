// SPDX-License-Identifier: Apache-2.0
// How many of the first steps of a job were trained with codecs, for each step since this
// coordinator knows it. Steps that were rolled back do not count. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace weir::coordinator {

class CompressedSteps {
 public:
  // A generation goes on after `step` steps, `count` of which had codecs, with a plan that has some
  // or none. Later steps are forgotten.
  void begin(std::int64_t step, std::int64_t count, bool codecs) {
    spans_.erase(spans_.lower_bound(step), spans_.end());
    spans_[step] = {count, codecs};
  }
  // The plan changes in band before the step after `step`.
  void change(std::int64_t step, bool codecs) { begin(step, at(step), codecs); }
  // After `step` steps, where the last plan stays in force. Before the first known step the count
  // is that of this step, or less.
  std::int64_t at(std::int64_t step) const {
    if (spans_.empty()) return 0;
    const auto next = spans_.upper_bound(step);
    if (next == spans_.begin()) return std::min(step, next->second.count);
    const auto& [first, span] = *std::prev(next);
    return span.count + (span.codecs ? step - first : 0);
  }
  bool knows(std::int64_t step) const { return !spans_.empty() && step >= spans_.begin()->first; }

 private:
  struct Span {
    std::int64_t count = 0;  // before it
    bool codecs = false;
  };
  std::map<std::int64_t, Span> spans_;  // by the steps before it
};

}  // namespace weir::coordinator
