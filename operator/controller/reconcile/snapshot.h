// SPDX-License-Identifier: Apache-2.0
// Input of reconcile: all facts about one job at one moment. Immutable.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/adaptation/gate/gate.h"
#include "operator/adaptation/retune/tune.h"
#include "operator/adaptation/shares/policy.h"
#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "operator/estimator/estimates.h"
#include "operator/facts/facts.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::reconcile {

using Time = api::Time;

// A new rank map or cut that tier regroup could make (tiers.h).
struct RepartitionProposal {
  schedule::Plan plan;
  gate::Offer offer;
  std::int64_t moved_bytes = 0;
  double move_seconds = 0;  // predicted time of the transfer
  std::string what;         // e.g. "4->3 stages, node n2 idle"
};

// Memory of tiers regroup and replace between passes.
struct TierMemory {
  gate::Clock regroup_clock, replace_clock;
  gate::Record repartition, replace;
  // A change that is not judged yet.
  struct Pending {
    schedule::Trigger tier = schedule::Trigger::kRegroup;
    std::uint32_t revision = 0;  // 0 = the plan after a replacement does not exist yet
    std::uint32_t after = 0;     // that plan's revision will be higher than this one
    std::optional<schedule::Plan> previous;
    std::string offer, what;
    double before_seconds = 0, predicted_gain = 0, move_seconds = 0;
    std::int64_t applied_step = -1;  // -1 = lastSwitch has not said Applied yet
    std::vector<facts::RememberedLink> links_before;
    bool is_retry = false;  // retries the previous cut
  };
  // The plan from which a repartition has led to the one in force (previous_cut.cpp).
  struct PreviousCut {
    schedule::Plan plan;
    std::vector<facts::RememberedLink>
        links;                        // links between its nodes; only their usual rates count
    double slower_seconds = 0;        // per step, against the new plan when it began; < 0 = unknown
    double lost_seconds = 0;          // after that or the last retry, if its links are free
    double retry_budget_seconds = 0;  // a retry begins when lost_seconds reaches it
    std::int64_t step = 0;            // lost_seconds is summed up to this step
    bool in_force = true;             // false: it was planned for free links and never in force
  };
  std::optional<PreviousCut> previous_cut;
  std::optional<Time> sought_previous_cut;  // when one was last looked for, with these members
  std::optional<Pending> pending;
  std::optional<RepartitionProposal> proposal;  // costed last
  std::uint32_t proposal_revision = 0;          // of the plan in force then
  std::int64_t searches = 0;                    // number of searches for a proposal
  double pause_seconds = -1;  // of the last move, without its transfer; < 0 = none was measured
  std::string
      last_proposal;  // of the last event PlanProposed of these tiers, which is not repeated
};

// Memory of adaptation between passes. It may be lost with the leader (operator/README.md "Where
// state lives").
struct AdaptationState {
  retune::State tuner;
  std::optional<Time> last_evaluation;
  // A change of tier retune that is not judged yet.
  struct Pending {
    std::uint32_t revision = 0;
    schedule::Schedule schedule, previous;
    std::vector<int> previous_micro_batches;
    std::optional<schedule::SyncPolicy> previous_sync;  // set = the policy was changed
    std::string text;                                   // costing::describe of the new schedule
    double before_seconds = 0, predicted_gain = 0;
    std::int64_t applied_step = -1;    // -1 = lastSwitch has not said Applied yet
    std::vector<double> rates_before;  // rates in the order of Estimates::links
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
  bool queued = false;         // the job waited for its queue in the last pass
  std::optional<Time> let_in;  // when a pass first found that it waits no longer
  // Step of the newest report, and when that step was first reported. They show a hang.
  std::int64_t last_step = -1;
  Time last_step_time{};
  // The plan for which lastSwitch said Aborted, and the completed steps then.
  std::uint32_t aborted_revision = 0;
  std::int64_t aborted_step = 0;
  std::string last_proposal;  // of the last event PlanProposed of retune, which is not repeated
  std::string last_share_proposal;
  shares::State sync;
  TierMemory tiers;
  facts::History history;
  std::string announced_network;  // state of the network in the last event
};

struct MembersView {
  protocol::Register body;
  Time received{};
};
struct ReportView {
  protocol::Report body;
  Time received{};
};

// Result of the dry run of each group's first pod, for one template hash.
struct TemplateCheck {
  std::string hash;
  bool accepted = false;
  std::string reason, message;  // InvalidTemplate, TrainerContainerMissing, ...
};
// The profile's ConfigMap as it was read (source ConfigMap).
struct ProfileView {
  std::string text, error;  // error: why it cannot be read, with its name; "" = it was read
};

// A request that the API server has refused and not yet accepted (refusals.h).
struct RefusedRequest {
  std::string subject;          // of the request: "pods", "Service", "status" ...
  std::string reason;           // of conditions: QuotaExceeded, CreateRefused, PatchRefused ...
  std::string message;          // of the server
  Time last{};                  // when it was last refused
  std::int64_t generation = 0;  // metadata.generation of the job then
};
using RefusedRequests = std::vector<RefusedRequest>;

// The object of the gang provider.
struct GangView {
  bool known = false;  // this leader has written or deleted it
  std::string object;  // JSON as this leader wrote it; "" = deleted
  bool watched = false;
  std::shared_ptr<const api::PodGroup> seen;  // as in the cache; if not watched, null = unknown
};

// An object of an earlier job of the same name. The new job does not begin before it is deleted.
struct Leftover {
  std::string what;    // e.g. "Pod x-gpu-0"
  bool owned = false;  // the deleted job owns it, so it will be deleted, too
};

// The newest event of a pod, if that is a warning.
struct PodWarning {
  std::string text;  // e.g. "FailedMount: ..."; "" = it is no warning
  Time asked{};
};

struct Snapshot {
  std::shared_ptr<const api::PipelineJob> job;
  std::vector<std::shared_ptr<const api::Pod>> pods;
  // `pods` has all pods that the API server had at this time. A broken watch may delay later
  // changes.
  std::optional<Time> pods_confirmed;
  std::vector<schedule::Plan> plans;  // of this uid, by rising revision
  std::vector<Leftover> leftovers;
  std::set<std::string> taken_names;               // names of pods of others in the namespace
  std::map<std::string, PodWarning> pod_warnings;  // by uid, as far as they were read
  bool service_exists = false;
  std::string service_owner_uid;
  std::string control_ca, written_url;  // present content of <job>-control; "" = absent
  std::string control_url;
  std::optional<MembersView> members;  // from the control API
  std::optional<ReportView> report;
  std::shared_ptr<const api::NodeTable> nodes = std::make_shared<const api::NodeTable>();
  AdaptationState adaptation;
  std::optional<TemplateCheck> template_check;
  std::optional<ProfileView> profile;  // only with source ConfigMap
  RefusedRequests refused;
  GangView gang;
  std::string ca_bundle;  // that <job>-control must have
  Time now{};
  Time leading_since{};                // when this replica became leader
  facts::Memo* memo = nullptr;         // null = results are not kept
  std::optional<Time> status_written;  // when this leader last wrote the status; nothing = not yet
  int jobs = 1;                        // number of all jobs of this operator
};

struct Tunables {
  std::chrono::seconds scrape_interval{2};
  std::chrono::seconds member_silent{30}, member_lost{90}, node_lost{60};
  std::chrono::seconds restart_backoff{10}, restart_backoff_cap{600}, budget_reset{3600};
  std::chrono::seconds progress_status{15}, network_status{60}, start_status{2};
};

}  // namespace weir::reconcile
