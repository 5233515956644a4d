// SPDX-License-Identifier: Apache-2.0
// Handles requests that the API server refuses (quota, webhook, LimitRange, PodSecurity, a rule of
// validation, a lost permission). The rest of the pass is carried out, the refusal is remembered,
// the pass that follows at once shows it in status, and the request is repeated every 30 s. The
// executor, the passes and the tests' model of the server use the same functions. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "operator/controller/reconcile/actions.h"
#include "operator/controller/reconcile/snapshot.h"

namespace weir::reconcile {

// A refused request is repeated after this time, or when the spec has been edited.
constexpr std::chrono::seconds kAskedAgain{30};

// Subjects of requests. Requests with equal subject are refused together.
constexpr auto kPodsSubject = "pods";
constexpr auto kPlanSubject = "plan";
constexpr auto kStatusSubject = "status";
constexpr auto kTemplateSubject = "check of the pod templates";
constexpr auto kProfileSubject = "model.profile.configMap";
// Subject of an action's request, as text for messages and as key; "" = it makes no request.
std::string subject_of(const Action& action);

// The result of one action.
struct Answer {
  enum class Kind : unsigned char {
    kDone,
    kRefused,  // the server has refused it; `message` has the server's words
    kEnds,     // another error, which ends the pass
  };
  Kind kind = Kind::kDone;
  std::string message;
};

struct Carried {
  bool ended = false;    // the pass ended early
  bool refused = false;  // a request was refused
  bool news = false;     // the refusals have changed, so the next pass follows at once
};

// Carries out one pass; `ask` carries out one action. Actions that depend on a request refused in
// this pass are left out. `refused` is the memory of the job's refusals. A new refusal is also an
// event, which `ask` gets as EmitEvent.
Carried carry_out(const std::vector<Action>& actions, const api::PipelineJob& job, Time now,
                  RefusedRequests& refused, const std::function<Answer(const Action&)>& ask);

// Forgets refusals of requests that were not repeated, because they are not wanted any more.
void forget_old(RefusedRequests& refused, Time now);

}  // namespace weir::reconcile
