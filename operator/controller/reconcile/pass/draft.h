// SPDX-License-Identifier: Apache-2.0
// The answer of a pass while it is being made. Private to the rooms of reconcile.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "operator/api/validate.h"
#include "operator/controller/reconcile/pass/outcome.h"
#include "operator/controller/reconcile/pass/view.h"

namespace weir::reconcile {

// Decisions of a pass so far. Each part adds its own.
struct Draft {
  explicit Draft(const Snapshot& snapshot)
      : status(snapshot.job->status),
        adaptation(snapshot.adaptation),
        generation_(snapshot.job->meta.generation),
        now_(snapshot.now) {}

  api::JobStatus status;
  Outcome out;
  std::optional<Time> wake;  // earliest deadline
  bool guarded = false;      // the status patch has resourceVersion
  AdaptationState adaptation;
  std::optional<api::Refusal> refusal;  // set = Accepted=False
  std::string accepted_note;
  // An object of an earlier job of this name, which must be deleted before this job begins.
  std::string predecessor;

  void ask(Request request) { out.requests.push_back(std::move(request)); }
  void event(const std::string& type, const std::string& reason, const std::string& note,
             const std::string& action) {
    out.events.push_back({type, reason, note, action});
  }
  void wake_at(Time time) { wake = wake ? std::min(*wake, time) : time; }
  void set(const std::string& type, const std::string& value, const std::string& reason,
           const std::string& message) {
    api::set_condition(status.conditions, {type, value, reason, message, generation_, now_});
  }
  bool is(const std::string& type, const std::string& value) const {
    const auto* condition = api::find_condition(status.conditions, type);
    return condition != nullptr && condition->status == value;
  }
  bool has_reason(const std::string& type, const std::string& reason) const {
    const auto* condition = api::find_condition(status.conditions, type);
    return condition != nullptr && condition->reason == reason;
  }

 private:
  std::int64_t generation_;  // of the spec that conditions are about
  Time now_;
};

// The job is not accepted. The condition is written at the end of the pass, the event at once.
void refuse_job(const View& view, Draft& draft, const std::string& reason,
                const std::string& message);

}  // namespace weir::reconcile
