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

class OperatedJob {
 public:
  // Job demo/gpt with the uid "u". common: arguments of every worker.
  OperatedJob(const PlayedOperator& by, const std::vector<OperatedPod>& pods,
              const std::vector<std::string>& common);

  std::string errors() const { return workers_[0]->errors(); }
  const Process& worker(std::size_t index) const { return *workers_[index]; }
  std::string loss_log(std::size_t worker) const;

 private:
  TempDir folder_;
  std::vector<std::unique_ptr<Process>> workers_;
};

}  // namespace weir::test
