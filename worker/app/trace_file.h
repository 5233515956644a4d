// SPDX-License-Identifier: Apache-2.0
// --trace-file and --trace-steps: what this rank did in some steps, as octets that `kubectl weir
// trace --from` makes a trace of. Written once, by the engine thread.
#pragma once

#include <cstdint>
#include <string>

#include "worker/app/recorded_steps.h"
#include "worker/base/result.h"
#include "worker/engine/engine.h"

namespace weir::app {

// Completed steps, counted from 1.
struct TraceSteps {
  std::int64_t first = 1, last = 0;
};
// A-B. kInvalid: not two whole numbers from 1 on, the second one smaller, or too many steps.
Result<TraceSteps> parse_trace_steps(const std::string& text);

class TraceFile {
 public:
  TraceFile(std::string path, TraceSteps steps, RecordNames names)
      : path_(std::move(path)), steps_(steps), names_(std::move(names)) {}

  // After a step. Writes when the step behind the last wanted one is done: acknowledgements of the
  // last tensors come in it.
  void step_done(std::int64_t step, const engine::Engine& engine, const Clock& clock);
  // At the end of training: writes unless that has been done. Without any of the steps it warns.
  void write(const engine::Engine& engine, const Clock& clock);

 private:
  const std::string path_;
  const TraceSteps steps_;
  const RecordNames names_;
  bool written_ = false;
};

}  // namespace weir::app
