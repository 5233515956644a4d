// SPDX-License-Identifier: Apache-2.0
// One call of the operator's control API: path, bearer token, one redirect, one repetition after
// 401, and what each status means (worker/protocol/README.md "Control API"). Shared by join() and
// the operator source; each user has its own, so a call blocks nobody else.
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

// What to do next, by the answer.
enum class Verdict : unsigned char {
  kDone,           // 200, 202, 304
  kDrop,           // 400, 413: our request is wrong or too large, repeating it is useless
  kRetry,          // 401 twice, 403, 404, 429, 5xx, unreachable: after `wait`
  kStop,           // 409: not our job any more
  kGone,           // 410
  kRegisterAgain,  // 428
  kCancelled,      // our own stop
};

struct Outcome {
  Verdict verdict = Verdict::kRetry;
  http::Response response;                               // when there was one
  std::string reason;                                    // for logs; empty when kDone
  std::optional<std::chrono::milliseconds> retry_after;  // of 429 and 503
};

// Of a header, whatever the case of its name; empty when absent.
std::string header_value(const http::Response& response, std::string_view name);

class ControlApi {
 public:
  ControlApi(const LineOptions& options, TransportFactory factory, Clock& clock)
      : options_(options), factory_(std::move(factory)), clock_(clock) {}

  // call: "join", "plan?have=3&wait=50". time: the longest that the answer may take.
  Outcome send(http::Method method, const std::string& call, const std::string& body,
               std::chrono::seconds time, std::stop_token stop);

 private:
  Result<http::Response> once(const std::string& base_url, const std::string& service_url,
                              const http::Request& request, std::chrono::seconds time,
                              std::stop_token stop);
  std::string service_url() const;  // of the file, else of the options
  std::string token();              // of the file; re-read each time: the kubelet rotates it

  const LineOptions options_;
  const TransportFactory factory_;
  Clock& clock_;
  std::string transport_url_;  // of transport_
  std::unique_ptr<http::Transport> transport_;
};

// Pauses between repetitions: doubling from 1 to 8 s, between half and all of that at random, so
// that thousands of jobs do not come back at once. An operator that was away for long is found
// again within seconds; one that has too much to do says how long to wait (Retry-After).
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
