// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "worker/app/state.h"

namespace weir::app {

void Leaver::leave() {
  stop_.request_stop();
  const std::lock_guard lock(mutex_);
  if (std::exchange(asked_, true)) return;
  if (action_) action_();
}

bool Leaver::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

void Leaver::on_leave(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  action_ = std::move(action);
  if (asked_ && action_) action_();
}

}  // namespace weir::app
