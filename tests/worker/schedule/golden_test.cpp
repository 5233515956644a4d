// SPDX-License-Identifier: Apache-2.0
// Every line of tests/data/schedule_golden.jsonl (its README says where they come from). Integer
// times must match exactly, traces to 1e-6.
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/schedule/baselines.h"
#include "worker/schedule/search_caps.h"
#include "worker/schedule/simulator.h"

namespace weir::schedule {
namespace golden_test {

using nlohmann::json;
using std::chrono::nanoseconds;

constexpr double kSecond = 1e9;  // ticks of one forward in lines with "unit": "f"

struct Case {
  int stages = 0, micro_batches = 0;
  double scale = 1;
  PipelineModel model;
  std::vector<nanoseconds> links;
};

std::vector<double> numbers(const json& line, const char* field, int stages, double usual) {
  if (line.contains(field)) return line.at(field).get<std::vector<double>>();
  return std::vector<double>(static_cast<std::size_t>(stages), usual);
}

// Share .25 and 1 in turns of `half` forwards; links 0 and 2 start preempted.
RateTrace square_wave(double half, double share, bool starts_preempted) {
  RateTrace trace;
  bool preempted = starts_preempted;
  for (int i = 0; i < 500; ++i) {
    trace.emplace_back(nanoseconds(static_cast<std::int64_t>(i * half * kSecond)),
                       preempted ? share : 1.0);
    preempted = !preempted;
  }
  return trace;
}

Case case_of(const json& line) {
  Case result;
  result.stages = line.at("S").get<int>();
  result.micro_batches = line.at("M").get<int>();
  const bool units = line.contains("unit");
  result.scale = units ? kSecond : 1;
  const double unit = units ? 1 : 1000;
  const auto ticks = [&](double v) {
    return nanoseconds(static_cast<std::int64_t>(v * result.scale));
  };
  const std::vector<double> f = numbers(line, "f", result.stages, unit);
  const std::vector<double> b = numbers(line, "b", result.stages, 2 * unit);
  const std::vector<double> c = numbers(line, "c", result.stages - 1, 0);
  for (std::size_t s = 0; s < f.size(); ++s)
    result.model.stages.push_back({ticks(f[s]), ticks(b[s])});
  const bool latency = line.value("mode", "bw") == "lat";
  for (std::size_t s = 0; s < c.size(); ++s) {
    LinkModel link;
    (latency ? link.latency : link.transfer) = ticks(c[s]);
    const std::string name = line.at("case").get<std::string>();
    if (name.starts_with("square")) {
      link.trace = square_wave(std::stod(name.substr(6)), line.at("share").get<double>(), s != 1);
    }
    result.model.forward.push_back(link);
    result.model.backward.push_back(link);
    result.links.push_back(ticks(c[s]));
  }
  if (line.contains("window") && !line.at("window").is_null()) {
    result.model.window = line.at("window").get<int>();
  }
  return result;
}

Schedule with_caps(std::vector<int> caps, Dispatch dispatch) {
  Schedule schedule;
  schedule.dispatch = dispatch;
  schedule.k = k_of_caps(caps);
  schedule.caps = std::move(caps);
  return schedule;
}

Schedule schedule_of(const std::string& plan, const Case& c) {
  const int S = c.stages, M = c.micro_batches;
  const auto tail = [&](std::size_t prefix) { return std::stoi(plan.substr(prefix)); };
  const auto lean = [&] { return lean_caps(c.model.stages, c.links, M); };
  if (plan == "1f1b" || plan == "sync") return with_caps(kfkb_caps(S, M, 1), Dispatch::kStrict);
  if (plan == "gpipe") return with_caps(kfkb_caps(S, M, M), Dispatch::kStrict);
  if (plan == "lean") return with_caps(lean(), Dispatch::kStrict);
  if (plan == "hintlean") return with_caps(lean(), Dispatch::kHint);
  if (plan == "pm") return with_caps(test::pipemorph_caps(c.model, M), Dispatch::kStrict);
  if (plan == "opt") {
    const std::vector<int> no_limit(c.model.stages.size(), M);
    return with_caps(opt_caps(c.model, M, no_limit), Dispatch::kHint);
  }
  if (plan.starts_with("hint-k")) return with_caps(kfkb_caps(S, M, tail(6)), Dispatch::kHint);
  if (plan.starts_with("hint")) return with_caps(slack_caps(S, M, tail(4)), Dispatch::kHint);
  if (plan.starts_with("slack")) return with_caps(slack_caps(S, M, tail(5)), Dispatch::kStrict);
  EXPECT_TRUE(plan.starts_with("k")) << "unknown plan " << plan;
  return with_caps(kfkb_caps(S, M, tail(1)), Dispatch::kStrict);
}

// PipeMorph's figures 4 and 5: S=4, M=12, F = B = W = 10 ms, 7,5,3,1 forwards to begin with, c0 ms
// of latency on link 0.
std::optional<Timeline> zero_bubble(const json& line) {
  constexpr int kMicroBatches = 12;
  PipelineModel model;
  model.stages.assign(4, {nanoseconds(10), nanoseconds(10)});
  model.forward.assign(3, {});
  model.forward[0].latency = nanoseconds(line.at("c0").get<int>());
  model.backward = model.forward;
  ZeroBubble split;
  split.warm_up = {7, 5, 3, 1};
  split.held_caps.assign(4, line.at("cap").get<int>());
  split.weights.assign(4, nanoseconds(10));
  return simulate_zero_bubble(split, kMicroBatches, model);
}

void expect_line(const json& line) {
  const std::string plan = line.at("plan").get<std::string>();
  const bool split = plan == "zb";
  Case c;
  if (!split) c = case_of(line);
  if (plan == "sync") c.model.window = 0;

  const auto timeline =
      split ? zero_bubble(line) : simulate(schedule_of(plan, c), c.micro_batches, c.model);

  ASSERT_TRUE(timeline.has_value()) << line;
  const double expected = line.at("T").get<double>() * c.scale;
  const auto got = static_cast<double>(timeline->step.count());
  EXPECT_NEAR(got, expected, c.scale > 1 ? 1e-6 * expected : 0.0) << line;
  EXPECT_EQ(timeline->peak_in_flight, line.at("peak").get<std::vector<int>>()) << line;
  // Slots of stage 0 forward and of the last stage backward hold nothing.
  EXPECT_EQ(timeline->receive_queue_forward, line.at("recv_f").get<std::vector<int>>()) << line;
  EXPECT_EQ(timeline->receive_queue_backward, line.at("recv_b").get<std::vector<int>>()) << line;
}

TEST(Golden, EveryLineMatches) {
  std::ifstream file(std::string(WEIR_SOURCE_DIR) + "/tests/data/schedule_golden.jsonl");
  int checked = 0;

  for (std::string text; std::getline(file, text);) {
    expect_line(json::parse(text));
    ++checked;
  }

  EXPECT_EQ(checked, 386);
}

}  // namespace golden_test
}  // namespace weir::schedule
