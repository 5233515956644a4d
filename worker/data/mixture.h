// SPDX-License-Identifier: Apache-2.0
// Samples from several files in fixed shares of thousandths. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"

namespace weir::data {

inline constexpr int kPlaces = 1000;

struct Share {
  std::string path;
  int places = kPlaces;  // of kPlaces
  bool operator==(const Share&) const = default;
};

// Reads "[WEIGHT:]PATH[,...]". Weights are any numbers above 0; without them all files have the
// same. Shares are rounded to thousandths that are kPlaces together (largest remainders). kInvalid:
// an empty path, a weight that is none, weights for some files only, a share below a thousandth.
Result<std::vector<Share>> parse_shares(std::string_view text);

// Which file gives a sample. Of any samples in a row, a file gives its share up to less than one
// sample for each file.
class Mixture {
 public:
  explicit Mixture(const std::vector<int>& places);  // kPlaces together

  struct Sample {
    std::size_t file = 0;
    std::uint64_t number = 0;  // within the file: how many samples it has given before
  };
  Sample at(std::uint64_t sample) const;

 private:
  struct Place {
    std::size_t file = 0;
    std::uint64_t before = 0;  // places of this file before this one
  };
  std::vector<Place> table_;
  std::vector<int> places_;
};

}  // namespace weir::data
