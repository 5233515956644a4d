// SPDX-License-Identifier: Apache-2.0
// Named values that two sides must have alike: two ranks of a job, a job and its checkpoint. Pure.
#pragma once

#include <string>
#include <vector>

namespace weir {

struct Setting {
  std::string name, value;  // "--lr", "0.001"
  bool operator==(const Setting&) const = default;
};
using Settings = std::vector<Setting>;

struct Difference {
  std::string name, here, there;
};
// In the order of `here`. Only names that both sides know are compared: another version of the
// program may know more of them, or none.
std::vector<Difference> differences(const Settings& here, const Settings& there);

// "--lr is 0.02, worker 0 has 0.001; --seed is 7, worker 0 has 1"; "" when there is none.
std::string describe(const std::vector<Difference>& found, const std::string& other_side);

// The shortest text that reads back as the same number.
std::string exact_text(double value);

}  // namespace weir
