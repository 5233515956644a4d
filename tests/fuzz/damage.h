// SPDX-License-Identifier: Apache-2.0
// Damaged copies of texts that were good.
#pragma once

#include <random>
#include <string>

namespace weir::fuzz {

// One to five places are changed, cut, repeated, or filled with what parsers treat in a special
// way. Equal generators give equal texts.
std::string damaged(std::string text, std::mt19937& random);

}  // namespace weir::fuzz
