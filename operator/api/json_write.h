// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace weir::api {

// The value as text for the API server. Invalid UTF-8 is replaced, so that this never throws.
std::string dump_json(const nlohmann::json& value);

}  // namespace weir::api
