// SPDX-License-Identifier: Apache-2.0
#include "operator/api/json_write.h"

#include <nlohmann/json.hpp>

namespace weir::api {

using nlohmann::json;

std::string dump_json(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace weir::api
