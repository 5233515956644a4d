// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/pending.h"

#include <algorithm>
#include <utility>

namespace weir::wire {
namespace {

bool same_wish(const Hello& a, const Hello& b) {
  return a.purpose == b.purpose && a.body == b.body && a.job_uid == b.job_uid;
}

}  // namespace

Pending::Pending(std::size_t most) : most_(most), acceptors_(std::make_shared<Acceptors>()) {}

void Pending::add(const std::shared_ptr<Acceptor>& acceptor) {
  const auto same = std::ranges::find_if(*acceptors_, [&](const std::shared_ptr<Acceptor>& other) {
    return same_wish(acceptor->hello(), other->hello());
  });
  if (same != acceptors_->end()) {
    (*same)->close();
    acceptors_->erase(same);
  }
  if (acceptors_->size() >= most_) {
    acceptors_->front()->close();
    acceptors_->pop_front();
  }
  acceptors_->push_back(acceptor);
  acceptor->keep_waiting([all = std::weak_ptr(acceptors_), gone = std::weak_ptr(acceptor)] {
    const auto acceptors = all.lock();
    const auto left = gone.lock();
    if (!acceptors || !left) return;
    left->close();
    acceptors->remove(left);
  });
}

Pending::Acceptors Pending::take() {
  return std::exchange(*acceptors_, {});
}

void Pending::close() {
  for (const auto& acceptor : take()) acceptor->close();
}

}  // namespace weir::wire
