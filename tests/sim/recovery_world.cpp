// SPDX-License-Identifier: Apache-2.0
// The cluster, and what is checked. Sessions and agents: recovery_parts.cpp. Operator:
// recovery_operator.cpp. Faults: recovery_blows.cpp.
#include "tests/sim/recovery_world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "operator/api/names.h"
#include "tests/sim/recovery_parts.h"

namespace weir::sim {
namespace {

constexpr double kTick = 0.1;    // s
constexpr double kEvaluate = 5;  // s, between passes that nothing asks for
constexpr double kWhole = 30;    // s with a whole replica, in which no step may be lost
constexpr double kBackOff = 10;  // s, of a kubelet, doubled
constexpr double kRestartsCount = 600;
constexpr int kMoreNodes = 3;
constexpr double kHealed = 20;  // s, until all know their coordinator again
constexpr std::size_t kKeptLines = 4000, kKeptSteps = 1000;

}  // namespace

RecoveryWorld::RecoveryWorld(const RecoveryCase& one, std::uint64_t seed)
    : case_(one),
      random_(mix_seed(seed, "recovery")),
      clock_(std::make_unique<AgendaClock>(agenda_)),
      hub_(std::make_unique<control_server::Hub>(*clock_)) {
  auto& spec = world_.job.spec;
  spec.worker_groups[0].count = one.stages;
  spec.worker_groups[0].spares = one.spares;
  spec.stages = one.stages;
  spec.data_parallel = one.replicas;
  spec.global_batch = 48;  // divides by one to three replicas
  spec.max_restarts = 100000;
  spec.adaptation.mode = api::AdaptationMode::kOff;
  world_.graceful = true;
  const int nodes = one.stages * one.replicas + one.spares + kMoreNodes;
  for (int i = 1; i <= nodes; ++i) {
    api::Node node;
    node.meta.name = "n" + std::to_string(i);
    node.kubelet_minor = one.in_place ? 35 : 34;
    world_.nodes.push_back(node);
  }
  hub_->on_change([this](const std::string&) { pass_soon(); });
  agenda_.every(kTick, [this] { tick(); });
  agenda_.every(kEvaluate, [this] { settle(); });
  settle();
}

RecoveryWorld::~RecoveryWorld() {
  for (auto& [uid, worker] : workers_) worker->coordinator.reset();
}

void RecoveryWorld::note(const std::string& what) {
  char time[32];
  std::snprintf(time, sizeof time, "%9.2f  ", agenda_.now());
  if (log_.size() < kKeptLines) log_.push_back(time + what);
}

void RecoveryWorld::fail(const std::string& what) {
  note("WRONG: " + what);
  wrong_.push_back(what);
}

std::string RecoveryWorld::history() const {
  std::string text;
  for (const auto& line : log_) text += line + "\n";
  return text;
}

std::string RecoveryWorld::state() const {
  std::string text = "Ready " + world_.condition("Ready").status + "/" +
                     world_.condition("Ready").reason + ": " + world_.condition("Ready").message +
                     "\nplan " + std::to_string(world_.job.status.plan.revision) + ", applied " +
                     std::to_string(world_.job.status.plan.applied_revision) + "\n";
  for (const auto& [uid, worker] : workers_) {
    text += worker->pod + " " + worker->node + (worker->stopped ? " stopped" : "") +
            (worker->cut ? " cut off" : "") +
            (worker->cut_from_operator ? " cut off from the operator" : "") +
            (worker->coordinator ? " coordinates" : "") + ", term " + std::to_string(worker->term) +
            ": " + (worker->rank ? worker->rank->describe() : uid + " no process") +
            (worker->session != 0 ? "" : ", no session") + "\n";
  }
  return text;
}

RecoveryWorld::Worker* RecoveryWorld::find(const std::string& uid) {
  const auto found = workers_.find(uid);
  return found == workers_.end() ? nullptr : found->second.get();
}

const RecoveryWorld::Worker* RecoveryWorld::find(const std::string& uid) const {
  const auto found = workers_.find(uid);
  return found == workers_.end() ? nullptr : found->second.get();
}

bool RecoveryWorld::awake(const Worker& worker) {
  return worker.rank != nullptr && !worker.stopped;
}

bool RecoveryWorld::reach(const Worker& one, const Worker& other) const {
  return awake(one) && awake(other) && (&one == &other || (!one.cut && !other.cut));
}

// ---- RankNetwork ----

PlayedRank* RecoveryWorld::running(const std::string& pod_uid) {
  Worker* const worker = find(pod_uid);
  return worker == nullptr ? nullptr : worker->rank.get();
}

PlayedRank* RecoveryWorld::at_ip(const std::string& ip) {
  for (const auto& [uid, worker] : workers_) {
    if (worker->ip == ip && worker->rank) return worker->rank.get();
  }
  return nullptr;
}

bool RecoveryWorld::reach(const PlayedRank& one, const PlayedRank& other) const {
  const Worker *a = find(one.pod_uid()), *b = find(other.pod_uid());
  return a != nullptr && b != nullptr && reach(*a, *b);
}

void RecoveryWorld::tell(const PlayedRank& from, const protocol::Message& message) {
  const Worker* const worker = find(from.pod_uid());
  if (worker == nullptr || worker->session == 0) return;
  const auto session = sessions_.find(worker->session);
  if (session != sessions_.end()) push(*session->second, true, message);
}

void RecoveryWorld::begins(const PlayedRank& rank) {
  if (rank.trains()) note(rank.describe());
}

void RecoveryWorld::ends_step(const PlayedRank& rank) {
  const std::int64_t step = rank.step(), history = rank.history();
  const bool remembered = std::ranges::any_of(workers_, [&](const auto& entry) {
    const Worker& worker = *entry.second;
    return awake(worker) && !worker.cut && worker.rank->ran_history() >= highest_history_;
  });
  if (history < highest_history_ && !remembered) {  // nobody is left that knows of it
    highest_history_ = highest_ = 0;
    ended_.clear();
    note("from step 0");
  }
  if (history < highest_history_) {
    // A coordinator that is cut off may train on with whom it reaches: in vain, since the others
    // have another one, but not wrongly, since a step has one result.
    ++in_vain_;
    if (agenda_.now() - disturbed_ > kHealed) {
      fail("step " + std::to_string(step) + " ends in history " + std::to_string(history) +
           ", but one ended in history " + std::to_string(highest_history_) +
           " before: " + rank.describe());
    }
    return;
  }
  highest_history_ = history;
  ++ends_;
  Ended& before = ended_[step];
  if (before.history != 0 && before.history != history) {
    ++repeated_;
    // Of a rank that is gone nobody knows that it had ended the step.
    const bool known = std::ranges::any_of(before.by, [&](const auto& one) {
      const Worker* const worker = find(one.first);
      return worker != nullptr && worker->rank && worker->life == one.second;
    });
    const bool calm = agenda_.now() - disturbed_ > kHealed;
    if (known && calm && case_.replicas > 1 && agenda_.now() - not_whole_ > kWhole) {
      ++needlessly_;
      note("made again: " + rank.describe());
    }
    before.by.clear();
  }
  before.history = history;
  before.by.emplace_back(rank.pod_uid(), find(rank.pod_uid())->life);
  highest_ = std::max(highest_, step);
  if (ended_.size() > kKeptSteps) ended_.erase(ended_.begin());
}

// ---- pods ----

void RecoveryWorld::run_pods() {
  for (auto& pod : world_.pods) {
    pod.meta.labels[api::kJobUid] = world_.job.meta.uid;
    if (pod.meta.deleting) {
      if (Worker* const worker = find(pod.meta.uid); worker != nullptr && worker->rank) {
        if (!std::exchange(worker->told_to_end, true)) {
          note(worker->pod + " is told to end");
          worker->grace_ends = agenda_.now() + kGrace;
        }
      } else if (worker == nullptr || !node_gone_.contains(worker->node)) {
        agenda_.after(0, [this, uid = pod.meta.uid] { remove_pod(uid); });
      }
    }
    if (pod.phase != "Pending" || !scheduled_.insert(pod.meta.uid).second) continue;
    agenda_.after(1 + 2 * random_.uniform(), [this, uid = pod.meta.uid] { start_pod(uid); });
  }
  // Deleted by force.
  std::vector<std::string> gone;
  for (const auto& [uid, worker] : workers_) {
    if (pod_of(uid) == nullptr) gone.push_back(uid);
  }
  for (const std::string& uid : gone) {
    end_process(*find(uid));
    workers_.erase(uid);
  }
}

void RecoveryWorld::start_pod(const std::string& uid) {
  api::Pod* const pod = pod_of(uid);
  if (pod == nullptr || pod->meta.deleting) return;
  for (const auto& node : world_.nodes) {
    const std::string& place = node.meta.name;
    const bool taken = std::ranges::any_of(world_.pods, [&](const auto& other) {
      return other.node == place && other.phase == "Running";
    });
    const bool avoided = std::ranges::any_of(world_.job.status.avoided_nodes,
                                             [&](const auto& one) { return one.node == place; });
    if (taken || avoided || node_gone_.contains(place) || !node.ready) continue;
    pod->phase = "Running";
    pod->node = place;
    pod->ips = {"10.0.0." + std::to_string(++last_ip_)};
    pod->started = pod->ready = true;
    auto worker = std::make_unique<Worker>();
    worker->uid = uid;
    worker->pod = pod->meta.name;
    worker->node = place;
    worker->ip = pod->ips.front();
    worker->index = std::stoi(pod->meta.labels.at("weir.dev/worker-index"));
    note(worker->pod + " (" + uid + ") runs on " + place);
    Worker& made = *(workers_[uid] = std::move(worker));
    start_process(made);
    return settle();
  }
  agenda_.after(2, [this, uid] { start_pod(uid); });  // no node is free
}

void RecoveryWorld::start_process(Worker& worker) {
  ++worker.life;
  worker.stopped = false;
  worker.term = protocol::kFirstTerm;
  worker.place.reset();
  worker.joined = worker.doubts = false;
  worker.session = 0;
  worker.unconnected_since = agenda_.now();
  worker.ask_at = agenda_.now() + 0.3 + 0.7 * random_.uniform();
  worker.asks_since = worker.ask_at;
  worker.rank = std::make_unique<PlayedRank>(*this, worker.uid, kProfile, worker.shelf);
}

void RecoveryWorld::end_process(Worker& worker) {
  if (!worker.rank) return;
  worker.rank->tear_step();
  worker.coordinator.reset();
  for (const auto& [id, session] : sessions_) {
    if (session->rank == worker.uid) session->rank_gone = true;
    if (session->server == worker.uid) session->server_gone = true;
  }
  worker.rank.reset();
  worker.session = 0;
  worker.stopped = false;
}

// It sees that the trainer has ended.
void RecoveryWorld::kubelet(const std::string& uid, int exit_code) {
  api::Pod* const pod = pod_of(uid);
  Worker* const worker = find(uid);
  if (pod == nullptr || worker == nullptr || worker->rank) return;
  if (pod->meta.deleting) return remove_pod(uid);
  const bool again =
      pod->final_exit_codes &&
      std::ranges::find(*pod->final_exit_codes, exit_code) == pod->final_exit_codes->end();
  if (!again) {
    world_.fail(pod->meta.name, exit_code);
    return settle();
  }
  world_.end_trainer(pod->meta.name, exit_code);
  pod->termination_reason = "Error";
  const bool soon_after =
      worker->restarts > 0 && agenda_.now() - worker->restarted < kRestartsCount;
  worker->backoff = soon_after ? std::max(kBackOff, 2 * worker->backoff) : 0;
  agenda_.after(worker->backoff + 0.3, [this, uid] {
    api::Pod* const found = pod_of(uid);
    Worker* const same = find(uid);
    if (found == nullptr || found->meta.deleting || same == nullptr || same->rank) return;
    found->last_end = api::ContainerEnd{"trainer", *found->exit_code, "Error", "", found->ended};
    found->exit_code.reset();
    found->ended.reset();
    found->container_restarts += 1;
    found->ready = true;
    ++same->restarts;
    same->restarted = agenda_.now();
    note(same->pod + " is started again in place");
    start_process(*same);
    settle();
  });
  settle();
}

void RecoveryWorld::remove_pod(const std::string& uid) {
  const std::size_t before = world_.pods.size();
  std::erase_if(world_.pods, [&](const auto& pod) { return pod.meta.uid == uid; });
  if (before == world_.pods.size()) return;
  settle();
}

bool RecoveryWorld::all_undisturbed() const {
  return std::ranges::none_of(workers_, [](const auto& entry) {
    const Worker& worker = *entry.second;
    return worker.stopped || worker.cut || worker.cut_from_operator;
  });
}

bool RecoveryWorld::recovers(double limit) {
  const double until = agenda_.now() + limit;
  std::int64_t since = -1;
  while (agenda_.now() < until) {
    run(0.5);
    const schedule::Plan* const plan = world_.plan();
    bool all = operator_up_ && node_gone_.empty() && all_undisturbed() && plan != nullptr &&
               world_.condition("Ready").status == "True" &&
               world_.job.status.recovery.lost_replicas.empty();
    for (std::size_t i = 0; all && i < plan->ranks.size(); ++i) {
      const PlayedRank* const rank = running(plan->ranks[i].pod_uid);
      all = rank != nullptr && rank->trains() && rank->revision() == plan->revision;
    }
    if (!all) since = -1;
    if (all && since < 0) since = ends_;
    if (all && ends_ >= since + 5 * std::ssize(plan->ranks)) return true;
  }
  return false;
}

// Whether a replica of the newest plan is there, all of it.
bool RecoveryWorld::has_whole_replica() {
  const schedule::Plan* const plan = world_.plan();
  if (plan == nullptr) return false;
  for (int replica = 0; replica < plan->replica_count(); ++replica) {
    const bool whole = std::ranges::all_of(plan->ranks, [&](const schedule::RankPlace& place) {
      if (place.replica != replica) return true;
      const Worker* const worker = find(place.pod_uid);
      return worker != nullptr && awake(*worker) && !worker->cut && !worker->told_to_end &&
             worker->rank->layers() != nullptr && worker->rank->step() + 1 >= highest_ &&
             *worker->rank->layers() == plan->stages[static_cast<std::size_t>(place.stage)];
    });
    if (whole) return true;
  }
  return false;
}

void RecoveryWorld::tick() {
  std::vector<std::string> uids;
  for (const auto& [uid, worker] : workers_) uids.push_back(uid);
  for (const std::string& uid : uids) {
    if (Worker* const worker = find(uid)) tick(*worker);
  }
  if (!has_whole_replica()) not_whole_ = agenda_.now();
  if (!all_undisturbed() || !operator_up_) disturbed_ = agenda_.now();
}

}  // namespace weir::sim
