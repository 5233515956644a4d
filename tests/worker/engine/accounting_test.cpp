// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes: the parts that a rank tells add up to the time that passed, with
// every schedule, with replicas, saves, validations and switches of plans.
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "worker/base/units.h"
#include "worker/emulate/stage_around.h"

namespace weir::engine::test {
namespace accounting_test {

using namespace std::chrono_literals;
using protocol::StepPart;
using schedule::Dispatch;
using schedule::Family;
using std::chrono::nanoseconds;
using testing::Each;

constexpr std::int64_t kSteps = 8;
// The rank may read its clock once more behind its last lap.
constexpr nanoseconds kBetweenClocks = 100us;
// Dispatch and waking up, of steps of 30 ms on a busy machine.
constexpr double kMostOther = 0.05;

// Every op takes 1.5 to 4 ms.
class Slow final : public emulate::StageAround {
 public:
  Slow(std::unique_ptr<stage::Stage> inner, unsigned seed)
      : StageAround(std::move(inner)), random_(seed) {}

  Result<device::Buffer> forward(int micro_batch, const device::Buffer& input,
                                 const stage::Tokens& tokens) override {
    sleep();
    return inner().forward(micro_batch, input, tokens);
  }
  Result<device::Buffer> backward(int micro_batch, const device::Buffer& gradient) override {
    sleep();
    return inner().backward(micro_batch, gradient);
  }
  Result<device::Buffer> backward_input(int micro_batch, const device::Buffer& gradient) override {
    sleep();
    return inner().backward_input(micro_batch, gradient);
  }
  Status backward_weights(int micro_batch) override {
    sleep();
    return inner().backward_weights(micro_batch);
  }

 private:
  void sleep() {
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution(1500, 4000)(random_)));
  }
  std::mt19937 random_;
};

Group::Around slow(unsigned seed) {
  return [seed](std::unique_ptr<stage::Stage> inner, int first) -> std::unique_ptr<stage::Stage> {
    return std::make_unique<Slow>(std::move(inner), seed + static_cast<unsigned>(first));
  };
}

nanoseconds of(const StepRecord& record, StepPart part) {
  return record.parts[static_cast<std::size_t>(part)];
}

nanoseconds all_parts(const StepRecord& record) {
  return std::accumulate(record.parts.begin(), record.parts.end(), nanoseconds(0));
}

double seconds(const std::vector<StepRecord>& records, StepPart part) {
  double sum = 0;
  for (const StepRecord& record : records) sum += to_seconds(of(record, part));
  return sum;
}

void expect_close(nanoseconds parts, nanoseconds wall, const std::string& where) {
  EXPECT_LE(std::chrono::abs(parts - wall), wall / 100 + kBetweenClocks)
      << where << ": parts " << to_seconds(parts) << " s, wall " << to_seconds(wall) << " s";
}

// Of each step, and of all of them.
void expect_additive(Group& group, int ranks, const std::string& name) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto records = group.records(rank);
    const auto told = group.told_at(rank);
    ASSERT_EQ(records.size(), static_cast<std::size_t>(kSteps)) << name;
    const std::string where = name + " rank " + std::to_string(rank);
    nanoseconds parts{0};
    double least_other = 1;  // on a loaded machine a thread that is woken up may wait for a core
    for (std::size_t i = 1; i < records.size(); ++i) {
      parts += all_parts(records[i]);
      least_other = std::min(least_other, to_seconds(of(records[i], StepPart::kOther)) /
                                              to_seconds(all_parts(records[i])));
      expect_close(all_parts(records[i]), told[i] - told[i - 1],
                   where + " step " + std::to_string(i));
    }
    expect_close(parts, told.back() - told.front(), where);
    const Statistics counters = group.engine(rank).statistics();
    for (const StepPart part : {StepPart::kForward, StepPart::kBackward, StepPart::kForwardLate,
                                StepPart::kGradientLate, StepPart::kSum, StepPart::kSwitch}) {
      EXPECT_NEAR(seconds(records, part), counters.seconds_of(part), 1e-6)
          << where << " " << protocol::name(part);
    }
    EXPECT_LE(least_other, kMostOther) << where;
  }
}

struct Case {
  int stages, replicas, k;
  Dispatch dispatch;
  bool splits, validates, saves, switches;
};

schedule::Plan plan_in(const Group& group, const Case& one, int k) {
  schedule::Plan plan = plan_of(one.stages, group.layers(), 4,
                                k > 1 ? Family::kKfkb : Family::kOneFOneB, k, one.dispatch);
  plan.micro_batches.assign(static_cast<std::size_t>(one.replicas), 4);
  if (one.splits) {
    plan.schedule.split =
        schedule::Split{.held = plan.schedule.caps,
                        .postponed = std::vector<int>(static_cast<std::size_t>(one.stages), 0)};
  }
  return plan;
}

std::string text_of(const Case& one, unsigned seed) {
  return std::to_string(one.stages) + " stages, " + std::to_string(one.replicas) + " replicas, k " +
         std::to_string(one.k) + (one.splits ? ", split" : "") +
         (one.validates ? ", validates" : "") + (one.saves ? ", saves" : "") +
         (one.switches ? ", switches" : "") + ", seed " + std::to_string(seed);
}

void run(const Case& one, unsigned seed) {
  const std::string name = text_of(one, seed);
  const int ranks = one.stages * one.replicas;
  Saves saves;
  Group group("mlp", ranks, kSteps, 0.5, one.saves ? &saves : nullptr, nullptr, nullptr,
              Group::On::kHost,
              {.interval = one.validates ? 3 : 0, .samples = one.validates ? 4 : 0}, slow(seed));
  ASSERT_EQ(group.start(plan_in(group, one, one.k)), "") << name;
  if (one.saves) {
    for (int rank = 0; rank < ranks; ++rank) {
      group.engine(rank).mailbox().put(protocol::Save{.step = 4});
      group.engine(rank).mailbox().put(protocol::Saved{.step = kSteps});
    }
  }
  if (one.switches) {
    schedule::Plan next = plan_in(group, one, 3 - one.k);
    next.revision = 2;
    next.trigger = schedule::Trigger::kRetune;
    ASSERT_EQ(group.switch_to(next), "") << name;
  }
  ASSERT_THAT(group.finish(), Each(Exit::kFinished)) << name;

  expect_additive(group, ranks, name);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto records = group.records(rank);
    EXPECT_GE(seconds(records, StepPart::kForward), 0.0015 * 4 * kSteps) << name;
    EXPECT_EQ(seconds(records, StepPart::kWeights) > 0, one.splits) << name;
    EXPECT_GT(of(records.front(), StepPart::kSwitch), 0ns) << name << ": a generation was entered";
    EXPECT_EQ(seconds(records, StepPart::kValidation) > 0, one.validates) << name;
    EXPECT_EQ(seconds(records, StepPart::kSum) > 0, one.replicas > 1) << name;
    EXPECT_EQ(seconds(records, StepPart::kForwardLate) > 0, rank % one.stages > 0) << name;
    EXPECT_EQ(seconds(records, StepPart::kAverage), 0) << name;
    EXPECT_EQ(of(records[3], StepPart::kSave) > 0ns, one.saves) << name;
  }
}

TEST(Accounting, PartsOfAStepAddUpToItsTimeWithEverySchedule) {
  unsigned seed = 1;
  for (const int stages : {1, 2, 3}) {
    for (const bool splits : {false, true}) {
      const Dispatch dispatch = splits ? Dispatch::kHint : Dispatch::kStrict;
      run({stages, 1, stages > 1 && splits ? 2 : 1, dispatch, splits, false, false, false}, seed++);
    }
  }
}

TEST(Accounting, PartsAddUpWithReplicasSavesValidationsAndSwitches) {
  unsigned seed = 101;
  for (const int replicas : {1, 2}) {
    run({2, replicas, 1, Dispatch::kHint, false, true, false, false}, seed++);
    run({2, replicas, 1, Dispatch::kHint, false, false, true, false}, seed++);
    run({2, replicas, 1, Dispatch::kHint, false, false, false, true}, seed++);
  }
}

}  // namespace accounting_test
}  // namespace weir::engine::test
