// SPDX-License-Identifier: Apache-2.0
// Named values that must be equal on two sides: on two ranks of a job, or in a job and its
// checkpoint. Pure.
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
// Returns the differences in the order of `here`. Only names that both sides have are compared,
// because another version of the program may have more names or fewer.
std::vector<Difference> differences(const Settings& here, const Settings& there);

// Text such as "--lr is 0.02, worker 0 has 0.001; --seed is 7, worker 0 has 1". Empty if nothing
// differs.
std::string describe(const std::vector<Difference>& found, const std::string& other_side);

// Returns the shortest text that reads back as the same number.
std::string exact_text(double value);

}  // namespace weir
