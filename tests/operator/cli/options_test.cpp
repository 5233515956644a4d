// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/options.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cli/text.h"

namespace weir::cli {
namespace options_test {

using ::testing::HasSubstr;

Parsed parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "kubectl-weir");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string error_of(const std::vector<const char*>& arguments) {
  testing::internal::CaptureStderr();
  const Parsed parsed = parse(arguments);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(parsed.exit_code, 2) << text;
  return text;
}

TEST(Options, TakesTheNamespaceBeforeAndBehindTheCommand) {
  for (const auto& parsed :
       {parse({"why", "gpt", "-n", "demo"}), parse({"-n", "demo", "why", "gpt"})}) {
    EXPECT_EQ(parsed.exit_code, -1);
    EXPECT_EQ(parsed.options.command, Command::kWhy);
    EXPECT_EQ(parsed.options.job, "gpt");
    EXPECT_EQ(parsed.options.namespace_name, "demo");
  }
}

TEST(Options, ReadsTheOwnOptionsOfCommands) {
  const auto logs =
      parse({"logs", "gpt", "--rank", "3", "-f", "--tail=10", "--context", "c", "--kubeconfig=/k"});
  EXPECT_EQ(logs.options.rank, 3);
  EXPECT_TRUE(logs.options.follow);
  EXPECT_EQ(logs.options.tail, 10);
  EXPECT_EQ(logs.options.context, "c");
  EXPECT_EQ(logs.options.kubeconfig, "/k");
  EXPECT_EQ(parse({"scale", "gpt", "4"}).options.replicas, 4);
  EXPECT_TRUE(parse({"top", "-A"}).options.all_namespaces);
  EXPECT_EQ(parse({"top"}).options.job, "");
  const auto trace = parse({"trace", "gpt", "--steps", "5", "-o", "t.json", "-n", "demo"});
  EXPECT_EQ(trace.exit_code, -1);
  EXPECT_EQ(trace.options.steps, 5);
  EXPECT_EQ(trace.options.output, "t.json");
  EXPECT_EQ(trace.options.namespace_name, "demo");
  EXPECT_EQ(parse({"trace", "gpt"}).options.steps, 3);
  EXPECT_FALSE(parse({"trace", "gpt"}).options.flight);
  EXPECT_EQ(parse({"trace", "gpt", "--replica", "2"}).options.replica, 2);
  EXPECT_TRUE(parse({"trace", "gpt", "--flight"}).options.flight);
  EXPECT_THAT(error_of({"trace", "gpt", "--flight", "--steps", "3"}), HasSubstr("--steps"));
  EXPECT_EQ(parse({"trace", "--from", "a", "b"}).options.from.size(), 2U);
}

TEST(Options, SaysInOneLineWhatIsWrong) {
  EXPECT_THAT(error_of({"why"}), HasSubstr("JOB is required"));
  EXPECT_THAT(error_of({"why", ""}), HasSubstr("JOB is required"));
  EXPECT_THAT(error_of({"logs", "gpt"}), HasSubstr("--rank is required"));
  EXPECT_THAT(error_of({"scale", "gpt", "0"}), HasSubstr("REPLICAS"));
  EXPECT_THAT(error_of({"scale", "gpt", "1e3"}), HasSubstr("REPLICAS"));
  EXPECT_THAT(error_of({"top", "gpt", "-A"}), HasSubstr("--all-namespaces"));
  EXPECT_THAT(error_of({"trace"}), HasSubstr("trace: needs either the name of a job or --from"));
  EXPECT_THAT(error_of({"trace", "gpt", "--from", "a"}), HasSubstr("needs either"));
  EXPECT_THAT(error_of({"trace", "--steps", "3", "--from", "a"}),
              HasSubstr("--steps excludes --from"));
  for (const char* steps : {"0", "1001", "-1", "x", "1.5"}) {
    EXPECT_THAT(error_of({"trace", "gpt", "--steps", steps}), HasSubstr("--steps")) << steps;
  }
  EXPECT_EQ(error_of({"trace", "gpt", "--steps", "0"}),
            "kubectl weir: --steps: must be a whole number from 1 to 1000, found '0' "
            "(kubectl weir --help)\n");
  EXPECT_THAT(error_of({"frobnicate"}), HasSubstr("kubectl weir: "));
  EXPECT_EQ(std::ranges::count(error_of({"top", "--no\x1bsuch"}), '\n'), 1);
}

TEST(Options, HelpOfEachCommandFitsIntoALine) {
  std::vector<std::vector<const char*>> asked{{"--help"}};
  for (const char* command :
       {"top", "why", "plan", "logs", "checkpoints", "suspend", "resume", "scale", "trace"})
    asked.push_back({command, "--help"});
  for (const auto& arguments : asked) {
    testing::internal::CaptureStdout();
    const Parsed parsed = parse(arguments);
    std::istringstream text(testing::internal::GetCapturedStdout());
    EXPECT_EQ(parsed.exit_code, 0);
    int lines = 0;
    for (std::string line; std::getline(text, line); ++lines)
      EXPECT_LE(width_of(line), kLineWidth) << line;
    EXPECT_GT(lines, 5) << arguments.front();
  }
}

}  // namespace options_test
}  // namespace weir::cli
