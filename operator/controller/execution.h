// SPDX-License-Identifier: Apache-2.0
// What one Executor::run shares between its actions. Private to this room.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "operator/controller/executor.h"

namespace weir::controller {

constexpr auto kOwner = "weir-operator";  // field manager of what is ours

struct Executor::Pass {
  const cache::JobView& view;
  const api::PipelineJob& job;
  const std::string key;
  JobMemory& memory;
  Executed result;
  std::mutex mutex;  // guards conflicts while pods are made in parallel
  std::vector<std::string> conflicts;
};

}  // namespace weir::controller
