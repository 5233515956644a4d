// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/schedule_cases.h"

#include <algorithm>
#include <cstdio>

#include "tests/worker/schedule/plans_by_name.h"
#include "worker/base/random.h"
#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::bench {
namespace {

constexpr int kLayers = 8;
constexpr double kBurstShare = 0.25, kBurstSeconds = 0.16, kTraceSeconds = 600;
constexpr std::uint64_t kBurstSeed = 7;

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  return buffer;
}

std::string rate(const Case& one, double milliseconds) {
  return std::to_string(static_cast<std::int64_t>(one.message_bytes() / milliseconds * 1e3)) + "B";
}

void add(std::vector<Case>& cases, const char* experiment, const std::vector<double>& c,
         const std::vector<const char*>& plans, bool bursts = false,
         std::optional<int> window = std::nullopt) {
  for (const char* plan : plans) {
    cases.push_back(
        {.experiment = experiment, .plan = plan, .c = c, .bursts = bursts, .window = window});
  }
}

// Half of a backward is weight gradients.
void add_split(std::vector<Case>& cases, int stages, int micro_batches) {
  const auto links = static_cast<std::size_t>(stages - 1);
  std::vector<std::vector<double>> times;
  for (const double c : {0.0, 5.0, 20.0}) times.emplace_back(links, c);
  times.emplace_back(links, 2.5)[links / 2] = 25;
  for (const std::vector<double>& c : times) {
    for (const char* half : {"", "+same", "+x0"}) {
      cases.push_back({.experiment = "split",
                       .plan = (c.front() > 0 ? "hintlean" : "1F1B") + std::string(half),
                       .c = c,
                       .micro_batches = micro_batches});
    }
  }
}

// One link that no order hides, raw and in fewer bits.
void add_codecs(std::vector<Case>& cases) {
  using schedule::Codec;
  for (const double c : {20.0, 40.0, 100.0, 200.0}) {
    for (const char* plan : {"1F1B", "hintlean"}) {
      cases.push_back({.experiment = "codecs", .plan = plan, .c = {2.5, c, 2.5}});
    }
    for (const Codec codec : {Codec::kBf16, Codec::kInt8, Codec::kInt6}) {
      cases.push_back(
          {.experiment = "codecs", .plan = "hintlean", .c = {2.5, c, 2.5}, .codec = codec});
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add(cases, "e1", {0, 0, 0}, {"1F1B", "k2", "slack2", "hint2"});
  add(cases, "e1", {2.5, 2.5, 2.5}, {"1F1B", "k2", "k4", "slack2", "hint2"});
  for (const double c : {5.0, 10.0, 20.0}) {
    add(cases, "e2", {c, c, c}, {"1F1B", "k2", "k4", "slack3", "hint3"});
  }
  add(cases, "e3", {2.5, 25, 2.5}, {"1F1B", "k2", "k4", "slack3", "hk2", "hintlean"});
  add(cases, "e3b", {2.5, 2.5, 25}, {"1F1B", "k2", "k4", "slack3", "hk2", "hintlean"});
  add(cases, "e3c", {2.5, 40, 2.5}, {"1F1B", "k2", "k4", "slack3", "hk2", "hintlean"});
  for (const int window : {0, 1, 2}) {
    add(cases, "e4", {20, 20, 20}, {"1F1B", "k4", "slack3"}, false, window);
  }
  add(cases, "e4", {20, 20, 20}, {"1F1B", "k4", "slack3"});
  add(cases, "e7", {5, 5, 5}, {"1F1B", "k2", "k4", "hint3"}, true);
  for (const int stages : {4, 8}) {
    for (const int micro_batches : {32, 16}) add_split(cases, stages, micro_batches);
  }
  add_codecs(cases);
  // Beside torch.distributed.pipelining, which has the first two.
  for (const double c : {0.0, 5.0, 10.0, 20.0}) {
    add(cases, "peer", {c, c, c}, {"1F1B", "GPipe", "k2", "hint3"});
  }
  return cases;
}

}  // namespace

std::string Case::links() const {
  std::string result;
  if (stages() != kStages || micro_batches != kMicroBatches) {
    result = "S=" + std::to_string(stages()) + " M=" + std::to_string(micro_batches) + " ";
  }
  const bool equal = std::ranges::count(c, c.front()) == std::ssize(c);
  result += "c=" + (equal ? text(c.front()) : joined(c, ",", text));
  if (codec != schedule::Codec::kRaw) result += std::string(" ") + schedule::name(codec);
  if (window) result += " window=" + std::to_string(*window);
  return bursts ? result + " bursts" : result;
}

double Case::message_bytes() const {
  return kMessageBytes / 64 * tokens;
}

double Case::wire_bytes(std::size_t link) const {
  const bool slowest = c[link] == *std::ranges::max_element(c);
  constexpr int kSamples = 2, kFloat = 4;
  const auto count = static_cast<std::int64_t>(message_bytes()) / kSamples / kFloat;
  return slowest ? static_cast<double>(kSamples * encoded_bytes(codec, count, kFloat))
                 : message_bytes();
}

std::vector<Case> cases_of(const std::string& experiment) {
  std::vector<Case> cases = all_cases();
  std::erase_if(cases, [&](const Case& one) {
    return experiment == "all"
               ? one.experiment == "peer" || one.experiment == "split" || one.experiment == "codecs"
               : one.experiment != experiment;
  });
  return cases;
}

schedule::RateTrace burst_trace(int worker) {
  Random random(mix_seed(kBurstSeed, static_cast<std::uint64_t>(worker)));
  schedule::RateTrace trace;
  bool preempted = random.uniform() < 0.5;
  for (double now = 0; now < kTraceSeconds;) {
    trace.emplace_back(from_seconds(now), preempted ? kBurstShare : 1.0);
    now += std::max(1e-3, random.exponential(kBurstSeconds));
    preempted = !preempted;
  }
  return trace;
}

Case lone_micro_batch(int stages) {
  return {.experiment = "hop",
          .plan = "1F1B",
          .c = std::vector<double>(static_cast<std::size_t>(stages) - 1, 0.0),
          .micro_batches = 1};
}

double hop_of(double step, int stages) {
  return std::max(0.0, (step - stages * (kForward + kBackward)) / (2 * (stages - 1)));
}

schedule::PipelineModel model_of(const Case& one) {
  std::vector<double> transfers = one.c;
  for (std::size_t link = 0; link < transfers.size(); ++link) {
    transfers[link] *= one.wire_bytes(link) / one.message_bytes();
  }
  schedule::PipelineModel model =
      schedule::test::model_of(std::vector<double>(one.c.size() + 1, kForward),
                               std::vector<double>(one.c.size() + 1, kBackward), transfers);
  for (schedule::StageTime& stage : model.stages) {
    stage.backward_input = stage.backward_weights = stage.backward / 2;
  }
  model.window = one.window;
  for (std::size_t link = 0; one.measured && link < one.c.size(); ++link) {
    model.forward[link].transfer = schedule::test::units((*one.measured)[link][0]);
    model.backward[link].transfer = schedule::test::units((*one.measured)[link][1]);
  }
  for (auto* links : {&model.forward, &model.backward}) {
    for (schedule::LinkModel& link : *links) link.latency = schedule::test::units(one.hop);
  }
  for (int b = 0; one.bursts && b + 1 < one.stages(); ++b) {
    const auto link = static_cast<std::size_t>(b);
    model.forward[link].trace = burst_trace(b);
    model.backward[link].trace = burst_trace(b + 1);
  }
  return model;
}

// The plan that runs: made for the wanted times.
schedule::Schedule plan_of(Case one) {
  one.measured.reset();
  one.hop = 0;
  return schedule::test::schedule_named(one.plan, one.micro_batches, model_of(one));
}

// ms from step to step, as engines measure it.
double step_of(const schedule::Schedule& plan, const Case& one, schedule::PipelineModel& model) {
  model.record = plan.split.has_value();
  const auto timeline = schedule::simulate(plan, one.micro_batches, model);
  return 1e3 * to_seconds(plan.split ? schedule::period_of(*timeline) : timeline->step);
}

std::array<double, 2> simulated_range(const Case& one) {
  constexpr int kDraws = 200;
  constexpr double kLonger = 0.01;
  const schedule::PipelineModel exact = model_of(one);
  const schedule::Schedule plan = plan_of(one);
  Random random(1);
  std::array<double, 2> range = {1e9, 0};
  for (int i = 0; i < kDraws; ++i) {
    schedule::PipelineModel model = exact;
    for (schedule::StageTime& stage : model.stages) {
      const double factor = 1 + kLonger * random.uniform();
      for (auto* time :
           {&stage.forward, &stage.backward, &stage.backward_input, &stage.backward_weights}) {
        *time = from_seconds(factor * to_seconds(*time));
      }
    }
    for (auto* links : {&model.forward, &model.backward}) {
      for (schedule::LinkModel& link : *links) {
        link.latency = schedule::test::units(one.hop * (0.5 + random.uniform()));
      }
    }
    const double step = step_of(plan, one, model);
    range = {std::min(range[0], step), std::max(range[1], step)};
  }
  return range;
}

std::vector<double> simulated(const Case& one, int steps) {
  const schedule::Schedule plan = plan_of(one);
  schedule::PipelineModel model = model_of(one);
  if (!one.bursts) return {step_of(plan, one, model)};
  const auto step = [&] { return schedule::simulate(plan, one.micro_batches, model)->step; };
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + steps; ++i) {
    const std::chrono::nanoseconds time = step();
    model.start += time;
    if (i >= kWarmUp) times.push_back(1e3 * to_seconds(time));
  }
  return times;
}

test::PlanText plan_text(const std::string& plan, const Case& one) {
  const schedule::Schedule schedule =
      schedule::test::schedule_named(plan, one.micro_batches, model_of(one));
  test::PlanText document{.type = plan == "1F1B" ? "OneFOneB" : "KFKB"};
  document.dispatch = schedule::name(schedule.dispatch);
  document.k = schedule.k;
  document.caps = schedule.caps;
  document.split = schedule.split;
  for (std::size_t link = 0; link < one.c.size(); ++link) {
    const bool raw = one.wire_bytes(link) == one.message_bytes();
    const schedule::Codec codec = raw ? schedule::Codec::kRaw : one.codec;
    document.codecs.forward.push_back(codec);
    document.codecs.backward.push_back(codec);
  }
  document.stages = one.stages();
  document.micro_batches = one.micro_batches;
  return document;
}

std::vector<std::string> pacing(const Case& one, int worker, const test::TempDir& folder) {
  const auto [least, most] = std::minmax_element(one.c.begin(), one.c.end());
  if (*most <= 0) return {};
  std::vector<std::string> words = {"--pace-rate=" + rate(one, *most)};
  if (*least != *most) {
    const auto slow = most - one.c.begin();
    words.push_back("--pace-link=" + std::to_string(slow) + "-" + std::to_string(slow + 1));
    if (*least > 0) words.push_back("--pace-other-rate=" + rate(one, *least));
  }
  if (one.bursts) {
    std::string lines;
    for (const auto& [from, share] : burst_trace(worker)) {
      lines += std::to_string(to_seconds(from)) + " " + std::to_string(share) + "\n";
    }
    words.push_back("--pace-trace=" +
                    folder.file("bursts-" + std::to_string(worker) + ".txt", lines));
  }
  return words;
}

std::vector<std::string> common_arguments(int steps, const std::string& profile_file, int tokens) {
  return {"--model=mlp",
          "--seq=" + std::to_string(tokens),
          "--vocab=32",
          "--steps=" + std::to_string(steps),
          "--emulate-device=bench",
          "--emulate-profile=" + profile_file};
}

std::string profile(int stages) {
  const double layers_per_stage = 1.0 * kLayers / stages;
  const std::string times = R"("forward": )" + text(kForward / layers_per_stage / 1e3) +
                            R"(, "backward": )" + text(kBackward / layers_per_stage / 1e3) +
                            R"(, "split": {"input": )" + text(kBackward / layers_per_stage / 2e3) +
                            R"(, "weights": )" + text(kBackward / layers_per_stage / 2e3) + "}";
  std::string nodes;
  for (int i = 0; i < kLayers; ++i) {
    const std::string id = i == 0             ? "embed"
                           : i == kLayers - 1 ? "head"
                                              : "hidden" + std::to_string(i - 1);
    nodes += (i > 0 ? ", " : "") + std::string(R"({"id": ")") + id +
             R"(", "parameterBytes": 1, "outputBytesPerSample": 1, "times": {"bench": [)" +
             R"({"samples": 1, )" + times + R"(}, {"samples": 2, )" + times + "}]}}";
  }
  return R"({"apiVersion": "weir.dev/profile/v1", "nodes": [)" + nodes + "]}";
}

}  // namespace weir::bench
