// SPDX-License-Identifier: Apache-2.0
// Workers of a job that a played operator plans.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/multiproc/played_operator.h"
#include "tests/multiproc/workers.h"
#include "tests/support/temp_dir.h"

namespace weir::test {

struct OperatedPod {
  std::string name, uid;
  Host host = {};
  std::vector<std::string> words = {};  // arguments of this worker, besides
};
// Pods gpt-w-0, gpt-w-1, ... on the loopback.
std::vector<OperatedPod> operated_pods(int count);
// The same with addresses of their own, so that each can have the usual control port.
std::vector<OperatedPod> pods_with_addresses(int count);

class OperatedJob {
 public:
  // Job demo/gpt with the uid "u". common: arguments of every worker.
  OperatedJob(const PlayedOperator& by, const std::vector<OperatedPod>& pods,
              const std::vector<std::string>& common);

  std::string errors(std::size_t worker = 0) const { return workers_[worker]->errors(); }
  const Process& worker(std::size_t index) const { return *workers_[index]; }
  Process& worker(std::size_t index) { return *workers_[index]; }
  std::string loss_log(std::size_t worker) const;  // of its newest process
  // As a container that restarts in its pod.
  void restart(std::size_t worker);

 private:
  void start(std::size_t worker);

  const std::string url_;
  const std::vector<OperatedPod> pods_;
  const std::vector<std::string> common_;
  TempDir folder_;
  std::string coordinator_;  // address of worker 0's
  std::vector<int> starts_;  // by worker
  std::vector<std::unique_ptr<Process>> workers_;
};

}  // namespace weir::test
