// SPDX-License-Identifier: Apache-2.0
// `weir-operator plan` and `simulate` in one process: files of tests/data/planner in, text out.
#include "operator/app/plan_command.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace weir::operator_app {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kGraphs = WEIR_SOURCE_DIR "/tests/data/planner/pipedream/";

struct Ran {
  int code = 0;
  std::string out, err;
};

Ran ran(const PlanOptions& options, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out, err;
  Ran result;
  result.code = plan_command(options, in, out, err);
  result.out = out.str();
  result.err = err.str();
  return result;
}

Ran ran(const SimulateOptions& options, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out, err;
  Ran result;
  result.code = simulate_command(options, in, out, err);
  result.out = out.str();
  result.err = err.str();
  return result;
}

PlanOptions plan_of(const std::string& profile, const std::string& cluster) {
  PlanOptions options;
  options.inputs.profile = profile;
  options.inputs.cluster = cluster;
  return options;
}

json json_of(PlanOptions options, const std::string& input = "") {
  options.json = true;
  const Ran result = ran(options, input);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? json::parse(result.out) : json();
}

// A file that goes away with the test.
class Scratch {
 public:
  explicit Scratch(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) /
              (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
               name)) {}
  ~Scratch() { std::filesystem::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path() const { return path_.string(); }
  std::string name() const { return path_.filename().string(); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string read() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

constexpr const char* kDiamond =
    "a -- A -- forward_compute_time=10, backward_compute_time=20, activation_size=1000000, "
    "parameter_size=4000\n"
    "b -- B -- forward_compute_time=8, backward_compute_time=16, activation_size=1000000, "
    "parameter_size=4000\n"
    "c -- C -- forward_compute_time=9, backward_compute_time=18, activation_size=1000000, "
    "parameter_size=4000\n"
    "d -- D -- forward_compute_time=10, backward_compute_time=20, activation_size=1000000, "
    "parameter_size=4000\n"
    "\ta -- b\n\ta -- c\n\tb -- d\n\tc -- d\n";

TEST(PlanCommand, PrintsATableForPeople) {
  const Ran result = ran(plan_of(kGraphs + "vgg16.txt", "4xA:32e9@1e9"));

  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("model vgg16 (40 nodes, 40 ideals)   cluster 4 x A, 1 replica "
                                     "  objective sync   M 16\nstage  layers"));
  EXPECT_THAT(result.out, HasSubstr("\nbound "));
  EXPECT_THAT(result.out, HasSubstr("\nk 1: "));
  EXPECT_EQ(result.err, "");
}

TEST(PlanCommand, JsonIsOneObjectOfPlanAndReport) {
  const json printed = json_of(plan_of(kGraphs + "alexnet.txt", "4xA:32e9@1e9"));

  ASSERT_TRUE(printed.is_object());
  EXPECT_EQ(printed.size(), 2U);
  EXPECT_EQ(printed["plan"]["apiVersion"], "weir.dev/plan/v1");
  const json& report = printed["report"];
  EXPECT_EQ(report["apiVersion"], "weir.dev/planreport/v1");
  EXPECT_FALSE(report.contains("runtime")) << "no wall clock";
  EXPECT_EQ(report["order"].size(), 22U);
  EXPECT_EQ(report["stages"].size(), printed["plan"]["stages"].size());
  EXPECT_EQ(report["objective"]["name"], "sync");
  EXPECT_EQ(report["objective"]["value"], printed["plan"]["prediction"]["stepSeconds"]);
}

TEST(PlanCommand, BoundsHoldTheValue) {
  for (const char* graph : {"alexnet", "vgg16", "resnet18", "squeezenet1_0"}) {
    for (const char* cluster : {"4xA:32e9@1e9", "2xA:32e9@1e9+2xB:16e9/2", "3xA@1e10"}) {
      const json report = json_of(plan_of(kGraphs + graph + ".txt", cluster))["report"];
      const json& it = report["optimality"];
      const double value = report["objective"]["value"];
      EXPECT_LE(it["lowerBound"].get<double>(), value) << graph << cluster;
      EXPECT_LE(value, it["upperBound"].get<double>());
      EXPECT_GT(it["lowerBound"].get<double>(), 0);
      if (it["status"] == "optimal") {
        EXPECT_NEAR(it["gap"].get<double>(), 0, 1e-6);
      }
    }
  }
}

TEST(PlanCommand, EqualInputGivesEqualBytesForAnyNumberOfThreads) {
  PlanOptions options = plan_of(kGraphs + "resnet18.txt", "2xA:32e9@1e9+2xB:16e9/2");
  options.json = true;
  const Ran one = ran(options);
  for (const int threads : {1, 2, 8}) {
    options.threads = threads;
    EXPECT_EQ(ran(options).out, one.out) << threads;
  }
}

TEST(PlanCommand, OrderOfLinesDoesNotMatter) {
  const std::string text = kDiamond;
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::string turned;
  for (std::size_t i = lines.size(); i-- > 0;) turned += lines[i] + "\n";

  const json straight = json_of(plan_of("-", "3xA@1e9"), text);
  const json reversed = json_of(plan_of("-", "3xA@1e9"), turned);

  EXPECT_EQ(straight["report"]["objective"], reversed["report"]["objective"]);
  EXPECT_EQ(straight["report"]["optimality"], reversed["report"]["optimality"]);
}

TEST(PlanCommand, CompatPipedreamReproducesTheTable) {
  PlanOptions options = plan_of(kGraphs + "vgg16.txt", "4xA@1e9");
  options.compat = "pipedream";
  const json report = json_of(options)["report"];
  EXPECT_NEAR(report["objective"]["value"].get<double>(), 0.205521, 5e-7);
  EXPECT_EQ(report["objective"]["name"], "async");
  EXPECT_EQ(report["optimality"]["status"], "optimal");
}

TEST(PlanCommand, TheBottleneckOfTwoClassesIsProved) {
  PlanOptions options = plan_of(kGraphs + "gnmt.txt", "4xA@1e9");
  options.objective = "async";
  const json four = json_of(options)["report"];
  options.inputs.cluster = "4xA@1e9+4xB/2";
  const json both = json_of(options)["report"];
  options.inputs.cluster = "8xA@1e9";
  const json eight = json_of(options)["report"];

  const auto value = [](const json& report) { return report["objective"]["value"].get<double>(); };
  EXPECT_LT(value(both), value(four)) << "slow devices help";
  EXPECT_GE(value(both), value(eight)) << "and are no better than fast ones";
  EXPECT_EQ(both["optimality"]["status"], "optimal");
  EXPECT_THAT(both["optimality"]["formula"].get<std::string>(), HasSubstr("several classes"));
}

TEST(PlanCommand, CompatSync0ReproducesTheTable) {
  PlanOptions options = plan_of(kGraphs + "alexnet.txt", "4xA:32e9@1e9+4xB:16e9/2");
  options.compat = "sync0";
  options.k_max = 1;
  const json report = json_of(options)["report"];
  EXPECT_NEAR(report["objective"]["value"].get<double>(), 0.356951, 5e-7);
  EXPECT_EQ(report["optimality"]["status"], "optimal");
}

TEST(PlanCommand, ComparesWithOtherCutsInTheSameModel) {
  for (const char* rival : {"pipedream", "dapple-formula", "even"}) {
    PlanOptions options = plan_of(kGraphs + "resnet18.txt", "4xA:32e9@1e9");
    options.compare = rival;
    const json printed = json_of(options);
    const json& theirs = printed["report"]["comparisons"][0];
    EXPECT_EQ(theirs["name"], rival);
    ASSERT_TRUE(theirs.contains("stepSeconds")) << theirs.dump();
    EXPECT_GE(theirs["stepSeconds"].get<double>() * (1 + 0.005),
              printed["plan"]["prediction"]["stepSeconds"].get<double>())
        << "ours is the best k within 0.5 %";
  }
}

// Sailor's profiles of two GPUs and its sizes, as files on the command line.
TEST(PlanCommand, ReadsSailorsProfiles) {
  const std::string folder = WEIR_SOURCE_DIR "/tests/data/planner/sailor/";
  PlanOptions options =
      plan_of("sailor:A100-40=" + folder + "opt-350m-A100-40.json,V100-16=" + folder +
                  "opt-350m-V100-16.json",
              "4xA100-40:40e9@1e10+4xV100-16:16e9");
  options.inputs.sailor_info = folder + "llm_info.json";
  options.inputs.sailor_model = "OPT-350";
  options.ranks_per_stage = 1;
  options.k_max = 2;

  const json whole = json_of(options);

  ASSERT_TRUE(whole.is_object());
  const json& stages = whole["plan"]["stages"];
  EXPECT_EQ(stages.front()["layers"][0], 0);
  EXPECT_EQ(stages.back()["layers"][1], 25) << "embedding, 24 blocks, head";
  double fast = 0, slow = 0;  // layers of a stage, on average
  for (const char* name : {"A100-40", "V100-16"}) {
    int layers = 0, count = 0;
    for (const json& stage : whole["report"]["stages"]) {
      if (stage["class"] != name) continue;
      layers += static_cast<int>(stage["nodes"].size());
      ++count;
    }
    (std::string(name) == "A100-40" ? fast : slow) = count == 0 ? 0 : double(layers) / count;
  }
  EXPECT_GT(fast, slow) << "an A100 is faster";

  options.inputs.sailor_model = "GPT-5";
  EXPECT_EQ(ran(options).code, 3);
  options.inputs.sailor_info.clear();
  EXPECT_THAT(ran(options).err, HasSubstr("needs --sailor-info and --sailor-model"));
  options.inputs.sailor_info = folder + "llm_info.json";
  options.inputs.sailor_model = "OPT-350";
  options.inputs.profile = "sailor:" + folder + "opt-350m-A100-40.json";
  EXPECT_THAT(ran(options).err, HasSubstr("expected CLASS=FILE"));
}

TEST(PlanCommand, OutHoldsThePlanDocumentAlone) {
  const Scratch file("plan.json");
  PlanOptions options = plan_of(kGraphs + "alexnet.txt", "4xA:32e9@1e9");
  options.out = file.path();
  EXPECT_EQ(ran(options).code, 0);
  EXPECT_EQ(json::parse(file.read())["apiVersion"], "weir.dev/plan/v1");
  options.out = "/nowhere/plan.json";
  EXPECT_EQ(ran(options).code, 3);
}

TEST(PlanCommand, ExplainAddsTheRunTime) {
  PlanOptions options = plan_of(kGraphs + "alexnet.txt", "2xA@1e9");
  options.explain = true;
  EXPECT_TRUE(json_of(options)["report"].contains("runtime"));
}

TEST(PlanCommand, BatchOptionsDecideTheMicroBatches) {
  PlanOptions options = plan_of("-", "2xA@1e9");
  options.micro_batches = 5;
  options.data_parallel = 2;
  json plan = json_of(options, kDiamond)["plan"];
  EXPECT_EQ(plan["microBatches"], (json{5, 5}));
  options = plan_of("-", "2xA@1e9");
  options.global_batch = 24;
  options.micro_batch = 2;
  plan = json_of(options, kDiamond)["plan"];
  EXPECT_EQ(plan["microBatches"], json{12});
  EXPECT_EQ(plan["schedule"]["microBatchSize"], 2);
  options.global_batch = 25;
  const Ran wrong = ran(options, kDiamond);
  EXPECT_EQ(wrong.code, 3);
  EXPECT_EQ(wrong.err, "plan: batch.microBatchSize: 2 does not divide the global batch of 25\n");
}

TEST(PlanCommand, ReplicasUseDifferentDevices) {
  PlanOptions options = plan_of("-", "4xA@1e9");
  options.data_parallel = 2;
  const json plan = json_of(options, kDiamond)["plan"];
  std::set<std::string> pods;
  for (const json& rank : plan["ranks"]) pods.insert(rank["pod"]);
  EXPECT_EQ(pods.size(), plan["ranks"].size());
  EXPECT_EQ(plan["microBatches"], (json{16, 16}));
}

TEST(PlanCommand, RequireOptimalAndTimeLimitHaveTheirCodes) {
  PlanOptions options = plan_of(kGraphs + "resnet18.txt", "4xA:32e9@1e9");
  options.require_optimal = true;
  options.compat = "pipedream";
  EXPECT_EQ(ran(options).code, 0);
  options.compat = "";
  options.time_limit = 1e-9;
  const Ran result = ran(options);
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.out, HasSubstr("heuristic")) << "the best so far is printed";
}

// One line, with file and line, and nothing on standard output (planner.md 9.4).
struct Refusal {
  const char* name;
  std::string text, cluster, error;
  int code = 3;
};
void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}
class BadInput : public testing::TestWithParam<Refusal> {};

TEST_P(BadInput, IsOneLineOfError) {
  const Ran result = ran(plan_of("-", GetParam().cluster), GetParam().text);
  EXPECT_EQ(result.code, GetParam().code);
  EXPECT_EQ(result.err, GetParam().error + "\n");
  EXPECT_EQ(result.out, "");
}

std::string node(const std::string& id, const std::string& more = "") {
  return id + " -- " + (more.empty() ? "Layer" : more) +
         " -- forward_compute_time=1, backward_compute_time=2, activation_size=8, "
         "parameter_size=16\n";
}

INSTANTIATE_TEST_SUITE_P(
    PlanCommand, BadInput,
    testing::Values(
        Refusal{"twice", node("node12") + node("b") + node("node12"), "2xA",
                "-:3: duplicate node id \"node12\" (first at line 1)"},
        Refusal{"unknown", node("a") + "\ta -- node99\n", "2xA",
                "-:2: edge to unknown node \"node99\""},
        Refusal{"profile", R"({"apiVersion": "weir.dev/profile/v1",
"nodes": [{"id": "a", "parameterBytes": 1,
"outputBytesPerSample": "8MB", "times": {"A": [{"samples": 1, "forward": 1, "backward": 1}]}}]})",
                "2xA", "-:3: /nodes/0/outputBytesPerSample: not an integer"},
        Refusal{"json", "{\"apiVersion\": ", "2xA",
                "-:1: syntax error while parsing value - unexpected end of input; expected '[', "
                "'{', or a "
                "literal"},
        Refusal{"cluster", node("a"), "2xA:much",
                "cluster \"2xA:much\": \"much\" is no memory in bytes"},
        Refusal{"file", node("a"), "/nowhere/cluster.json",
                "/nowhere/cluster.json: cannot be read"},
        Refusal{"memory",
                "a -- Linear(25088, 4096) -- forward_compute_time=1, backward_compute_time=2, "
                "activation_size=8, parameter_size=1675000000\n",
                "2xB:4e9",
                "plan: no plan fits: layer \"Linear(25088, 4096)\" alone needs 6.7 of 4.0 GB on "
                "class B",
                4},
        Refusal{"empty", "", "2xA",
                "-:1: syntax error while parsing value - unexpected end of input; expected '[', "
                "'{', or a "
                "literal"}),
    [](const auto& param) { return param.param.name; });

TEST(PlanCommand, PlansRunThroughSimulateWithTheSameStep) {
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

SimulateOptions simulate_of(const std::string& plan, const std::string& cluster) {
  SimulateOptions options;
  options.inputs.profile = "-";
  options.inputs.cluster = cluster;
  options.plan = plan;
  return options;
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

TEST(SimulateCommand, HintWithCapsOfKOneIsSimulatedWithAWarning) {
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e9");
  options.dispatch = "hint";
  const Ran result = ran(options, kDiamond);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, StartsWith("warning: workers run caps of k=1 Strict"));
}

TEST(SimulateCommand, ATimelineNamedSvgIsAPictureOfEveryOpAndSend) {
  const Scratch file("trace.svg");
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e9");
  options.timeline = file.path();
  options.micro_batches = 6;
  options.k = 2;
  ASSERT_EQ(ran(options, kDiamond).code, 0);
  const std::string picture = file.read();
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
  EXPECT_EQ(count("<rect"), count("</rect>"));
}

TEST(SimulateCommand, TheTimelineIsATraceOfEveryOpAndSend) {
  const Scratch file("trace.json");
  SimulateOptions options = simulate_of("0-1,2-3", "2xA@1e9");
  options.timeline = file.path();
  options.micro_batches = 6;
  options.k = 2;
  ASSERT_EQ(ran(options, kDiamond).code, 0);
  int ops = 0, sends = 0, names = 0;
  const json trace = json::parse(file.read());
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

}  // namespace
}  // namespace weir::operator_app
