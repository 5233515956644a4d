// SPDX-License-Identifier: Apache-2.0
#include "tests/recorded/decisions.h"

#include <variant>

#include "operator/api/encode.h"
#include "worker/base/time_text.h"
#include "worker/protocol/codec.h"

namespace weir::recorded {
namespace {

// What the API server would be sent, where an action has a body.
struct Line {
  const api::PipelineJob& job;

  std::string operator()(const reconcile::PatchStatus& a) const {
    return "status " + api::encode_status(job, a.status, a.guarded);
  }
  std::string operator()(const reconcile::PatchReport& a) const {
    return "report " + api::encode_report_status(job, a.status);
  }
  std::string operator()(const reconcile::DryRunPods& a) const { return "dry run of " + a.hash; }
  std::string operator()(const reconcile::ReadProfile&) const { return "read profile"; }
  std::string operator()(const reconcile::ReadPodWarning& a) const {
    return "read warning of " + a.pod + " " + a.uid;
  }
  std::string operator()(const reconcile::ConfirmPods&) const { return "confirm pods"; }
  std::string operator()(const reconcile::CreateService&) const { return "create service"; }
  std::string operator()(const reconcile::ApplyControlConfigMap&) const { return "apply control"; }
  std::string operator()(const reconcile::ApplyGangObject& a) const {
    return "apply gang " + a.object;
  }
  std::string operator()(const reconcile::DeleteGangObject&) const { return "delete gang"; }
  std::string operator()(const reconcile::CreatePods& a) const {
    std::string lines = "create " + std::to_string(a.pods.size()) + " pods";
    for (const api::PodInput& input : a.pods) {
      const auto pod = api::encode_pod(job, input);
      lines += "\n pod " + (pod ? pod->json : pod.error().message);
    }
    return lines;
  }
  std::string operator()(const reconcile::ClosePodGroup& a) const {
    return "close group at " + a.pod + " " + a.patch;
  }
  std::string operator()(const reconcile::OpenGate& a) const {
    return "open gate of " + a.pod + " " +
           api::encode_open_gate(a.resource_version, a.hostname, a.gates_left);
  }
  std::string operator()(const reconcile::DeletePod& a) const {
    return "delete pod " + a.name + " " + a.uid + ": " + a.why;
  }
  std::string operator()(const reconcile::CreatePlan& a) const {
    return "create plan " + protocol::encode_plan(a.plan);
  }
  std::string operator()(const reconcile::DeletePlan& a) const {
    return "delete plan " + std::to_string(a.revision);
  }
  std::string operator()(const reconcile::DeleteJob&) const { return "delete job"; }
};

}  // namespace

std::string text_of(const api::PipelineJob& job, const reconcile::Outcome& outcome) {
  std::string text;
  const auto add = [&](const reconcile::Request& request) {
    text += std::visit(Line{job}, request) + "\n";
  };
  for (const reconcile::Request& request : outcome.requests) add(request);
  if (outcome.status) add(*outcome.status);
  for (const api::Event& event : outcome.events) {
    text +=
        "event " + event.type + " " + event.reason + " " + event.action + ": " + event.note + "\n";
  }
  if (outcome.report) add(*outcome.report);
  if (outcome.requeue) {
    text += "requeue after " + std::to_string(outcome.requeue->count()) + " ms\n";
  }
  return text;
}

void Decisions::listen(reconcile::test::World& world) {
  world.decided = [this](const reconcile::test::World& at, const reconcile::Outcome& outcome) {
    const std::string pass = text_of(at.job, outcome);
    if (!pass.empty()) text_ += to_rfc3339_micro(at.now) + "\n" + pass;
  };
}

}  // namespace weir::recorded
