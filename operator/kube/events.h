// SPDX-License-Identifier: Apache-2.0
// Sends Events of jobs in its own thread, so that a slow or failing API server never delays a
// reconcile. Each job and event type may send 25 at once, then one each 300 s. An equal event
// within 6 min becomes a series.
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

  // For metrics: called for each event. Set it before the first one.
  void on_emit(
      std::function<void(const api::PipelineJob& job, const std::string& reason)> callback) {
    on_emit_ = std::move(callback);
  }
  // Thread-safe. The event is dropped if 1000 are waiting.
  void emit(std::shared_ptr<const api::PipelineJob> job, const api::Event& event);
  // Sends events until stop.
  void run(std::stop_token stop);
  // Sends the waiting events until the deadline. Call it after run() has returned.
  void drain(SteadyTime deadline);
  // Sends one waiting event; false = none waits. For tests and drain.
  bool send_one();

 private:
  struct Waiting {
    std::shared_ptr<const api::PipelineJob> job;
    api::Event event;
  };
  struct Sent {  // the last event of its kind, which a series continues
    std::string name;
    int count = 1;
    SteadyTime at{};
  };
  struct Budget {
    double left = 0;
    SteadyTime at{};
  };
  struct OfJob {
    std::map<std::string, Budget> budgets;  // by type: Normal events do not use up that of warnings
    SteadyTime at{};                        // time of the newest event
    std::map<std::string, Sent> sent;       // by type, reason and note
    // By type and reason. One that was not told of late needs no budget, so that what happens often
    // does not hide what happens once.
    std::map<std::string, SteadyTime> told;
  };
  void send(const Waiting& waiting);
  bool take(Budget& budget);
  void forget_quiet_jobs();

  Client& client_;
  Clock& clock_;
  const std::string instance_;
  BoundedQueue<Waiting> queue_;
  std::function<void(const api::PipelineJob&, const std::string&)> on_emit_;
  std::map<std::string, OfJob> jobs_;  // by uid; only the sending thread uses it
  int counter_ = 0;
};

}  // namespace weir::kube
