// SPDX-License-Identifier: Apache-2.0
// What the coordinator of 64 ranks computes for explanations: it reads STATUS of all ranks after
// each step, keeps segments, and tells one in each report. In CPU time of its thread, so that other
// load does not count. The goal is 0.1 % of a core.
//   segments_bench
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <variant>
#include <vector>

#include "worker/base/random.h"
#include "worker/coordinator/segment.h"
#include "worker/protocol/codec.h"
#include "worker/schedule/caps.h"

namespace weir::bench {
namespace {

constexpr int kReplicas = 8, kStages = 8, kMicroBatches = 32;
constexpr int kSteps = 400;
constexpr double kStepSeconds = 1, kReportSeconds = 5;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

schedule::Plan plan_of() {
  schedule::Plan plan;
  plan.revision = 1;
  plan.schedule.caps = schedule::kfkb_caps(kStages, kMicroBatches, 1);
  for (int s = 0; s < kStages; ++s) plan.stages.push_back({s, s});
  for (int r = 0; r < kReplicas; ++r) {
    plan.micro_batches.push_back(kMicroBatches);
    for (int s = 0; s < kStages; ++s) plan.ranks.push_back({.replica = r, .stage = s});
  }
  return plan;
}

std::string status_of(int step, int replica, int stage, Random& random) {
  const auto noisy = [&](double seconds) { return seconds * (1 + 0.02 * random.normal()); };
  protocol::StageStatus status{.epoch = 1, .step = step, .replica = replica, .stage = stage};
  status.step_seconds = noisy(kStepSeconds);
  status.forward_seconds = noisy(0.25);
  status.backward_seconds = noisy(0.5);
  status.parts.emplace();
  for (double& seconds : status.parts->seconds) seconds = noisy(0.01);
  for (const bool forward : {true, false}) {
    if (forward ? stage + 1 == kStages : stage == 0) continue;
    status.sent.push_back({.forward = forward,
                           .transfers = kMicroBatches + 1,
                           .timed = kMicroBatches,
                           .seconds = noisy(0.1),
                           .rtt_seconds = 1e-4});
  }
  return protocol::encode(protocol::Message(status));
}

int run() {
  const schedule::Plan plan = plan_of();
  coordinator::Segments segments;
  segments.follow(&plan, 1);
  Random random(1);
  std::vector<double> reads, keeps, tells;
  std::size_t bytes = 0;
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<std::string> texts;
    for (int r = 0; r < kReplicas; ++r) {
      for (int s = 0; s < kStages; ++s) texts.push_back(status_of(step, r, s, random));
    }
    const double begin = cpu_seconds();
    std::vector<protocol::Message> messages;
    for (const std::string& text : texts) {
      auto message = protocol::decode_message(text);
      if (!message) return 1;
      messages.push_back(std::move(*message));
    }
    const double read = cpu_seconds();
    for (const auto& message : messages) {
      segments.on_status(std::get<protocol::StageStatus>(message));
    }
    const double kept = cpu_seconds();
    protocol::Report report;
    report.segment = segments.current();
    bytes = protocol::encode(report).size();
    const double told = cpu_seconds();
    if (step <= static_cast<int>(coordinator::kSegmentSteps)) continue;  // a full window costs most
    reads.push_back(read - begin);
    keeps.push_back(kept - read);
    tells.push_back(told - kept);
  }
  const double share =
      (median(reads) + median(keeps)) / kStepSeconds + median(tells) / kReportSeconds;
  std::printf(
      "64 ranks: STATUS of a step read in %.2f ms, kept in %.2f ms; a report's segment %.2f ms, "
      "%zu "
      "KiB; of a core at steps of 1 s %.3f %%, without reading STATUS %.3f %%\n",
      1e3 * median(reads), 1e3 * median(keeps), 1e3 * median(tells), bytes / 1024, 100 * share,
      100 * (share - median(reads) / kStepSeconds));
  return 0;
}

}  // namespace
}  // namespace weir::bench

int main() {
  return weir::bench::run();
}
