// SPDX-License-Identifier: Apache-2.0
// Handles requests that the API server refuses (quota, webhook, LimitRange, PodSecurity, a rule of
// validation, a lost permission). The rest of the pass is carried out, the refusal is remembered,
// the pass that follows at once shows it in status, and the request is repeated every 30 s. The
// executor, the passes and the tests' model of the server use the same functions. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "operator/controller/reconcile/pass/draft.h"
#include "operator/controller/reconcile/pass/outcome.h"
#include "operator/controller/reconcile/pass/snapshot.h"
#include "operator/controller/reconcile/pass/view.h"

namespace weir::reconcile {

// A refused request is repeated after this time, or when the spec has been edited.
constexpr std::chrono::seconds kAskedAgain{30};

// Subjects of requests. Requests with equal subject are refused together.
constexpr auto kPodsSubject = "pods";
constexpr auto kPlanSubject = "plan";
constexpr auto kStatusSubject = "status";
constexpr auto kTemplateSubject = "check of the pod templates";
constexpr auto kProfileSubject = "model.profile.configMap";
std::string subject_of(const Request& request);  // text for messages, and key

// The result of one request.
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

// How one pass reaches the outside.
struct Hands {
  std::function<Answer(const Request&)> ask;
  std::function<void(const api::Event&)> emit;
  std::function<void(const AdaptationState&)> keep;
};
// Carries out one pass. What depends on a request that is refused in this pass is left out.
// `refused` is the memory of the job's refusals. A new refusal is also an event.
Carried carry_out(const Outcome& outcome, const api::PipelineJob& job, Time now,
                  RefusedRequests& refused, const Hands& hands);

// Forgets refusals of requests that were not repeated, because they are not wanted any more.
void forget_old(RefusedRequests& refused, Time now);

// Inside of a pass.
std::string text_of(const RefusedRequest& no);
const RefusedRequest* refused(const View& view, const std::string& subject);
const RefusedRequest* refused_start(const View& view);  // for pods, or for objects that they need
// The refusal, if the request must not be repeated yet. The pass then wakes when it may be.
const RefusedRequest* held_back(const View& view, Draft& draft, const std::string& subject);
void hold_back(const View& view, Draft& draft);  // removes requests that must not be repeated yet
void show_refused(const View& view, Draft& draft);  // condition Degraded

}  // namespace weir::reconcile
