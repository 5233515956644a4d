// SPDX-License-Identifier: Apache-2.0
// A job of twelve layers on four nodes that become slow, for tests of tiers regroup and
// replace.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/equal_layers.h"
#include "tests/operator/controller/reconcile/world.h"
#include "worker/base/random.h"

namespace weir::reconcile::test {

constexpr double kSlowPort = 6e5;  // bytes per second: 205 ms a micro-batch

// Twelve equal layers: 30 ms of four samples each, 120 kB at each boundary, 100 kB of parameters.
inline std::string twelve_layers(int frozen_bytes = 0) {
  return equal_layers(12, 100'000, 30'720, frozen_bytes);
}

struct RepartitionJob {
  World world;
  std::set<std::string> slow_nodes;

  explicit RepartitionJob(const std::string& mode = "Auto", int frozen_bytes = 0,
                          const std::string& family = "KFKB",
                          const std::vector<int>& fixed_caps = {}) {
    world.job.spec.stages.reset();
    world.job.spec.profile.source = "ConfigMap";
    world.profile = ProfileView{twelve_layers(frozen_bytes), ""};
    world.job.spec.adaptation.mode = mode;
    world.job.spec.schedule.type = family;
    world.job.spec.schedule.in_flight_caps = fixed_caps;
    world.job.spec.adaptation.regroup.cooldown_seconds = 600;
    run();
    measure();
  }

  // As World::run, with workers of this model.
  void run() {
    for (int i = 0; i < 4; ++i) {
      world.settle();
      world.kubelets_run();
      world.settle();
      world.workers_register();
      world.members->body.model.layers = 12;
      world.settle();
      world.coordinator_applies();
      world.settle();
    }
  }

  // 16 scrapes of the links of the plan in force.
  void measure() {
    auto& estimates = world.estimates;
    estimates.freshness = estimator::Freshness::kFresh;
    estimates.last_sample = world.now;
    estimates.links.clear();
    estimates.rates = {};
    for (int i = 0; i < 16; ++i) estimates.rates.times.push_back(world.now - (16 - i) * 1s);
    std::map<int, std::string> nodes;
    for (const auto& rank : world.plan()->ranks) nodes[rank.stage] = rank.node;
    for (int b = 0; b + 1 < world.plan()->stage_count(); ++b) {
      for (const auto direction :
           {estimator::Direction::kForward, estimator::Direction::kBackward}) {
        const bool forward = direction == estimator::Direction::kForward;
        estimator::LinkEstimate link;
        link.link = {0, b, direction};
        link.from_node = nodes[forward ? b : b + 1];
        link.to_node = nodes[forward ? b + 1 : b];
        const bool slow = slow_nodes.contains(link.from_node) || slow_nodes.contains(link.to_node);
        link.now = slow ? kSlowPort : kFast;
        link.baseline = kFast;
        link.preempted = slow;
        estimates.rates.rates[link.link].assign(16, link.now);
        estimates.links.push_back(link);
      }
    }
  }
  // As measured, times 0.6 to 1.
  void add_noise(Random& random) {
    measure();
    for (auto& link : world.estimates.links) {
      link.now *= 0.6 + 0.4 * static_cast<double>(random.below(1000)) / 1000;
      world.estimates.rates.rates[link.link].assign(16, link.now);
    }
  }
  // Seconds of a step with the plan in force: M times its slowest stage or link.
  double step_seconds() const {
    const schedule::Plan& plan = *world.plan();
    double slowest = 0;
    for (const auto& range : plan.stages) {
      slowest = std::max(slowest, 0.03 * (range.last - range.first + 1));
    }
    for (const auto& link : world.estimates.links) {
      slowest = std::max(slowest, 122880 / link.now);
    }
    return slowest * (plan.micro_batches.front() + plan.stage_count() - 1);
  }
  void shape(const std::string& node) {
    slow_nodes = {node};
    measure();
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto revision = world.job.status.plan.revision;
      world.steps(1, step_seconds());
      if (world.job.status.plan.revision == revision) continue;
      world.coordinator_applies();
      world.report->body.last_switch->moved_bytes = 60'000'000;
      world.report->body.last_switch->pause_seconds = 3.25;
      measure();
      world.settle();
    }
  }
  // Reported as a coordinator does: the rate is the mean of the last ten steps of its plan.
  void train_with_ten_step_means(int steps) {
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) {
      const auto revision = world.job.status.plan.revision;
      seconds.push_back(step_seconds());
      if (seconds.size() > 10) seconds.erase(seconds.begin());
      double sum = 0;
      for (const double step : seconds) sum += step;
      world.report->body.members.clear();
      for (const auto& rank : world.plan()->ranks) {
        world.report->body.members.push_back({.pod = rank.pod, .step_seconds = seconds.back()});
      }
      world.steps(1, seconds.back(), sum / static_cast<double>(seconds.size()));
      measure();
      if (world.job.status.plan.revision == revision) continue;
      seconds.clear();
      world.coordinator_applies();
      measure();
      world.settle();
    }
  }
  std::string node_of_stage(int stage) const {
    for (const auto& rank : world.plan()->ranks) {
      if (rank.stage == stage) return rank.node;
    }
    return "";
  }
  bool uses(const std::string& node) const {
    return std::ranges::any_of(world.plan()->ranks,
                               [&](const auto& rank) { return rank.node == node; });
  }
  // 20 steps of peace, then stage 1's node is slow until the job regroups, 60 steps at most;
  // returns what a step took before it did.
  double train_until_it_regroups() {
    train(20);
    shape(node_of_stage(1));
    const double before = step_seconds();
    for (int i = 0; i < 60 && world.plan()->trigger != schedule::Trigger::kRegroup; ++i) train(1);
    return before;
  }
  // Trains until the plan of a regroup is made, but does not apply it. Returns its revision.
  std::uint32_t regroups_unapplied() {
    train(20);
    shape(node_of_stage(1));
    for (int i = 0; i < 60; ++i) {
      world.steps(1, step_seconds());
      if (world.plan()->trigger == schedule::Trigger::kRegroup) break;
      world.coordinator_applies();
      measure();
    }
    EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRegroup);
    return world.plan()->revision;
  }
  // The newest plan is refused.
  void refuse() {
    auto& report = world.report->body;
    report.last_switch = protocol::LastSwitch{world.plan()->revision, protocol::Outcome::kRefused,
                                              report.step, 0, "no memory"};
    world.settle();
  }
  bool regrouped_after(std::int64_t revision) const {  // among the plans that are kept
    return std::ranges::any_of(world.plans, [&](const auto& plan) {
      return plan.revision > revision && plan.trigger == schedule::Trigger::kRegroup;
    });
  }
};

}  // namespace weir::reconcile::test
