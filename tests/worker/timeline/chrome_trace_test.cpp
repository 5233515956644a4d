// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/chrome_trace.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_check.h"
#include "tests/worker/timeline/records.h"
#include "worker/protocol/step_part.h"

namespace weir::timeline {
namespace chrome_trace_test {

using protocol::StepPart;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using weir::test::check_trace;
using weir::test::CheckedTrace;

Event part(StepPart part, std::int64_t begin, std::int64_t end) {
  return {.begin = begin, .end = end, .step = 7, .detail = static_cast<std::uint8_t>(part)};
}

std::vector<std::string> names(const CheckedTrace& trace, int track) {
  std::vector<std::string> found;
  for (const auto& slice : trace.tracks.at({1, 1000 + track})) found.push_back(slice.name);
  return found;
}

TEST(ChromeTrace, ShowsOpsTransfersAndArrowsOnOneClock) {
  const CheckedTrace trace = check_trace(chrome_trace(test::two_stages(5000 * test::kMs)));

  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_THAT(names(trace, 0), ElementsAre("F0", "B0"));
  EXPECT_THAT(names(trace, 1), ElementsAre("act 0"));
  EXPECT_THAT(names(trace, 2), ElementsAre("grad 0"));
  EXPECT_THAT(names(trace, 3), ElementsAre("F0", "B0"));
  EXPECT_EQ(trace.names.at({1, 1003}), "stage 1: gpt-w-1 on n1");
  EXPECT_EQ(trace.names.at({1, 1002}), "link 1 -> 0");
  ASSERT_THAT(trace.arrows, SizeIs(2));
  EXPECT_THAT(trace.arrows.at(1).tracks,
              ElementsAre(std::pair(1, 1003), std::pair(1, 1002), std::pair(1, 1000)));
  EXPECT_EQ(trace.counters, 4);
}

TEST(ChromeTrace, NamesWaitsAndPartsOfAnOp) {
  auto records = test::two_stages();
  const std::int64_t ms = test::kMs;
  auto& events = records[0].events;
  events.push_back(part(StepPart::kData, 10 * ms, 11 * ms));
  events.push_back(part(StepPart::kForward, 11 * ms, 20 * ms));
  events.push_back(part(StepPart::kGradientLate, 20 * ms, 40 * ms));
  events.push_back(part(StepPart::kGradientLink, 40 * ms, 42 * ms));

  const CheckedTrace trace = check_trace(chrome_trace(records));

  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_THAT(names(trace, 0), ElementsAre("F0", "data", "gradient_late", "gradient_link", "B0"))
      << "the part forward is the op itself";
}

// The start of a transfer is estimated: it may lie before the tensor was there, or before the end
// of the transfer before it.
TEST(ChromeTrace, ATransferBeginsNeitherBeforeItsTensorNorInTheOneBefore) {
  auto records = test::two_stages();
  const std::int64_t ms = test::kMs;
  records[1].events[0].begin = 2 * ms;
  for (auto& record : records) {
    auto events = record.events;
    for (Event event : events) {
      event.micro_batch = 1;
      event.begin += 50 * ms;
      event.end += 50 * ms;
      if (event.kind == EventKind::kReceived) event.begin -= 60 * ms;
      record.events.push_back(event);
    }
  }

  EXPECT_THAT(check_trace(chrome_trace(records)).errors, IsEmpty());
}

TEST(ChromeTrace, DrawsWhatItHasWhereARankIsMissing) {
  auto records = test::two_stages();
  records.pop_back();
  const CheckedTrace trace = check_trace(chrome_trace(records));
  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_THAT(names(trace, 0), ElementsAre("F0", "B0"));
  EXPECT_THAT(trace.arrows, IsEmpty());
  EXPECT_THAT(check_trace(chrome_trace(std::vector<RankRecord>{})).errors, IsEmpty());
  const auto both = test::two_stages();
  const CheckedTrace second = check_trace(chrome_trace(std::span(both).last(1)));
  EXPECT_THAT(second.errors, IsEmpty());
  EXPECT_EQ(second.names.at({1, 1001}), "link 0 -> 1");
}

TEST(ChromeTrace, DrawsAnOpThatIsUnderWay) {
  auto records = test::two_stages();
  const std::int64_t ms = test::kMs;
  records[0].events.push_back(part(StepPart::kForward, 10 * ms, 20 * ms));
  records[0].events.push_back(part(StepPart::kForward, 60 * ms, 99 * ms));

  const CheckedTrace trace = check_trace(chrome_trace(records));

  EXPECT_THAT(trace.errors, IsEmpty());
  EXPECT_THAT(names(trace, 0), ElementsAre("F0", "B0", "forward"));
}

TEST(ChromeTrace, NamesThatAreNoTextBecomeText) {
  auto records = test::two_stages();
  records[0].pod = "p\xff\n\"";
  EXPECT_THAT(check_trace(chrome_trace(records)).errors, IsEmpty());
}

TEST(TraceCheck, SeesWhatAViewerWouldDrawWrong) {
  const auto errors = [](const std::string& events) {
    const std::string name =
        R"({"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"stage 0"}})";
    return check_trace("{\"traceEvents\": [" + name + events + "]}").errors.size();
  };
  const auto slice = [](int begin, int end) {
    return R"(,{"ph":"X","name":"F","cat":"op","pid":0,"tid":0,"ts":)" + std::to_string(begin) +
           ",\"dur\":" + std::to_string(end - begin) + "}";
  };
  const auto flow = [](const std::string& phase, int time) {
    return R"(,{"ph":")" + phase + R"(","name":"t","cat":"flow","id":1,"pid":0,"tid":0,"ts":)" +
           std::to_string(time) + "}";
  };
  EXPECT_EQ(errors(slice(0, 4) + slice(1, 3) + slice(4, 5)), 0U);
  EXPECT_EQ(errors(slice(0, 4) + slice(1, 5)), 1U) << "crosses";
  EXPECT_GE(errors(slice(4, 1)), 1U) << "negative";
  EXPECT_EQ(errors(slice(0, 9) + flow("s", 1) + flow("f", 2)), 0U);
  EXPECT_EQ(errors(slice(0, 9) + flow("s", 3) + flow("f", 2)), 1U) << "backwards";
  EXPECT_EQ(errors(slice(0, 9) + flow("s", 3)), 1U) << "no end";
  EXPECT_EQ(errors(slice(0, 9) + flow("s", 3) + flow("f", 10)), 1U) << "in no slice";
  EXPECT_EQ(errors(R"(,{"ph":"X","name":"F","cat":"op","pid":0,"tid":9,"ts":0,"dur":1})"), 1U);
}

}  // namespace chrome_trace_test
}  // namespace weir::timeline
