// SPDX-License-Identifier: Apache-2.0
#include "tests/multiproc/operated_job.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "worker/protocol/messages.h"

namespace weir::test {

std::vector<OperatedPod> operated_pods(int count) {
  std::vector<OperatedPod> pods;
  for (int i = 0; i < count; ++i) {
    pods.push_back({.name = "gpt-w-" + std::to_string(i), .uid = "uid-" + std::to_string(i)});
  }
  return pods;
}

std::vector<OperatedPod> pods_with_addresses(int count) {
  std::vector<OperatedPod> pods = operated_pods(count);
  const int own = getpid();  // other tests run beside this one
  for (int i = 0; i < count; ++i) {
    pods[static_cast<std::size_t>(i)].host.address = "127." + std::to_string(64 + own / 256 % 128) +
                                                     "." + std::to_string(own % 256) + "." +
                                                     std::to_string(i + 1);
    pods[static_cast<std::size_t>(i)].words = {"--control-port=" +
                                               std::to_string(protocol::kControlPort)};
  }
  return pods;
}

OperatedJob::OperatedJob(const PlayedOperator& by, const std::vector<OperatedPod>& pods,
                         const std::vector<std::string>& common)
    : url_(by.url()), pods_(pods), common_(common), starts_(pods.size()), workers_(pods.size()) {
  for (std::size_t i = 0; i < pods.size(); ++i) start(i);
}

void OperatedJob::start(std::size_t worker) {
  const OperatedPod& pod = pods_[worker];
  ++starts_[worker];
  const std::string control = (folder_.path() / pod.name).string();
  std::filesystem::create_directories(control);
  std::ofstream(control + "/token") << pod.uid;
  std::vector<std::string> words{"--control-url=" + url_,
                                 "--control-dir=" + control,
                                 "--job-name=gpt",
                                 "--job-namespace=demo",
                                 "--job-uid=u",
                                 "--pod=" + pod.name,
                                 "--pod-uid=" + pod.uid,
                                 "--listen=" + pod.host.address,
                                 "--workers=" + std::to_string(pods_.size()),
                                 "--worker-index=" + std::to_string(worker),
                                 "--data-port=0",
                                 "--metrics-port=0",
                                 "--step-report=0",
                                 "--loss-log=" + loss_log(worker)};
  words.insert(words.end(), common_.begin(), common_.end());
  if (pod.words.empty()) words.emplace_back("--control-port=0");
  words.insert(words.end(), pod.words.begin(), pod.words.end());
  if (worker > 0) words.push_back("--coordinator=" + coordinator_);
  workers_[worker] = std::make_unique<Process>(
      words, (folder_.path() / ("errors-" + pod.name)).string(), pod.host);
  if (worker > 0 || !coordinator_.empty()) return;
  const int port = workers_[0]->logged("control_port").value_or(0);
  coordinator_ = pod.host.address + ":" + std::to_string(port);
}

void OperatedJob::restart(std::size_t worker) {
  workers_[worker].reset();
  start(worker);
}

std::string OperatedJob::loss_log(std::size_t worker) const {
  return (folder_.path() /
          ("loss-" + std::to_string(worker) + "-" + std::to_string(starts_[worker]) + ".jsonl"))
      .string();
}

}  // namespace weir::test
