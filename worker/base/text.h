// SPDX-License-Identifier: Apache-2.0
// Numbers as texts for users.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir {

std::string number(double value, int digits);          // e.g. "1.42"
std::string percent(double fraction);                  // without the sign, e.g. "11.2"
std::string bits_per_second(double bytes_per_second);  // e.g. "9.1Gbit/s"
std::string megabytes(std::int64_t bytes);             // e.g. "2.10 MB"
std::string joined(const std::vector<int>& values);    // e.g. "32,32"

}  // namespace weir
