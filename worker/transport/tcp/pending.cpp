// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/pending.h"

#include <algorithm>
#include <utility>

namespace weir::transport::tcp {
namespace {

bool same_wish(const Hello& a, const Hello& b) {
  return a.generation == b.generation && a.from_stage == b.from_stage && a.channel == b.channel &&
         a.purpose == b.purpose && a.job_uid == b.job_uid && a.replica == b.replica &&
         a.to_stage == b.to_stage;
}

}  // namespace

Parked::Parked(std::size_t most) : most_(most), greeters_(std::make_shared<Greeters>()) {}

void Parked::add(const std::shared_ptr<Greeter>& greeter) {
  const auto same = std::ranges::find_if(*greeters_, [&](const std::shared_ptr<Greeter>& other) {
    return same_wish(greeter->hello(), other->hello());
  });
  if (same != greeters_->end()) {
    (*same)->close();
    greeters_->erase(same);
  }
  if (greeters_->size() >= most_) {
    greeters_->front()->close();
    greeters_->pop_front();
  }
  greeters_->push_back(greeter);
  greeter->park([all = std::weak_ptr(greeters_), gone = std::weak_ptr(greeter)] {
    const auto greeters = all.lock();
    const auto left = gone.lock();
    if (!greeters || !left) return;
    left->close();
    greeters->remove(left);
  });
}

Parked::Greeters Parked::take() {
  return std::exchange(*greeters_, {});
}

void Parked::close() {
  for (const auto& greeter : take()) greeter->close();
}

}  // namespace weir::transport::tcp
