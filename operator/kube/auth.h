// SPDX-License-Identifier: Apache-2.0
// The bearer token of our requests: fixed, or a file that the kubelet rotates. Thread-safe.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "worker/base/clock.h"

namespace weir::kube {

constexpr std::chrono::seconds kTokenReread{60};  // operator/kube/README.md "Requests"

class TokenSource {
 public:
  // file wins over fixed; both empty: no token (client certificates).
  TokenSource(std::string fixed, std::string file, Clock& clock);

  std::string token();
  // After 401: the next token() reads the file again. True when there is a file to read.
  bool refused();

 private:
  const std::string file_;
  Clock& clock_;
  std::mutex mutex_;  // guards all below
  std::string token_;
  SteadyTime read_at_{};
  bool fresh_ = false;
};

}  // namespace weir::kube
