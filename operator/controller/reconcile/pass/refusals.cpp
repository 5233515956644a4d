// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/reconcile/pass/refusals.h"

#include <algorithm>
#include <array>
#include <string_view>

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

// Whether the later request depends on the refused one.
bool depends_on(const Request& later, const std::string& subject) {
  if (std::holds_alternative<CreatePods>(later)) return needed_by_pods(subject);
  // The status names the plan, and older plans are deleted because of it. Events and the memory of
  // adaptation are about it, too.
  if (subject != kPlanSubject) return false;
  return std::holds_alternative<PatchStatus>(later) || std::holds_alternative<DeletePlan>(later);
}

bool has(const std::vector<std::string>& subjects, std::string_view subject) {
  return std::ranges::find(subjects, subject) != subjects.end();
}

const char* reason_of(const Request& request, const std::string& message) {
  if (message.find("exceeded quota") != std::string::npos) return "QuotaExceeded";
  if (std::holds_alternative<PatchStatus>(request) ||
      std::holds_alternative<PatchReport>(request) || std::holds_alternative<OpenGate>(request) ||
      std::holds_alternative<ClosePodGroup>(request)) {
    return "PatchRefused";
  }
  if (std::holds_alternative<DeletePod>(request) || std::holds_alternative<DeletePlan>(request) ||
      std::holds_alternative<DeleteJob>(request) ||
      std::holds_alternative<DeleteGangObject>(request)) {
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

bool due(const View& view, const RefusedRequest& no) {
  return view.now() >= no.last + kAskedAgain || view.now() < no.last ||
         no.generation != view.job().meta.generation;
}

}  // namespace

std::string text_of(const RefusedRequest& no) {
  return no.subject + " refused: " + no.message;
}

std::string subject_of(const Request& request) {
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
    std::string operator()(const DeleteJob&) const { return "deletion of the job"; }
  };
  return std::visit(Visitor{}, request);
}

namespace {

// One pass on its way.
struct Carrying {
  const api::PipelineJob& job;
  Time now;
  RefusedRequests& refused;
  const Hands& hands;
  Carried carried = {};
  std::vector<std::string> missing = {};  // subjects refused in this pass

  void ask(const Request& request) {
    const auto depends = [&](const auto& each) { return depends_on(request, each); };
    if (carried.ended || std::ranges::any_of(missing, depends)) return;
    const std::string subject = subject_of(request);
    Answer answer = hands.ask(request);
    if (answer.kind == Answer::Kind::kEnds) {
      carried.ended = true;
      return;
    }
    if (answer.kind == Answer::Kind::kDone) {
      const auto accepted =
          std::erase_if(refused, [&](const auto& no) { return no.subject == subject; });
      carried.news = carried.news || accepted > 0;
      return;
    }
    missing.push_back(subject);
    const std::string reason = reason_of(request, answer.message);
    const RefusedRequest no{subject, reason, std::move(answer.message), now, job.meta.generation};
    if (note(refused, no, carried)) hands.emit({"Warning", reason, text_of(no), "Request"});
  }
};

}  // namespace

Carried carry_out(const Outcome& outcome, const api::PipelineJob& job, Time now,
                  RefusedRequests& refused, const Hands& hands) {
  Carrying carrying{job, now, refused, hands};
  for (const Request& request : outcome.requests) carrying.ask(request);
  if (outcome.status) carrying.ask(*outcome.status);
  const auto left_out = [&] {  // events and memory are about the plan
    return carrying.carried.ended || has(carrying.missing, kPlanSubject);
  };
  if (!left_out()) std::ranges::for_each(outcome.events, hands.emit);
  if (outcome.report) carrying.ask(*outcome.report);
  if (outcome.memory && !left_out()) hands.keep(*outcome.memory);
  return carrying.carried;
}

void forget_old(RefusedRequests& refused, Time now) {
  std::erase_if(refused, [&](const auto& no) { return now >= no.last + kForgotten; });
}

const RefusedRequest* refused(const View& view, const std::string& subject) {
  const auto& all = view.snapshot.refused;
  const auto found = std::ranges::find(all, subject, &RefusedRequest::subject);
  return found == all.end() ? nullptr : &*found;
}

const RefusedRequest* refused_start(const View& view) {
  const auto& all = view.snapshot.refused;
  const auto found = std::ranges::find_if(
      all, [](const auto& no) { return no.subject == kPodsSubject || needed_by_pods(no.subject); });
  return found == all.end() ? nullptr : &*found;
}

const RefusedRequest* held_back(const View& view, Draft& draft, const std::string& subject) {
  const RefusedRequest* no = refused(view, subject);
  if (no == nullptr || due(view, *no)) return nullptr;
  draft.wake_at(no->last + kAskedAgain);
  return no;
}

void hold_back(const View& view, Draft& draft) {
  if (view.snapshot.refused.empty()) return;
  std::vector<std::string> held;
  const auto waits = [&](const Request& request) {
    const std::string subject = subject_of(request);
    const bool wait =
        held_back(view, draft, subject) != nullptr ||
        std::ranges::any_of(held, [&](const auto& each) { return depends_on(request, each); });
    if (wait) held.push_back(subject);
    return wait;
  };
  Outcome& out = draft.out;
  std::erase_if(out.requests, waits);
  if (out.status && waits(*out.status)) out.status.reset();
  // Events about a plan or a status that is not written wait for it.
  if (has(held, kPlanSubject) || has(held, kStatusSubject)) out.events.clear();
  if (has(held, kPlanSubject)) out.memory.reset();
  if (out.report && waits(*out.report)) out.report.reset();
}

void show_refused(const View& view, Draft& draft) {
  const RefusedRequest* shown = nullptr;
  std::string text;
  const bool over = draft.is("Complete", "True") ||
                    draft.is("Failed", "True");  // refusals do not matter any more
  for (const auto& no : view.snapshot.refused) {
    if (over) break;
    draft.wake_at(no.last + kForgotten);  // a request that is not repeated is forgotten then
    if (no.subject == kStatusSubject) continue;
    if (shown == nullptr) shown = &no;
    text += (text.empty() ? "" : "; ") + text_of(no);
  }
  const auto* before = api::find_condition(view.job().status.conditions, "Degraded");
  if (shown != nullptr) {
    draft.set("Degraded", "True", shown->reason, text);
    if (before == nullptr || before->status != "True") return;
    for (api::Condition& condition : draft.status.conditions) {
      if (condition.type == "Degraded") condition.since = before->since;
    }
    return;
  }
  const auto* now = api::find_condition(draft.status.conditions, "Degraded");
  if (now != nullptr && std::ranges::find(kReasons, now->reason) != kReasons.end())
    draft.set("Degraded", "False", "AsPlanned", "");
}

}  // namespace weir::reconcile
