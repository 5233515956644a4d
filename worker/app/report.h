// SPDX-License-Identifier: Apache-2.0
// Reports of a finished step: STATUS for the coordinator, a line of the loss log, and a log line.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/engine/statistics.h"
#include "worker/protocol/messages.h"
#include "worker/transport/communicator.h"

namespace weir::app {

// Tells what this rank has sent to the stages beside it since the last call. Engine thread only.
class SentSince {
 public:
  // tensors: of the last step.
  std::vector<protocol::Sent> take(const std::vector<transport::LinkReport>& links,
                                   const engine::Sent& tensors = {});

 private:
  std::array<transport::LinkCounters, 2> before_;  // backward, forward
};

protocol::StageStatus status_of(const engine::StepRecord& record, std::int64_t memory_peak,
                                std::int64_t memory_limit, std::int64_t memory_free);

// One JSON object per line: {"step", "epoch", "stage", "loss", "loss_hex", "step_seconds",
// "iteration_seconds", "in_flight_peak", "graph_launches"} and with emulated compute "lateness_us",
// "overruns". "skipped" is true if the step changed no parameter. loss is null except on the last
// stage; the hex text is exact. step_seconds lasts from the start of the first F to the end of the
// last B.
std::string loss_line(const engine::StepRecord& record, bool emulated);

// A file of such lines, each flushed. Lines are appended, so that a restarted pod keeps the
// history; a repeated step has several lines. Engine thread only.
class LossLog {
 public:
  static Result<std::unique_ptr<LossLog>> open(const std::string& path);
  void write(const engine::StepRecord& record, bool emulated);

 private:
  struct Close {
    void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
  };
  explicit LossLog(std::FILE* file) : file_(file) {}

  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace weir::app
