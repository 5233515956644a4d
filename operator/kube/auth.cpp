// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/auth.h"

#include <fstream>
#include <utility>

#include "worker/base/log.h"

namespace weir::kube {

TokenSource::TokenSource(std::string fixed, std::string file, Clock& clock)
    : file_(std::move(file)), clock_(clock), token_(std::move(fixed)) {}

std::string TokenSource::token() {
  const std::lock_guard lock(mutex_);
  if (file_.empty() || (fresh_ && clock_.now() - read_at_ < kTokenReread)) return token_;
  std::ifstream file(file_);
  std::string line;
  if (file && std::getline(file, line) && !line.empty()) {
    token_ = line;
  } else {
    log_warn("kube", "token file cannot be read, the old token stays", {{"file", file_}});
  }
  read_at_ = clock_.now();
  fresh_ = true;
  return token_;
}

bool TokenSource::refused() {
  const std::lock_guard lock(mutex_);
  fresh_ = false;
  return !file_.empty();
}

}  // namespace weir::kube
