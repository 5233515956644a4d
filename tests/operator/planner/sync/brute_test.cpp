// SPDX-License-Identifier: Apache-2.0
// V1: the synchronous engine against every chain of ideals with every choice of classes and ranks,
// on 10,000 random small instances. The prices here are sums over nodes, not the engine's.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "operator/planner/sync/engine.h"
#include "worker/base/random.h"

namespace weir::planner {
namespace brute_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Instance {
  Dag dag;
  SyncRequest request;
};

int up_to(Random& random, int most) {
  return static_cast<int>(random.below(static_cast<std::uint64_t>(most) + 1));
}

Instance random_instance(std::uint64_t seed, SyncFormula formula) {
  Random random(seed);
  Instance it;
  it.dag.nodes = 3 + up_to(random, seed % 16 == 0 ? 5 : 2);
  const int classes = 1 + up_to(random, 1);
  const bool own_times = up_to(random, 1) == 0;
  it.dag.classes.resize(2);
  for (int i = 0; i < it.dag.nodes; ++i) {
    const std::int64_t f = 1'000'000LL * up_to(random, 20), b = 1'000'000LL * up_to(random, 40);
    it.dag.classes[0].forward.push_back(f);
    it.dag.classes[0].backward.push_back(b);
    const int slow = own_times ? 1 + up_to(random, 3) : 2;
    it.dag.classes[1].forward.push_back(slow * f);
    it.dag.classes[1].backward.push_back(slow * b);
    for (DagTimes& times : it.dag.classes) times.update.push_back(1000LL * up_to(random, 9000));
    it.dag.parameters.push_back(1'000'000LL * up_to(random, 30));
    it.dag.output.push_back(1'000'000LL * up_to(random, 20));
    it.dag.stash.push_back(1'000'000LL * up_to(random, 20));
    it.dag.transient.push_back(1'000'000LL * up_to(random, 4) * up_to(random, 3));
  }
  std::vector<std::pair<int, int>> edges;
  const double density = 0.2 + 0.7 * random.uniform();
  for (int from = 0; from < it.dag.nodes; ++from) {
    for (int to = from + 1; to < it.dag.nodes; ++to) {
      if (random.uniform() < density) edges.emplace_back(from, to);
    }
  }
  it.dag = dag_from(std::move(it.dag), edges);

  SyncRequest& request = it.request;
  request.formula = formula;
  request.micro_batches = 1 + up_to(random, 11);
  request.k_min = request.k_max = 1 + up_to(random, 2);
  request.most_stages = 1 + up_to(random, 3);
  request.most_ranks = up_to(random, 2);
  request.use_all_devices = up_to(random, 7) == 0;
  request.replicas = formula == SyncFormula::kSync0 ? 1 : 1 + up_to(random, 1);
  int left = 4;
  for (int c = 0; c < classes; ++c) {
    SyncClass device;
    device.columns = {c};
    device.count = std::min(left, 1 + up_to(random, 2));
    left -= device.count;
    if (up_to(random, 1) == 0) device.usable_bytes = 1'000'000LL * (40 + up_to(random, 600));
    if (device.count > 0) request.classes.push_back(device);
  }
  LinkRate link;
  link.bytes_per_second = 1e8 * (1 + up_to(random, 20));
  link.latency =
      std::chrono::nanoseconds(formula == SyncFormula::kSync0 ? 0 : 100'000 * up_to(random, 20));
  request.links.assign(request.classes.size(), std::vector<LinkRate>(request.classes.size(), link));
  if (request.classes.size() > 1 && up_to(random, 1) == 0) {
    request.links[0][1].bytes_per_second /= 3;
    request.links[1][0].bytes_per_second /= 2;
  }
  request.rings.assign(request.classes.size(), link);
  return it;
}

struct Stage {
  unsigned nodes = 0, until = 0;  // its own, and with all before
  int device_class = 0, ranks = 1;
};

class EveryPlan {
 public:
  explicit EveryPlan(const Instance& it) : it_(it) {
    for (const SyncClass& device : it.request.classes) left_.push_back(device.count);
    all_ = (1U << it.dag.nodes) - 1;
    for (unsigned set = 0; set <= all_; ++set) {
      if (closed(set)) ideals_.push_back(set);
    }
  }
  double least() {
    visit(0);
    return least_;
  }

 private:
  bool closed(unsigned set) const {
    for (int v = 0; v < it_.dag.nodes; ++v) {
      if ((set >> v & 1U) == 0) continue;
      for (const int p : it_.dag.predecessors[static_cast<std::size_t>(v)]) {
        if ((set >> p & 1U) == 0) return false;
      }
    }
    return true;
  }

  void visit(unsigned done) {
    if (done == all_) {
      judge();
      return;
    }
    if (static_cast<int>(stages_.size()) == it_.request.most_stages) return;
    for (const unsigned next : ideals_) {
      if (next == done || (next & done) != done) continue;
      for (std::size_t c = 0; c < left_.size(); ++c) {
        const int most =
            it_.request.most_ranks == 0 ? left_[c] : std::min(left_[c], it_.request.most_ranks);
        for (int r = 1; r <= most; ++r) {
          stages_.push_back({next & ~done, next, static_cast<int>(c), r});
          left_[c] -= r;
          visit(next);
          left_[c] += r;
          stages_.pop_back();
        }
      }
    }
  }

  double sum(unsigned nodes, const std::vector<std::int64_t>& of) const {
    std::int64_t total = 0;
    for (int v = 0; v < it_.dag.nodes; ++v) {
      if ((nodes >> v & 1U) != 0) total += of[static_cast<std::size_t>(v)];
    }
    return static_cast<double>(total);
  }

  double cut(unsigned set) const {
    std::int64_t bytes = 0;
    for (int v = 0; v < it_.dag.nodes; ++v) {
      if ((set >> v & 1U) == 0) continue;
      const auto& next = it_.dag.successors[static_cast<std::size_t>(v)];
      if (std::any_of(next.begin(), next.end(), [&](int w) { return (set >> w & 1U) == 0; })) {
        bytes += it_.dag.output[static_cast<std::size_t>(v)];
      }
    }
    return static_cast<double>(bytes);
  }

  bool plain() const { return it_.request.formula == SyncFormula::kSync0; }

  bool fits(std::size_t s) const {
    const Stage& stage = stages_[s];
    const SyncClass& device = it_.request.classes[static_cast<std::size_t>(stage.device_class)];
    if (device.usable_bytes == 0) return true;
    const double behind = static_cast<double>(stages_.size() - 1 - s);
    const double k = std::min(it_.request.k_min, it_.request.micro_batches);
    const double cap = std::min<double>(it_.request.micro_batches, k * (behind + 1));
    const double r = stage.ranks;
    const double factor = plain() ? 4 : it_.dag.state_factor;
    double bytes = factor * sum(stage.nodes, it_.dag.parameters);
    if (plain()) {
      bytes += cap * sum(stage.nodes, it_.dag.stash) / r;
      return bytes <= static_cast<double>(device.usable_bytes);
    }
    double transient = 0;
    for (int v = 0; v < it_.dag.nodes; ++v) {
      if ((stage.nodes >> v & 1U) != 0) {
        transient = std::max(transient,
                             static_cast<double>(it_.dag.transient[static_cast<std::size_t>(v)]));
      }
    }
    const double n = std::max(2.0, k);
    const double in = cut(stage.until & ~stage.nodes), out = cut(stage.until);
    bytes += cap * std::ceil(sum(stage.nodes, it_.dag.stash) / r) + transient +
             (2 * n + 3) * std::ceil(in / r) + (n + 5) * std::ceil(out / r);
    return bytes <= static_cast<double>(device.usable_bytes);
  }

  void judge() {
    if (it_.request.use_all_devices &&
        std::any_of(left_.begin(), left_.end(), [](int idle) { return idle > 0; })) {
      return;
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (!fits(s)) return;
    }
    least_ = std::min(least_, plain() ? sum_value() : bound_value());
  }

  double seconds(const Stage& stage, bool forward) const {
    const int column =
        it_.request.classes[static_cast<std::size_t>(stage.device_class)].columns.front();
    const DagTimes& times = it_.dag.classes[static_cast<std::size_t>(column)];
    return sum(stage.nodes, forward ? times.forward : times.backward) * 1e-9 / stage.ranks;
  }
  double both(const Stage& stage) const { return seconds(stage, true) + seconds(stage, false); }

  struct Send {
    double there, back, hold;
  };
  Send send(std::size_t s) const {
    const Stage &a = stages_[s], &b = stages_[s + 1];
    const auto front = static_cast<std::size_t>(a.device_class);
    const auto behind = static_cast<std::size_t>(b.device_class);
    const LinkRate& there = it_.request.links[front][behind];
    const LinkRate& back = it_.request.links[behind][front];
    const double bytes = std::ceil(cut(a.until) / (plain() ? 1 : std::min(a.ranks, b.ranks)));
    const double x = bytes / there.bytes_per_second, y = bytes / back.bytes_per_second;
    const double latency = std::chrono::duration<double>(there.latency).count();
    return {x + latency, y + latency, std::max(x, y)};
  }

  double update(const Stage& stage) const {
    const double n = stage.ranks * it_.request.replicas;
    const double bytes = sum(stage.nodes, it_.dag.parameters);
    const LinkRate& ring = it_.request.rings[static_cast<std::size_t>(stage.device_class)];
    double result = n > 1 ? 2 * (n - 1) / n * bytes / ring.bytes_per_second : 0;
    if (plain()) return result;
    if (n > 1 && bytes > 0) {
      result += 2 * (n - 1) * std::chrono::duration<double>(ring.latency).count();
    }
    const int column =
        it_.request.classes[static_cast<std::size_t>(stage.device_class)].columns.front();
    return result +
           sum(stage.nodes, it_.dag.classes[static_cast<std::size_t>(column)].update) * 1e-9;
  }

  double sum_value() const {
    double total = 0, slowest = 0, tail = 0, behind = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const double t = both(stages_[s]);
      total += t;
      slowest = std::max(slowest, t);
      tail = std::max(tail, update(stages_[s]) - behind);
      behind += seconds(stages_[s], false);
      if (s + 1 == stages_.size()) break;
      const Send over = send(s);
      total += over.there + over.back;
      slowest = std::max(slowest, over.there + over.back);
      behind += over.back;
    }
    return total + (it_.request.micro_batches - 1) * slowest + tail;
  }

  double bound_value() const {
    const double m = it_.request.micro_batches;
    double before = 0, arrival = 0, up = 0, with_update = 0, longest = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const double t = both(stages_[s]);
      const double there = seconds(stages_[s], true), back = seconds(stages_[s], false);
      up = std::max(up, before + m * t);
      longest = std::max({longest, there, back});
      before += t;
      with_update = std::max(with_update, arrival + m * t + update(stages_[s]));
      if (s + 1 == stages_.size()) break;
      const Send over = send(s);
      longest = std::max(longest, over.hold);
      before += over.there + over.back;
      arrival += there + over.there;
    }
    up = std::max(up, before + (m - 1) * longest);  // the way of one, and the others at its pace
    return std::max(up + update(stages_.front()), with_update);
  }

  const Instance& it_;
  unsigned all_ = 0;
  std::vector<unsigned> ideals_;
  std::vector<int> left_;
  std::vector<Stage> stages_;
  double least_ = kInfinity;
};

TEST(BruteForce, TheRegressionFormulaIsExact) {
  int infeasible = 0, deep = 0;
  for (std::uint64_t seed = 1; seed <= 7000; ++seed) {
    const Instance it = random_instance(seed, SyncFormula::kSync0);
    const double best = EveryPlan(it).least();
    const auto plans = plan_sync(it.dag, *enumerate_ideals(it.dag), it.request);
    ASSERT_EQ(plans.ok(), !std::isinf(best)) << "seed " << seed;
    if (!plans.ok()) {
      ++infeasible;
      continue;
    }
    const Certificate& certificate = plans->certificate;
    ASSERT_NEAR(plans->candidates.front().value, best, 1e-9 * best) << "seed " << seed;
    ASSERT_TRUE(certificate.optimal && certificate.complete) << "seed " << seed;
    deep += plans->candidates.front().stages() > 1 ? 1 : 0;
  }
  EXPECT_GT(infeasible, 300) << "memory must matter somewhere";
  EXPECT_GT(deep, 2000);
}

TEST(BruteForce, TheBoundIsTheLeastVOfAllPlansAndNoStepIsBelowIt) {
  int infeasible = 0, proved = 0;
  for (std::uint64_t seed = 100'001; seed <= 103'000; ++seed) {
    const Instance it = random_instance(seed, SyncFormula::kSync);
    const double least = EveryPlan(it).least();
    const auto plans = plan_sync(it.dag, *enumerate_ideals(it.dag), it.request);
    ASSERT_EQ(plans.ok(), !std::isinf(least)) << "seed " << seed;
    if (!plans.ok()) {
      ++infeasible;
      continue;
    }
    const Certificate& certificate = plans->certificate;
    const double value = plans->candidates.front().value;
    ASSERT_NEAR(certificate.lower_bound, std::min(least, value), 1e-6 * value) << "seed " << seed;
    ASSERT_GE(value, least * (1 - 1e-6)) << "seed " << seed;
    ASSERT_NEAR(certificate.gap, value / certificate.lower_bound - 1, 1e-12);
    ASSERT_EQ(certificate.optimal, certificate.gap <= 1e-6) << "seed " << seed;
    proved += certificate.optimal ? 1 : 0;
    for (const Candidate& candidate : plans->candidates) ASSERT_GE(candidate.value, value);
  }
  EXPECT_GT(infeasible, 100);
  EXPECT_GT(proved, 300);
}

}  // namespace brute_test
}  // namespace weir::planner
