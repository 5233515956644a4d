// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "worker/app/state.h"

namespace weir::app {

void Shutdown::request() {
  stop_.request_stop();
  const std::lock_guard lock(mutex_);
  if (std::exchange(requested_, true)) return;
  if (action_) action_();
}

bool Shutdown::requested() const {
  const std::lock_guard lock(mutex_);
  return requested_;
}

void Shutdown::on_request(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  action_ = std::move(action);
  if (requested_ && action_) action_();
}

}  // namespace weir::app
