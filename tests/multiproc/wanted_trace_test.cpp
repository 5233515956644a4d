// SPDX-License-Identifier: Apache-2.0
// Steps that a user wants to see, from the answer to a report to the octets of all ranks.
#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/operated_job.h"
#include "tests/multiproc/played_operator.h"
#include "tests/multiproc/workers.h"
#include "tests/support/trace_check.h"
#include "worker/protocol/codec.h"
#include "worker/timeline/align.h"
#include "worker/timeline/chrome_trace.h"
#include "worker/timeline/codec.h"

namespace weir::test {
namespace wanted_trace_test {

using testing::IsEmpty;
using timeline::Event;
using timeline::EventKind;
using timeline::RankRecord;

constexpr int kStages = 2, kReplicas = 2;

schedule::Plan plan() {
  auto read = protocol::decode_plan(
      PlanText{.stages = kStages, .shares = std::vector<int>(kReplicas, 4)}.json());
  EXPECT_TRUE(read) << read.error().message;
  read->job_uid = "u";
  return *read;
}

OperatedJob job_of(const PlayedOperator& by, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"--model=mlp", "--seq=8", "--vocab=32",
                                 "--steps=" + std::to_string(kNoEnd), "--profile-source=ConfigMap"};
  words.insert(words.end(), more.begin(), more.end());
  return {by, operated_pods(kStages * kReplicas), words};
}

TEST(WantedTrace, HoldsAllOpsOfTheNewestStepsOfAllRanks) {
  PlayedOperator by(plan());
  by.want_trace({.id = "5f3a", .steps = 3}, 8);
  const OperatedJob job = job_of(by);
  ASSERT_TRUE(eventually([&] { return by.trace("5f3a").has_value(); })) << job.errors();

  const auto records = timeline::decode(*by.trace("5f3a"));
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records->size(), static_cast<std::size_t>(kStages * kReplicas));
  ASSERT_TRUE(timeline::belong_together(*records));
  std::map<std::uint32_t, int> ops;  // by step
  for (const RankRecord& record : *records) {
    EXPECT_EQ(record.job, "demo/gpt");
    for (const Event& event : record.events) {
      if (event.kind == EventKind::kOp) ++ops[event.step];
    }
  }
  ASSERT_EQ(ops.size(), 3U);
  for (const auto& [step, count] : ops) {
    EXPECT_EQ(count, kReplicas * kStages * 4 * 2) << "step " << step;
  }
  EXPECT_EQ(align(*records, timeline::tensors_of(*records)).contradictions, 0);
  const CheckedTrace trace = check_trace(timeline::chrome_trace(*records));
  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_EQ(trace.count("send"), 3 * kReplicas * (kStages - 1) * 4 * 2);
  EXPECT_EQ(trace.arrows.size(), static_cast<std::size_t>(trace.count("send")));
}

TEST(WantedTrace, ADumpComesByItselfWhenARankIsLost) {
  PlayedOperator by(plan());
  by.want_trace({.id = "5f3a", .steps = 1}, 8);
  const OperatedJob job = job_of(by);
  ASSERT_TRUE(eventually([&] { return by.trace("5f3a").has_value(); })) << job.errors();

  job.worker(1).signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return by.flight().has_value(); })) << job.errors();

  const protocol::FlightDump dump = *by.flight();
  EXPECT_THAT(dump.id, testing::StartsWith("flight-"));
  EXPECT_THAT(dump.why, testing::ContainsRegex("is lost after step [0-9]+$|^step [0-9]+ took "));
  const auto records = timeline::decode(dump.octets);
  ASSERT_TRUE(records) << records.error().message;
  EXPECT_GE(records->size(), 3U);
  EXPECT_THAT(check_trace(timeline::chrome_trace(*records)).errors, IsEmpty());
}

TEST(OperatedJob, TellsOfCongestionControlThatItsNodeDoesNotAllow) {
  const PlayedOperator by(plan());
  const OperatedJob job = job_of(by, {"--node=n2", "--congestion-control=nonesuch"});
  const std::size_t all = kStages * kReplicas;
  ASSERT_TRUE(eventually([&] { return by.registered().members.size() == all; })) << job.errors();
  const protocol::Register registered = by.registered();
  for (const protocol::Member& member : registered.members) {
    EXPECT_EQ(member.node, "n2");
    ASSERT_TRUE(member.fallback) << member.pod;
    EXPECT_EQ(member.fallback->wanted, "nonesuch");
    EXPECT_THAT(member.fallback->allowed, testing::HasSubstr("reno"));
    EXPECT_FALSE(member.fallback->in_use.empty());
  }
  EXPECT_THAT(job.errors(), testing::HasSubstr(
                                "congestion control nonesuch is not allowed on node n2 (allowed:"));
}

}  // namespace wanted_trace_test
}  // namespace weir::test
