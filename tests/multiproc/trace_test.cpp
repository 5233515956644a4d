// SPDX-License-Identifier: Apache-2.0
// What real workers record of some steps: all of it, counted against the plan.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"
#include "tests/support/trace_check.h"
#include "worker/protocol/step_part.h"
#include "worker/schedule/dispatch.h"
#include "worker/timeline/align.h"
#include "worker/timeline/chrome_trace.h"
#include "worker/timeline/codec.h"

namespace weir::test {
namespace trace_test {

using protocol::StepPart;
using schedule::OpKind;
using testing::Each;
using testing::IsEmpty;
using timeline::Event;
using timeline::EventKind;
using timeline::RankRecord;

std::vector<RankRecord> read_records(const TempDir& folder, int workers) {
  std::vector<RankRecord> records;
  for (int i = 0; i < workers; ++i) {
    std::ifstream file(folder.path() / (std::to_string(i) + ".weir"), std::ios::binary);
    auto found = timeline::decode(std::string{std::istreambuf_iterator<char>(file), {}});
    EXPECT_TRUE(found) << i << ": " << (found ? "" : found.error().message);
    if (found) std::ranges::move(*found, std::back_inserter(records));
  }
  return records;
}

// How often each (kind, detail, step, micro-batch) was recorded.
std::map<std::tuple<EventKind, int, std::uint32_t, int>, int> counted(const RankRecord& record) {
  std::map<std::tuple<EventKind, int, std::uint32_t, int>, int> counts;
  for (const Event& event : record.events) {
    ++counts[{event.kind, event.detail, event.step, event.micro_batch}];
  }
  return counts;
}

TEST(Trace, HoldsEveryOpAndTensorOfEveryRankAndStep) {
  constexpr int kStages = 4;
  constexpr std::uint32_t kFirst = 4, kLast = 6;  // steps, counted from 1
  const std::vector<int> shares{5, 3};
  const TempDir folder;
  std::vector<std::vector<std::string>> extra;
  for (int i = 0; i < 2 * kStages; ++i) {
    extra.push_back({"--trace-file=" + (folder.path() / (std::to_string(i) + ".weir")).string(),
                     "--trace-steps=" + std::to_string(kFirst) + "-" + std::to_string(kLast)});
  }
  Workers workers({.k = 1, .stages = kStages, .shares = shares},
                  {"--model=mlp", "--seq=8", "--vocab=32", "--steps=8"}, extra, 2 * kStages);
  ASSERT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  const std::vector<RankRecord> records = read_records(folder, 2 * kStages);
  ASSERT_EQ(records.size(), 2U * kStages);
  ASSERT_TRUE(timeline::belong_together(records));
  int ops = 0, arrows = 0;
  for (const RankRecord& record : records) {
    const std::string where =
        "replica " + std::to_string(record.replica) + " stage " + std::to_string(record.stage);
    const bool first = record.stage == 0, last = record.stage + 1 == kStages;
    const int micro_batches = shares[static_cast<std::size_t>(record.replica)];
    const auto counts = counted(record);
    for (std::uint32_t step = kFirst - 1; step < kLast; ++step) {
      for (int m = 0; m < micro_batches; ++m) {
        const auto times = [&](EventKind kind, int detail) {
          const auto found = counts.find({kind, detail, step, m});
          return found == counts.end() ? 0 : found->second;
        };
        for (const OpKind op : {OpKind::kForward, OpKind::kBackward}) {
          EXPECT_EQ(times(EventKind::kOp, static_cast<int>(op)), 1) << where << " " << m;
        }
        for (const int direction : {0, 1}) {
          const bool receives = direction == 0 ? !first : !last;
          const bool sends = direction == 0 ? !last : !first;
          EXPECT_EQ(times(EventKind::kReceived, direction), receives ? 1 : 0) << where << " " << m;
          EXPECT_EQ(times(EventKind::kSent, direction), sends ? 1 : 0) << where << " " << m;
          arrows += receives ? 1 : 0;
        }
        ops += 2;
      }
    }
    // Parts lie side by side: nothing of these steps is missing or counted twice.
    std::vector<Event> parts;
    std::ranges::copy_if(record.events, std::back_inserter(parts),
                         [](const Event& event) { return event.kind == EventKind::kPart; });
    std::ranges::sort(parts, {}, &Event::begin);
    ASSERT_FALSE(parts.empty());
    for (std::size_t i = 1; i < parts.size(); ++i) {
      ASSERT_EQ(parts[i].begin, parts[i - 1].end) << where << " part " << i;
    }
    EXPECT_TRUE(std::ranges::any_of(parts, [](const Event& part) {
      return part.detail == static_cast<int>(StepPart::kSum);
    })) << where;
  }

  EXPECT_EQ(align(records, timeline::tensors_of(records)).contradictions, 0);
  const CheckedTrace trace = check_trace(timeline::chrome_trace(records));
  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_EQ(trace.count("forward") + trace.count("backward"), ops);
  EXPECT_EQ(ops, 2 * (5 + 3) * kStages * 3);
  EXPECT_EQ(trace.count("send"), arrows);
  EXPECT_EQ(static_cast<int>(trace.arrows.size()), arrows);
}

// A change of the plan, and validations in between. The recorder holds the newest
// steps, of which the first is not whole.
TEST(Trace, DrawsStepsOfSeveralPlans) {
  constexpr int kStages = 2;
  const TempDir folder;
  std::vector<std::vector<std::string>> extra;
  for (int i = 0; i < kStages; ++i) {
    extra.push_back({"--trace-file=" + (folder.path() / (std::to_string(i) + ".weir")).string(),
                     "--trace-steps=1-100000000"});
  }
  Workers workers({},
                  {"--model=mlp", "--seq=8", "--vocab=32", "--validation-interval=7",
                   "--steps=" + std::to_string(kNoEnd)},
                  extra);
  ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();
  workers.write_plan(
      {.type = "KFKB", .dispatch = "Hint", .trigger = "Retune", .revision = 2, .k = 2});
  ASSERT_TRUE(workers.adopts(0, 2)) << workers[0].errors();
  const std::int64_t before = workers.steps(0).back().step;
  ASSERT_TRUE(workers.reaches(0, before + 10)) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  const std::vector<RankRecord> records = read_records(folder, kStages);
  ASSERT_EQ(records.size(), 2U);
  for (const RankRecord& record : records) {
    EXPECT_EQ(record.revision, 2U);
    EXPECT_GE(record.events.size(), 100U);
  }
  const CheckedTrace trace = check_trace(timeline::chrome_trace(records));
  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_GT(trace.arrows.size(), 100U);
}

TEST(Trace, AWorkerThatAFatalSignalEndsSaysWhereItWas) {
  Workers workers({},
                  {"--model=mlp", "--seq=8", "--vocab=32", "--steps=" + std::to_string(kNoEnd)});
  ASSERT_TRUE(workers.reaches(1, 2)) << workers[0].errors();

  workers[1].signal(SIGABRT);

  EXPECT_EQ(workers[1].wait(), 128 + SIGABRT);
  EXPECT_THAT(workers[1].errors(),
              testing::ContainsRegex("weir-worker: ended by signal 6 in step [0-9]+, replica 0, "
                                     "stage 1, [a-z_]+[^\n]* for [0-9]+ ms\n"));
}

TEST(Trace, RefusesStepsThatAreNone) {
  const TempDir folder;
  const std::string file = "--trace-file=" + (folder.path() / "0.weir").string();
  for (const auto& [steps, what] : std::map<std::string, std::string>{
           {"3", "--trace-steps: expected two step numbers FIRST-LAST, found 3"},
           {"0-3", "--trace-steps: expected two step numbers FIRST-LAST, found 0-3"},
           {"5-3", "--trace-steps: the last step of 5-3 is before the first"}}) {
    const std::string errors = (folder.path() / "errors").string();
    Process worker({"--model=mlp", "--steps=1", file, "--trace-steps=" + steps}, errors);
    EXPECT_EQ(worker.wait(), 2) << steps;
    EXPECT_TRUE(worker.says(what)) << worker.errors();
  }
  Process off({"--model=mlp", "--steps=1", file, "--trace-steps=1-1", "--flight-events=0"},
              (folder.path() / "errors").string());
  EXPECT_EQ(off.wait(), 2);
  EXPECT_TRUE(off.says("--trace-file: nothing is recorded with --flight-events=0"));
}

}  // namespace trace_test
}  // namespace weir::test
