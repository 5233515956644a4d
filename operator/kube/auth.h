// SPDX-License-Identifier: Apache-2.0
// The bearer token of requests: a fixed text, or a file that the kubelet rotates. Thread-safe.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "worker/base/clock.h"

namespace weir::kube {

constexpr std::chrono::seconds kTokenReread{60};  // operator/kube/README.md "Requests"

class TokenSource {
 public:
  // file wins over fixed. If both are empty, there is no token (client certificates).
  TokenSource(std::string fixed, std::string file, Clock& clock);

  std::string token();
  // Call it after a 401: the next token() reads the file again. False if there is no file.
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
