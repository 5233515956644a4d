// SPDX-License-Identifier: Apache-2.0
#include "operator/app/plan_command.h"

#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/operator/app/commands.h"

namespace weir::operator_app::test {
namespace plan_command_test {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

json json_of(PlanOptions options, const std::string& input = "") {
  options.json = true;
  const Ran result = ran(options, input);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? json::parse(result.out) : json();
}

TEST(PlanCommand, PrintsATableForPeople) {
  const Ran result = ran(plan_of(kGraphs + "vgg16.txt", "4xA:32e9@1e9"));

  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("model vgg16 (40 nodes, 40 ideals)   cluster 4 x A, 1 replica "
                                     "  objective sync   M 16\nstage  layers"));
  EXPECT_THAT(result.out, HasSubstr("\nbound "));
  EXPECT_THAT(result.out, HasSubstr("\nstep in s by k   1: "));
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

TEST(PlanCommand, ShowsWhatATiedTableCosts) {
  std::string nodes;
  for (const char id : std::string("abcdef")) {
    nodes += (nodes.empty() ? "" : ", ") + std::string(R"({"id": ")") + id +
             R"(", "parameterBytes": 40000000, "outputBytesPerSample": 1000000,
                 "times": {"A": [{"samples": 1, "forward": 0.01, "backward": 0.02}]}})";
  }
  const std::string profile = R"({"apiVersion": "weir.dev/profile/v1", "nodes": [)" + nodes +
                              R"(], "ties": [{"first": "a", "last": "f", "bytes": 40000000}]})";
  const Ran result = ran(plan_of("-", "2xA:32e9@1e9"), profile);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tied tables: stages 0 and 1 exchange 80.0 MB each way after "
                                    "the last backward, 0.08"));
  const json report = json_of(plan_of("-", "2xA:32e9@1e9"), profile)["report"];
  EXPECT_EQ(report["timeline"]["tie"]["bytes"], 40000000);
  EXPECT_GE(report["timeline"]["tie"]["seconds"], 0.08);
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

// tests/operator/planner/README.md "DAPPLE": a profile of 64 samples, 2048 a step.
TEST(PlanCommand, CompatDappleReproducesTheBestScoreOfVgg16) {
  PlanOptions options = plan_of(kGraphs + "vgg16.txt", "16xA@1e9");
  options.compat = "dapple";
  options.global_batch = 32;
  options.micro_batch = 1;
  const json printed = json_of(options);
  const json& report = printed["report"];
  EXPECT_THAT(report["optimality"]["formula"].get<std::string>(),
              HasSubstr("dapple, speed-up 12.727"));
  EXPECT_EQ(report["optimality"]["status"], "optimal");
  EXPECT_NEAR(report["objective"]["value"].get<double>(), 1.690964, 5e-7);
  EXPECT_EQ(printed["plan"]["ranks"].size(), 16U);
  EXPECT_EQ(printed["plan"]["microBatches"].size(), 16U);
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
  const Ran refused = ran(options);
  EXPECT_EQ(refused.code, 3);
  EXPECT_EQ(refused.err, "/nowhere/plan.json: cannot be written: No such file or directory\n");
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

TEST(PlanCommand, TakesAClusterFileWhateverItsName) {
  const PlanOptions options = plan_of("-", "2xA:32e9");
  const std::string by_name = ran(options, kDiamond).out;
  for (const char* name : {"2xB", "cluster", "4xA:32e9@1e9"}) {
    const Scratch file(name);
    file.write(R"({"apiVersion": "weir.dev/cluster/v1", "deviceClasses": [{"name": "FILE"}],
                   "servers": [{"name": "s", "class": "FILE", "devices": 2}]})");
    const Ran result = ran(plan_of("-", file.path()), kDiamond);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("cluster 2 x FILE"));
  }
  EXPECT_THAT(by_name, HasSubstr("cluster 2 x A"));
}

TEST(PlanCommand, ReadsTextOfOtherSystems) {
  const std::string text = kDiamond;
  std::string windows, old_mac = text;
  for (const char c : text) windows += c == '\n' ? "\r\n" : std::string(1, c);
  std::ranges::replace(old_mac, '\n', '\r');
  PlanOptions options = plan_of("-", "2xA");
  options.json = true;

  const std::string plain = json_of(options, text)["plan"].dump();

  for (const std::string& other : {"\xEF\xBB\xBF" + text, windows, old_mac}) {
    EXPECT_EQ(json_of(options, other)["plan"].dump(), plain);
  }
}

// One line, with file and line, and nothing on standard output.
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
                "2xA", "-:3: /nodes/0/outputBytesPerSample: \"8MB\" is no integer"},
        Refusal{"json", "{\"apiVersion\": ", "2xA",
                "-:1: syntax error while parsing value - unexpected end of input; expected '[', "
                "'{', or a "
                "literal"},
        Refusal{"cluster", node("a"), "2xA:much",
                "--cluster: no file of that name, and as a short form: cluster \"2xA:much\": "
                "\"much\" is no memory in bytes"},
        Refusal{"file", node("a"), "/nowhere/cluster.json",
                "--cluster: no file of that name, and as a short form: cluster "
                "\"/nowhere/cluster.json\": expected COUNTxCLASS[:BYTES][@RATE][/FACTOR]"},
        Refusal{"folder", node("a"), "/usr", "/usr: cannot be read: Is a directory"},
        Refusal{"utf16", std::string("\xFF\xFE\n\0", 4), "2xA",
                "standard input: UTF-16, expected UTF-8"},
        Refusal{"zero", std::string("a\0-", 3), "2xA",
                "standard input: a zero byte at offset 1, expected UTF-8 text (UTF-16 has such)"},
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

}  // namespace plan_command_test
}  // namespace weir::operator_app::test
