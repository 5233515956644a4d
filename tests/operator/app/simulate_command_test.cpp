// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/operator/app/commands.h"

namespace weir::operator_app::test {
namespace simulate_command_test {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

SimulateOptions simulate_of(const std::string& plan, const std::string& cluster) {
  SimulateOptions options;
  options.inputs.profile = "-";
  options.inputs.cluster = cluster;
  options.plan = plan;
  return options;
}

// The timeline of six micro-batches, k = 2, on two stages, as the file of that name.
std::string timeline_of_six(const std::string& name) {
  const Scratch file(name);
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e9");
  options.timeline = file.path();
  options.micro_batches = 6;
  options.k = 2;
  EXPECT_EQ(ran(options, kDiamond).code, 0);
  return file.read();
}

TEST(SimulateCommand, GivesAPlanTheStepThatWasPredicted) {
  for (const char* cluster :
       {"4xA:32e9@1e9", "2xA:32e9@1e9+2xB:16e9/2", "1xA@4e9+3xB@1e9/3", "6xA@2e8"}) {
    PlanOptions options = plan_of(kGraphs + "resnet18.txt", cluster);
    options.json = true;
    const Ran planned = ran(options);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Scratch file("plan.json");
    file.write(planned.out);
    SimulateOptions simulate;
    simulate.inputs = options.inputs;
    simulate.plan = file.path();
    simulate.json = true;

    const Ran simulated = ran(simulate);

    ASSERT_EQ(simulated.code, 0) << simulated.err;
    const double predicted = json::parse(planned.out)["plan"]["prediction"]["stepSeconds"];
    EXPECT_NEAR(json::parse(simulated.out)["stepSeconds"].get<double>(), predicted,
                0.01 * predicted)
        << cluster;
  }
}

// f = 10 ms, b = 20 ms, of which the weights take half; links take 5 ms
// (worker/schedule/README.md "Split backward").
TEST(SimulateCommand, PlansWithASplitBackwardAreSimulated) {
  json profile = {{"apiVersion", "weir.dev/profile/v1"}, {"model", "m"}, {"nodes", json::array()}};
  json cluster = {{"apiVersion", "weir.dev/cluster/v1"},
                  {"deviceClasses", {{{"name", "A"}, {"memoryBytes", 1'000'000'000'000}}}},
                  {"links", {{"default", {{"bandwidth", 1e9}, {"latency", 0}}}}}};
  json plan = {{"apiVersion", "weir.dev/plan/v2"}, {"revision", 1}, {"microBatches", {32}}};
  plan["schedule"] = {{"type", "KFKB"},
                      {"dispatch", "Hint"},
                      {"k", 2},
                      {"microBatchSize", 1},
                      {"caps", {7, 5, 3, 1}},
                      {"split", {{"held", {7, 7, 7, 7}}, {"postponed", {0, 2, 4, 5}}}}};
  for (int s = 0; s < 4; ++s) {
    const std::string index = std::to_string(s);
    const json time = {{"samples", 1},
                       {"forward", 0.01},
                       {"backward", 0.02},
                       {"split", {{"input", 0.01}, {"weights", 0.01}}}};
    profile["nodes"].push_back({{"id", "n" + index},
                                {"parameterBytes", 0},
                                {"outputBytesPerSample", s < 3 ? 5'000'000 : 0},
                                {"times", {{"A", json::array({time})}}}});
    cluster["servers"].push_back({{"name", "s" + index}, {"class", "A"}, {"devices", 1}});
    plan["stages"].push_back({{"index", s}, {"layers", {s, s}}});
    plan["ranks"].push_back(
        {{"pod", "s" + index}, {"node", "s" + index}, {"replica", 0}, {"stage", s}});
  }
  const Scratch profile_file("profile.json"), cluster_file("cluster.json"), plan_file("plan.json");
  profile_file.write(profile.dump());
  cluster_file.write(cluster.dump());
  plan_file.write(plan.dump());
  SimulateOptions options = simulate_of(plan_file.path(), cluster_file.path());
  options.inputs.profile = profile_file.path();
  options.json = true;
  const Ran simulated = ran(options);
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_NEAR(json::parse(simulated.out)["stepSeconds"].get<double>(), 1.005, 1e-6);

  options.json = false;
  options.text_timeline = true;
  EXPECT_THAT(ran(options).out, HasSubstr("A")) << "weights of micro-batch 0";
  options.micro_batches = 4;
  EXPECT_EQ(ran(options).code, 0) << "what is held and postponed is within the step";
}

TEST(SimulateCommand, ShortChainsAreSimulated) {
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e9");
  options.text_timeline = true;
  const Ran result = ran(options, kDiamond);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nstep "));
  EXPECT_THAT(result.out, HasSubstr("stage 1 |"));
}

TEST(SimulateCommand, BrokenPlansHaveTheirOwnCode) {
  EXPECT_EQ(ran(simulate_of("0-1,3-3", "2xA@1e9"), kDiamond).code, 5) << "layer 2 is missing";
  EXPECT_EQ(ran(simulate_of("0-1,2-3", "1xA@1e9"), kDiamond).code, 3) << "no second device";
  const Ran small = ran(simulate_of("0-1,2-3", "2xA:1000@1e9"), kDiamond);
  EXPECT_EQ(small.code, 5);
  EXPECT_THAT(small.err, HasSubstr("of 1000 bytes"));
}

TEST(SimulateCommand, SlowerLinksAndTracesMakeStepsLonger) {
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e8");
  options.json = true;
  const double whole = json::parse(ran(options, kDiamond).out)["stepSeconds"];
  options.share = {"s0:s1=0.1"};
  const double less = json::parse(ran(options, kDiamond).out)["stepSeconds"];
  EXPECT_GT(less, whole * 1.2);

  options.share.clear();
  const Scratch trace("trace.csv");
  trace.write("seconds,from,to,share\n1000,s0,s1,0.5\n0.9,s0,s1,0.1\n");
  options.share_trace = trace.path();
  EXPECT_THAT(ran(options, kDiamond).err, HasSubstr(":3: times must rise from 0"));
  trace.write("seconds,from,to,share\n" + std::to_string(whole * 1.5) + ",s0,s1,0.1\n");
  options.steps = 4;
  const json steps = json::parse(ran(options, kDiamond).out)["steps"];
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_NEAR(steps[0]["stepSeconds"].get<double>(), whole, 1e-9);
  EXPECT_NEAR(steps[3]["stepSeconds"].get<double>(), less, 1e-6);
}

TEST(SimulateCommand, NumbersThatCannotBeCountedAreNamed) {
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e8");
  const auto refused = [&](const std::string& part) {
    const Ran result = ran(options, kDiamond);
    EXPECT_EQ(result.code, 3) << result.out;
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  };
  for (const char* share : {"s0:s1=1e-13", "s0:s1=5e-324"}) {
    options.share = {share};
    refused("a transfer over boundary 0 takes ");
  }
  for (const char* share : {"s0:s1=nan", "s0:s1=inf", "s0:s1=1e999"}) {
    options.share = {share};
    refused(share);
  }
  options.share.clear();
  const Scratch trace("trace.csv");
  options.share_trace = trace.path();
  for (const char* line : {"1e10,s0,s1,0.5", "1e300,s0,s1,0.5", "-nan,s0,s1,0.5", "inf,s0,s1,0.5",
                           "0,s0,s1,nan", "-1,s0,s1,0.5"}) {
    trace.write(std::string("seconds,from,to,share\n") + line + "\n");
    refused(":2: ");
  }
  trace.write("nan,s0,s1,0.5\n");  // no header
  refused(":1: ");
  trace.write("1,s0,s1,1e-13\n");
  refused("a transfer over boundary 0 takes ");
}

TEST(SimulateCommand, AStepThatNobodyCouldWaitForIsRefused) {
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e9");
  options.micro_batches = 1'000'000'000;
  const Ran refused = ran(options, kDiamond);
  EXPECT_EQ(refused.code, 5);
  EXPECT_EQ(refused.err, "microBatches: 1000000000 a step are above 1048576\n");

  PlanOptions planned = plan_of("-", "2xA@1e9");
  planned.micro_batches = 1'000'000'000;
  const Ran plan = ran(planned, kDiamond);
  EXPECT_EQ(plan.code, 3);
  EXPECT_EQ(plan.err, "plan: 1000000000 micro-batches a step are above 1048576\n");
}

TEST(SimulateCommand, HintWithCapsOfKOneIsSimulatedWithAWarning) {
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e9");
  options.dispatch = "hint";
  const Ran result = ran(options, kDiamond);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, StartsWith("warning: workers would run these caps of k=1"));
}

TEST(SimulateCommand, ATimelineNamedSvgIsAPictureOfEveryOpAndSend) {
  const std::string picture = timeline_of_six("trace.svg");
  const auto count = [&](const std::string& what) {
    int found = 0;
    for (auto at = picture.find(what); at != std::string::npos; at = picture.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_THAT(picture, StartsWith("<svg "));
  EXPECT_EQ(count("</svg>"), 1);
  EXPECT_EQ(count("class=\"forward\""), 2 * 6);
  EXPECT_EQ(count("class=\"backward\""), 2 * 6);
  EXPECT_EQ(count("class=\"activation\""), 6);
  EXPECT_EQ(count("class=\"gradient\""), 6);
  EXPECT_EQ(count("class=\"name\""), 2) << "two stages";
  EXPECT_EQ(count("class=\"idle\""), 2) << "behind the bars";
  EXPECT_EQ(count(" key\""), 5) << "what the colours mean";
  EXPECT_THAT(picture, HasSubstr(">step "));
  EXPECT_EQ(count("<rect"), count("</rect>"));
}

TEST(SimulateCommand, TheTimelineIsATraceOfEveryOpAndSend) {
  int ops = 0, sends = 0, names = 0;
  const json trace = json::parse(timeline_of_six("trace.json"));
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      ++names;
      continue;
    }
    EXPECT_GE(event["dur"].get<double>(), 0);
    ++(event["cat"] == "send" ? sends : ops);
  }
  EXPECT_EQ(ops, 2 * 2 * 6);
  EXPECT_EQ(sends, 2 * 6);
  EXPECT_EQ(names, 1 + 2 + 2) << "the replica, two stages, two directions";
}

}  // namespace simulate_command_test
}  // namespace weir::operator_app::test
