// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/events.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "worker/base/log.h"
#include "worker/base/time_text.h"

namespace weir::kube {
namespace {

constexpr std::size_t kQueue = 1000;
constexpr double kBurst = 25;  // crds/README.md "Events"
constexpr std::chrono::seconds kRefill{300};
constexpr std::chrono::minutes kSeries{6};  // of events.k8s.io
constexpr std::size_t kMaxJobs = 2000;      // jobs whose budgets are kept
constexpr std::chrono::seconds kPoll{1};

}  // namespace

EventSender::EventSender(Client& client, Clock& clock, std::string instance)
    : client_(client), clock_(clock), instance_(std::move(instance)), queue_(kQueue) {}

void EventSender::emit(std::shared_ptr<const api::PipelineJob> job, const api::Event& event) {
  log_info("events", event.reason,
           {{"job", job->meta.namespace_name + "/" + job->meta.name},
            {"revision", job->status.plan.revision},
            {"reason", event.reason},
            {"note", event.note}});
  if (on_emit_) on_emit_(*job, event.reason);
  if (!queue_.try_push({std::move(job), event})) {
    log_warn("events", "queue full, event dropped", {{"reason", event.reason}});
  }
}

void EventSender::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (const auto waiting = queue_.pop(std::chrono::steady_clock::now() + kPoll, stop)) {
      send(*waiting);
    }
  }
}

bool EventSender::send_one() {
  const auto waiting = queue_.try_pop();
  if (waiting) send(*waiting);
  return waiting.has_value();
}

void EventSender::drain(SteadyTime deadline) {
  while (clock_.now() < deadline && send_one()) {
  }
}

bool EventSender::take(Budget& budget) {
  const SteadyTime now = clock_.now();
  if (budget.at == SteadyTime{}) {
    budget.left = kBurst;
  } else {
    const std::chrono::duration<double> passed = now - budget.at;
    budget.left = std::min(kBurst, budget.left + passed / kRefill);
  }
  budget.at = now;
  if (budget.left < 1) return false;
  budget.left -= 1;
  return true;
}

void EventSender::forget_quiet_jobs() {
  if (jobs_.size() <= kMaxJobs) return;
  const auto oldest =
      std::ranges::min_element(jobs_, {}, [](const auto& entry) { return entry.second.at; });
  jobs_.erase(oldest);
}

void EventSender::send(const Waiting& waiting) {
  const api::PipelineJob& job = *waiting.job;
  OfJob& known = jobs_[job.meta.uid];
  known.at = clock_.now();
  const std::string reason = waiting.event.type + "\n" + waiting.event.reason;
  const auto told = known.told.find(reason);
  const bool rare = told == known.told.end() || known.at - told->second >= kRefill;
  if (!take(known.budgets[waiting.event.type]) && !rare) {
    log_debug("events", "over the job's budget", {{"reason", waiting.event.reason}});
    return;
  }
  known.told[reason] = known.at;
  std::erase_if(known.sent, [now = clock_.now()](const auto& entry) {
    return now - entry.second.at > kSeries;
  });
  const std::string kind = reason + "\n" + waiting.event.note;
  if (const auto same = known.sent.find(kind); same != known.sent.end()) {
    same->second.count += 1;
    same->second.at = clock_.now();
    const std::string patch = R"({"series":{"count":)" + std::to_string(same->second.count) +
                              R"(,"lastObservedTime":")" + to_rfc3339_micro(clock_.system_now()) +
                              R"("}})";
    const auto answer =
        client_.merge_patch(events(), job.meta.namespace_name, same->second.name, patch);
    if (answer) return;
    known.sent.erase(same);  // the server has deleted the old event, so a new one is created
  }
  char suffix[40];
  std::snprintf(suffix, sizeof suffix, ".%llx%02x",
                static_cast<unsigned long long>(clock_.system_now().time_since_epoch() /
                                                std::chrono::nanoseconds(1)),
                static_cast<unsigned>(counter_++ & 0xFF));
  const std::string name = job.meta.name + suffix;
  const auto answer =
      client_.create(events(), job.meta.namespace_name,
                     api::encode_event(job, waiting.event, name, instance_, clock_.system_now()));
  if (answer) {
    known.sent[kind] = {name, 1, clock_.now()};
  } else {
    log_warn("events", "not sent",
             {{"reason", waiting.event.reason}, {"error", answer.error().message}});
  }
  forget_quiet_jobs();
}

}  // namespace weir::kube
