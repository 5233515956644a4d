// SPDX-License-Identifier: Apache-2.0
#include "worker/protocol/trace_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::protocol {
namespace trace_request_test {

using testing::HasSubstr;

TEST(TraceRequest, SurvivesTheRoundTrip) {
  for (const TraceWanted& wanted : {TraceWanted{"5f-3a", 3}, TraceWanted{"a", 1000, 0},
                                    TraceWanted{std::string(40, 'z'), 1, 4096}}) {
    const auto read = read_trace_request(trace_request(wanted));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, wanted);
  }
  EXPECT_EQ(trace_request({"5f3a", 3, 1}), "5f3a steps=3 replica=1");
}

TEST(TraceRequest, RefusesAnythingElse) {
  for (const char* wrong :
       {"", "foo", "5f3a steps=", "5f3a steps=0", "5f3a steps=1001", " steps=3", "5F steps=3",
        "a/b steps=3", "a steps=3 ", "a replica=1 steps=3",
        "a steps=3 replica=", "a steps=3 replica=-1", "a steps=3 replica=4097", "a replica=1",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa steps=3"}) {
    const auto read = read_trace_request(wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_THAT(read.error().message, HasSubstr("expected \"<id> steps=1..1000\"")) << wrong;
  }
}

}  // namespace trace_request_test
}  // namespace weir::protocol
