// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/app/run_state.h"
#include "operator/app/step_list.h"

namespace weir::operator_app {
namespace steps_test {

using ::testing::ElementsAre;

using Log = std::vector<std::string>;

Step<Log> step(const std::string& name, bool good = true) {
  return {name,
          [=](Log& log) -> Status {
            log.push_back("+" + name);
            if (!good) return Error{Code::kUnavailable, "broken"};
            return Unit{};
          },
          [=](Log& log) { log.push_back("-" + name); }};
}

TEST(RunSteps, TearDownInReverse) {
  Log log;

  EXPECT_TRUE(run_steps<Log>({step("a"), step("b"), step("c")}, log).ok());

  EXPECT_THAT(log, ElementsAre("+a", "+b", "+c", "-c", "-b", "-a"));
}

TEST(RunSteps, StopWhatHasStartedAfterAFailure) {
  Log log;

  const Status result = run_steps<Log>({step("a"), step("b", false), step("c")}, log);

  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "b: broken");
  EXPECT_THAT(log, ElementsAre("+a", "+b", "-a"));
}

// Teardown is the reverse: readiness off, reconciles end, lease given back, servers and watches
// stop, and only then the client.
TEST(RunCommand, HasItsStepsInTheRightOrder) {
  std::vector<std::string> names;
  for (const RunStep& each : run_steps_list()) names.push_back(each.name);

  EXPECT_THAT(
      names, ElementsAre("log", "signals", "http threads", "credentials", "transports",
                         "metrics endpoint", "health endpoint", "clients", "CRD", "cache", "events",
                         "metrics source", "elector", "controller", "watches", "operator keys",
                         "control server", "exposition", "lease", "reconcile", "wait"));
}

}  // namespace steps_test
}  // namespace weir::operator_app
