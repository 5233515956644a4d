// SPDX-License-Identifier: Apache-2.0
// Texts of exceptions for the person who runs the program. The standard library's texts do not name
// the resource that is missing.
#pragma once

#include <exception>
#include <string>

namespace weir {

std::string describe(const std::exception& error);

}  // namespace weir
