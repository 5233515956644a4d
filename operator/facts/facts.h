// SPDX-License-Identifier: Apache-2.0
// One job as numbers: what the planner and the tiers of adaptation know of it
// (operator/facts/README.md). reconcile fills it for one pass.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/api/job_status.h"
#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "operator/estimator/estimates.h"
#include "operator/facts/node_bandwidth.h"
#include "operator/planner/model/model.h"
#include "operator/planner/plan.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::facts {

// Measurements that are kept between passes. They may be lost at any time.
struct History {
  std::vector<RememberedLink> links;
  // Newest reported steps of the plan of that revision, oldest first.
  struct Step {
    std::int64_t step = 0;
    double seconds = 0;
    Time seen{};
  };
  std::vector<Step> steps;
  std::uint32_t steps_revision = 0;
};

// Results of earlier passes of this job that need not be computed again. Without it a pass takes
// longer, but decides the same. Only one pass at a time writes it.
struct Memo {
  planner::PlanCache plans;  // ideals and orders, per model and micro-batch size
  std::string profile;       // text from which `model` was decoded
  std::optional<planner::Model> model;
};

// The newest pod of a worker that a plan may use.
struct Worker {
  std::string pod_uid, pod, group;
  std::string node;    // "" = none yet
  int replica = 0;     // for which the pod was made
  bool ended = false;  // its trainer has ended
  bool coordinates = false;
};

// Pointers may be null where something is unknown. All that is pointed at outlives the pass.
struct Facts {
  Time now{};
  const api::JobSpec& spec;
  const api::JobStatus& status;
  const estimator::Estimates& estimates;
  const History* history = nullptr;          // never null
  const std::vector<schedule::Plan>& plans;  // that are kept, by rising revision
  const api::NodeTable& nodes;
  const protocol::Register* members = nullptr;  // null = the workers have not registered
  const protocol::Report* report = nullptr;     // null = none has come
  Time reported{};                              // when the report came
  const std::string* profile = nullptr;         // of the spec's ConfigMap; null = it was not read
  const schedule::Plan* plan = nullptr;         // in force or being applied; null = none
  const schedule::Plan* newest = nullptr;       // of status.plan.revision; null = none
  bool refused = false;                // the workers refused `newest`, so an older one is in force
  std::uint32_t aborted_revision = 0;  // of the plan whose switch was aborted last; 0 = none
  std::uint32_t next_revision = 1;     // of a plan that is made now
  std::vector<Worker> workers;         // whose pods exist
  std::vector<Worker> spares;          // that have joined
  double fastest_link = 0;             // bytes per second, fastest measured link between nodes now
  int planned_replicas = 1;            // whose members a plan that is made now may use
  Memo* memo = nullptr;                // null = results are not kept
};

// Links between stages of the plan in force that are too fast to be timed: less than half of 40 or
// more messages of the newest segment took longer than one read. What estimates know of them is
// from before. The transfer of a message takes less than the shortest time that can be seen then,
// and a raw one at most five times as long as one with codecs, so no fill as long as a raw message
// is needed to see that a link has recovered.
std::set<estimator::LinkKey> quick_links(const Facts& facts, const planner::Model& model);
bool all_quick(const Facts& facts, const std::set<estimator::LinkKey>& quick);
// If the network is unknown, no tier changes the plan. It is known by fresh rates, or because all
// links are so fast that none has a fresh one.
bool network_known(const Facts& facts);
double fastest_link(const estimator::Estimates& estimates);  // of Facts
// Usual rate of a link: its baseline; if that is unknown, the rate of the workers' probe, or the
// default of a link without a probe. For a link between replicas without a baseline, the rate of
// the fastest link now.
double usual_rate(const Facts& facts, const estimator::LinkEstimate& link);
// The link between stages whose rate is lowest against its usual rate, for events: e.g. "link
// n1->n2 3.4Gbit/s->80.0Mbit/s for 31 s", or "no link measured".
std::string worst_link_text(const Facts& facts);
// Links between stages and between replicas, as far as they carry something between nodes; those
// that are too fast to have a rate have that of the workers' probe.
std::vector<RememberedLink> carrying_links(const Facts& facts);
// By stage, the smallest free fraction of a device's memory over all replicas; < 0 = unknown.
std::vector<double> free_memory(const Facts& facts);
bool members_live(const Facts& facts, const schedule::Plan& plan);  // all its pods are members

}  // namespace weir::facts
