// SPDX-License-Identifier: Apache-2.0
// JSON files of people: parsing with limits, and errors that say where:
// "NAME:LINE: /json/pointer: reason". Lines are looked for only when there is an error to tell.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "worker/base/result.h"

namespace weir::planner {

// At most 64 MiB and 32 levels; numbers must fit their types. kInvalid: "NAME:LINE: reason".
Status parse_json(std::string_view text, const std::string& name, nlohmann::json& document);

// The line (from 1) where the value at a JSON pointer starts; where it is missing, that of its
// nearest parent.
int line_of(std::string_view text, std::string_view pointer);

// "NAME:LINE: POINTER: REASON".
Error json_error(std::string_view text, const std::string& name, const std::string& pointer,
                 const std::string& reason);

}  // namespace weir::planner
