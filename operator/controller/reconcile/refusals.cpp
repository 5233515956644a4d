// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/reconcile/refusals.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

constexpr auto kServiceSubject = "Service";
constexpr auto kControlSubject = "ConfigMap for the workers";
constexpr auto kGangSubject = "PodGroup";
constexpr auto kReportSubject = "status report";
// Without these objects a pod could not start, but would hold resources that others need.
constexpr std::array<std::string_view, 3> kNeededByPods = {kServiceSubject, kControlSubject,
                                                           kGangSubject};
constexpr std::array kReasons = {"QuotaExceeded", "CreateRefused", "PatchRefused", "DeleteRefused"};
constexpr std::chrono::seconds kForgotten = 2 * kAskedAgain;

bool needed_by_pods(const std::string& subject) {
  return std::ranges::find(kNeededByPods, subject) != kNeededByPods.end();
}

// Whether the later action depends on the refused request.
bool depends_on(const Action& later, const std::string& subject) {
  if (std::holds_alternative<CreatePods>(later)) return needed_by_pods(subject);
  // The status names the plan, events and the memory of adaptation are about it, and older plans
  // are deleted because of it.
  if (subject != kPlanSubject) return false;
  return std::holds_alternative<PatchStatus>(later) || std::holds_alternative<EmitEvent>(later) ||
         std::holds_alternative<KeepAdaptationState>(later) ||
         std::holds_alternative<DeletePlan>(later);
}

const char* reason_of(const Action& action, const std::string& message) {
  if (message.find("exceeded quota") != std::string::npos) return "QuotaExceeded";
  if (std::holds_alternative<PatchStatus>(action) || std::holds_alternative<PatchReport>(action) ||
      std::holds_alternative<OpenGate>(action) || std::holds_alternative<ClosePodGroup>(action)) {
    return "PatchRefused";
  }
  if (std::holds_alternative<DeletePod>(action) || std::holds_alternative<DeletePlan>(action) ||
      std::holds_alternative<DeleteJob>(action) ||
      std::holds_alternative<DeleteGangObject>(action)) {
    return "DeleteRefused";
  }
  return "CreateRefused";
}

RefusedRequest* find(RefusedRequests& refused, const std::string& subject) {
  const auto found = std::ranges::find(refused, subject, &RefusedRequest::subject);
  return found == refused.end() ? nullptr : &*found;
}

// Remembers a refusal. True if the subject was not refused before, so that an event reports it.
bool note(RefusedRequests& refused, RefusedRequest no, Carried& carried) {
  RefusedRequest* before = find(refused, no.subject);
  carried.refused = true;
  carried.news = carried.news || before == nullptr || before->message != no.message;
  if (before != nullptr) {
    *before = std::move(no);
    return false;
  }
  refused.push_back(std::move(no));
  return true;
}

bool due(const Pass& pass, const RefusedRequest& no) {
  return pass.now() >= no.last + kAskedAgain || pass.now() < no.last ||
         no.generation != pass.job().meta.generation;
}

}  // namespace

std::string text_of(const RefusedRequest& no) {
  return no.subject + " refused: " + no.message;
}

std::string subject_of(const Action& action) {
  struct Visitor {
    std::string operator()(const PatchStatus&) const { return kStatusSubject; }
    std::string operator()(const PatchReport&) const { return kReportSubject; }
    std::string operator()(const DryRunPods&) const { return kTemplateSubject; }
    std::string operator()(const ReadProfile&) const { return kProfileSubject; }
    std::string operator()(const ReadPodWarning&) const { return "warnings of a pod"; }
    std::string operator()(const ConfirmPods&) const { return "list of the pods"; }
    std::string operator()(const CreateService&) const { return kServiceSubject; }
    std::string operator()(const ApplyControlConfigMap&) const { return kControlSubject; }
    std::string operator()(const ApplyGangObject&) const { return kGangSubject; }
    std::string operator()(const DeleteGangObject&) const { return "deletion of the PodGroup"; }
    std::string operator()(const CreatePods&) const { return kPodsSubject; }
    std::string operator()(const ClosePodGroup& a) const { return "end of the group of " + a.pod; }
    std::string operator()(const OpenGate& a) const { return "gate of pod " + a.pod; }
    std::string operator()(const DeletePod& a) const { return "deletion of pod " + a.name; }
    std::string operator()(const CreatePlan&) const { return kPlanSubject; }
    std::string operator()(const DeletePlan& a) const {
      return "deletion of plan " + std::to_string(a.revision);
    }
    std::string operator()(const EmitEvent&) const { return ""; }
    std::string operator()(const DeleteJob&) const { return "deletion of the job"; }
    std::string operator()(const KeepAdaptationState&) const { return ""; }
    std::string operator()(const RequeueAfter&) const { return ""; }
  };
  return std::visit(Visitor{}, action);
}

Carried carry_out(const std::vector<Action>& actions, const api::PipelineJob& job, Time now,
                  RefusedRequests& refused, const std::function<Answer(const Action&)>& ask) {
  Carried carried;
  std::vector<std::string> missing;  // refused in this pass
  for (const Action& action : actions) {
    if (std::ranges::any_of(missing, [&](const auto& each) { return depends_on(action, each); }))
      continue;
    const std::string subject = subject_of(action);
    Answer answer = ask(action);
    if (answer.kind == Answer::Kind::kEnds) {
      carried.ended = true;
      return carried;
    }
    if (answer.kind == Answer::Kind::kDone) {
      const auto accepted = std::erase_if(
          refused, [&](const auto& no) { return !subject.empty() && no.subject == subject; });
      carried.news = carried.news || accepted > 0;
      continue;
    }
    missing.push_back(subject);
    const std::string reason = reason_of(action, answer.message);
    const RefusedRequest no{subject, reason, std::move(answer.message), now, job.meta.generation};
    if (note(refused, no, carried)) ask(EmitEvent{{"Warning", reason, text_of(no), "Request"}});
  }
  return carried;
}

void forget_old(RefusedRequests& refused, Time now) {
  std::erase_if(refused, [&](const auto& no) { return now >= no.last + kForgotten; });
}

const RefusedRequest* refused(const Pass& pass, const std::string& subject) {
  const auto& all = pass.snapshot.refused;
  const auto found = std::ranges::find(all, subject, &RefusedRequest::subject);
  return found == all.end() ? nullptr : &*found;
}

const RefusedRequest* refused_start(const Pass& pass) {
  const auto& all = pass.snapshot.refused;
  const auto found = std::ranges::find_if(
      all, [](const auto& no) { return no.subject == kPodsSubject || needed_by_pods(no.subject); });
  return found == all.end() ? nullptr : &*found;
}

const RefusedRequest* held_back(Pass& pass, const std::string& subject) {
  const RefusedRequest* no = refused(pass, subject);
  if (no == nullptr || due(pass, *no)) return nullptr;
  pass.wake_at(no->last + kAskedAgain);
  return no;
}

void hold_back(Pass& pass) {
  if (pass.snapshot.refused.empty()) return;
  std::vector<std::string> held;
  std::erase_if(pass.actions, [&](const Action& action) {
    const std::string subject = subject_of(action);
    const bool waits =
        held_back(pass, subject) != nullptr ||
        std::ranges::any_of(held, [&](const auto& each) { return depends_on(action, each); });
    if (waits) held.push_back(subject);
    return waits;
  });
  // Events about a status that is not written wait for it.
  if (std::ranges::find(held, kStatusSubject) != held.end()) {
    std::erase_if(pass.actions,
                  [](const Action& action) { return std::holds_alternative<EmitEvent>(action); });
  }
}

void view_refused(Pass& pass) {
  const RefusedRequest* shown = nullptr;
  std::string text;
  const bool over =
      pass.is("Complete", "True") || pass.is("Failed", "True");  // refusals do not matter any more
  for (const auto& no : pass.snapshot.refused) {
    if (over) break;
    pass.wake_at(no.last + kForgotten);  // a request that is not repeated is forgotten then
    if (no.subject == kStatusSubject) continue;
    if (shown == nullptr) shown = &no;
    text += (text.empty() ? "" : "; ") + text_of(no);
  }
  const auto* before = api::find_condition(pass.job().status.conditions, "Degraded");
  if (shown != nullptr) {
    pass.set("Degraded", "True", shown->reason, text);
    if (before == nullptr || before->status != "True") return;
    for (api::Condition& condition : pass.status.conditions) {
      if (condition.type == "Degraded") condition.since = before->since;
    }
    return;
  }
  const auto* now = api::find_condition(pass.status.conditions, "Degraded");
  if (now != nullptr && std::ranges::find(kReasons, now->reason) != kReasons.end())
    pass.set("Degraded", "False", "AsPlanned", "");
}

}  // namespace weir::reconcile
