// SPDX-License-Identifier: Apache-2.0
// What is named in a small world of pipelines, links and sums whose faults are known.
#include "operator/explain/causes.h"

#include <algorithm>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/base/units.h"

namespace weir::explain {
namespace causes_test {

using estimator::NodePair;
using protocol::StepPart;
using ::testing::HasSubstr;

constexpr double kFast = 1e9, kBytes = 1e6;            // of a link; of a message
constexpr double kForward = 0.010, kBackward = 0.020;  // of a micro-batch by the profile
constexpr double kSumBytes = 1e8;

std::string node_of(int replica, int stage) {
  return "n" + std::to_string(replica) + std::to_string(stage);
}
std::string pod_of(int replica, int stage) {
  return "p" + std::to_string(replica) + std::to_string(stage);
}

struct World {
  World(int stages, int replicas, int micro_batches) {
    plan.revision = 2;
    plan.schedule = {.k = 1, .caps = schedule::kfkb_caps(stages, micro_batches, 1)};
    for (int s = 0; s < stages; ++s) plan.stages.push_back({s, s});
    for (int r = 0; r < replicas; ++r) {
      plan.micro_batches.push_back(micro_batches);
      for (int s = 0; s < stages; ++s) {
        plan.ranks.push_back(
            {.pod = pod_of(r, s), .node = node_of(r, s), .replica = r, .stage = s});
        truth.slowness[pod_of(r, s)] = {1, 1};
        const NodePair next{node_of(r, s), node_of((r + 1) % replicas, s)};
        if (replicas > 1) truth.sum_links[next] = kFast;
        if (s + 1 == stages) continue;
        truth.links[{node_of(r, s), node_of(r, s + 1)}] = {.bytes_per_second = kFast};
        truth.links[{node_of(r, s + 1), node_of(r, s)}] = {.bytes_per_second = kFast};
      }
    }
    pauses = paused_ops = data = std::vector<double>(static_cast<std::size_t>(stages), 0);
  }

  // Pauses and loading belong to the forwards of replica 0.
  double step(const costing::Conditions& conditions) const {
    double slowest = 0;
    for (int r = 0; r < plan.replica_count(); ++r) {
      schedule::PipelineModel model;
      const auto link = [&](int from, int to) {
        const double rate =
            conditions.links.at({node_of(r, from), node_of(r, to)}).bytes_per_second;
        return schedule::LinkModel{from_seconds(kBytes / rate), {}, {}};
      };
      for (int s = 0; s < plan.stage_count(); ++s) {
        const auto& slowness = conditions.slowness.at(pod_of(r, s));
        model.stages.push_back(
            {from_seconds(kForward * slowness.first), from_seconds(kBackward * slowness.second)});
        if (s + 1 == plan.stage_count()) continue;
        model.forward.push_back(link(s, s + 1));
        model.backward.push_back(link(s + 1, s));
      }
      slowest = std::max(
          slowest,
          to_seconds(schedule::simulate(plan.schedule, plan.micro_batches[0], model)->step));
    }
    double sums = 0;
    for (const auto& [nodes, rate] : conditions.sum_links) sums = std::max(sums, kSumBytes / rate);
    return slowest + sums;
  }
  // As the clock would have it.
  double true_step() const {
    costing::Conditions met = truth;
    for (int s = 0; s < plan.stage_count(); ++s) {
      const auto i = static_cast<std::size_t>(s);
      met.slowness[pod_of(0, s)].first += (pauses[i] + data[i]) / plan.micro_batches[0] / kForward;
    }
    return step(met);
  }

  // Measures with that noise: an hour of usual steps, then these. `clean`: the world without
  // faults.
  Causes explained(const World& clean, double noise = 0, unsigned seed = 1) {
    std::mt19937 random(seed);
    const auto noisy = [&](double value, double scatter) {
      return value * std::exp(std::normal_distribution(0.0, 1.0)(random) * scatter);
    };
    DeviceHistory history;
    Observed observed{.plan = plan};
    Observed before{.plan = plan};
    for (const auto& [pod, factors] : clean.truth.slowness) {
      before.now.slowness[pod] = {noisy(factors.first, noise), noisy(factors.second, noise)};
    }
    remember(history, devices_of(before), {.revision = 1, .first_step = 1, .steps = 60},
             DeviceHistory::Time{});
    observed.now = truth;
    for (auto& [pod, factors] : observed.now.slowness) {
      factors = {noisy(factors.first, noise), noisy(factors.second, noise)};
    }
    estimator::SegmentRates segment{.revision = 2, .first_step = 61, .steps = 20, .links = {}};
    for (auto& [nodes, link] : observed.now.links) {
      link.bytes_per_second = noisy(link.bytes_per_second, noise);
      segment.links[nodes] = {
          .timed = 200, .transfers = 200, .rate = link.bytes_per_second, .error = 0.01};
      const double usual = noisy(clean.truth.links.at(nodes).bytes_per_second, noise);
      observed.usual[nodes] = {.rate = usual, .error = 0.01};
    }
    observed.slow = estimator::slow_links({}, segment, observed.usual);
    for (auto& [nodes, rate] : observed.now.sum_links) {
      estimator::LinkEstimate link;
      link.from_node = nodes.first;
      link.to_node = nodes.second;
      link.baseline = noisy(clean.truth.sum_links.at(nodes), noise);
      rate = noisy(rate, noise);
      observed.sum_links.push_back(link);
    }
    const double error = 0.002;  // of the mean step
    observed.step_seconds = noisy(true_step(), error);
    for (int s = 0; s < plan.stage_count(); ++s) {
      const auto i = static_cast<std::size_t>(s);
      auto& factors = observed.now.slowness.at(pod_of(0, s));
      factors.first += (data[i] + paused_ops[i] / 2) / plan.micro_batches[0] / kForward;
      factors.second += paused_ops[i] / 2 / plan.micro_batches[0] / kBackward;
      protocol::SegmentRank rank{.stage = s,
                                 .forward_seconds = kForward * factors.first,
                                 .backward_seconds = kBackward * factors.second};
      rank.parts.emplace();
      const auto set = [&](StepPart part, double seconds) {
        rank.parts->seconds[static_cast<std::size_t>(part)] = seconds;
      };
      const double forwards = plan.micro_batches[0] * rank.forward_seconds;
      const double backwards = plan.micro_batches[0] * rank.backward_seconds;
      set(StepPart::kData, data[i]);
      set(StepPart::kForward, forwards - data[i] - paused_ops[i] / 2);
      set(StepPart::kBackward, backwards - paused_ops[i] / 2);
      set(StepPart::kOther,
          noisy(0.002 * observed.step_seconds, noise) + pauses[i] + paused_ops[i]);
      observed.ranks.push_back(rank);
    }
    remember(history, devices_of(observed), {.revision = 2, .first_step = 61, .steps = 20},
             DeviceHistory::Time{});
    CauseInput input{.now = with_pauses(observed),
                     .deviations = deviations_of(observed, history),
                     .step_seconds = observed.step_seconds,
                     .step_error = error * observed.step_seconds};
    input.unexplained_seconds = unexplained;
    input.before = named;
    input.unsure = unsure;
    input.order_seconds = order_seconds;
    input.fill_seconds = fill_seconds;
    input.micro_batches = plan.micro_batches[0];
    return causes_of(input,
                     [&](const costing::Conditions& conditions) { return step(conditions); });
  }

  void slow_link(int replica, int from, int to, double times) {
    truth.links.at({node_of(replica, from), node_of(replica, to)}).bytes_per_second /= times;
  }
  void slow_device(int replica, int stage, double times) {
    auto& factors = truth.slowness.at(pod_of(replica, stage));
    factors = {factors.first * times, factors.second * times};
  }

  schedule::Plan plan;
  costing::Conditions truth;
  // Of replica 0, by stage, seconds a step; paused_ops: in its ops, half in backwards.
  std::vector<double> pauses, paused_ops, data;
  double unexplained = 0;
  std::optional<Named> named;
  bool unsure = false;
  double order_seconds = 0, fill_seconds = 0;
};

TEST(Causes, NameALinkWithDirectionRatesAndCost) {
  const World clean(4, 1, 16);
  World world = clean;
  world.slow_link(0, 1, 2, 100);

  const Causes forward = world.explained(clean);

  ASSERT_TRUE(forward.main);
  EXPECT_EQ(forward.main->kind, Kind::kLink);
  EXPECT_EQ(forward.main->text, "link n01 -> n02 (stages 1, 2): 80.0Mbit/s, usually 8.0Gbit/s");
  EXPECT_NEAR(forward.main->seconds, world.true_step() - clean.true_step(), 1e-6);
  EXPECT_TRUE(forward.also.empty());

  world = clean;
  world.slow_link(0, 3, 2, 100);
  EXPECT_EQ(world.explained(clean).main->place, "n03 -> n02");
  world.slow_link(0, 2, 3, 150);
  EXPECT_EQ(world.explained(clean).main->text,
            "link n02 <-> n03 (stages 2, 3; both directions): 53.3Mbit/s, usually 8.0Gbit/s");
}

TEST(Causes, NameThePortOfANodeWithSeveralSlowLinks) {
  const World clean(4, 1, 16);
  World world = clean;
  world.slow_link(0, 0, 1, 100);
  world.slow_link(0, 2, 1, 120);

  const Causes causes = world.explained(clean);

  EXPECT_EQ(causes.main->kind, Kind::kPort);
  EXPECT_EQ(causes.main->text,
            "port of node n01 (stage 1; its links to n00, n02): 66.7Mbit/s, usually 8.0Gbit/s");
}

TEST(Causes, NameASlowDeviceOfAnyStage) {
  for (int stage = 0; stage < 4; ++stage) {
    const World clean(4, 1, 16);
    World world = clean;
    world.slow_device(0, stage, 1.3);
    const Causes causes = world.explained(clean);
    ASSERT_TRUE(causes.main);
    EXPECT_EQ(causes.main->kind, Kind::kDevice);
    EXPECT_EQ(causes.main->place, pod_of(0, stage));
    EXPECT_THAT(causes.main->text, HasSubstr("computes 30 % slower than usual"));
  }
  const World clean(2, 3, 8);
  World world = clean;
  world.slow_device(1, 1, 1.2);
  EXPECT_EQ(world.explained(world).main->text,
            "rank 3 (stage 1 of replica 1) on n11 computes 20 % slower than the same stage of "
            "other replicas")
      << "although it has always been so";
}

TEST(Causes, TellThatAllDevicesAreSlower) {
  const World clean(4, 1, 16);
  World world = clean;
  for (int s = 0; s < 4; ++s) world.slow_device(0, s, 1.1);

  const Causes causes = world.explained(clean);

  EXPECT_EQ(causes.main->kind, Kind::kDevices);
  EXPECT_EQ(causes.main->text, "all devices compute 10 % slower than usual");
  EXPECT_TRUE(causes.also.empty());
}

TEST(Causes, NameADeviceThatWasSlowFromTheStartOnlyIfItIsVerySlow) {
  World world(4, 1, 16);
  world.slow_device(0, 2, 1.3);
  EXPECT_FALSE(world.explained(world).main) << "a profile may be as wrong as that";
  world.slow_device(0, 2, 1.3);
  EXPECT_THAT(world.explained(world).main->text,
              HasSubstr("69 % slower than its profile and the other devices promise"));
}

TEST(Causes, NameSumsDataAndPauses) {
  const World clean(2, 2, 8);
  World world = clean;
  world.truth.sum_links.at({"n01", "n11"}) /= 10;
  EXPECT_EQ(world.explained(clean).main->text,
            "sums over replicas on link n01 -> n11: 800.0Mbit/s, usually 8.0Gbit/s");
  world = clean;
  world.data[0] = 0.05;
  EXPECT_EQ(world.explained(clean).main->text,
            "rank 0 (stage 0 of replica 0) on n00 loads its data for 50 ms a step");
  world = clean;
  world.pauses[1] = 0.05;
  const Causes causes = world.explained(clean);
  EXPECT_EQ(causes.main->text,
            "rank 1 (stage 1 of replica 0) on n01 pauses between its ops for 50 ms a step");
  EXPECT_NEAR(causes.main->seconds, world.true_step() - clean.true_step(), 0.002);
}

TEST(Causes, NameDataThatAllReplicasWaitFor) {
  const World clean(2, 2, 8);
  World world = clean;
  world.data[0] = 0.05;
  // Only the forwards of replica 1 show it, as only one replica tells its parts.
  world.truth.slowness.at(pod_of(1, 0)).first += 0.05 / 8 / kForward;

  const Causes all = world.explained(clean);

  ASSERT_TRUE(all.main);
  EXPECT_EQ(all.main->text,
            "rank 0 (stage 0 of replica 0) on n00 loads its data for 50 ms a step, and so do other "
            "replicas");
  EXPECT_NEAR(all.main->seconds, world.true_step() - clean.true_step(), 0.002);
  EXPECT_TRUE(all.also.empty()) << all.also.front().text;
  world.slow_device(1, 0, 2);
  EXPECT_EQ(world.explained(clean).main->place, pod_of(1, 0)) << "that is more than data explains";
  EXPECT_EQ(world.explained(clean).main->kind, Kind::kDevice);
}

TEST(Causes, TellPausesInOpsFromASlowDevice) {
  const World clean(2, 2, 8);
  World world = clean;
  world.paused_ops[1] = 0.1;
  const Causes causes = world.explained(clean);
  ASSERT_TRUE(causes.main);
  EXPECT_EQ(causes.main->text,
            "rank 1 (stage 1 of replica 0) on n01 pauses in and between its ops for 100 ms a step");
  EXPECT_TRUE(causes.also.empty()) << "the device computes as usual";
  world.slow_device(0, 1, 1.5);
  const Causes both = world.explained(clean);
  ASSERT_EQ(both.also.size(), 1U);
  EXPECT_EQ(both.main->kind, Kind::kDevice);
  EXPECT_THAT(both.main->text, HasSubstr("50 % slower"));
}

TEST(Causes, CountForPausesWhatSimulatedStepsLack) {
  const World clean(4, 1, 16);
  World world = clean;
  world.pauses[2] = 0.1;
  const double even = world.explained(clean).main->seconds;
  ASSERT_LT(even, 0.09) << "or this test says nothing";
  world.unexplained = 0.01;
  EXPECT_NEAR(world.explained(clean).main->seconds, even + 0.01, 1e-6);
  world.unexplained = 1;
  EXPECT_NEAR(world.explained(clean).main->seconds, 0.1, 1e-3) << "no more than the rank pauses";
  world = clean;
  world.slow_device(0, 1, 1.3);
  const double device = world.explained(clean).main->seconds;
  world.unexplained = 1;
  EXPECT_NEAR(world.explained(clean).main->seconds, device, 1e-9) << "a device is always slow";
}

TEST(Causes, NameTheScheduleItselfIfNothingDeviates) {
  World world(4, 1, 16);
  EXPECT_FALSE(world.explained(world).main) << "neither is worth it";
  world.order_seconds = 0.1;
  world.fill_seconds = 0.05;
  EXPECT_EQ(world.explained(world).main->kind, Kind::kOrder);
  world.fill_seconds = 0.2;
  const Causes causes = world.explained(world);
  EXPECT_EQ(
      causes.main->text,
      "the schedule itself: filling and draining the pipeline, which no order of 16 micro-batches "
      "avoids");
  EXPECT_EQ(causes.main->seconds, 0.2);
  world.unsure = true;
  EXPECT_FALSE(world.explained(world).main);
}

TEST(Causes, TellWhatIsSeenButCostsNothing) {
  const World clean(4, 1, 16);
  World world = clean;
  world.slow_device(0, 3, 1.15);  // the last stage is the only one in flight
  world.slow_link(0, 0, 1, 100);

  const Causes causes = world.explained(clean);

  EXPECT_EQ(causes.main->kind, Kind::kLink);
  ASSERT_EQ(causes.also.size(), 1U);
  EXPECT_EQ(causes.also[0].kind, Kind::kDevice);
  EXPECT_LT(causes.also[0].seconds, 0.01 * world.true_step());
}

TEST(Causes, OfEqualCostHideEachOtherAndAreNamedTogether) {
  const World clean(2, 2, 8);
  World world = clean;
  world.slow_link(0, 0, 1, 100);
  world.slow_link(1, 0, 1, 100);

  const Causes causes = world.explained(clean);

  ASSERT_TRUE(causes.main);
  EXPECT_TRUE(causes.main->together);
  EXPECT_NEAR(causes.main->seconds, world.true_step() - clean.true_step(), 1e-6);
  EXPECT_EQ(causes.also.size(), 1U);
}

TEST(Causes, StayUntilAnotherOneIsClearlyDearer) {
  const World clean(2, 2, 8);
  World world = clean;
  world.slow_device(0, 0, 1.42);
  world.truth.sum_links.at({"n01", "n11"}) /= 2;
  const Causes fresh = world.explained(clean);
  ASSERT_TRUE(fresh.main);
  ASSERT_EQ(fresh.also.size(), 1U);
  ASSERT_LT(fresh.main->seconds, 1.2 * fresh.also[0].seconds) << "or this test says nothing";
  world.named = Named{fresh.also[0].kind, fresh.also[0].place};
  EXPECT_EQ(world.explained(clean).main->place, fresh.also[0].place);
}

constexpr int kSeeds = 150;
constexpr int kLeastRight = 147;  // 98 %

// Faults of 5 % of a step and more, at random places of random pipelines, measured with noise.
// Those of one place are tests/sim/naming_sim_test.cpp.
struct Fault {
  Kind kind = Kind::kLink;
  std::string place;
};

template <class Inject>
int right_of(int least_stages, int least_replicas, Inject inject) {
  int right = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto draw = [&](int low, int high) {
      return std::uniform_int_distribution(low, high)(random);
    };
    World clean(draw(least_stages, 6), draw(least_replicas, 3), draw(4, 16));
    for (int s = 0; s < clean.plan.stage_count(); ++s) {
      const double wrong = 0.01 * draw(90, 110);  // the profile of these layers
      for (int r = 0; r < clean.plan.replica_count(); ++r) clean.slow_device(r, s, wrong);
    }
    World world = clean;
    Fault fault;
    for (double size = 1; world.true_step() < 1.05 * clean.true_step() && size < 1e5; size *= 1.3) {
      world = clean;
      std::mt19937 same(static_cast<unsigned>(seed));
      fault = inject(world, size, same);
    }
    const Causes causes = world.explained(clean, 0.015, static_cast<unsigned>(seed));
    const bool named =
        causes.main && causes.main->kind == fault.kind && causes.main->place == fault.place;
    if (named) ++right;
  }
  return right;
}

int any(std::mt19937& random, int count) {
  return std::uniform_int_distribution(0, count - 1)(random);
}

TEST(Naming, FindsSlowPorts) {
  EXPECT_GE(right_of(3, 1,
                     [](World& world, double size, std::mt19937& random) {
                       const int r = any(random, world.plan.replica_count());
                       const int s = 1 + any(random, world.plan.stage_count() - 2);
                       world.slow_link(r, s, s + 1, 2 * size);
                       world.slow_link(r, s, s - 1, 2 * size);
                       return Fault{Kind::kPort, node_of(r, s)};
                     }),
            kLeastRight);
}

TEST(Naming, FindsThatAllDevicesAreSlower) {
  EXPECT_GE(right_of(2, 1,
                     [](World& world, double size, std::mt19937&) {
                       for (int r = 0; r < world.plan.replica_count(); ++r) {
                         for (int s = 0; s < world.plan.stage_count(); ++s) {
                           world.slow_device(r, s, 1 + 0.1 * size);
                         }
                       }
                       return Fault{Kind::kDevices, ""};
                     }),
            kLeastRight);
}

}  // namespace causes_test
}  // namespace weir::explain
