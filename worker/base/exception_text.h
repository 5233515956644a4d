// SPDX-License-Identifier: Apache-2.0
// What an exception means to whoever runs the program: the standard library's words name no
// resource.
#pragma once

#include <exception>
#include <string>

namespace weir {

std::string describe(const std::exception& error);

}  // namespace weir
