// SPDX-License-Identifier: Apache-2.0
// Carries out the Actions of one pass in order. What the API server refuses is remembered for the
// next pass, and the rest goes on (reconcile/refusals.h); any other error ends the pass. Each
// action is idempotent: fixed names, uid and version preconditions. From any reconcile thread;
// blocks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/cache/snapshot.h"
#include "operator/controller/job_memory.h"
#include "operator/controller/reconcile/actions.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "worker/base/clock.h"

namespace weir::controller {

struct Executed {
  std::optional<kube::ApiError> error;
  std::string failed;     // what was asked for then
  bool refused = false;   // the server has said no to something, and something may not be done
  bool again = false;     // an answer was fetched or is news: reconcile once more, at once
  bool hopeless = false;  // the namespace is going away: nothing more can be done
  std::optional<std::chrono::milliseconds> requeue;
};

class Executor {
 public:
  struct Parts {
    kube::Client& client;
    cache::Cache& cache;
    kube::EventSender& events;
    Clock& clock;
    std::function<bool()> may_write;  // the lease is fresh
    std::function<std::string()> control_url;
    std::function<std::string()> ca_bundle;  // PEM, for <job>-control
  };
  explicit Executor(Parts parts) : parts_(std::move(parts)) {}

  Executed run(const cache::JobView& view, JobMemory& memory,
               const std::vector<reconcile::Action>& actions);
  // What is to be done for the pods of a job that is gone: Kueue would keep them for ever.
  Executed let_go(const cache::JobView& view);

 private:
  using Error = std::optional<kube::ApiError>;
  struct Execution;  // state that the actions of one run() share

  Error carry_out(Execution& execution, const reconcile::PatchStatus& action);
  Error carry_out(Execution& execution, const reconcile::PatchReport& action);
  Error carry_out(Execution& execution, const reconcile::DryRunPods& action);
  Error carry_out(Execution& execution, const reconcile::ReadProfile& action);
  Error carry_out(Execution& execution, const reconcile::ReadPodWarning& action);
  Error carry_out(Execution& execution, const reconcile::ConfirmPods& action);
  Error carry_out(Execution& execution, const reconcile::CreateService& action);
  Error carry_out(Execution& execution, const reconcile::ApplyControlConfigMap& action);
  Error carry_out(Execution& execution, const reconcile::ApplyGangObject& action);
  Error carry_out(Execution& execution, const reconcile::DeleteGangObject& action);
  Error carry_out(Execution& execution, const reconcile::CreatePods& action);
  Error carry_out(Execution& execution, const reconcile::ClosePodGroup& action);
  Error carry_out(Execution& execution, const reconcile::OpenGate& action);
  Error carry_out(Execution& execution, const reconcile::DeletePod& action);
  Error carry_out(Execution& execution, const reconcile::CreatePlan& action);
  Error carry_out(Execution& execution, const reconcile::DeletePlan& action);
  Error carry_out(Execution& execution, const reconcile::EmitEvent& action);
  Error carry_out(Execution& execution, const reconcile::DeleteJob& action);
  Error carry_out(Execution& execution, const reconcile::KeepAdaptationState& action);
  Error carry_out(Execution& execution, const reconcile::RequeueAfter& action);

  Error find_gang(Execution& execution, std::string& uid, bool& foreign);
  Error create_pod(Execution& execution, const api::PodInput& input);
  Error dry_run_group(Execution& execution, const api::PodInput& input,
                      reconcile::TemplateCheck& check);
  // After 409 AlreadyExists: ours already (nothing to do), or whose it is. What an earlier job of
  // this name has left is an error that passes: the cache will show it, or that it is gone.
  Error accept_if_ours(Execution& execution, const kube::Resource& resource,
                       const std::string& name, std::string& foreign_owner);
  void remember(Execution& execution, const char* kind, const std::string& answer);

  Parts parts_;
};

}  // namespace weir::controller
