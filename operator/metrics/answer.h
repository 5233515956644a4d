// SPDX-License-Identifier: Apache-2.0
// Reads answers of Prometheus' HTTP API, or of a proxy in front of it. The answer is not trusted.
// Pure.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::metrics {

// kInvalid with the message "answer of Prometheus: <why>".
Error bad_answer(const std::string& why);

// The document of a successful query whose result is of this kind, "matrix" or "vector"; its
// data.result is a list. kUnavailable: an error that Prometheus reports, such as "bad_data: parse
// error ...". kInvalid: anything else.
Result<nlohmann::json> decode_result(std::string_view text, const std::string& kind);

// One line about an answer with a status other than 200: the status, the server's own message, and
// advice.
std::string refusal(const http::Response& response);

}  // namespace weir::metrics
