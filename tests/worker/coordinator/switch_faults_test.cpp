// SPDX-License-Identifier: Apache-2.0
// A fault at each message of a switch: the job ends with the old plan or a newer one, all of its
// ranks with the same, never with two epochs in one step, never in a hang. WEIR_FAULT_SEEDS sets
// how many seeds run (24); a failure prints its seed, WEIR_FAULT_SEED runs that one alone.
#include <cstdlib>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/simulated_job.h"

namespace weir::coordinator::test {
namespace switch_faults_test {

using schedule::Trigger;

constexpr auto kDeadline = 90s;  // for everything: restart, rejoin, refused sessions
// PREPARE, READY, COMMIT, APPLIED in band; PREPARE, READY, COMMIT, READY_STATE, GO of each rank.
constexpr int kMessagesInBand = 8, kMessagesOfAGeneration = 15;

#ifdef WEIR_SANITIZED  // ten times slower: each third message, another one for each fault
constexpr int kStride = 3;
#else
constexpr int kStride = 1;
#endif

constexpr Trigger kKinds[] = {Trigger::kRetune, Trigger::kRegroup, Trigger::kCompress};

int messages_of(Trigger trigger) {
  return schedule::in_band_tier(trigger) ? kMessagesInBand : kMessagesOfAGeneration;
}

schedule::Plan next_plan(std::uint32_t revision, Trigger trigger) {
  schedule::Plan next = plan(revision, trigger);
  if (trigger == Trigger::kRetune) {
    next.schedule.k = 2;
    next.schedule.caps = {6, 4, 2};
  }
  if (trigger == Trigger::kCompress) {
    next.codecs = {.forward = {schedule::Codec::kInt8, schedule::Codec::kRaw},
                   .backward = {schedule::Codec::kInt8, schedule::Codec::kInt8}};
  }
  return next;
}

struct Case {
  Trigger trigger = Trigger::kRetune;
  int fault = 0;    // 0..2 kill that index, 3..5 cut its session, 6 the operator's line, 7 none
  int message = 1;  // at which the fault comes
  std::string text() const {
    return std::string(schedule::name(trigger)) + " fault " + std::to_string(fault) +
           " at message " + std::to_string(message);
  }
};

void check(std::uint64_t seed, const Case& c) {
  const std::string which = "seed " + std::to_string(seed) + ": " + c.text();
  Job job(seed);
  job.publish(plan(1, Trigger::kInitial));
  job.run_for(5s);
  ASSERT_TRUE(job.all_train(1)) << which << ": " << job.text();

  bool fired = c.fault == 7;
  job.at_message(c.message, [&] {
    fired = true;
    if (c.fault < 3) job.kill(c.fault);
    if (c.fault >= 3 && c.fault < 6) job.cut_session(c.fault - 3);
    if (c.fault == 6) job.cut_operator(20s);
  });
  job.publish(next_plan(2, c.trigger));
  job.run_for(kDeadline);

  ASSERT_TRUE(fired) << which << ": there are not so many messages";
  const std::uint32_t revision = job.rank(0).revision();
  EXPECT_TRUE(job.all_train(revision)) << which << ": " << job.text();
  EXPECT_GE(revision, 1U) << which;
  EXPECT_LE(revision, job.newest()) << which;
  if (c.fault < 3 && job.newest() > 2) {
    EXPECT_EQ(revision, job.newest()) << which << ": " << job.text();
  }
  if (c.fault >= 6) {
    EXPECT_EQ(revision, 2U) << which << ": " << job.text();
  }
  const std::int64_t before = job.steps();
  job.run_for(5s);
  EXPECT_GT(job.steps(), before + 20) << which << ": " << job.text();
  EXPECT_TRUE(job.wrong().empty()) << which << ": " << job.wrong().front();
}

TEST(SwitchFaults, WithoutAFaultEachKindOfSwitchApplies) {
  for (const Trigger trigger : kKinds) {
    check(1, {.trigger = trigger, .fault = 7});
  }
}

TEST(SwitchFaults, AFaultAtEachMessageEndsWithOnePlanEverywhere) {
  const char* const one = std::getenv("WEIR_FAULT_SEED");
  const char* const many = std::getenv("WEIR_FAULT_SEEDS");
  const auto first = one != nullptr ? std::strtoull(one, nullptr, 10) : 0;
  const auto count = one != nullptr ? 1 : many != nullptr ? std::strtoull(many, nullptr, 10) : 24;
  for (std::uint64_t seed = first; seed < first + count && !HasFatalFailure(); ++seed) {
    // Every fault and kind of switch comes soon, the message by turns.
    const Trigger trigger = kKinds[seed % std::size(kKinds)];
    check(seed, {.trigger = trigger,
                 .fault = static_cast<int>(seed / std::size(kKinds) % 7),
                 .message = 1 + static_cast<int>(
                                    seed * 5 % static_cast<std::uint64_t>(messages_of(trigger)))});
  }
}

// Retune changes in band as Compress does.
TEST(SwitchFaults, EveryMessageTakesADeathAndALostSessionOfEveryRank) {
  for (const Trigger trigger : {Trigger::kCompress, Trigger::kRegroup}) {
    for (int fault = 0; fault < 6; ++fault) {
      for (int message = 1 + fault % kStride; message <= messages_of(trigger); message += kStride) {
        check(77, {.trigger = trigger, .fault = fault, .message = message});
      }
    }
  }
}

}  // namespace switch_faults_test
}  // namespace weir::coordinator::test
