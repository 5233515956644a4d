// SPDX-License-Identifier: Apache-2.0
// The guard of codecs beside runs that train well: three stages of gpt-tiny over the loopback, with
// Int8 on all boundaries after some raw steps. 20 seeds of 2,000 steps in the long form.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/adaptation/compression/guard.h"
#include "tests/sim/seeds.h"
#include "tests/worker/engine/group.h"

namespace weir::sim {
namespace guard_sim_test {

using engine::test::Group;
using schedule::Codec;

constexpr int kStages = 3, kMicroBatches = 4;
constexpr std::int64_t kRaw = 200;  // steps before codecs
constexpr engine::Validation kValidation = {.interval = 50, .samples = 64};

schedule::Plan plan_of(const Group& group, std::uint32_t revision) {
  schedule::Plan plan =
      engine::test::plan_of(kStages, group.layers(), kMicroBatches, schedule::Family::kOneFOneB, 1,
                            schedule::Dispatch::kStrict);
  plan.revision = revision;
  if (revision == 1) return plan;
  plan.trigger = schedule::Trigger::kCompress;
  plan.codecs = {.forward = {Codec::kInt8, Codec::kInt8}, .backward = {Codec::kInt8, Codec::kInt8}};
  return plan;
}

// What the guard is told after each step.
class Watched {
 public:
  explicit Watched(Group& group) : group_(group) {}

  // Reads what is new; the words of the guard, if it would act.
  std::string look(const schedule::Plan& plan) {
    std::vector<Steps> ranks;
    for (int rank = 0; rank < kStages; ++rank) ranks.push_back(group_.records(rank));
    const auto validated = group_.validations(kStages - 1);
    const std::size_t all = std::ranges::min(ranks, {}, &Steps::size).size();
    for (; seen_ < all; ++seen_) {
      const engine::StepRecord& record = ranks.back()[seen_];
      const bool raw = record.epoch == 1;
      compression::note(record.loss, record.next_step, raw, losses_);
      for (const auto& [step, loss] : validated) {
        if (step > record.next_step) break;
        compression::note(protocol::Validation{.step = step, .loss = loss}, raw, validations_);
      }
      if (raw) continue;
      const auto segment = rounding(ranks, seen_ + 1);
      const auto reverted =
          compression::guard(plan, 4, segment ? &*segment : nullptr, validations_);
      const auto by_training = compression::guard(plan, 4, nullptr, {}, losses_);
      if (reverted) return reverted->why;
      if (by_training) return by_training->why;
    }
    return "";
  }
  double error() const { return error_; }
  double zeroed() const { return zeroed_; }

 private:
  using Steps = std::vector<engine::StepRecord>;

  // The least of the last eight steps before `end`, as a segment has it.
  std::optional<protocol::Segment> rounding(const std::vector<Steps>& ranks, std::size_t end) {
    constexpr std::size_t kSteps = 8;
    if (end < kSteps || ranks.front()[end - kSteps].epoch == 1) return std::nullopt;
    protocol::Segment segment{.steps = kSteps};
    for (int rank = 0; rank < kStages; ++rank) {
      const auto steps =
          std::span(ranks[static_cast<std::size_t>(rank)]).subspan(end - kSteps, kSteps);
      for (const bool forward : {true, false}) {
        if (forward ? rank == kStages - 1 : rank == 0) continue;
        protocol::SegmentLink link{.boundary = forward ? rank : rank - 1,
                                   .forward = forward,
                                   .rounding_error = 1,
                                   .zeroed = 1};
        for (const engine::StepRecord& step : steps) {
          const engine::SentTensors& tensors = step.sent[forward ? 0 : 1];
          link.rounding_error = std::min(link.rounding_error, tensors.error_ratio);
          link.zeroed = std::min(link.zeroed, tensors.zeroed_ratio);
        }
        error_ = std::max(error_, link.rounding_error);
        zeroed_ = std::max(zeroed_, link.zeroed);
        segment.links.push_back(link);
      }
    }
    return segment;
  }

  Group& group_;
  std::size_t seen_ = 0;  // steps
  compression::Losses losses_;
  compression::Validations validations_;
  double error_ = 0, zeroed_ = 0;
};

TEST(GuardSim, LetsInt8StayInRunsThatTrainWell) {
  const std::int64_t steps = kRaw + (full_run() ? 2000 : 200);
  const Seeds seeds = seeds_of_run(1, 20, 1);
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    Group group(
        "gpt-tiny", kStages, steps, 1, nullptr, nullptr, nullptr, Group::On::kHost, kValidation,
        [](std::unique_ptr<stage::Stage> stage, int) { return stage; }, seed);
    ASSERT_EQ(group.start(plan_of(group, 1)), "");
    ASSERT_TRUE(group.reaches(0, kRaw)) << seed;
    const schedule::Plan plan = plan_of(group, 2);
    ASSERT_EQ(group.switch_to(plan), "") << seed;
    Watched watched(group);
    std::string why;
    while (why.empty() && static_cast<std::int64_t>(group.records(kStages - 1).size()) < steps) {
      why = watched.look(plan);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (why.empty()) why = watched.look(plan);
    EXPECT_EQ(why, "") << "seed " << seed;
    EXPECT_GT(watched.error(), 0.001) << "somebody has looked at it";
    for (int rank = 0; rank < kStages; ++rank) group.engine(rank).leave(engine::test::kPatience);
    group.finish();
    if (seeds.alone)
      std::printf("seed %llu: error %.4f, zeroed %.4f\n", static_cast<unsigned long long>(seed),
                  watched.error(), watched.zeroed());
  }
}

}  // namespace guard_sim_test
}  // namespace weir::sim
