// SPDX-License-Identifier: Apache-2.0
// What an answer of Prometheus' HTTP API says, or of whatever stands in front of it. Pure; the
// answer is not trusted.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::metrics {

// kInvalid: "answer of Prometheus: why".
Error bad_answer(const std::string& why);

// The document of a successful query whose result is of this kind: "matrix" or "vector"; its
// data.result is a list. kInvalid: anything else. kUnavailable "bad_data: parse error ...":
// Prometheus' own error.
Result<nlohmann::json> decode_result(std::string_view text, const std::string& kind);

// Why an answer with a status other than 200 is none, in one line: the status, what the server says
// about it, and what usually helps.
std::string refusal(const http::Response& response);

}  // namespace weir::metrics
