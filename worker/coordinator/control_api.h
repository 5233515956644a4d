// SPDX-License-Identifier: Apache-2.0
// One call of the operator's control API: path, bearer token, one redirect, one repetition after
// 401, and the meaning of each status (worker/protocol/README.md "Control API"). join() and the
// operator source each have an object of their own, so that calls do not block each other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "worker/base/clock.h"
#include "worker/base/random.h"
#include "worker/base/result.h"
#include "worker/coordinator/operator_line.h"
#include "worker/http/transport.h"

namespace weir::coordinator {

// The next action, depending on the status.
enum class Verdict : unsigned char {
  kDone,           // 200, 202, 304
  kDrop,           // 400, 413: the request is wrong or too large; a retry cannot help
  kRetry,          // 401 twice, 403, 404, 429, 5xx, unreachable: retry after a pause
  kStop,           // 409: the operator has another job under this name
  kGone,           // 410
  kMoved,          // 421: another worker coordinates; or the operator's replica is behind
  kRegisterAgain,  // 428
  kCancelled,      // our own stop request
};

struct Outcome {
  Verdict verdict = Verdict::kRetry;
  http::Response response;                               // if there was one
  std::string reason;                                    // for logs; empty if kDone
  std::optional<std::chrono::milliseconds> retry_after;  // of 429 and 503
};

// Value of a header, or "" if it is absent. The name matches in any case.
std::string header_value(const http::Response& response, std::string_view name);

class ControlApi {
 public:
  ControlApi(const LineOptions& options, TransportFactory factory, Clock& clock)
      : options_(options), factory_(std::move(factory)), clock_(clock) {}

  // call: "join" or "plan?have=3&wait=50". time: maximum until the answer.
  Outcome send(http::Method method, const std::string& call, const std::string& body,
               std::chrono::seconds time, std::stop_token stop);

 private:
  Result<http::Response> once(const std::string& base_url, const std::string& service_url,
                              const http::Request& request, std::chrono::seconds time,
                              std::stop_token stop);
  std::string service_url() const;  // from the URL file, else from the options
  std::string token();              // re-read for each request, because the kubelet rotates it

  const LineOptions options_;
  const TransportFactory factory_;
  Clock& clock_;
  std::string transport_url_;  // of transport_
  std::unique_ptr<http::Transport> transport_;
};

// Pauses between retries: 1 to 8 s, doubling, of which a random part between half and all is used,
// so that thousands of jobs do not return at the same time. A restarted operator is found within
// seconds. An overloaded operator sets the pause itself (Retry-After).
class BackOff {
 public:
  explicit BackOff(std::uint64_t seed) : random_(seed) {}
  std::chrono::milliseconds next(const std::optional<std::chrono::milliseconds>& retry_after);
  void reset() { pause_ = kFirst; }

 private:
  static constexpr std::chrono::milliseconds kFirst{1000}, kLongest{8000};
  Random random_;
  std::chrono::milliseconds pause_ = kFirst;
};

}  // namespace weir::coordinator
