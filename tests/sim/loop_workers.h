// SPDX-License-Identifier: Apache-2.0
// Workers and coordinator of one job in virtual time, as the operator sees them: they join, take
// plans (refuse, switch in band, move or load state with a pause, break off), train, and count what
// Prometheus would scrape. A step takes what the simulator of schedules says for the nodes and
// devices of that moment. Replicas that average in groups: loop_partial.h. Messages between ranks
// are tests/worker/coordinator's business.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/estimator/replica_model.h"
#include "tests/sim/agenda.h"
#include "tests/sim/hazards.h"
#include "tests/sim/loop_partial.h"
#include "worker/base/random.h"
#include "worker/coordinator/segment.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/simulator.h"

namespace weir::sim {

struct JobShape {
  int replicas = 1;
  int workers = 4;        // of one replica
  int layers = 8;         // equal ones
  int micro_batches = 8;  // of one replica, of `micro_batch_size` samples
  int micro_batch_size = 4;
  double node_rate = 1.2e7;       // bytes per second, free
  std::int64_t memory_bytes = 0;  // of a device; 0: not limited
  bool tells_parts = false;       // of steps: the times of ops alone
  double rate_noise = 0.03;       // lognormal, of rates and of the time of a step's messages
  double one_piece = 0;           // s: messages that take less tell nothing about the rate
};
constexpr std::int64_t kOutputBytes = 30'720;      // of a layer, per sample
constexpr std::int64_t kStashBytes = 1'000'000;    // likewise
constexpr std::int64_t kParameterBytes = 200'000;  // of a layer

struct Process {
  std::string pod, uid, node;
  int worker = 0;
};

class SimulatedWorkers {
 public:
  SimulatedWorkers(Agenda& agenda, const Hazards& hazards, JobShape shape, std::uint64_t seed);

  // `told`: a switch has ended, or the members are others.
  void on_news(std::function<void()> told) { told_ = std::move(told); }

  void join(const Process& process);
  // By nature, or because the operator wanted it: that decides who pays for steps that are lost.
  void end(const std::string& uid, bool by_nature);
  void offer(const schedule::Plan& plan);  // nothing happens without a coordinator

  const JobShape& shape() const { return shape_; }
  bool has_coordinator() const { return processes_.contains(0); }
  bool trains() const { return training_; }
  protocol::Register registration() const;
  protocol::Report report() const;
  // Samples trained; less what the operator's own changes made them lose.
  double work() const { return work_; }
  std::int64_t step() const { return in_groups() ? partial_.least_step() : step_; }
  const schedule::Plan* plan() const { return plan_ ? &*plan_ : nullptr; }
  double last_trained() const { return last_trained_; }  // time
  std::vector<std::string> wrong();                      // broken invariants
  const PartialReplicas& partial() const { return partial_; }
  // Mean step of a plan, without scatter and sums, had it been in force in the steps of a segment.
  // 0 = unknown.
  double step_during(const schedule::Plan& plan, const protocol::Segment& segment) const;

  // Counters since the start.
  struct LinkCounter {
    double bytes = 0, busy = 0;
  };
  struct LinkName {
    estimator::LinkKey link;
    std::string from, to;
    auto operator<=>(const LinkName&) const = default;
  };
  struct OpCounter {
    double count = 0, forward = 0, backward = 0;  // seconds
  };
  const std::map<LinkName, LinkCounter>& links() const { return links_; }
  const std::map<std::pair<std::string, int>, OpCounter>& ops() const { return ops_; }
  const std::map<int, estimator::ReplicaCounter>& replicas() const { return replica_counters_; }

 private:
  // Plans.
  void begin(const schedule::Plan& plan);
  void prepared(const schedule::Plan& plan);
  bool live(const schedule::RankPlace& rank) const;
  bool in_band(const schedule::Plan& plan) const;
  void commit_partial();
  void at_boundary();
  void applied(std::uint32_t revision);
  void load(schedule::Plan plan);
  void loaded(const schedule::Plan& plan, double pause, schedule::StateMove state,
              std::int64_t moved = 0);
  bool held_by_living() const;
  void load_checkpoint(const schedule::Plan& plan, double after, double pause);
  void take_checkpoint_step();
  void break_generation();
  bool goes_on_without(const schedule::RankPlace& rank, bool by_nature);
  void tell_members();
  void probe();
  void finish(std::uint32_t revision, protocol::Outcome outcome, const std::string& reason,
              double pause = 0, std::int64_t moved = 0,
              schedule::StateMove state = schedule::StateMove::kKeep);
  // Training.
  void later(double seconds, void (SimulatedWorkers::*what)());
  void go_on();
  void begin_step();
  void end_step();
  bool in_groups() const { return training_ && schedule::averages(*plan_); }
  PartialReplicas::Job partial_job();
  void begin_partial();
  void met(std::int64_t step);
  void save_later(std::int64_t soonest);
  void count_step(int p, double seconds);
  void tell(int p, const schedule::Plan& plan, const schedule::PipelineModel& model);
  void tell_step(double seconds);
  double newest_step(const std::string& uid) const;
  void add_work(int samples);
  double step_seconds(int p, const schedule::Plan& plan);
  double node_share(const std::string& node) const { return node_share(node, agenda_.now()); }
  double node_share(const std::string& node, double time) const;
  double slow(const std::string& node, double time) const;
  double sum_seconds();
  double sync_seconds(const std::vector<int>& replicas) const;
  double sync_share(int p) const;
  // Of a micro-batch.
  double forward_seconds(const schedule::Plan& plan, const schedule::RankPlace& rank) const {
    return forward_seconds(plan, rank, agenda_.now());
  }
  double forward_seconds(const schedule::Plan& plan, const schedule::RankPlace& rank,
                         double time) const;
  // ranks: of one replica, by stage.
  schedule::PipelineModel pipeline(const schedule::Plan& plan,
                                   const std::vector<schedule::RankPlace>& ranks,
                                   double time) const;
  const schedule::RankPlace& rank(int replica, int stage) const;
  int global_batch() const {
    return shape_.replicas * shape_.micro_batches * shape_.micro_batch_size;
  }

  static constexpr std::int64_t kSaveEvery = 50;  // steps
  static constexpr std::int64_t kStepsAhead = 2;  // from the highest step to where all can stop

  Agenda& agenda_;
  const Hazards& hazards_;
  const JobShape shape_;
  const std::uint64_t seed_;
  Random random_;
  std::function<void()> told_ = [] {};

  std::map<int, Process> processes_;
  std::vector<protocol::ProbedLink> probed_;
  std::optional<schedule::Plan> plan_;       // of the ranks' generation
  std::optional<schedule::Plan> committed_;  // taken at the next boundary
  std::optional<schedule::Plan> next_;       // came while one was under way
  bool training_ = false, broken_ = true, loading_ = false, excused_ = false;
  bool applying_ = false;  // Partial: replicas take the plan in band, one after the other
  std::uint32_t highest_ = 0, applied_ = 0;  // that this coordinator has seen, and brought in force
  std::optional<protocol::LastSwitch> last_switch_;
  std::uint64_t life_ = 0;  // events of an older one are void
  std::map<std::pair<int, int>, schedule::RankPlace> places_;

  std::int64_t step_ = 0, checkpoint_ = -1;
  std::int64_t save_at_ = 0, due_ = 0;  // Partial: where all meet for a checkpoint, for a plan
  std::optional<double> committed_at_;  // Partial: of a new generation; its pause begins there
  double work_ = 0, rest_ = 0;          // samples; of a batch that is not whole (Partial)
  double unsaved_ = 0;                  // samples since the checkpoint
  double last_trained_ = 0, step_began_ = 0;
  double usual_rate_ = 0;       // samples per second of the last step
  std::deque<double> recent_;   // seconds of the last steps
  std::vector<double> newest_;  // of each replica's last step, its waiting included
  PartialReplicas partial_;
  std::map<std::vector<double>, double> known_;  // step times of this plan
  coordinator::Segments segments_;
  std::vector<protocol::StageStatus> statuses_;  // of the step under way
  std::map<std::int64_t, double> begun_;         // when the newest steps began
  Random timing_;                                // noise of the times of messages
  int generations_ = 0;
  bool first_step_ = true;  // of a plan

  std::map<LinkName, LinkCounter> links_;
  std::map<std::pair<std::string, int>, OpCounter> ops_;
  std::map<int, estimator::ReplicaCounter> replica_counters_;
  std::vector<std::string> wrong_;
};

// weir.dev/profile/v1 of such a job.
std::string profile_json(const JobShape& shape);

}  // namespace weir::sim
