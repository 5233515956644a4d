// SPDX-License-Identifier: Apache-2.0
#include "tests/multiproc/operated_job.h"

namespace weir::test {

std::vector<OperatedPod> operated_pods(int count) {
  std::vector<OperatedPod> pods;
  for (int i = 0; i < count; ++i) {
    pods.push_back({.name = "gpt-w-" + std::to_string(i), .uid = "uid-" + std::to_string(i)});
  }
  return pods;
}

OperatedJob::OperatedJob(const PlayedOperator& by, const std::vector<OperatedPod>& pods,
                         const std::vector<std::string>& common) {
  int port = 0;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const OperatedPod& pod = pods[i];
    std::vector<std::string> words{"--control-url=" + by.url(),
                                   "--control-dir=" + folder_.path().string(),
                                   "--job-name=gpt",
                                   "--job-namespace=demo",
                                   "--job-uid=u",
                                   "--pod=" + pod.name,
                                   "--pod-uid=" + pod.uid,
                                   "--listen=" + pod.host.address,
                                   "--workers=" + std::to_string(pods.size()),
                                   "--worker-index=" + std::to_string(i),
                                   "--control-port=0",
                                   "--data-port=0",
                                   "--metrics-port=0",
                                   "--step-report=0",
                                   "--loss-log=" + loss_log(i)};
    words.insert(words.end(), common.begin(), common.end());
    words.insert(words.end(), pod.words.begin(), pod.words.end());
    if (i > 0) {
      words.push_back("--coordinator=" + pods[0].host.address + ":" + std::to_string(port));
    }
    workers_.push_back(std::make_unique<Process>(
        words, (folder_.path() / ("errors-" + std::to_string(i))).string(), pod.host));
    if (i == 0) port = workers_[0]->logged("control_port").value_or(0);
  }
}

std::string OperatedJob::loss_log(std::size_t worker) const {
  return (folder_.path() / ("loss-" + std::to_string(worker) + ".jsonl")).string();
}

}  // namespace weir::test
