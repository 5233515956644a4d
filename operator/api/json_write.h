// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace weir::api {

// Text for the API server: invalid UTF-8 replaced, so that it never throws.
std::string dump_json(const nlohmann::json& value);

}  // namespace weir::api
