// SPDX-License-Identifier: Apache-2.0
#include "worker/app/report.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "worker/app/exposition.h"
#include "worker/base/log.h"
#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::app {
namespace {

std::int64_t timed_of(const transport::LinkCounters& counters) {
  return std::accumulate(counters.histogram.begin(), counters.histogram.end(), std::int64_t{0});
}

// Pauses in ops are told with those between ops: the readers compare ranks by what they compute.
protocol::PartSeconds seconds_of(const engine::StepRecord& record) {
  using protocol::StepPart;
  constexpr std::array kOps{StepPart::kForward, StepPart::kBackward, StepPart::kWeights};
  static_assert(kOps.size() == schedule::kOpKinds);
  protocol::PartSeconds parts;
  std::ranges::transform(record.parts, parts.seconds.begin(), to_seconds);
  for (std::size_t kind = 0; kind < kOps.size(); ++kind) {
    double& op = parts.seconds[static_cast<std::size_t>(kOps[kind])];
    const double paused = std::min(op, to_seconds(record.pauses[kind]));
    op -= paused;
    parts.seconds[static_cast<std::size_t>(StepPart::kOther)] += paused;
  }
  return parts;
}

}  // namespace

std::vector<protocol::Sent> SentSince::take(const std::vector<transport::LinkReport>& links,
                                            const engine::Sent& tensors) {
  std::vector<protocol::Sent> sent;
  for (const transport::LinkReport& link : links) {
    const bool forward = link.channel == transport::Channel::kForward;
    const transport::LinkCounters& now = link.counters;
    transport::LinkCounters& before = before_[forward ? 1 : 0];
    if (now.transfers < before.transfers) before = {};  // the links are new
    sent.push_back({.forward = forward,
                    .transfers = now.transfers - before.transfers,
                    .timed = timed_of(now) - timed_of(before),
                    .seconds = to_seconds(now.busy - before.busy),
                    .rtt_seconds = now.rtt_seconds,
                    .rounding_error = tensors[forward ? 0 : 1].error_ratio,
                    .zeroed = tensors[forward ? 0 : 1].zeroed_ratio,
                    .connections = now.connections});
    before = now;
  }
  return sent;
}

protocol::StageStatus status_of(const engine::StepRecord& record, std::int64_t memory_peak,
                                std::int64_t memory_limit, std::int64_t memory_free) {
  return {.epoch = record.epoch,
          .step = record.next_step,
          .replica = record.replica,
          .stage = record.stage,
          .loss = record.loss,
          .step_seconds = record.iteration_seconds,
          .compute_seconds = record.compute_seconds,
          .idle_seconds = record.idle_seconds,
          .samples = record.first_stage ? record.samples : 0,
          .memory_peak_bytes = memory_peak,
          .memory_limit_bytes = memory_limit,
          .memory_free_bytes = memory_free,
          .skipped_in_row = record.skipped_in_row,
          .forward_seconds = record.forward_seconds,
          .backward_seconds = record.backward_seconds,
          .interrupted = record.interrupted,
          .parts = seconds_of(record)};
}

std::string loss_line(const engine::StepRecord& record, bool emulated) {
  const bool known = std::isfinite(record.loss);
  std::string line = "{\"step\": " + std::to_string(record.step) +
                     ", \"epoch\": " + std::to_string(record.epoch) +
                     ", \"stage\": " + std::to_string(record.stage) + ", \"loss\": ";
  line += known ? format("%.9g", record.loss) : "null";
  line += ", \"loss_hex\": " + (known ? "\"" + format("%a", record.loss) + "\"" : "null");
  line += ", \"step_seconds\": " + format("%.9g", record.step_seconds);
  line += ", \"iteration_seconds\": " + format("%.9g", record.iteration_seconds);
  line += ", \"forward_seconds\": " + format("%.9g", record.forward_seconds);
  line += ", \"backward_seconds\": " + format("%.9g", record.backward_seconds);
  line += ", \"in_flight_peak\": " + std::to_string(record.in_flight_peak);
  line += ", \"graph_launches\": " + std::to_string(record.graph_launches);
  if (record.skipped) line += ", \"skipped\": true";
  if (emulated) {
    line += ", \"overruns\": " + std::to_string(record.overruns) + ", \"lateness_us\": [";
    for (std::size_t i = 0; i < record.lateness.size(); ++i) {
      line += (i > 0 ? ", " : "") + std::to_string(record.lateness[i].count() / 1000);
    }
    line += "]";
  }
  return line + "}";
}

Result<std::unique_ptr<LossLog>> LossLog::open(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return invalid("--loss-log: " + path + ": " + std::strerror(errno));
  return std::unique_ptr<LossLog>(new LossLog(file));
}

void LossLog::write(const engine::StepRecord& record, bool emulated) {
  const std::string line = loss_line(record, emulated) + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                       std::fflush(file_.get()) == 0;
  if (!written) log_warn("app", "loss log cannot be written", {{"step", record.step}});
}

}  // namespace weir::app
