// SPDX-License-Identifier: Apache-2.0
#include "tests/operator/controller/reconcile/model.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <gtest/gtest.h>

#include "operator/api/validate.h"
#include "worker/base/worker_index.h"
#include "worker/schedule/validate.h"

namespace weir::reconcile::test {
namespace {

constexpr int kWorkers = 3;

template <class T>
void shuffle(std::vector<T>& list, Random& random) {
  for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random.below(i)]);
}

bool live(const api::Pod& pod) {
  return (pod.phase == "Running" || pod.phase == "Pending") && !pod.exit_code && !pod.meta.deleting;
}

bool has_condition(const api::Pod& pod, const std::string& type) {
  return std::any_of(pod.conditions.begin(), pod.conditions.end(),
                     [&](const auto& condition) { return condition.type == type; });
}

}  // namespace

std::string text(const Event& event) {
  static constexpr std::array kNames = {
      "KubeletsRun", "Register", "Apply",     "Step",      "Crash",        "Disrupt",      "Delete",
      "Vanish",      "End",      "NodeLost",  "NodesBack", "Suspend",      "Resume",       "Finish",
      "InitFails",   "Reject",   "Outgrow",   "Forget",    "FinishUnseen", "EditSchedule", "Scale",
      "EditWrong",   "EditBack", "EditImage", "Time",      "NewLeader"};
  return std::string(kNames[static_cast<std::size_t>(event.what)]) + " slot " +
         std::to_string(event.slot) + " value " + std::to_string(event.value);
}

std::string Model::text() const {
  const auto& status = world.job.status;
  std::string out =
      "restarts " + std::to_string(status.restarts) + " " + status.last_restart_reason + " of " +
      std::to_string(failures) + ", plan " + std::to_string(status.plan.revision) + "/" +
      std::to_string(status.plan.applied_revision) + ", Ready " + world.condition("Ready").reason +
      ", Suspended " + world.condition("Suspended").reason + ", pods";
  for (const auto& pod : world.pods) {
    out += " " + pod.meta.name + ":" + pod.phase + (pod.meta.deleting ? "-" : "") + "g" +
           pod.meta.annotations.at(api::kPodGeneration);
  }
  return out;
}

std::vector<Event> random_history(std::uint64_t seed, int length, bool short_waits) {
  using H = Happening;
  static constexpr std::array kOften = {H::kKubeletsRun, H::kRegister, H::kApply,
                                        H::kStep,        H::kTime,     H::kEnd};
  static constexpr std::array kSometimes = {
      H::kCrash,   H::kDisrupt, H::kDelete,       H::kVanish,    H::kNodeLost, H::kNodesBack,
      H::kSuspend, H::kResume,  H::kEditSchedule, H::kEditWrong, H::kEditBack, H::kEditImage,
      H::kScale,   H::kScale,   H::kInitFails,    H::kReject,    H::kOutgrow,  H::kForget};
  static constexpr std::array kCodes = {1, 1, 80, 81, 82, 83, 137, 139, 143};
  static constexpr std::array kWaits = {1, 5, 31, 61, 200, 700, 2000, 4000};
  Random random(seed);
  std::vector<Event> history;
  for (int i = 0; i < length; ++i) {
    Event event;
    event.slot = static_cast<int>(random.below(kWorkers));
    const auto draw = random.below(100);
    if (draw < 70) {
      event.what = kOften[random.below(kOften.size())];
    } else if (draw < 97) {
      event.what = kSometimes[random.below(kSometimes.size())];
    } else {
      event.what = draw == 97 ? H::kFinish : H::kNewLeader;
      if (draw == 98 && !short_waits) event.what = H::kFinishUnseen;
    }
    event.value = kCodes[random.below(kCodes.size())];
    if (event.what == H::kCrash && random.below(40) == 0) event.value = 2;
    if (event.what == H::kTime)
      event.value = short_waits ? 1 + static_cast<int>(random.below(20))
                                : kWaits[random.below(kWaits.size())];
    history.push_back(event);
  }
  return history;
}

Model::Model(std::uint64_t the_seed) : seed(the_seed), random_(the_seed) {
  world.graceful = true;
  world.throttles = seed % 2 == 1;
  world.job.spec.worker_groups[0].count = kWorkers;
  world.job.spec.stages = kWorkers;
  world.job.spec.global_batch = 24;  // six micro-batches: planning is not what is tested here
  world.job.spec.data_parallel = seed % 7 == 3 ? 2 : 1;
  world.job.spec.checkpoint_path = seed % 6 == 5 ? "" : "/ckpt";
  world.job.spec.worker_groups[0].spares = seed % 5 == 4 ? 1 : 0;
  sidecars = seed % 4 == 3;
  world.job.spec.restart_scope = seed % 3 == 0 ? "Job" : "Worker";
  if (seed % 4 == 1) world.job.spec.scheduler_name = "volcano";
  if (seed % 5 == 2) {
    world.job.spec.failure_rules = {{"odd", "RestartIgnoreMax", {139}, {}},
                                    {"spot", "ReplaceWorkerAvoidNode", {}, {"DisruptionTarget"}}};
  }
  world.now += std::chrono::milliseconds(seed % 1000);
}

// Slot 0 to 2 of one of the replicas, or now and then the spare.
int Model::worker_of(const Event& event) const {
  constexpr int kOfSpare = 137;  // and above, of the values of a history
  if (world.job.spec.worker_groups[0].spares > 0 && event.slot == 2 && event.value >= kOfSpare)
    return kFirstSpare;
  return event.slot + kWorkers * (event.value % world.job.spec.data_parallel);
}

api::Pod* Model::newest(int worker) {
  api::Pod* found = nullptr;
  int highest = -1;
  for (auto& pod : world.pods) {
    if (pod.meta.labels.at("weir.dev/worker-index") != std::to_string(worker)) continue;
    const int attempt = std::atoi(pod.meta.labels.at("weir.dev/attempt").c_str());
    if (attempt > highest) found = &pod;
    highest = std::max(highest, attempt);
  }
  return found;
}

void Model::new_leader() {
  world.adaptation = {};
  world.gang = {};
  world.status_written.reset();
  world.memo = std::make_shared<facts::Memo>();
  world.template_check.reset();
  world.refused.clear();
  world.leading_since = world.now;
}

void Model::end(const std::string& pod, int exit_code) {
  if (sidecars) return world.end_trainer(pod, exit_code);
  world.fail(pod, exit_code);
}

void Model::end_without_time(Happening what, api::Pod& pod) {
  const bool begins = what == Happening::kInitFails || what == Happening::kReject;
  if (begins != (pod.phase == "Pending") || !pod.gates.empty()) return;
  ++failures;
  pod.phase = "Failed";
  if (what == Happening::kInitFails) {
    pod.containers_seen = true;
    pod.failed_init = api::ContainerEnd{"fetch", 1, "Error", "no such bucket", std::nullopt};
  } else if (what == Happening::kReject) {
    pod.reason = "UnexpectedAdmissionError";
  } else {
    pod.exit_code = 137;
    pod.ready = false;
    pod.containers_seen = true;
    pod.conditions.push_back({"Ready", "False", "PodFailed", "", world.now});
    if (what == Happening::kOutgrow) pod.reason = "Evicted";
    if (what == Happening::kForget) pod.termination_reason = "ContainerStatusUnknown";
  }
}

void Model::happen(const Event& event) {
  api::Pod* pod = newest(worker_of(event));
  const bool running = pod != nullptr && pod->phase == "Running" && !pod->exit_code;
  switch (event.what) {
    case Happening::kKubeletsRun:
      return world.kubelets_run();
    case Happening::kRegister:
      return world.workers_register();
    case Happening::kApply:
      if (world.plan() != nullptr) world.coordinator_applies();
      return;
    case Happening::kStep:
      if (!world.report || world.job.status.plan.applied_revision == 0) return;
      world.now += std::chrono::milliseconds(1300);
      world.report->body.step += 1;
      world.report->received = world.now;
      return;
    case Happening::kCrash:
      if (!running) return;
      ++failures;
      return end(pod->meta.name, event.value);
    case Happening::kDisrupt:
      if (!running || has_condition(*pod, "DisruptionTarget")) return;
      ++failures;
      pod->conditions.push_back(
          {"DisruptionTarget", "True", "EvictionByEvictionAPI", "", world.now});
      return;
    case Happening::kDelete:
      if (pod == nullptr || !live(*pod)) return;
      ++failures;
      pod->meta.deletion_grace_seconds = 120;
      pod->meta.deleting = world.now + 120s;
      return;
    case Happening::kVanish:
      if (pod == nullptr || !live(*pod)) return;
      ++failures;
      std::erase_if(world.pods, [uid = pod->meta.uid](const auto& p) { return p.meta.uid == uid; });
      return;
    case Happening::kEnd:
      return world.kubelets_end();
    case Happening::kNodeLost:
      if (!running) return;
      ++failures;
      return world.lose_node(std::string(pod->node));
    case Happening::kNodesBack:
      return world.nodes.clear();
    case Happening::kSuspend:
      world.job.spec.suspend = true;
      return;
    case Happening::kResume:
      world.job.spec.suspend = false;
      return;
    case Happening::kFinish:
      pod = newest(0);
      if (pod != nullptr && live(*pod) && world.job.status.plan.applied_revision > 0)
        end(pod->meta.name, 0);
      return;
    case Happening::kInitFails:
    case Happening::kReject:
    case Happening::kOutgrow:
    case Happening::kForget:
      if (pod != nullptr && live(*pod)) end_without_time(event.what, *pod);
      return;
    case Happening::kFinishUnseen:
      if (world.condition("Ready").status != "True") return;
      world.now += std::chrono::hours(2);
      ++failures;
      // With a checkpoint the next pods say so; a restart of that second may be the newer fact.
      done = world.job.spec.checkpoint_path.empty() &&
             world.job.status.last_restart_time.value_or(Time{}) < world.job.status.plan.time;
      return world.pods.clear();
    case Happening::kEditSchedule:
      world.job.spec.schedule.k_initial.reset();
      world.job.spec.schedule.k_min = 1 + event.slot;
      return;
    case Happening::kScale:
      world.job.spec.data_parallel = 1 + event.slot;
      return;
    case Happening::kEditWrong:
      world.job.spec.min_data_parallel = 7;
      return;
    case Happening::kEditBack:
      world.job.spec.min_data_parallel.reset();
      return;
    case Happening::kEditImage:
      world.job.spec.worker.image = "worker:" + std::to_string(event.value);
      return;
    case Happening::kTime:
      world.now += std::chrono::seconds(event.value);
      std::erase_if(world.pods, [&](const auto& p) {
        return p.meta.deleting && *p.meta.deleting + 5s < world.now;
      });
      return;
    case Happening::kNewLeader:
      return new_leader();
  }
}

// A healthy pod is deleted only for a reason that the user knows: invariant 4.
void Model::check_deletion(const DeletePod& action) const {
  const auto pod = std::find_if(world.pods.begin(), world.pods.end(),
                                [&](const auto& p) { return p.meta.uid == action.uid; });
  ASSERT_NE(pod, world.pods.end()) << "deletes what is not there: " << action.name;
  const auto& status = world.job.status;
  const auto& suspended = world.condition("Suspended");
  const bool wanted_by_user = suspended.reason == "Suspending" || suspended.status == "True";
  const bool ended =
      world.condition("Complete").status == "True" || world.condition("Failed").status == "True";
  const int generation = std::atoi(pod->meta.annotations.at(api::kPodGeneration).c_str());
  const bool restarted = status.last_restart_scope == "Job" && generation < status.pod_generation;
  const bool replaced = std::any_of(world.pods.begin(), world.pods.end(), [&](const auto& other) {
    return other.meta.labels.at("weir.dev/worker-index") ==
               pod->meta.labels.at("weir.dev/worker-index") &&
           std::atoi(other.meta.labels.at("weir.dev/attempt").c_str()) >
               std::atoi(pod->meta.labels.at("weir.dev/attempt").c_str());
  });
  const int worker = std::atoi(pod->meta.labels.at("weir.dev/worker-index").c_str());
  const bool too_many = worker >= kWorkers * world.job.spec.data_parallel && !is_spare(worker);
  const bool over = pod->exit_code.has_value();
  EXPECT_TRUE(wanted_by_user || ended || restarted || replaced || status.scheduling_retry ||
              too_many || over)
      << "deletes " << action.name << ": " << action.why;
  if (over || wanted_by_user || ended || restarted || replaced || status.scheduling_retry) return;
  EXPECT_FALSE(trains_on(action.uid)) << "deletes " << action.name << ", which trains";
}

// The applied plan has this pod, and all of its pods are there.
bool Model::trains_on(const std::string& uid) const {
  const auto& status = world.job.status.plan;
  if (status.applied_revision != status.revision) return false;
  for (const auto& plan : world.plans) {
    if (plan.revision != status.applied_revision) continue;
    const auto is_live = [&](const auto& rank) {
      return std::any_of(world.pods.begin(), world.pods.end(), [&](const auto& pod) {
        return pod.meta.uid == rank.pod_uid && live(pod);
      });
    };
    return std::all_of(plan.ranks.begin(), plan.ranks.end(), is_live) &&
           std::any_of(plan.ranks.begin(), plan.ranks.end(),
                       [&](const auto& rank) { return rank.pod_uid == uid; });
  }
  return false;
}

// A new plan is legal, for the size that the user wants, and uses no pod that is to go.
void Model::check_plan(const schedule::Plan& plan) const {
  using schedule::Trigger;
  const auto trigger = plan.trigger;
  EXPECT_TRUE(trigger == Trigger::kInitial || trigger == Trigger::kRestart ||
              trigger == Trigger::kResize || trigger == Trigger::kManual)
      << "a tier changed the plan although the network is unknown";
  for (const auto& line : schedule::broken_rules(plan, 4)) ADD_FAILURE() << line;
  const std::int64_t shares = plan.step_micro_batches();
  EXPECT_EQ(shares * plan.schedule.micro_batch_size, world.job.spec.global_batch);
  if (trigger == Trigger::kManual) return;  // of the size that trains
  EXPECT_EQ(plan.replica_count(), world.job.spec.data_parallel);
  for (const auto& rank : plan.ranks) {
    for (const auto& pod : world.pods) {
      if (pod.meta.uid != rank.pod_uid) continue;
      const int worker = std::atoi(pod.meta.labels.at("weir.dev/worker-index").c_str());
      EXPECT_TRUE(worker < kWorkers * world.job.spec.data_parallel || is_spare(worker)) << worker;
    }
  }
}

void Model::check(const Outcome& outcome) const {
  const bool ended =
      world.condition("Complete").status == "True" || world.condition("Failed").status == "True";
  if (outcome.requeue) {
    EXPECT_GT(outcome.requeue->count(), 0);
  }
  for (const Request& request : outcome.requests) {
    if (const auto* plan = std::get_if<CreatePlan>(&request)) check_plan(plan->plan);
    if (!ended) continue;
    EXPECT_TRUE(std::holds_alternative<DeletePod>(request) ||
                std::holds_alternative<DeleteGangObject>(request) ||
                std::holds_alternative<DeleteJob>(request))
        << "a job that has ended is only cleaned up, not request " << request.index();
  }
  if (!ended) return;
  EXPECT_FALSE(outcome.status || outcome.report || outcome.memory || !outcome.events.empty())
      << "nothing more is said of a job that has ended";
}

namespace {

std::size_t parts_of(const Outcome& outcome) {
  return outcome.requests.size() + outcome.events.size() + (outcome.status ? 1 : 0) +
         (outcome.report ? 1 : 0) + (outcome.memory ? 1 : 0) + (outcome.requeue ? 1 : 0);
}

// What an operator has carried out that dies after so many parts.
Outcome first_of(const Outcome& outcome, std::size_t parts) {
  Outcome first;
  const auto take = [&](const auto& from, auto& to) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(parts, from.size()));
    to.assign(from.begin(), from.begin() + count);
    parts -= to.size();
  };
  const auto take_one = [&](const auto& from, auto& to) {
    if (!from || parts == 0) return;
    to = from;
    --parts;
  };
  take(outcome.requests, first.requests);
  take_one(outcome.status, first.status);
  take(outcome.events, first.events);
  take_one(outcome.report, first.report);
  take_one(outcome.memory, first.memory);
  take_one(outcome.requeue, first.requeue);
  return first;
}

}  // namespace

// True when something was done.
bool Model::one_pass() {
  Snapshot snapshot = world.snapshot();
  if (shuffles) shuffle(snapshot.pods, random_);
  Outcome outcome = world.decide(snapshot);
  check(outcome);
  const bool dies = crashes && random_.below(3) == 0;
  if (dies) outcome = first_of(outcome, random_.below(parts_of(outcome) + 1));
  for (const Request& request : outcome.requests) {
    if (const auto* removal = std::get_if<DeletePod>(&request)) check_deletion(*removal);
  }
  const bool changed = world.carry_out(outcome);
  if (dies) new_leader();
  return changed || dies;
}

void Model::refuse(Refuses what, std::chrono::seconds span) {
  world.refuses = [this, what, until = world.now + span](const Request& request) -> std::string {
    if (world.now >= until) return "";
    const bool patch = std::holds_alternative<PatchStatus>(request) ||
                       std::holds_alternative<PatchReport>(request);
    const bool removal = std::holds_alternative<DeletePod>(request);
    const bool wanted = what == Refuses::kAll || (what == Refuses::kPatches ? patch : !patch);
    return wanted && !(what == Refuses::kCreates && removal) ? kRefusal : "";
  };
}

bool Model::settle(int most) {
  const int allowed = crashes ? 20 * most : most;
  for (int i = 0; i < allowed; ++i) {
    if (!one_pass()) return true;
  }
  return false;
}

void Model::recover() {
  world.job.spec.suspend = false;
  world.job.spec.min_data_parallel.reset();
  world.nodes.clear();
  world.refuses = {};
  for (int i = 0; i < 40; ++i) {
    settle();
    world.kubelets_end();
    world.kubelets_run();
    world.workers_register();
    settle();
    if (world.plan() != nullptr) {
      world.coordinator_applies();
      world.report->body.step += 1;
    }
    settle();
    const bool ended =
        world.condition("Complete").status == "True" || world.condition("Failed").status == "True";
    const bool sized = world.job.status.data_parallel == world.job.spec.data_parallel;
    if (ended || (world.condition("Ready").status == "True" && sized && i > 2)) return;
    world.now += 30s;
  }
}

}  // namespace weir::reconcile::test
