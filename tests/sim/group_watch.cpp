// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/group_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace weir::sim {
namespace {

constexpr double kRounding = 1e-9;
constexpr int kLeastAlone = 2;  // own steps without an average on a slow node: max(2, 3B/10)

}  // namespace

void GroupWatch::begin(const schedule::Plan& plan) {
  replicas_.assign(plan.micro_batches.size(), {});
  disconnect();
  round_ = connected_at_ = 0;
  follow(plan);
}

void GroupWatch::follow(const schedule::Plan& plan) {
  shares_ = plan.micro_batches;
  sync_ = plan.sync;
}

void GroupWatch::ready(int replica) {
  Replica& one = at(replica);
  if (one.state != State::kRuns) fail("replica " + std::to_string(replica) + " is ready again");
  one.state = State::kReady;
  ++one.steps;
  one.progress += shares_[static_cast<std::size_t>(replica)] / mean_share();
  check_progress("after a step");
}

void GroupWatch::granted(const Granted& grant) {
  if (grant.round <= round_) fail("G7: round " + std::to_string(grant.round) + " is no new one");
  round_ = std::max(round_, grant.round);
  check_members(grant);
  check_weights(grant);
  check_connection(grant);
  double mean = 0;
  for (std::size_t i = 0; i < grant.members.size(); ++i) {
    mean += grant.weights[i] * at(grant.members[i]).progress;
  }
  for (const int p : grant.members) {
    at(p).state = State::kAverages;
    at(p).progress = mean;
    if (grant.members.size() > 1) at(p).averaged_at = at(p).steps;
  }
  check_progress("after a grant");
}

void GroupWatch::averaged(int replica) {
  if (at(replica).state == State::kAverages) at(replica).state = State::kRuns;
}

void GroupWatch::failed() {
  disconnect();
}

void GroupWatch::lost(int replica) {
  at(replica).state = State::kLost;
  connected_at_ = std::min(connected_at_, most_steps());  // the window of those who are left
}

// G1, G2: who has arrived, once, and is in no other round. A meeting has everybody.
void GroupWatch::check_members(const Granted& grant) {
  const std::set<int> members(grant.members.begin(), grant.members.end());
  if (members.size() != grant.members.size()) fail("G1: a member twice");
  for (const int p : members) {
    if (at(p).state == State::kAverages) fail("G1: a member of another open round");
    if (at(p).state == State::kRuns) fail("G2: a member that has not arrived");
    if (at(p).state == State::kLost) fail("G2: a member that is lost");
  }
  const auto living = std::ranges::count_if(
      replicas_, [](const Replica& one) { return one.state != State::kLost; });
  if (grant.all && std::ssize(members) != living) fail("a meeting without one of the living");
}

// G4: in proportion to the shares.
void GroupWatch::check_weights(const Granted& grant) {
  if (grant.weights.size() != grant.members.size()) return fail("G4: not one weight a member");
  double sum = 0, shares = 0;
  for (const int p : grant.members) shares += shares_[static_cast<std::size_t>(p)];
  for (std::size_t i = 0; i < grant.members.size(); ++i) {
    const double share = shares_[static_cast<std::size_t>(grant.members[i])] / shares;
    if (std::abs(grant.weights[i] - share) > kRounding) fail("G4: a weight is not its share");
    sum += grant.weights[i];
  }
  if (std::abs(sum - 1) > kRounding) fail("G4: weights do not add up to 1");
}

// G5: once the fastest has done B steps since all were connected, only what connects all may be
// formed; and a replica on a slow node may go on alone for some steps of its own.
void GroupWatch::check_connection(const Granted& grant) {
  if (connected()) {  // by the loss of one that was not
    disconnect();
    connected_at_ = most_steps();
  }
  const bool due = most_steps() - connected_at_ >= sync_.connect_every;
  const int name = at(grant.members.front()).component;
  for (const int p : grant.members) {
    for (Replica& other : replicas_) {
      if (&other != &at(p) && other.component == at(p).component) other.component = name;
    }
    at(p).component = name;
  }
  if (connected()) {
    disconnect();
    connected_at_ = most_steps();
    return;
  }
  if (!due) return;
  const Replica& first = at(grant.members.front());
  const int alone = std::max(kLeastAlone, sync_.connect_every * 3 / 10);
  if (grant.members.size() == 1 && first.steps - first.averaged_at < alone) return;
  fail("G5: not connected after " + std::to_string(most_steps() - connected_at_) +
       " steps of the fastest, and the group does not connect");
}

// G6: no two of the living are further apart.
void GroupWatch::check_progress(const char* when) {
  double least = 0, most = 0;
  bool any = false;
  for (const Replica& one : replicas_) {
    if (one.state == State::kLost) continue;
    least = any ? std::min(least, one.progress) : one.progress;
    most = any ? std::max(most, one.progress) : one.progress;
    any = true;
  }
  const double step = *std::ranges::max_element(shares_) / mean_share();
  if (most - least <= sync_.max_staleness + step + kRounding) return;
  fail("G6: " + std::to_string(most - least) + " steps of progress apart " + when);
}

bool GroupWatch::connected() const {
  std::set<int> names;
  for (const Replica& one : replicas_) {
    if (one.state != State::kLost) names.insert(one.component);
  }
  return names.size() <= 1;
}

void GroupWatch::disconnect() {
  for (int p = 0; p < count(); ++p) at(p).component = p;
}

std::int64_t GroupWatch::most_steps() const {
  std::int64_t most = 0;
  for (const Replica& one : replicas_) {
    if (one.state != State::kLost) most = std::max(most, one.steps);
  }
  return most;
}

double GroupWatch::mean_share() const {
  return std::accumulate(shares_.begin(), shares_.end(), 0.0) / static_cast<double>(shares_.size());
}

void GroupWatch::fail(const std::string& what) {
  wrong_.push_back("round " + std::to_string(round_) + ": " + what);
}

}  // namespace weir::sim
