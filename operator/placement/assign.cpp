// SPDX-License-Identifier: Apache-2.0
#include "operator/placement/assign.h"

#include <algorithm>

namespace weir::placement {
namespace {

constexpr double kNoise = 1e-12;       // relative error of sums in another order
constexpr double kAsGood = 1.005;      // a step may take this much longer to move fewer bytes
constexpr int kStepsPerLeaf = 32;      // limit of the enumeration's steps per scored assignment
constexpr std::size_t kMostKept = 64;  // assignments within kAsGood that are compared by bytes

struct Scored {
  Assignment assignment;
  double seconds = 0;
};

// Keeps the best assignment and some that are nearly as good.
class Best {
 public:
  void offer(const Assignment& assignment, double seconds) {
    ++tried_;
    if (!kept_.empty() && seconds > least_ * kAsGood) return;
    if (kept_.empty() || seconds < least_ * (1 - kNoise)) {
      least_ = kept_.empty() ? seconds : std::min(least_, seconds);
      std::erase_if(kept_, [&](const Scored& it) { return it.seconds > least_ * kAsGood; });
      kept_.insert(kept_.begin(), {assignment, seconds});
      if (kept_.size() > kMostKept) kept_.pop_back();
    } else if (kept_.size() < kMostKept) {
      kept_.push_back({assignment, seconds});
    }
  }
  bool empty() const { return kept_.empty(); }
  const Scored& front() const { return kept_.front(); }
  int tried() const { return tried_; }

  const Scored& choose(const MovedBytes& moved) const {
    if (!moved) return kept_.front();
    std::size_t best = 0;
    std::int64_t least = moved(kept_.front().assignment);
    for (std::size_t i = 1; i < kept_.size(); ++i) {
      const std::int64_t bytes = moved(kept_[i].assignment);
      if (bytes >= least) continue;
      best = i;
      least = bytes;
    }
    return kept_[best];
  }

 private:
  std::vector<Scored> kept_;  // the fastest first
  double least_ = 0;
  int tried_ = 0;
};

// Tries every assignment. Assignments count as one if they differ only by an exchange of servers
// that are alike, of devices of a server, or of ranks of a stage.
class Enumeration {
 public:
  Enumeration(const Topology& topology, const Task& task, const Score& score, Best& best)
      : topology_(topology),
        task_(task),
        score_(score),
        best_(best),
        taken_(task.kind_of.size(), false),
        used_(static_cast<std::size_t>(topology.servers()), 0) {
    now_.assign(static_cast<std::size_t>(task.replicas),
                std::vector<std::vector<int>>(task.kinds.size()));
  }

  bool complete() {
    visit(0, 0);
    return leaves_ <= task_.most_tried && steps_ <= task_.most_tried * kStepsPerLeaf;
  }

 private:
  bool over() const {
    return leaves_ > task_.most_tried || steps_ > task_.most_tried * kStepsPerLeaf;
  }

  void visit(std::size_t replica, std::size_t stage) {
    if (over()) return;
    if (stage == task_.kinds.size()) return visit(replica + 1, 0);
    if (replica == now_.size()) {
      ++leaves_;
      best_.offer(now_, score_(now_));
      return;
    }
    std::vector<int>& ranks = now_[replica][stage];
    if (static_cast<int>(ranks.size()) == task_.ranks[stage]) return visit(replica, stage + 1);
    const int least = ranks.empty() ? 0 : topology_.server_of(ranks.back());
    std::vector<std::pair<int, std::uint64_t>> tried;  // unused servers: alike(), device kinds
    for (int server = least; server < topology_.servers(); ++server) {
      const auto [device, kinds] = first_free(server, task_.kinds[stage]);
      if (device < 0) continue;
      if (used_[static_cast<std::size_t>(server)] == 0) {
        const std::pair same(topology_.alike(server), kinds);
        if (std::ranges::find(tried, same) != tried.end()) continue;
        tried.push_back(same);
      }
      ++steps_;
      ++used_[static_cast<std::size_t>(server)];
      taken_[static_cast<std::size_t>(device)] = true;
      ranks.push_back(device);
      visit(replica, stage);
      ranks.pop_back();
      taken_[static_cast<std::size_t>(device)] = false;
      --used_[static_cast<std::size_t>(server)];
      if (over()) return;
    }
  }

  // A server's first free device of a kind, or -1, and a hash of the kinds of all its devices.
  std::pair<int, std::uint64_t> first_free(int server, int kind) const {
    int device = -1;
    std::uint64_t kinds = 0;
    for (const int d : topology_.devices_on(server)) {
      const auto i = static_cast<std::size_t>(d);
      kinds = kinds * 1'000'003 + static_cast<std::uint64_t>(task_.kind_of[i]) + 1;
      if (device < 0 && !taken_[i] && task_.kind_of[i] == kind) device = d;
    }
    return {device, kinds};
  }

  const Topology& topology_;
  const Task& task_;
  const Score& score_;
  Best& best_;
  Assignment now_;
  std::vector<bool> taken_;
  std::vector<int> used_;  // by server
  int leaves_ = 0;
  std::int64_t steps_ = 0;
};

// Exchanges the devices of two ranks, or a rank's device and a free one, as long as that shortens
// the step.
void exchange(const Task& task, const Score& score, Best& best, Assignment now) {
  std::vector<int*> places;
  for (auto& replica : now) {
    for (auto& stage : replica) {
      for (int& device : stage) places.push_back(&device);
    }
  }
  double seconds = score(now);
  best.offer(now, seconds);
  for (bool better = true; better;) {
    better = false;
    for (int* place : places) {
      const int kind = task.kind_of[static_cast<std::size_t>(*place)];
      for (int other = 0; other < static_cast<int>(task.kind_of.size()); ++other) {
        if (best.tried() >= task.most_tried) return;
        if (other == *place || task.kind_of[static_cast<std::size_t>(other)] != kind) continue;
        const auto holder = std::ranges::find_if(places, [&](int* p) { return *p == other; });
        const int before = *place;
        *place = other;
        if (holder != places.end()) **holder = before;
        const double then = score(now);
        best.offer(now, then);
        if (then < seconds * (1 - kNoise)) {
          seconds = then;
          better = true;
          continue;
        }
        if (holder != places.end()) **holder = other;
        *place = before;
      }
    }
  }
}

}  // namespace

std::optional<Assigned> assign(const Topology& topology, const Task& task, const Score& score,
                               const MovedBytes& moved, const std::optional<Assignment>& start) {
  Best best;
  if (!constructed(topology, task, Policy::kAppendFirst, false)) return std::nullopt;
  if (start) best.offer(*start, score(*start));
  Enumeration enumeration(topology, task, score, best);
  const bool exact = enumeration.complete();
  if (!exact) {
    Best local;
    for (const Policy policy : {Policy::kFreshFirst, Policy::kAppendFirst, Policy::kScatterFirst}) {
      for (const bool by_stage : {false, true}) {
        auto built = constructed(topology, task, policy, by_stage);
        if (!built) continue;
        const double seconds = score(*built);
        local.offer(*built, seconds);
      }
    }
    if (!best.empty()) local.offer(best.front().assignment, best.front().seconds);
    exchange(task, score, local, local.front().assignment);
    best = local;
  }
  const Scored& chosen = best.choose(moved);
  return Assigned{chosen.assignment, chosen.seconds, exact, best.tried()};
}

}  // namespace weir::placement
