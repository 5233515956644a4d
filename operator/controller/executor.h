// SPDX-License-Identifier: Apache-2.0
// Carries out the outcome of one pass in order. If the API server refuses a request, that is
// remembered for the next pass, and the rest is carried out (reconcile/pass/refusals.h). Any other
// error ends the pass. Each request may be repeated, because names are fixed and requests have uid
// or version as precondition. Thread-safe; blocks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/cache/snapshot.h"
#include "operator/controller/job_memory.h"
#include "operator/controller/reconcile/pass/outcome.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "worker/base/clock.h"

namespace weir::controller {

struct Executed {
  std::optional<kube::ApiError> error;
  std::string failed;     // subject of the request that failed
  bool refused = false;   // the server has refused a request, so some actions were left out
  bool again = false;     // there is a new answer, so reconcile again at once
  bool hopeless = false;  // the namespace is being deleted, so nothing can be created
  std::optional<std::chrono::milliseconds> requeue;
};

class Executor {
 public:
  struct Parts {
    kube::Client& client;
    cache::Cache& cache;
    kube::EventSender& events;
    Clock& clock;
    std::function<bool()> may_write;  // Elector::may_write
    std::function<std::string()> control_url;
    std::function<std::string()> ca_bundle;  // PEM for <job>-control
  };
  explicit Executor(Parts parts) : parts_(std::move(parts)) {}

  Executed run(const cache::JobView& view, JobMemory& memory, const reconcile::Outcome& outcome);
  // Closes the pod group of a job that does not exist any more; otherwise Kueue keeps its pods for
  // ever.
  Executed let_go(const cache::JobView& view);

 private:
  using Error = std::optional<kube::ApiError>;
  struct Execution;  // state that the requests of one run() share

  Error carry_out(Execution& execution, const reconcile::PatchStatus& request);
  Error carry_out(Execution& execution, const reconcile::PatchReport& request);
  Error carry_out(Execution& execution, const reconcile::DryRunPods& request);
  Error carry_out(Execution& execution, const reconcile::ReadProfile& request);
  Error carry_out(Execution& execution, const reconcile::ReadPodWarning& request);
  Error carry_out(Execution& execution, const reconcile::ConfirmPods& request);
  Error carry_out(Execution& execution, const reconcile::CreateService& request);
  Error carry_out(Execution& execution, const reconcile::ApplyControlConfigMap& request);
  Error carry_out(Execution& execution, const reconcile::ApplyGangObject& request);
  Error carry_out(Execution& execution, const reconcile::DeleteGangObject& request);
  Error carry_out(Execution& execution, const reconcile::CreatePods& request);
  Error carry_out(Execution& execution, const reconcile::ClosePodGroup& request);
  Error carry_out(Execution& execution, const reconcile::OpenGate& request);
  Error carry_out(Execution& execution, const reconcile::DeletePod& request);
  Error carry_out(Execution& execution, const reconcile::CreatePlan& request);
  Error carry_out(Execution& execution, const reconcile::DeletePlan& request);
  Error carry_out(Execution& execution, const reconcile::DeleteJob& request);

  Error find_gang(Execution& execution, std::string& uid, bool& foreign);
  Error create_pod(Execution& execution, const api::PodInput& input);
  Error dry_run_group(Execution& execution, const api::PodInput& input,
                      reconcile::TemplateCheck& check);
  // After 409 AlreadyExists. foreign_owner stays empty if the object is this job's; otherwise it is
  // the uid of its owner, or "nobody". An object of an earlier job of this name is an error, which
  // passes when the cache has seen the object or its deletion.
  Error accept_if_ours(Execution& execution, const kube::Resource& resource,
                       const std::string& name, std::string& foreign_owner);
  // Makes the next pass wait until the cache has seen the object in the answer.
  void remember(Execution& execution, const char* kind, const std::string& answer);

  Parts parts_;
};

}  // namespace weir::controller
