// SPDX-License-Identifier: Apache-2.0
// The published figures of the simulator, S=4 M=32 f=1 b=2 unless said: every table as it stands.
// Where they come from: tests/data/README.md.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gmock/gmock.h>

#include "tests/worker/schedule/plans_by_name.h"
#include "worker/base/random.h"

namespace weir::schedule {
namespace tables_test {

using test::equal_model;
using test::model_of;
using test::schedule_named;
using test::simulate_named;
using test::step_named;
using testing::ElementsAreArray;

constexpr int kM = 32;
constexpr double kIdeal = 105;     // (M+S-1)(f+b)
constexpr double kPrinted = 6e-4;  // a figure printed with 3 digits after the point

std::vector<double> links(double c) {
  return {c, c, c};
}

TEST(Tables, SweepOverAllLinks) {
  const std::vector<std::string> names = {"block", "1F1B",  "k2",     "k3",     "k4",
                                          "k8",    "GPipe", "slack2", "slack3", "lean",
                                          "hint3", "hk2",   "hk3",    "hk4",    "hzb3"};
  const std::map<double, std::vector<double>> rows = {
      {1.5, {205.5, 183, 118, 115, 115.5, 117.5, 129.5, 114, 114, 114, 114, 114, 114, 114, 103.5}},
      {2, {239, 209, 133, 119, 120, 126, 148, 130, 117, 117, 117, 126, 117, 117, 108}},
      {2.5, {272.5, 235, 152, 137, 133, 150, 182, 146, 120, 120, 120, 134, 121, 121.5, 114}},
      {3, {306, 261, 171, 156, 153, 174, 216, 162, 123, 123, 123, 144, 123, 123, 122}},
      {4, {373, 313, 209, 194, 195, 230, 284, 194, 162, 170, 162, 181, 162, 162, 157}},
      {6, {507, 417, 285, 273, 282, 342, 420, 258, 240, 264, 234, 234, 234, 234, 231}}};
  for (const auto& [c, row] : rows)
    for (std::size_t i = 0; i < names.size(); ++i)
      EXPECT_NEAR(step_named(names[i], kM, equal_model(4, links(c))), row[i], 1e-6)
          << names[i] << " c=" << c;
}

TEST(Tables, UpToC1EveryPlanButK1HidesTheLinks) {
  const std::map<double, std::pair<double, double>> rows = {
      {0, {105, 105}},     {0.1, {111.7, 110.2}}, {0.25, {121.75, 118}},
      {0.5, {138.5, 131}}, {0.75, {155.25, 144}}, {1, {172, 157}}};
  for (const auto& [c, row] : rows) {
    const PipelineModel model = equal_model(4, links(c));
    EXPECT_NEAR(step_named("block", kM, model), row.first, 1e-6) << c;
    EXPECT_NEAR(step_named("1F1B", kM, model), row.second, 1e-6) << c;
    for (const char* name : {"k2", "k3", "k4", "k8", "GPipe", "slack2", "slack3", "lean", "hint2",
                             "hint3", "hk2", "hk4"})
      EXPECT_NEAR(step_named(name, kM, model), kIdeal + 6 * c, 1e-6) << name << " c=" << c;
  }
}

TEST(Tables, PeaksInFlight) {
  const std::map<std::string, std::pair<int, int>> peaks = {
      {"1F1B", {4, 10}}, {"k2", {8, 20}},      {"k3", {12, 30}},    {"k4", {16, 40}},
      {"k8", {32, 80}},  {"GPipe", {32, 128}}, {"slack2", {7, 16}}, {"slack3", {10, 22}}};
  const auto expect = [](const std::string& name, double c, std::pair<int, int> peak) {
    const auto timeline = simulate_named(name, kM, equal_model(4, links(c)));
    const std::vector<int>& all = timeline->peak_in_flight;
    EXPECT_EQ(all[0], peak.first) << name;
    EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0), peak.second) << name;
  };
  for (const auto& [name, peak] : peaks) expect(name, 1, peak);
  for (const double c : {0.5, 1.5}) expect("lean", c, {7, 16});
  for (const double c : {2.0, 3.0}) expect("lean", c, {10, 22});
}

TEST(Tables, GainOfK2GrowsWithMicroBatches) {
  const std::map<int, double> gains = {{4, 14.8}, {8, 25.6}, {16, 34.9}, {64, 45.4}};
  const PipelineModel model = equal_model(4, links(1));
  for (const auto& [M, gain] : gains)
    EXPECT_NEAR(100 * (step_named("1F1B", M, model) / step_named("k2", M, model) - 1), gain, 0.05);
}

struct OtherCase {
  const char* name;
  int M;
  PipelineModel model;
  std::map<std::string, double> steps;
};
TEST(Tables, OtherCases) {
  const auto all = [](int S, double c) {
    return std::vector<double>(static_cast<std::size_t>(S - 1), c);
  };
  const std::vector<double> uneven_f = {1, 1.5, .8, 1.2}, uneven_b = {2, 3, 1.6, 2.4};
  const OtherCase cases[] = {
      {"S2M4", 4, equal_model(2, {1}), {{"block", 20}, {"1F1B", 19}, {"k2", 17}, {"slack2", 17}}},
      {"S2M8",
       8,
       equal_model(2, {2.5}),
       {{"block", 49.5},
        {"1F1B", 47},
        {"k2", 38},
        {"k4", 38},
        {"slack2", 36},
        {"slack3", 32},
        {"lean", 32}}},
      {"S3M6",
       6,
       equal_model(3, all(3, .5)),
       {{"block", 30.5}, {"1F1B", 29}, {"k2", 26}, {"slack2", 26}}},
      {"S3M12",
       12,
       equal_model(3, all(3, 1.5)),
       {{"block", 79.5}, {"1F1B", 69}, {"k2", 49.5}, {"slack2", 48}, {"lean", 48}}},
      {"S4M8",
       8,
       equal_model(4, all(4, 1)),
       {{"block", 52}, {"1F1B", 49}, {"k2", 39}, {"slack2", 39}, {"hint2", 39}}},
      {"f=b",
       16,
       model_of({1, 1, 1, 1}, {1, 1, 1, 1}, all(4, 1.5)),
       {{"block", 90.5}, {"1F1B", 80}, {"k2", 55}, {"k4", 50}, {"slack2", 53}, {"slack3", 47}}},
      {"S8",
       32,
       equal_model(8, all(8, 2.8)),
       {{"block", 327},
        {"1F1B", 307.4},
        {"k2", 197.8},
        {"k4", 179.6},
        {"slack2", 192.6},
        {"hint2", 192.6},
        {"slack3", 156.2},
        {"hint3", 156.2}}},
      {"S8 c=2",
       32,
       equal_model(8, all(8, 2)),
       {{"1F1B", 253}, {"k2", 161}, {"k4", 148}, {"slack3", 145}, {"hk2", 156}, {"hk4", 145}}},
      {"uneven",
       16,
       model_of(uneven_f, uneven_b, {.5, 2, 1}),
       {{"block", 121.5},
        {"1F1B", 103},
        {"k2", 83.4},
        {"k4", 79.9},
        {"slack2", 82.4},
        {"hint2", 82},
        {"lean", 86.5},
        {"pm", 79},
        {"opt", 76}}},
      {"S8M4", 4, equal_model(8, all(8, .5)), {{"1F1B", 42}, {"k2", 40}, {"slack2", 40}}},
      {"S4M3", 3, equal_model(4, all(4, .5)), {{"1F1B", 22}, {"k2", 21}, {"GPipe", 21}}},
      {"S4M1", 1, equal_model(4, all(4, .5)), {{"1F1B", 15}, {"k2", 15}, {"hint3", 15}}},
      {"S1M5", 5, equal_model(1, {}), {{"1F1B", 15}, {"k2", 15}, {"GPipe", 15}}},
      {"latency 4",
       32,
       equal_model(4, all(4, 4), true),
       {{"1F1B", 313}, {"k2", 184}, {"k4", 129}, {"slack2", 194}, {"slack3", 147}, {"lean", 129}}},
      {"latency 6",
       32,
       equal_model(4, all(4, 6), true),
       {{"1F1B", 417}, {"k2", 240}, {"k4", 156}, {"slack2", 258}, {"slack3", 195}, {"lean", 141}}},
      {"S8 link 0 at 4",
       32,
       equal_model(8, {4, .25, .25, .25, .25, .25, .25}),
       {{"1F1B", 234}, {"k4", 246}, {"hk2", 162}}},
  };
  for (const OtherCase& it : cases)
    for (const auto& [plan, step] : it.steps)
      EXPECT_NEAR(step_named(plan, it.M, it.model), step, 1e-6) << it.name << " " << plan;
  const PipelineModel& uneven = cases[8].model;
  EXPECT_THAT(schedule_named("lean", 16, uneven).caps, ElementsAreArray({5, 4, 2, 1}));
  EXPECT_THAT(schedule_named("pm", 16, uneven).caps, ElementsAreArray({9, 7, 3, 1}));
  EXPECT_THAT(schedule_named("opt", 16, uneven).caps, ElementsAreArray({10, 9, 3, 1}));
}

TEST(Tables, WindowsOfOutstandingSends) {
  const std::map<std::string, std::vector<double>> rows = {{"1F1B", {239, 209, 209, 209}},
                                                           {"k2", {236, 133, 133, 133}},
                                                           {"k4", {236, 135, 124, 120}},
                                                           {"slack3", {236, 117, 117, 117}}};
  PipelineModel model = equal_model(4, links(2));
  for (const auto& [name, row] : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      model.window = std::vector{0, 1, 2, 4}[i];
      EXPECT_NEAR(step_named(name, kM, model), row[i], 1e-6) << name << " window " << *model.window;
    }
}

TEST(Tables, OneSlowLink) {
  const std::vector<std::string> names = {"1F1B", "k2",       "k3",    "k4",  "slack3",
                                          "lean", "hintlean", "hint3", "hk1", "hk2"};
  struct Row {
    std::vector<double> c, steps;
    std::vector<int> lean;
  };
  const Row rows[] = {
      {{2.5, .25, .25}, {182.5, 138, 130, 130, 116, 112, 111.5, 112, 166, 111.5}, {8, 5, 3, 1}},
      {{.25, 2.5, .25},
       {186.5, 141.5, 129, 127.5, 113.5, 111.5, 111.5, 111.5, 166.5, 111.5},
       {8, 6, 3, 1}},
      {{.25, .25, 2.5}, {186.5, 141, 128, 123, 111, 111, 111, 111, 186.5, 111}, {8, 6, 4, 1}},
      {{.25, 4, .25},
       {235.5, 195.5, 185.5, 187.5, 153.5, 149.5, 145.5, 145.5, 205.5, 145.5},
       {9, 7, 3, 1}}};
  for (const Row& row : rows) {
    const PipelineModel model = equal_model(4, row.c);
    EXPECT_THAT(lean_caps(model, kM), ElementsAreArray(row.lean));
    for (std::size_t i = 0; i < names.size(); ++i)
      EXPECT_NEAR(step_named(names[i], kM, model), row.steps[i], 1e-6) << names[i];
  }
}

double step_with(std::vector<int> caps, Dispatch dispatch, const PipelineModel& model) {
  const auto timeline = simulate(test::with_caps(std::move(caps), dispatch), kM, model);
  return static_cast<double>(timeline->step.count()) / 1e6;
}

// T/ideal at a budget of A micro-batches on stage 0: the best kFkB, the best Strict plan of almost
// equal slack per link, Hint with caps that fall linearly.
struct Pareto {
  double kfkb = 1e9, strict = 1e9, hint = 1e9;
};
Pareto pareto(double c, int budget) {
  const PipelineModel model = equal_model(4, links(c));
  Pareto best;
  for (const int k : {1, 2, 3, 4, 5, 6, 8})
    if (k == 1 || 4 * k <= budget)
      best.kfkb =
          std::min(best.kfkb, step_with(kfkb_caps(4, kM, k), Dispatch::kStrict, model) / kIdeal);
  for (int d = 1; d <= budget; ++d)
    for (int extra = 0; extra < 7; ++extra) {  // which of the three links have one more
      const std::vector<int> slack = {d + extra / 4, d + extra / 2 % 2, d + extra % 2};
      std::vector<int> caps = {1 + slack[0] + slack[1] + slack[2], 1 + slack[1] + slack[2],
                               1 + slack[2], 1};
      if (caps[0] > std::min(budget, kM)) continue;
      best.strict = std::min(best.strict, step_with(caps, Dispatch::kStrict, model) / kIdeal);
    }
  std::vector<int> linear;
  for (int s = 0; s < 4; ++s) linear.push_back(std::max(1, budget - (budget - 1) * s / 3));
  best.hint = step_with(linear, Dispatch::kHint, model) / kIdeal;
  return best;
}

TEST(Tables, ParetoOfTimeAndMemory) {
  struct Row {
    double c;
    Pareto at5, at6;
    double k7, slack7;                           // Hint is as good as slack there
    double k8, hint8, k10, hint10, k16, hint16;  // of 10 and 16 the table has kFkB and Hint
  };
  const Row rows[] = {{.5,
                       {1.248, 1.171, 1.143},
                       {1.248, 1.114, 1.076},
                       1.248,
                       1.029,
                       1.029,
                       1.029,
                       1.029,
                       1.029,
                       1.029,
                       1.029},
                      {1,
                       {1.495, 1.343, 1.286},
                       {1.495, 1.286, 1.152},
                       1.495,
                       1.057,
                       1.057,
                       1.057,
                       1.057,
                       1.057,
                       1.057,
                       1.057},
                      {1.5,
                       {1.743, 1.514, 1.429},
                       {1.743, 1.457, 1.229},
                       1.743,
                       1.086,
                       1.124,
                       1.086,
                       1.124,
                       1.086,
                       1.095,
                       1.086},
                      {2,
                       {1.990, 1.695, 1.629},
                       {1.990, 1.629, 1.400},
                       1.990,
                       1.238,
                       1.267,
                       1.200,
                       1.267,
                       1.114,
                       1.133,
                       1.114},
                      {2.5,
                       {2.238, 1.876, 1.829},
                       {2.238, 1.800, 1.571},
                       2.238,
                       1.390,
                       1.448,
                       1.276,
                       1.448,
                       1.143,
                       1.267,
                       1.143}};
  const auto expect = [](const Pareto& got, const Pareto& want, double c, int budget) {
    EXPECT_NEAR(got.kfkb, want.kfkb, kPrinted) << c << " A=" << budget;
    if (want.strict > 0) {
      EXPECT_NEAR(got.strict, want.strict, kPrinted) << c << " A=" << budget;
    }
    EXPECT_NEAR(got.hint, want.hint, kPrinted) << c << " A=" << budget;
  };
  for (const Row& row : rows) {
    expect(pareto(row.c, 5), row.at5, row.c, 5);
    expect(pareto(row.c, 6), row.at6, row.c, 6);
    expect(pareto(row.c, 7), {row.k7, row.slack7, row.slack7}, row.c, 7);
    expect(pareto(row.c, 8), {row.k8, 0, row.hint8}, row.c, 8);
    expect(pareto(row.c, 10), {row.k10, 0, row.hint10}, row.c, 10);
    expect(pareto(row.c, 16), {row.k16, 0, row.hint16}, row.c, 16);
  }
}

// 30 uneven pipelines: the search takes less time than lean_x, slack and PipeMorph with less
// memory than kFkB and slack.
TEST(Tables, SearchedCapsAreTheBestOfAllGenerators) {
  const std::vector<std::string> names = {"1F1B", "k2", "k4", "lean", "pm", "slack3", "opt"};
  std::map<std::string, double> time, memory;
  constexpr int kCases = 30;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    Random random(seed);
    std::vector<double> f(4), b(4), c(3);
    for (double& v : f) v = 0.6 + 0.8 * random.uniform();
    for (std::size_t s = 0; s < 4; ++s) b[s] = 2 * f[s];
    for (double& v : c) v = 2.5 * random.uniform();
    const PipelineModel model = model_of(f, b, c);
    double bound = 0;  // the slowest stage, all of its work
    for (std::size_t s = 0; s < 4; ++s) bound = std::max(bound, 16 * (f[s] + b[s]));
    for (const std::string& name : names) {
      const Schedule schedule = schedule_named(name, 16, model);
      time[name] += step_named(name, 16, model) / bound / kCases;
      memory[name] += std::accumulate(schedule.caps.begin(), schedule.caps.end(), 0.0) / kCases;
    }
  }
  for (const char* name : {"1F1B", "k2", "k4", "lean", "pm", "slack3"})
    EXPECT_LT(time["opt"], time[name]) << name;
  for (const char* name : {"k2", "k4", "slack3"}) EXPECT_LT(memory["opt"], memory[name]) << name;
  EXPECT_GT(time["1F1B"] / time["opt"], 1.25);
}

}  // namespace tables_test
}  // namespace weir::schedule
