// SPDX-License-Identifier: Apache-2.0
// Executor::Execution: state that the requests of one Executor::run share. Private to this room.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "operator/api/names.h"
#include "operator/controller/executor.h"

namespace weir::controller {

using api::kOwner;

struct Executor::Execution {
  const cache::JobView& view;
  const api::PipelineJob& job;
  const std::string key;
  JobMemory& memory;
  Executed result;
  std::mutex mutex;  // guards result, memory and conflicts while pods are made in parallel
  std::vector<std::string> conflicts;
};

}  // namespace weir::controller
