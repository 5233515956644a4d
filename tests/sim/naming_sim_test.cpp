// SPDX-License-Identifier: Apache-2.0
// Faults of random kinds, places and sizes in steps of an independent model (step_world.h): what
// the operator names, and what it says that they cost. WEIR_SEED=<seed> prints one, WEIR_FULL=1
// runs 200 seeds of each kind.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/explained_job.h"
#include "tests/sim/seeds.h"

namespace weir::sim {
namespace naming_sim_test {

using explain::Kind;

constexpr double kLeastCost = 0.05;  // of a step without the fault
constexpr double kNamedRight = 0.98, kCostRight = 0.9, kLargerNamed = 0.9, kBlamed = 0.02;

Seeds seeds() {
  return seeds_of_run(20, 200, 3);
}

struct Planted {
  std::vector<Fault> faults;
  Kind kind{};
  std::string place;
  std::array<std::string, 2> ends = {};  // nodes, of a link
  double cost = 0, step = 0;             // seconds: of the fault, of a usual step
};

bool is_near(double told, double truth) {
  return told >= 0.8 * truth && told <= 1.2 * truth;
}

// Grows the fault until it costs enough; nothing if it never does.
std::optional<double> grown(const ExplainedJob& job, Fault& fault, double part, double least,
                            double times, double most) {
  const double usual = job.seconds({});
  for (double size = least; size <= most; size *= times) {
    fault.size = size;
    const double cost = job.seconds({fault}) - usual;
    if (cost >= part * usual) return cost;
  }
  return std::nullopt;
}

std::optional<Planted> planted(const ExplainedJob& job, FaultKind kind, std::uint64_t seed) {
  Random random(mix_seed(mix_seed(seed, "fault"), static_cast<std::uint64_t>(kind)));
  const auto any = [&](int count) {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(count)));
  };
  const int stages = job.plan().stage_count(), replicas = job.plan().replica_count();
  const bool of_link = kind == FaultKind::kForwardLink || kind == FaultKind::kBackwardLink ||
                       kind == FaultKind::kCredits;
  Planted result;
  result.step = job.seconds({});
  Fault fault{.kind = kind, .replica = any(replicas), .stage = any(of_link ? stages - 1 : stages)};
  const double part = kLeastCost * (1 + 3 * random.uniform());
  const int r = fault.replica, s = fault.stage;
  std::optional<double> cost;
  result.place = job.pod(r, s);
  const auto link = [&](const std::string& from, const std::string& to) {
    result.ends = {from, to};
    result.place = from + " -> " + to;
  };
  switch (kind) {
    case FaultKind::kDevice:
      result.kind = Kind::kDevice;
      cost = grown(job, fault, part, 1.1, 1.05, 10);
      break;
    case FaultKind::kForwardLink:
      result.kind = Kind::kLink;
      link(job.node(r, s), job.node(r, s + 1));
      cost = grown(job, fault, part, 2, 1.2, 1e5);
      break;
    case FaultKind::kBackwardLink:
      result.kind = Kind::kLink;
      link(job.node(r, s + 1), job.node(r, s));
      cost = grown(job, fault, part, 2, 1.2, 1e5);
      break;
    case FaultKind::kData:
      result.kind = Kind::kData;
      cost = grown(job, fault, part, 0.002, 1.2, 10);
      break;
    case FaultKind::kSums:
      result.kind = Kind::kSums;
      link(job.node((r + 1) % replicas, s), job.node(r, s));
      cost = grown(job, fault, part, 1.5, 1.15, 1e3);
      break;
    case FaultKind::kPauses:
      result.kind = Kind::kPauses;
      fault.every = result.step * (0.1 + 0.4 * random.uniform());
      cost = grown(job, fault, part, 0.02, 1.2, 10);
      break;
    case FaultKind::kSave:
      result.kind = Kind::kSave;
      cost = grown(job, fault, part, 0.1, 1.1, 100);
      break;
    case FaultKind::kCredits:
      break;
  }
  if (!cost) return std::nullopt;
  result.cost = *cost;
  result.faults = {fault};
  return result;
}

void print(std::uint64_t seed, const ExplainedJob& job, const Planted& planted,
           const explain::Causes& told) {
  std::printf("seed %llu, %d x %d stages: %s %s costs %.1f of %.1f ms, told %s %s %.1f ms\n",
              static_cast<unsigned long long>(seed), job.plan().replica_count(),
              job.plan().stage_count(), name(planted.kind), planted.place.c_str(),
              1e3 * planted.cost, 1e3 * planted.step, told.main ? name(told.main->kind) : "nothing",
              told.main ? told.main->text.c_str() : "", told.main ? 1e3 * told.main->seconds : 0);
  for (const auto& also : told.also) {
    std::printf("    also %s %s %.1f ms\n", name(also.kind), also.text.c_str(), 1e3 * also.seconds);
  }
}

bool named_right(const Planted& planted, const explain::Causes& told) {
  return told.main && told.main->kind == planted.kind && told.main->place == planted.place;
}

// Whether both are links that the sentence names as one, because they join the same two nodes or
// end at one node. A user who is told of that port, and of what both links cost, knows all: a port
// is what they share, and to name the larger one alone would promise less than its repair brings.
bool named_together(const Planted& larger, const Planted& smaller, const explain::Causes& told,
                    double cost) {
  if (!told.main || larger.ends[0].empty() || smaller.ends[0].empty()) return false;
  const auto at_end = [](const Planted& link, const std::string& node) {
    return link.ends[0] == node || link.ends[1] == node;
  };
  const std::string& place = told.main->place;
  const bool port =
      told.main->kind == Kind::kPort && at_end(larger, place) && at_end(smaller, place);
  const auto [low, high] = std::minmax(larger.ends[0], larger.ends[1]);
  const bool pair = told.main->kind == Kind::kLink && at_end(smaller, low) &&
                    at_end(smaller, high) && place == low + " <-> " + high;
  return (port || pair) && is_near(told.main->seconds, cost);
}

void expect_named(FaultKind kind, bool usual_links_slow = false) {
  int costly = 0, right = 0, near = 0;
  const auto [first, last, alone] = seeds();
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    ExplainedJob job(seed, 2, kind == FaultKind::kSums ? 2 : 1, usual_links_slow);
    const auto fault = planted(job, kind, seed);
    if (!fault) continue;
    ++costly;
    const explain::Causes told = job.causes(fault->faults);
    const bool named = named_right(*fault, told);
    const bool near_truth = told.main && is_near(told.main->seconds, fault->cost);
    right += named ? 1 : 0;
    near += named && near_truth ? 1 : 0;
    if (!named || !near_truth || alone) print(seed, job, *fault, told);
  }
  std::printf("%d of %d named right, %d with the right cost\n", right, costly, near);
  if (alone) return;
  EXPECT_GE(costly, 0.8 * static_cast<double>(last));
  EXPECT_GE(right, std::floor(kNamedRight * costly));
  EXPECT_GE(near, std::floor(kCostRight * costly));
}

TEST(NamingSim, FindsSlowDevices) {
  expect_named(FaultKind::kDevice);
}
TEST(NamingSim, FindsSlowLinksForward) {
  expect_named(FaultKind::kForwardLink);
}
TEST(NamingSim, FindsSlowLinksBackward) {
  expect_named(FaultKind::kBackwardLink);
}
TEST(NamingSim, FindsLateData) {
  expect_named(FaultKind::kData);
}
TEST(NamingSim, FindsSlowSums) {
  expect_named(FaultKind::kSums);
}

TEST(NamingSim, FindsSlowSaves) {
  expect_named(FaultKind::kSave);
}

TEST(NamingSim, FindsPauses) {
  expect_named(FaultKind::kPauses);
}

// Of two faults of different kinds that both cost 5 % alone, one 20 % more than the other one.
TEST(NamingSim, FindsTheLargerOfTwoFaults) {
  constexpr double kClearlyLarger = 1.2;
  constexpr std::array kKinds{FaultKind::kDevice, FaultKind::kForwardLink, FaultKind::kBackwardLink,
                              FaultKind::kData, FaultKind::kSums};
  int pairs = 0, right = 0;
  const auto [first, last, alone] = seeds();
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const ExplainedJob job(seed, 2, 1, false);
    Random random(mix_seed(seed, "kinds"));
    const std::size_t kinds = kKinds.size() - (job.plan().replica_count() > 1 ? 0 : 1);
    const auto one = random.below(kinds), other = (one + 1 + random.below(kinds - 1)) % kinds;
    auto larger = planted(job, kKinds[one], seed), smaller = planted(job, kKinds[other], seed);
    if (!larger || !smaller) continue;
    if (larger->cost < smaller->cost) std::swap(larger, smaller);
    if (larger->cost < kClearlyLarger * smaller->cost) continue;
    ++pairs;
    const explain::Causes told =
        ExplainedJob(job).causes({larger->faults.front(), smaller->faults.front()});
    const double both =
        job.seconds({larger->faults.front(), smaller->faults.front()}) - larger->step;
    const bool named = named_right(*larger, told) || named_together(*larger, *smaller, told, both);
    right += named ? 1 : 0;
    if (!named || alone) {
      print(seed, job, *larger, told);
      std::printf("    smaller: %s %s costs %.1f ms\n", name(smaller->kind), smaller->place.c_str(),
                  1e3 * smaller->cost);
    }
  }
  std::printf("%d of %d larger ones named\n", right, pairs);
  if (alone) return;
  EXPECT_GE(pairs, static_cast<double>(last) / 3);
  EXPECT_GE(right, std::floor(kLargerNamed * pairs));
}

TEST(NamingSim, BlamesNobodyForUsualSteps) {
  int blamed = 0;
  const auto [first, last, alone] = seeds();
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    ExplainedJob job(seed, 2, 1, false);
    const explain::Causes told = job.causes({});
    const bool blames =
        told.main && told.main->kind != Kind::kOrder && told.main->kind != Kind::kFill;
    blamed += blames ? 1 : 0;
    if (blames || alone) print(seed, job, {}, told);
  }
  std::printf("%d of %d blamed\n", blamed, static_cast<int>(last - first + 1));
  EXPECT_LE(blamed, std::max(1.0, kBlamed * static_cast<double>(last)));
}

}  // namespace naming_sim_test
}  // namespace weir::sim
