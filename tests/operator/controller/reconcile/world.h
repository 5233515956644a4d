// SPDX-License-Identifier: Apache-2.0
// A model of the cluster for one job: carries out what reconcile answers, request by request, as
// the executor and the API server would.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "operator/controller/reconcile/pass/refusals.h"
#include "operator/controller/reconcile/reconcile.h"
#include "operator/estimator/replica_model.h"

namespace weir::reconcile::test {

using namespace std::chrono_literals;  // NOLINT: tests

// Links that are quick and slow, bytes per second: 0.3 ms and 24 ms a micro-batch.
constexpr double kFast = 4e8, kSlow = 5e6;

class World {
 public:
  World();  // a job of 4 workers, 4 stages, 16 micro-batches of 4, k.initial 1

  api::PipelineJob job;
  std::vector<api::Pod> pods;
  // Set: the watch of the pods stands still, and this is what the operator knows of them.
  std::optional<std::vector<api::Pod>> cached_pods;
  std::optional<Time> pods_confirmed;
  bool behind = false;  // nothing is done until the cache has caught up
  int pod_lists = 0;
  std::vector<schedule::Plan> plans;
  std::optional<MembersView> members;
  std::optional<ReportView> report;
  std::vector<ClaimView> claims;
  estimator::Estimates estimates;
  AdaptationState adaptation;
  std::optional<TemplateCheck> template_check;
  std::optional<ProfileView> profile;
  std::vector<api::Node> nodes;
  bool service = false;
  std::string control_ca, written_url, control_url = "https://op:8443";
  std::vector<Leftover> leftovers;
  std::set<std::string> taken_names;
  std::map<std::string, PodWarning> pod_warnings;  // as asked for
  std::string warning;                             // of every pod that is asked for
  GangView gang;
  std::shared_ptr<facts::Memo> memo = std::make_shared<facts::Memo>();  // null: nothing is kept
  std::vector<api::PodInput> last_created;
  std::map<std::string, std::string> pinned;  // hostname by pod
  std::optional<Time> leading_since;          // nothing: for an hour
  Time now{std::chrono::hours(24 * 365 * 56)};
  Tunables tunables;
  std::vector<api::Event> events;
  bool job_deleted = false;
  int pods_created = 0, pods_deleted = 0;
  bool template_ok = true;
  bool graceful = false;  // deleted pods stay until kubelets_end()
  std::int64_t last_checkpoint = -1;
  std::string device = "A";                         // class of all devices
  std::int64_t device_bytes = 0;                    // 0: unknown
  bool splits = false;                              // the profile has times of split backwards
  int plan_version = protocol::kNewestPlanVersion;  // that the workers read
  bool throttles = false;  // this leader remembers when it wrote the status last
  std::optional<Time> status_written;
  int jobs = 1;
  // Why the API server refuses a request now; "" = it does not. Nothing: it refuses none.
  std::function<std::string(const Request&)> refuses;
  std::function<int()> quota;  // how many pods may be made now; nothing: any number
  RefusedRequests refused;
  // Hears of each pass, before it is carried out; nothing: nobody listens.
  std::function<void(const World&, const Outcome&)> decided;

  Snapshot snapshot() const;
  Outcome pass() const { return decide(snapshot()); }
  Outcome decide(const Snapshot& snapshot) const;
  void apply(const Request& request);
  void apply(const Outcome& outcome);  // all of it; nothing is refused
  Answer ask(const Request& request);  // apply, or what the API server has against it
  // Carries out the outcome like the executor; true if something changed.
  bool carry_out(const Outcome& outcome);
  // Passes until nothing changes; returns how many it took, 0 = no fixed point in `most`.
  int settle(int most = 12);

  void kubelets_run();         // every pending pod gets a node and runs
  void kubelets_end();         // every pod that is being deleted goes
  void workers_register();     // every running pod registers
  void coordinator_applies();  // the newest plan is reported as Applied
  void run();                  // all of the above until it trains
  // Reports progress and moves the time. mean_seconds: of the newest steps, as reported; 0 = the
  // same.
  void steps(std::int64_t count, double seconds_each, double mean_seconds = 0);
  void reaches(std::int64_t step);  // a minute later, as the coordinator reports
  api::Pod& pod(const std::string& name);
  void fail(const std::string& name, int exit_code);
  // The trainer alone: the pod runs on, for it has other containers.
  void end_trainer(const std::string& name, int exit_code);
  void lose_node(const std::string& node);  // not ready from now on; four others are
  const schedule::Plan* plan() const;       // of status.plan.revision
  int event_count(const std::string& reason) const;
  std::string last_note(const std::string& reason) const;
  const api::Condition& condition(const std::string& type) const;
  void scrape_afresh();  // 16 scrapes just now, of no link yet
  // 16 scrapes: all links at `fast`, boundary 1 at `slow` bytes per second.
  void links(double fast, double slow);
  // 16 scrapes: all links of replica r at rates[r].
  void replica_links(const std::vector<double>& rates);
  // A scrape: each replica has done so many steps more, of `seconds` without waiting for others.
  void replica_seconds(const std::vector<double>& seconds, int steps_done = 1);

 private:
  // "" if the pods that trained still hold all layers.
  std::string layer_without_holder() const;
  estimator::ReplicaModelState replica_state_;
  std::map<int, estimator::ReplicaCounter> counters_;
};

// A job that has trained 3 steps of 1.2 s, with `edit` made before it started.
World training(const std::function<void(api::JobSpec&)>& edit = {});
// A job that is not made yet, with replicas of two stages.
World two_stages(int replicas);
// Marks a pod as an eviction does.
void disrupt(api::Pod& pod, Time when);

}  // namespace weir::reconcile::test
