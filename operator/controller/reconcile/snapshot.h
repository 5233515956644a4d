// SPDX-License-Identifier: Apache-2.0
// Input of reconcile: everything known about one job at one moment. Immutable.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "operator/estimator/estimates.h"
#include "operator/planner/model/model.h"
#include "operator/tuner/tune.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::reconcile {

using Time = api::Time;

// What adaptation remembers between passes; lost with the leader, which is harmless (operator.md
// 1).
struct AdaptationState {
  tuner::State tuner;
  std::optional<Time> last_evaluation;
  // Outcome check of the last change: mean step time before, and where it is to be judged.
  struct Pending {
    std::uint32_t revision = 0;
    schedule::Schedule schedule, previous;
    std::vector<int> previous_micro_batches;
    std::string text;  // of the candidate, the tuner's name for it
    double before_seconds = 0, predicted_gain = 0;
    std::int64_t applied_step = -1;    // unknown until lastSwitch says Applied
    std::vector<double> rates_before;  // mean rate per link, in the order of links
  };
  std::optional<Pending> pending;
  std::int64_t last_step = -1;  // of the newest report, and when it first came: a hang shows here
  Time last_step_time{};
  std::string last_proposal;      // Observe: one event per change of mind
  std::string announced_network;  // state of the network that events have told
};

struct MembersView {
  protocol::Register body;
  Time received{};
};
struct ReportView {
  protocol::Report body;
  Time received{};
};

// Answer of the dry run of a group's first pod, for one template hash.
struct TemplateCheck {
  std::string hash;
  bool accepted = false;
  std::string reason, message;  // InvalidTemplate, TrainerContainerMissing, ...
};
// The profile ConfigMap as read for this pass (source ConfigMap).
struct ProfileView {
  std::string text, error;  // error set: missing or unreadable, with the name
};

// The object of the gang provider, as far as this leader knows.
struct GangView {
  bool known = false;  // written or deleted by this leader
  std::string object;  // JSON as it was written; "" = deleted
};

struct Snapshot {
  std::shared_ptr<const api::PipelineJob> job;
  std::vector<std::shared_ptr<const api::Pod>> pods;
  std::vector<schedule::Plan> plans;  // of this uid, by rising revision
  bool service_exists = false;
  std::string service_owner_uid;
  std::string control_ca;  // content of <job>-control as it is; "" = absent
  std::string control_url;
  std::optional<MembersView> members;  // from the control API
  std::optional<ReportView> report;
  std::vector<std::shared_ptr<const api::Node>> nodes;
  AdaptationState adaptation;
  std::optional<TemplateCheck> template_check;
  std::optional<ProfileView> profile;  // only with source ConfigMap
  GangView gang;
  std::string ca_bundle;  // what <job>-control must hold now
  Time now{};
  Time leading_since{};  // a new leader waits before it judges silence
};

struct Tunables {
  std::chrono::seconds scrape_interval{5};
  std::chrono::seconds member_silent{30}, member_lost{90}, node_lost{60};
  std::chrono::seconds restart_backoff{10}, restart_backoff_cap{600}, budget_reset{3600};
  std::chrono::seconds progress_status{15}, network_status{60};
};

}  // namespace weir::reconcile
