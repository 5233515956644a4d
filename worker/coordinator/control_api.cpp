// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/control_api.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>

namespace weir::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxToken = 64 * 1024;  // a projected token has 1 to 2 KiB
constexpr std::size_t kMaxUrl = 2048;
constexpr std::size_t kMaxReason = 300;  // bytes of a body in logs
constexpr std::chrono::seconds kLongestRetryAfter{300};

// "https://10.0.0.9:8443/v1/..." -> {"https://10.0.0.9:8443", "/v1/..."}.
std::optional<std::pair<std::string, std::string>> split_url(const std::string& url) {
  const auto scheme = url.find("://");
  if (scheme == url.npos) return std::nullopt;
  const auto path = url.find('/', scheme + 3);
  if (path == url.npos || path == scheme + 3) return std::nullopt;
  return std::pair{url.substr(0, path), url.substr(path)};
}

std::string scheme_of(const std::string& url) {
  return url.substr(0, url.find("://"));
}

std::optional<milliseconds> retry_after_of(const http::Response& response) {
  const std::string text = header_value(response, "Retry-After");
  int seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size() || seconds < 0) {
    return std::nullopt;
  }
  return std::min(std::chrono::seconds(seconds), kLongestRetryAfter);
}

// Reads a small file of one line. Returns "" if there is none or if it is too large.
std::string line_of(const std::string& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() > most) return "";
  std::erase_if(text, [](char c) { return c <= ' ' || c > '~'; });
  return text;
}

Verdict verdict_of(int status) {
  switch (status) {
    case 200:
    case 202:
    case 304:
      return Verdict::kDone;
    case 400:
    case 413:
      return Verdict::kDrop;
    case 409:
      return Verdict::kStop;
    case 410:
      return Verdict::kGone;
    case 421:
      return Verdict::kMoved;
    case 428:
      return Verdict::kRegisterAgain;
    default:
      return Verdict::kRetry;
  }
}

}  // namespace

std::string header_value(const http::Response& response, std::string_view name) {
  const auto same = [&](const auto& entry) {
    return std::ranges::equal(entry.first, name, [](unsigned char a, unsigned char b) {
      return std::tolower(a) == std::tolower(b);
    });
  };
  const auto found = std::ranges::find_if(response.headers, same);
  return found == response.headers.end() ? "" : found->second;
}

Outcome ControlApi::send(http::Method method, const std::string& call, const std::string& body,
                         std::chrono::seconds time, std::stop_token stop) {
  http::Request request{.method = method,
                        .path = "/v1/namespaces/" + options_.job_namespace + "/pipelinejobs/" +
                                options_.job_name + "/" + call,
                        .headers = {{"Accept", "application/json"}},
                        .body = body};
  if (!body.empty()) request.headers.emplace_back("Content-Type", "application/json");
  const std::string url = service_url();
  auto answer = once(url, url, request, time, stop);
  if (answer && answer->status == 401) answer = once(url, url, request, time, stop);
  if (answer && answer->status == 307) {
    const std::string location = header_value(*answer, "Location");
    const auto target = split_url(location);
    // A redirect to plain http is refused: it would expose the token.
    if (target && scheme_of(location) == scheme_of(url)) {
      request.path = target->second;
      answer = once(target->first, url, request, time, stop);
    } else {
      answer = invalid("redirected to '" + location + "'");
    }
  }
  if (!answer) {
    const bool cancelled = stop.stop_requested() || answer.error().code == Code::kCancelled;
    return {.verdict = cancelled ? Verdict::kCancelled : Verdict::kRetry,
            .reason = answer.error().message};
  }
  Outcome outcome{.verdict = verdict_of(answer->status)};
  if (outcome.verdict != Verdict::kDone) {
    outcome.reason =
        "status " + std::to_string(answer->status) + ": " + answer->body.substr(0, kMaxReason);
    outcome.retry_after = retry_after_of(*answer);
  }
  outcome.response = *std::move(answer);
  return outcome;
}

Result<http::Response> ControlApi::once(const std::string& base_url, const std::string& service_url,
                                        const http::Request& request, std::chrono::seconds time,
                                        std::stop_token stop) {
  if (!transport_ || transport_url_ != base_url) {
    WEIR_TRY(transport_, factory_(base_url, service_url));
    transport_url_ = base_url;
  }
  http::Request with_token = request;
  with_token.headers.emplace_back("Authorization", "Bearer " + token());
  return transport_->send(with_token, clock_.now() + time, std::move(stop));
}

std::string ControlApi::token() {
  return line_of(options_.token_file, kMaxToken);
}

std::string ControlApi::service_url() const {
  const std::string moved_to = line_of(options_.url_file, kMaxUrl);
  return moved_to.starts_with("https://") || moved_to.starts_with("http://") ? moved_to
                                                                             : options_.url;
}

milliseconds BackOff::next(const std::optional<milliseconds>& retry_after) {
  if (retry_after) return *retry_after;
  const auto pause = milliseconds(static_cast<std::int64_t>(static_cast<double>(pause_.count()) *
                                                            (0.5 + random_.uniform() / 2)));
  pause_ = std::min(pause_ * 2, kLongest);
  return pause;
}

}  // namespace weir::coordinator
