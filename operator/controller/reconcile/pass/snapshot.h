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
#include <tuple>
#include <utility>
#include <vector>

#include "operator/adaptation/memory.h"
#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "operator/estimator/contention.h"
#include "operator/estimator/estimates.h"
#include "operator/explain/causes.h"
#include "operator/explain/remedies.h"
#include "operator/explain/waterfall.h"
#include "operator/facts/facts.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::reconcile {

using Time = api::Time;

// Codecs of a boundary in the plan in force, and what its links carry in a step, both ways, of all
// replicas.
struct LinkCodecs {
  int boundary = 0;
  schedule::Codec forward{}, backward{};
  double rounding_error = 0;  // the largest of its links
  std::int64_t payload_bytes = 0, wire_bytes = 0;
};

// The newest segment has shown this of the network (plans/network.cpp).
struct NetworkMemory {
  estimator::ContentionState contention;
  estimator::UsualRates usual;
  std::map<estimator::NodePair, estimator::SegmentRate> rates;  // now
  double cost_seconds = 0, cost_part = 0;                       // of all slow links, in a step
  std::optional<explain::Waterfall> waterfall;                  // of the segment's steps
  std::vector<LinkCodecs> codecs_in_force;                      // of boundaries that are not raw
  // Connections of each link, by replica, boundary and direction, of this generation.
  std::map<std::tuple<int, int, bool>, int> connections;
  std::pair<std::uint32_t, int> connections_of;             // revision and incarnation
  std::set<std::pair<std::string, std::string>> fallbacks;  // told: nodes, and what they refuse
  int steps = 0;                                            // of that segment
  std::string slowest_node;                                 // that has the slowest stage
  int replica = 0;                                          // whose step the waterfall divides
  std::vector<protocol::SegmentRank> ranks;                 // of it, by stage
  // With the waterfall: what makes the step slow, what would help.
  explain::DeviceHistory devices;
  explain::Causes causes;
  // Part of a step that simulated ones usually lack, without pauses.
  std::optional<double> usually_unexplained;
  explain::Prospects prospects;
  // That retune and compress would choose, in mode Off.
  std::optional<gate::Considered> order, codecs;
  Time order_asked{};
};

// Memory of the controller between passes. It may be lost with the leader (operator/README.md
// "Where state lives").
struct AdaptationState {
  adaptation::Memory memory;
  NetworkMemory network;
  bool queued = false;         // the job waited for its queue in the last pass
  std::optional<Time> let_in;  // when a pass first found that it waits no longer
  // Step of the newest report, and when that step was first reported. They show a hang.
  std::int64_t last_step = -1;
  Time last_step_time{};
  std::string trace_wanted;  // annotation weir.dev/trace, as the last pass has seen it
  // The plan for which lastSwitch said Aborted, and the completed steps then.
  std::uint32_t aborted_revision = 0;
  std::int64_t aborted_step = 0;
};

struct MembersView {
  protocol::Register body;
  Time received{};
};
struct ReportView {
  protocol::Report body;
  Time received{};
};

// A worker says that it does not hear the coordinator of this term.
struct ClaimView {
  std::string pod_uid;
  std::int64_t term = 0;
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
  std::vector<ClaimView> claims;
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
  std::chrono::seconds link_dead{120};  // doubled by each worker that was made again for it
  std::chrono::seconds restart_backoff{10}, restart_backoff_cap{600}, budget_reset{3600};
  std::chrono::seconds progress_status{15}, network_status{60}, start_status{2};
};

}  // namespace weir::reconcile
