// SPDX-License-Identifier: Apache-2.0
// Sends Events of jobs, in its own thread: a slow or refusing API server never holds up a
// reconcile. Budget per job: 25 at once, then 1 each 300 s. An equal event within 6 min becomes a
// series.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "operator/api/encode.h"
#include "operator/kube/client.h"
#include "worker/base/bounded_queue.h"
#include "worker/base/clock.h"

namespace weir::kube {

class EventSender {
 public:
  EventSender(Client& client, Clock& clock, std::string instance);

  // Hears the reason of each event, for metrics. Set before the first one.
  void on_emit(std::function<void(const api::PipelineJob& job, const std::string& reason)> hook) {
    hook_ = std::move(hook);
  }
  // From any thread; dropped when 1000 are waiting.
  void emit(std::shared_ptr<const api::PipelineJob> job, const api::Event& event);
  // Sends until stop; then what is left until the deadline.
  void run(std::stop_token stop);
  void drain(SteadyTime deadline);
  // Sends one that waits, if any; for tests and drain.
  bool send_one();

 private:
  struct Waiting {
    std::shared_ptr<const api::PipelineJob> job;
    api::Event event;
  };
  struct Sent {  // the last event of its kind, for series
    std::string name;
    int count = 1;
    SteadyTime at{};
  };
  struct Budget {
    double left = 0;
    SteadyTime at{};
  };
  struct OfJob {
    std::map<std::string, Budget> budgets;  // by type: what is normal uses up no warning's
    SteadyTime at{};                        // of the newest event
    std::map<std::string, Sent> sent;       // by type, reason and note
  };
  void send(const Waiting& waiting);
  bool take(Budget& budget);
  void forget_quiet_jobs();

  Client& client_;
  Clock& clock_;
  const std::string instance_;
  BoundedQueue<Waiting> queue_;
  std::function<void(const api::PipelineJob&, const std::string&)> hook_;
  std::map<std::string, OfJob> jobs_;  // by uid; only the sending thread
  int counter_ = 0;
};

}  // namespace weir::kube
