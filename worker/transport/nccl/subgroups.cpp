// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/subgroups.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

namespace weir::transport::nccl {
namespace {

using std::chrono::steady_clock;

// Kernels of NCCL check for an abort all the time.
constexpr std::chrono::seconds kDrainLimit{2};
constexpr std::chrono::milliseconds kDrainPoll{1};

}  // namespace

Subgroups::Held::iterator Subgroups::place_of(const std::vector<int>& members) {
  return std::ranges::find(held_, members, &Subgroup::members);
}

Subgroup* Subgroups::find(const std::vector<int>& members) {
  const auto place = place_of(members);
  if (place == held_.end()) return nullptr;
  held_.splice(held_.begin(), held_, place);
  return &held_.front();
}

Subgroup& Subgroups::add(Subgroup group) {
  if (held_.size() >= kMost) end(std::prev(held_.end()));
  dog_.add(*group.comm->comm);
  held_.push_front(std::move(group));
  return held_.front();
}

bool Subgroups::drop(const std::vector<int>& members) {
  const auto place = place_of(members);
  return place == held_.end() || end(place);
}

bool Subgroups::end(Held::iterator group) {
  NcclComm* const comm = group->comm->comm.get();
  dog_.remove(*comm);
  api_.abort({&comm, 1});
  const auto limit = steady_clock::now() + kDrainLimit;
  while (!comm->drained() && steady_clock::now() < limit) std::this_thread::sleep_for(kDrainPoll);
  const bool drained = comm->drained();
  held_.erase(group);
  return drained;
}

}  // namespace weir::transport::nccl
