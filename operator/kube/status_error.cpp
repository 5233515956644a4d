// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/status_error.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

namespace weir::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessage = 2048;  // bytes kept of a body that is no Status

Code code_of(int status) {
  switch (status) {
    case 401:
      return Code::kUnauthorized;
    case 403:
      return Code::kForbidden;
    case 404:
      return Code::kNotFound;
    case 408:
    case 504:
      return Code::kTimeout;
    case 409:
      return Code::kConflict;
    case 410:
      return Code::kGone;
    case 429:
      return Code::kThrottled;
    case 502:
    case 503:
      return Code::kUnavailable;
    default:
      return status >= 400 && status < 500 ? Code::kInvalid : Code::kInternal;
  }
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

std::optional<std::chrono::seconds> retry_after_of(const http::Response& response) {
  for (const auto& [name, value] : response.headers) {
    if (!equal_ignoring_case(name, "Retry-After")) continue;
    int seconds = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (error == std::errc{} && seconds >= 0) return std::chrono::seconds(seconds);
  }
  return std::nullopt;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

ApiError decode_status_error(const http::Response& response) {
  ApiError error;
  error.http_status = response.status;
  error.code = code_of(response.status);
  error.retry_after = retry_after_of(response);
  const json body = json::parse(response.body, nullptr, false);
  if (!body.is_object() || text_of(body, "kind") != "Status") {
    error.message = "HTTP " + std::to_string(response.status) + " " +
                    response.body.substr(0, std::min(response.body.size(), kMaxMessage));
    return error;
  }
  error.reason = text_of(body, "reason");
  error.message = text_of(body, "message");
  const auto details = body.find("details");
  if (details == body.end() || !details->is_object()) return error;
  const auto causes = details->find("causes");
  if (causes != details->end() && causes->is_array()) {
    for (const json& cause : *causes) {
      if (!cause.is_object()) continue;
      const std::string field = text_of(cause, "field");
      error.causes.push_back((field.empty() ? text_of(cause, "reason") : field) + ": " +
                             text_of(cause, "message"));
    }
  }
  const auto retry = details->find("retryAfterSeconds");
  if (!error.retry_after && retry != details->end() && retry->is_number_unsigned()) {
    error.retry_after =
        std::chrono::seconds(std::min<std::uint64_t>(retry->get<std::uint64_t>(), 3600));
  }
  return error;
}

ApiError transport_error(const Error& error) {
  ApiError out;
  out.code = error.code;
  out.message = error.message;
  return out;
}

bool is_namespace_terminating(const ApiError& error) {
  return error.code == Code::kForbidden &&
         std::ranges::any_of(error.causes, [](const std::string& cause) {
           return cause.starts_with("NamespaceTerminating") ||
                  cause.find("is being terminated") != std::string::npos;
         });
}

}  // namespace weir::kube
