// SPDX-License-Identifier: Apache-2.0
// Steps whose loss or gradient is no finite number: no rank updates, whatever the plan, and after
// too many of them in a row all ranks end.
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "worker/emulate/stage_around.h"

namespace weir::engine::test {
namespace divergence_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;

enum class What : unsigned char { kGradient, kLoss };

// In some steps the gradients of the stage with layer 0, or the loss of the last one, are spoilt.
class Spoilt final : public emulate::StageAround {
 public:
  Spoilt(std::unique_ptr<stage::Stage> inner, What what, bool first, std::set<std::int64_t> steps)
      : StageAround(std::move(inner)), what_(what), first_(first), steps_(std::move(steps)) {}

  void begin_step(std::int64_t step, int samples) override {
    step_ = step;
    inner().begin_step(step, samples);
  }
  Result<std::vector<double>> gradient_squares() override {
    auto squares = inner().gradient_squares();
    if (squares && first_ && spoils(What::kGradient)) {
      squares->front() = std::numeric_limits<double>::infinity();
    }
    return squares;
  }
  double loss() const override { return spoils(What::kLoss) ? kNan : StageAround::loss(); }
  double mean_loss(std::span<const double> sums) const override {
    return spoils(What::kLoss) ? kNan : StageAround::mean_loss(sums);
  }

 private:
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  bool spoils(What what) const { return what == what_ && steps_.contains(step_); }

  const What what_;
  const bool first_;
  const std::set<std::int64_t> steps_;
  std::int64_t step_ = -1;
};

Group::Around spoilt(What what, std::set<std::int64_t> steps) {
  return [=](std::unique_ptr<stage::Stage> inner, int first) -> std::unique_ptr<stage::Stage> {
    return std::make_unique<Spoilt>(std::move(inner), what, first == 0, steps);
  };
}

struct Trained {
  std::vector<Exit> endings;
  std::vector<double> losses;         // of the last stage of replica 0
  std::set<std::int64_t> skipped;     // by every rank; -1: they do not agree
  std::int64_t skipped_steps_metric;  // of rank 0
};

Trained run(int stages, const std::vector<int>& shares, std::int64_t steps, double clip, What what,
            const std::set<std::int64_t>& bad) {
  const int ranks = stages * static_cast<int>(shares.size());
  Group group("mlp", ranks, steps, clip, nullptr, nullptr, nullptr, Group::On::kHost, {},
              spoilt(what, bad));
  schedule::Plan plan =
      plan_of(stages, group.layers(), shares[0], Family::kOneFOneB, 1, Dispatch::kStrict);
  plan.micro_batches = shares;
  EXPECT_EQ(group.start(plan), "");
  Trained result{.endings = group.finish(), .losses = losses_of(group.records(stages - 1))};
  for (int rank = 0; rank < ranks; ++rank) {
    std::set<std::int64_t> skipped;
    for (const StepRecord& record : group.records(rank)) {
      if (record.skipped) skipped.insert(record.step);
    }
    if (rank == 0) result.skipped = skipped;
    if (skipped != result.skipped) result.skipped = {-1};
  }
  result.skipped_steps_metric = group.engine(0).statistics().skipped_steps;
  return result;
}

TEST(Divergence, AStepThatIsNoNumberIsSkippedByAllRanksBitForBitWithEveryPlan) {
  constexpr int kSteps = 6;
  const std::set<std::int64_t> bad = {1, 3, 4};
  for (const double clip : {0.0, 1e-4}) {
    for (const What what : {What::kGradient, What::kLoss}) {
      const Trained alone = run(1, {6}, kSteps, clip, what, bad);
      ASSERT_EQ(alone.skipped, bad);
      EXPECT_EQ(alone.skipped_steps_metric, 3);
      for (const auto& [stages, shares] : std::vector<std::pair<int, std::vector<int>>>{
               {2, {6}}, {3, {6}}, {2, {3, 3}}, {1, {2, 4}}}) {
        const Trained other = run(stages, shares, kSteps, clip, what, bad);

        EXPECT_THAT(other.endings, Each(Exit::kFinished));
        EXPECT_EQ(other.skipped, bad) << stages << " stages";
        ASSERT_EQ(other.losses.size(), alone.losses.size());
        for (std::size_t i = 0; i < alone.losses.size(); ++i) {
          const bool unknown = what == What::kLoss && bad.contains(static_cast<std::int64_t>(i));
          if (!unknown) {
            EXPECT_EQ(other.losses[i], alone.losses[i]) << stages << ", step " << i;
          }
        }
      }
    }
  }
}

TEST(Divergence, TooManySkippedStepsInARowEndAllRanksAtOneStep) {
  std::set<std::int64_t> bad;
  for (std::int64_t step = 2; step < 100; ++step) {
    if (step != 8) bad.insert(step);  // one good step: they are counted anew
  }
  const Trained one = run(3, {4}, 100, 0, What::kGradient, bad);

  EXPECT_THAT(one.endings, Each(Exit::kDiverged));
  EXPECT_EQ(one.losses.size(), 19U) << "10 in a row, the first of them step 9";
}

}  // namespace divergence_test
}  // namespace weir::engine::test
