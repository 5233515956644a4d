// SPDX-License-Identifier: Apache-2.0
// Input of reconcile: everything known about one job at one moment. Immutable.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "operator/estimator/estimates.h"
#include "operator/groups/policy.h"
#include "operator/planner/model/model.h"
#include "operator/planner/plan.h"
#include "operator/tuner/gate.h"
#include "operator/tuner/tune.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::reconcile {

using Time = api::Time;

// What a link between two nodes carried when it was last measured (node_bandwidth.h).
struct SeenLink {
  std::string from, to;
  double rate = 0, usual = 0;  // bytes per second; usual: its baseline, or the probe at the start
  Time time{};
};

// A rank map or cut that could be had (tiers.h).
struct RepartitionProposal {
  schedule::Plan plan;
  tuner::Offer offer;
  std::int64_t moved_bytes = 0;
  double move_seconds = 0;  // predicted, of the transfer
  std::string what;         // "4->3 stages, node n2 idle"
};

// Tiers regroup and replace between passes.
struct TierMemory {
  tuner::TierState regroup, replace;
  struct Pending {
    schedule::Trigger tier = schedule::Trigger::kRegroup;
    std::uint32_t revision = 0;  // 0: the plan after a replacement is not made yet
    std::uint32_t after = 0;     // it is later than this one
    std::optional<schedule::Plan> previous;
    std::string offer, what;
    double before_seconds = 0, predicted_gain = 0, move_seconds = 0;
    std::int64_t applied_step = -1;  // unknown until lastSwitch says Applied
    std::vector<SeenLink> links_before;
    bool is_retry = false;  // retries the previous cut
  };
  // The plan from which a repartition has led to the one in force (previous_cut.cpp).
  struct PreviousCut {
    schedule::Plan plan;
    std::vector<SeenLink> links;      // links between its nodes; only their usual rates count
    double slower_seconds = 0;        // per step, against the new plan when it began; < 0 = unknown
    double lost_seconds = 0;          // after that or the last retry, if its links are free
    double retry_budget_seconds = 0;  // a retry begins when lost_seconds reaches it
    std::int64_t step = 0;            // lost_seconds is summed up to this step
    bool in_force = true;             // false: it was planned for free links and never in force
  };
  std::optional<PreviousCut> previous_cut;
  std::optional<Time> sought_previous_cut;  // when one was last looked for, with these members
  std::optional<Pending> pending;
  std::optional<RepartitionProposal> proposal;  // costed last, for the plan of that revision
  std::uint32_t proposal_revision = 0;
  std::int64_t searches = 0;  // how often the planner was asked for one
  std::vector<SeenLink> seen;
  double pause_seconds = -1;  // of the last move, without its transfer; < 0: none measured
  std::string last_proposal;  // Observe: one event per change of mind of these tiers
};

// The memory of adaptation between passes; lost with the leader, which is harmless
// (operator/README.md "Where state lives").
struct AdaptationState {
  tuner::State tuner;
  std::optional<Time> last_evaluation;
  // Outcome check of the last change: mean step time before, and where it is to be judged.
  struct Pending {
    std::uint32_t revision = 0;
    schedule::Schedule schedule, previous;
    std::vector<int> previous_micro_batches;
    std::optional<schedule::SyncPolicy> previous_sync;  // set when the policy was changed
    std::string text;                                   // of the candidate, the tuner's name for it
    double before_seconds = 0, predicted_gain = 0;
    std::int64_t applied_step = -1;    // unknown until lastSwitch says Applied
    std::vector<double> rates_before;  // mean rate per link, in the order of links
  };
  std::optional<Pending> pending;
  // A rollback, until its plan is in force or was refused too often (rollback.cpp).
  struct Rollback {
    schedule::Plan plan;
    schedule::Trigger trigger = schedule::Trigger::kRetune;
    std::uint32_t revision = 0;  // of the newest request
    int tries = 0;
    std::int64_t refused_step = -1;  // step at which that request was refused; < 0 = it was not
  };
  std::optional<Rollback> rollback;
  bool queued = false;          // the job waited for its queue when it was last looked at
  std::optional<Time> let_in;   // when it was first seen to wait no more
  std::int64_t last_step = -1;  // of the newest report, and when it first came: a hang shows here
  Time last_step_time{};
  // Newest steps of the plan of that revision, as passes saw them reported; oldest first.
  struct SeenStep {
    std::int64_t step = 0;
    double seconds = 0;
    Time seen{};
  };
  std::vector<SeenStep> seen_steps;
  std::uint32_t seen_steps_revision = 0;
  // lastSwitch said Aborted of that plan, when the one before had done so many steps.
  std::uint32_t aborted_revision = 0;
  std::int64_t aborted_step = 0;
  std::string last_proposal;  // Observe: one event per change of mind, of retune
  std::string last_share_proposal;
  group_policy::State sync;
  TierMemory tiers;
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

// A request that the API server has refused, until it accepts it (refusals.h).
struct RefusedRequest {
  std::string subject;          // what was asked for: "pods", "Service", "status", ...
  std::string reason;           // for conditions: QuotaExceeded, CreateRefused, PatchRefused, ...
  std::string message;          // in the server's words
  Time last{};                  // when it was refused last
  std::int64_t generation = 0;  // of the job then
};
using RefusedRequests = std::vector<RefusedRequest>;

// Work that an earlier pass of this job did and this one need not do again. No decision depends on
// what is in it: without it, or after it was lost, the same comes out later. Written by reconcile;
// one pass at a time.
struct Memo {
  planner::PlanCache plans;             // ideals and orders, per model and micro-batch size
  std::string profile;                  // text of `model`
  std::optional<planner::Model> model;  // decoded
};

// The object of the gang provider, as far as this leader knows.
struct GangView {
  bool known = false;  // written or deleted by this leader
  std::string object;  // JSON as it was written; "" = deleted
  // As the API server has it; null means that there is none only if it is watched.
  bool watched = false;
  std::shared_ptr<const api::PodGroup> seen;
};

// An object of an earlier job of the same name. The new job does not begin beside it.
struct Leftover {
  std::string what;    // "Pod x-gpu-0"
  bool owned = false;  // by that job, which is gone: the object goes, too. False: it stays
};

// The newest event of a pod, if it is a warning.
struct PodWarning {
  std::string text;  // "FailedMount: ..."; "": it is none
  Time asked{};
};

struct Snapshot {
  std::shared_ptr<const api::PipelineJob> job;
  std::vector<std::shared_ptr<const api::Pod>> pods;
  // They hold all that the API server had then; what it has said since, a watch that is broken or
  // stands still may keep back.
  std::optional<Time> pods_confirmed;
  std::vector<schedule::Plan> plans;  // of this uid, by rising revision
  std::vector<Leftover> leftovers;
  std::set<std::string> taken_names;               // of pods that others have in the namespace
  std::map<std::string, PodWarning> pod_warnings;  // by uid, of pods that were asked for
  bool service_exists = false;
  std::string service_owner_uid;
  std::string control_ca, written_url;  // content of <job>-control as it is; "" = absent
  std::string control_url;
  std::optional<MembersView> members;  // from the control API
  std::optional<ReportView> report;
  std::shared_ptr<const api::NodeTable> nodes = std::make_shared<const api::NodeTable>();
  AdaptationState adaptation;
  std::optional<TemplateCheck> template_check;
  std::optional<ProfileView> profile;  // only with source ConfigMap
  RefusedRequests refused;
  GangView gang;
  std::string ca_bundle;  // what <job>-control must hold now
  Time now{};
  Time leading_since{};                // a new leader waits before it judges silence
  Memo* memo = nullptr;                // null: nothing is kept
  std::optional<Time> status_written;  // by this leader; nothing: not yet
  int jobs = 1;                        // that this operator looks after
};

struct Tunables {
  std::chrono::seconds scrape_interval{2};
  std::chrono::seconds member_silent{30}, member_lost{90}, node_lost{60};
  std::chrono::seconds restart_backoff{10}, restart_backoff_cap{600}, budget_reset{3600};
  std::chrono::seconds progress_status{15}, network_status{60}, start_status{2};
};

}  // namespace weir::reconcile
