// SPDX-License-Identifier: Apache-2.0
// What the API server refuses (quota, webhook, LimitRange, PodSecurity, a rule of validation, a
// lost permission) hides nothing: the rest of the pass is carried out, the refusal is remembered,
// the pass that follows at once tells it in status, and the same request is made again every 30 s.
// Decided here for the executor, the passes and the tests' model of the server. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "operator/controller/reconcile/actions.h"
#include "operator/controller/reconcile/snapshot.h"

namespace weir::reconcile {

constexpr std::chrono::seconds kAskedAgain{30};  // after a refusal, or when the spec was edited

// Subjects of requests: one for all that a refusal of one of them concerns.
constexpr auto kPodsSubject = "pods";
constexpr auto kPlanSubject = "plan";
constexpr auto kStatusSubject = "status";
constexpr auto kTemplateSubject = "check of the pod templates";
constexpr auto kProfileSubject = "model.profile.configMap";
// What an action asks the API server for, for people and as key; "" = it asks for nothing.
std::string subject_of(const Action& action);

// How one action ended.
struct Answer {
  enum class Kind : unsigned char {
    kDone,
    kRefused,  // the server has said no, in the words of `message`
    kEnds,     // anything else: the pass ends here
  };
  Kind kind = Kind::kDone;
  std::string message;
};

struct Carried {
  bool ended = false;    // by an answer kEnds
  bool refused = false;  // something was
  bool news = false;     // the next pass, at once, has something to tell
};

// Carries out one pass: `ask` does one action. An action that stands on a refused one of this pass
// is left out. `refused` is what is remembered of the job's refusals; a new one is also an event,
// which `ask` gets as EmitEvent.
Carried carry_out(const std::vector<Action>& actions, const api::PipelineJob& job, Time now,
                  RefusedRequests& refused, const std::function<Answer(const Action&)>& ask);

// Forgets what nobody has asked for again: it is not wanted any more.
void forget_old(RefusedRequests& refused, Time now);

}  // namespace weir::reconcile
