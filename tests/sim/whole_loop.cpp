// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/whole_loop.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "worker/schedule/validate.h"

namespace weir::sim {
namespace {

using schedule::Trigger;

constexpr double kScrape = 2, kTick = 5, kReport = 5;  // s
constexpr double kWatch = 0.05;                        // s, until the operator sees a change
constexpr int kMostPasses = 10;                        // tests/README.md "Invariants of a job"
constexpr double kMostStill = 400;                     // s without a step, nothing died

bool is_tier(Trigger trigger) {
  return trigger == Trigger::kRetune || trigger == Trigger::kCompress ||
         trigger == Trigger::kRegroup || trigger == Trigger::kReplace;
}

}  // namespace

LoopCase random_case(std::uint64_t seed) {
  Random random(mix_seed(seed, "case"));
  LoopCase one;
  constexpr int kReplicas[] = {1, 2, 1, 2, 4};
  one.shape.replicas = kReplicas[seed % 5];
  one.shape.node_rate = 6e6 * (1 + 4 * random.uniform());
  if (random.below(3) == 0) one.shape.memory_bytes = 60'000'000;
  one.replaces = seed % 3 == 0;
  // A stream of its own: what else a seed means stays what it was.
  const double mode = Random(mix_seed(seed, "partial")).uniform();
  if (one.shape.replicas > 1 && mode < 0.6) one.sync_mode = mode < 0.3 ? "Partial" : "Auto";
  return one;
}

WholeLoop::WholeLoop(const LoopCase& one, const std::string& mode, std::uint64_t seed)
    : case_(one),
      seed_(seed),
      hazards_(one.hazards
                   ? *one.hazards
                   : random_hazards(
                         seed, {.nodes = one.shape.workers * one.shape.replicas + one.spare_nodes,
                                .workers = one.shape.workers * one.shape.replicas,
                                .horizon = one.horizon})),
      workers_(agenda_, hazards_, one.shape, seed),
      metrics_(workers_, mix_seed(seed, "metrics")) {
  auto& spec = world_.job.spec;
  spec.worker_groups[0].count = one.shape.workers;
  spec.data_parallel = one.shape.replicas;
  spec.stages.reset();
  spec.micro_batch_size = one.shape.micro_batch_size;
  spec.global_batch = one.shape.replicas * one.shape.micro_batches * one.shape.micro_batch_size;
  spec.schedule.k_initial.reset();
  spec.checkpoint_path = "/checkpoints";
  spec.max_restarts = 1000;
  spec.sync_mode = one.sync_mode;
  spec.adaptation = {};
  spec.adaptation.mode = mode;
  spec.adaptation.regroup.enabled = one.regroups;
  spec.adaptation.compress.enabled = one.compresses;
  spec.adaptation.replace.enabled = one.replaces;
  for (std::size_t i = 1; i <= hazards_.node_share.size(); ++i) {
    api::Node node;
    node.meta.name = "n" + std::to_string(i);
    world_.nodes.push_back(node);
  }
}

std::string WholeLoop::at() const {
  char text[64];
  std::snprintf(text, sizeof text, "%8.1f s, step %lld: ", agenda_.now(),
                static_cast<long long>(workers_.step()));
  return text;
}

std::string WholeLoop::history() const {
  std::string text;
  for (const auto& line : log_) text += line + "\n";
  return text;
}

int WholeLoop::changes(Trigger trigger) const {
  return static_cast<int>(std::ranges::count(plans_, trigger, &schedule::Plan::trigger));
}

void WholeLoop::run() {
  workers_.on_news([this] {
    if (std::exchange(reports_soon_, true)) return;
    agenda_.after(kWatch, [this] {
      reports_soon_ = false;
      report();
    });
  });
  agenda_.every(kScrape, [this] { metrics_.scrape(agenda_.now()); });
  agenda_.every(kReport, [this] { report(); });
  agenda_.every(kTick, [this] { tick(); });
  agenda_.every(kSampled, [this] { work_.push_back(workers_.work()); });
  for (const auto& [time, worker] : hazards_.deaths) {
    agenda_.at(time, [this, worker = worker] { kill(worker); });
  }
  for (const double time : hazards_.new_leaders) {
    agenda_.at(time, [this] {
      log_.push_back(at() + "new leader");
      world_.adaptation = {};
      world_.gang = {};
      world_.memo = std::make_shared<facts::Memo>();
      world_.template_check.reset();
      world_.members.reset();
      world_.report.reset();
      world_.leading_since = metrics_.wall(agenda_.now());
      settle();
    });
  }
  settle();
  agenda_.run_until(case_.horizon);
  for (const auto& what : workers_.wrong()) fail(what);
}

bool WholeLoop::blind() const {
  return std::ranges::any_of(hazards_.blind, [&](const auto& spell) {
    return spell.first <= agenda_.now() && agenda_.now() < spell.second;
  });
}

void WholeLoop::tick() {
  metrics_.follow(world_.job, agenda_.now());
  world_.estimates = metrics_.estimates(agenda_.now(), !blind());
  settle();
  const double still = agenda_.now() - std::max(workers_.last_trained(), calm_since_);
  if (still > kMostStill) {
    fail("no step for " + std::to_string(still) + " s: " + world_.condition("Ready").message);
    calm_since_ = agenda_.now();
  }
}

void WholeLoop::report() {
  if (!workers_.has_coordinator()) return;
  world_.now = metrics_.wall(agenda_.now());
  world_.members = reconcile::MembersView{workers_.registration(), world_.now};
  world_.report = reconcile::ReportView{workers_.report(), world_.now};
  settle();
}

void WholeLoop::wake_after(std::chrono::milliseconds delay) {
  agenda_.after(static_cast<double>(delay.count()) / 1000, [this, wake = ++wake_] {
    if (wake == wake_) settle();
  });
}

// Passes until nothing changes.
void WholeLoop::settle() {
  world_.now = metrics_.wall(agenda_.now());
  for (int pass = 0; pass < kMostPasses; ++pass) {
    metrics_.follow(world_.job, agenda_.now());
    const reconcile::Outcome outcome = world_.pass();
    before_pass(outcome);
    world_.apply(outcome);
    if (outcome.requeue) wake_after(*outcome.requeue);
    const bool changed = !outcome.requests.empty() || outcome.status || !outcome.events.empty() ||
                         outcome.report.has_value();
    run_pods();
    if (!changed) {
      if (const auto* plan = world_.plan()) workers_.offer(*plan);
      return;
    }
  }
  fail("no fixed point within " + std::to_string(kMostPasses) + " passes");
}

// ---- what must hold: tests/README.md "Invariants of a job", worker/schedule/README.md "Legality"

void WholeLoop::before_pass(const reconcile::Outcome& outcome) {
  rolls_back_ =
      std::ranges::any_of(outcome.events,
                          [](const auto& event) { return event.reason == "PlanRolledBack"; }) ||
      (outcome.memory && outcome.memory->memory.ranks_change &&
       outcome.memory->memory.ranks_change->kind == gate::Kind::kRetry);
  for (const reconcile::Request& request : outcome.requests) {
    if (const auto* plan = std::get_if<reconcile::CreatePlan>(&request)) check_plan(plan->plan);
    if (const auto* pod = std::get_if<reconcile::DeletePod>(&request)) check_deletion(*pod);
  }
  for (const api::Event& event : outcome.events) {
    log_.push_back(at() + event.reason + ": " + event.note);
    if (event.reason == "PlanOutcome") note_outcome(event.note);
  }
  if (outcome.requeue && outcome.requeue->count() <= 0) fail("a requeue that does not wait");
  if (!outcome.status) return;
  const api::JobStatus& status = outcome.status->status;
  int counted = 0;
  for (const auto& one : status.restart_reasons)
    counted += one.reason == "Replaced" ? 0 : one.count;
  if (counted > deaths_) fail("more restarts than deaths");
  for (const auto& condition : status.conditions) {
    if (condition.type == "Failed" && condition.status == "True") {
      fail("the job failed: " + condition.message);
    }
    if (condition.type == "Degraded" && condition.status == "True") ++degraded_;
  }
}

void WholeLoop::note_outcome(const std::string& note) {
  const auto& report = world_.report->body;
  const auto number_after = [&](const std::string& words) {
    const auto found = note.find(words);
    return found == std::string::npos ? 0.0 : std::stod(note.substr(found + words.size()));
  };
  const auto revision = static_cast<std::uint32_t>(number_after("revision "));
  const auto now = std::ranges::find(plans_, revision, &schedule::Plan::revision);
  if (!report.segment || !report.previous_segment || now == plans_.end()) return;
  const auto before =
      std::ranges::find(plans_, report.previous_segment->revision, &schedule::Plan::revision);
  if (before == plans_.end()) return;
  const double with = workers_.step_during(*now, *report.segment);
  const double without = workers_.step_during(*before, *report.segment);
  if (with <= 0 || without <= 0) return;
  outcomes_.push_back({.time = agenda_.now(),
                       .told = number_after("measured ") / 100,
                       .truth = without / with - 1,
                       .note = note});
}

void WholeLoop::check_plan(const schedule::Plan& plan) {
  const std::string which =
      "plan " + std::to_string(plan.revision) + " (" + schedule::name(plan.trigger) + "): ";
  for (const auto& line : schedule::broken_rules(plan, case_.shape.layers)) fail(which + line);
  const std::int64_t shares = plan.step_micro_batches();
  if (shares * plan.schedule.micro_batch_size != world_.job.spec.global_batch) {
    fail(which + "another global batch");
  }
  if (!plans_.empty() && plan.revision <= plans_.back().revision) fail(which + "no new revision");
  for (const auto& rank : plan.ranks) {
    if (!healthy(rank.pod_uid)) fail(which + rank.pod + " does not run");
  }
  check_sync(which, plan);
  const auto& adaptation = world_.job.spec.adaptation;
  if (adaptation.mode != api::AdaptationMode::kAuto && is_tier(plan.trigger))
    fail(which + "a tier is at work");
  // Only its steps show that a retry has failed.
  if (is_tier(plan.trigger) && !rolls_back_ &&
      world_.estimates.freshness != estimator::Freshness::kFresh && !all_untimed()) {
    fail(which + "nothing fresh is known of the network");
  }
  if (schedule::in_band_tier(plan.trigger) && is_tier(plan.trigger) && !plans_.empty()) {
    const auto* current = workers_.plan();
    if (current != nullptr && !schedule::same_generation(*current, plan)) {
      fail(which + "another generation");
    }
    if (plan.state != schedule::StateMove::kKeep) fail(which + "state does not stay");
  }
  if (plan.trigger == Trigger::kRegroup && rolls_back_) rollbacks_.insert(plan.revision);
  if (plan.trigger == Trigger::kRegroup) {
    if (plan.state != schedule::StateMove::kMove) fail(which + "state does not move");
    for (std::size_t i = plans_.size(); i-- > 0 && !rolls_back_;) {
      if (plans_[i].trigger != Trigger::kRegroup || rollbacks_.contains(plans_[i].revision))
        continue;
      // Within the cooldown a restart may have begun anew; the clock is in status.
      if (agenda_.now() - plan_times_[i] < adaptation.regroup.cooldown_seconds - 1) {
        fail(which + "within the cooldown");
      }
      break;
    }
  }
  plans_.push_back(plan);
  plan_times_.push_back(agenda_.now());
  if (plan.sync.mode == schedule::SyncMode::kPartial) ++partial_plans_;
  std::string caps, stages;
  for (const int cap : plan.schedule.caps) caps += " " + std::to_string(cap);
  for (const int share : plan.micro_batches) stages += " " + std::to_string(share);
  log_.push_back(at() + which + std::to_string(plan.stage_count()) + " stages, caps" + caps +
                 ", shares" + stages + ", " + schedule::name(plan.sync.mode));
}

// Nothing is fresh where all messages arrive in one piece, and that is known.
bool WholeLoop::all_untimed() const {
  const auto& segment = world_.report->body.segment;
  return case_.shape.one_piece > 0 && segment &&
         std::ranges::all_of(segment->links, [](const auto& link) { return link.timed == 0; });
}

// What spec.sync.mode allows; in groups slow replicas need no smaller share.
void WholeLoop::check_sync(const std::string& which, const schedule::Plan& plan) {
  const auto& spec = world_.job.spec;
  const bool partial = plan.sync.mode == schedule::SyncMode::kPartial;
  const bool may = spec.sync_mode == api::SyncMode::kPartial ||
                   (spec.sync_mode == api::SyncMode::kAuto &&
                    spec.adaptation.mode == api::AdaptationMode::kAuto);
  const bool must = spec.sync_mode == api::SyncMode::kPartial && plan.replica_count() > 1;
  if ((partial && !may) || (!partial && must)) fail(which + "another sync mode");
  if (!partial) return;
  const auto [least, most] = std::ranges::minmax(plan.micro_batches);
  if (most - least > 1) fail(which + "uneven shares in groups");
}

bool WholeLoop::healthy(const std::string& uid) const {
  return std::ranges::any_of(world_.pods, [&](const auto& pod) {
    return pod.meta.uid == uid && pod.phase == "Running" && !pod.meta.deleting;
  });
}

// A healthy pod goes only when another one has its place.
void WholeLoop::check_deletion(const reconcile::DeletePod& action) {
  if (!healthy(action.uid)) return;
  const auto& pod = world_.pod(action.name);
  const bool replaced = std::ranges::any_of(world_.pods, [&](const auto& other) {
    return other.meta.labels.at("weir.dev/worker-index") ==
               pod.meta.labels.at("weir.dev/worker-index") &&
           std::stoi(other.meta.labels.at("weir.dev/attempt")) >
               std::stoi(pod.meta.labels.at("weir.dev/attempt"));
  });
  if (!replaced) fail("deletes " + action.name + ": " + action.why);
}

// ---- scheduler and kubelets ----

void WholeLoop::run_pods() {
  std::set<std::string> there;
  for (const auto& pod : world_.pods) {
    there.insert(pod.meta.uid);
    if (pod.phase != "Pending" || !scheduled_.insert(pod.meta.uid).second) continue;
    Random random(mix_seed(seed_, pod.meta.uid));
    agenda_.after(3 + 7 * random.uniform(), [this, uid = pod.meta.uid] { start(uid); });
  }
  for (auto uid = running_.begin(); uid != running_.end();) {
    if (there.contains(*uid)) {
      ++uid;
      continue;
    }
    workers_.end(*uid, false);
    uid = running_.erase(uid);
  }
}

void WholeLoop::start(const std::string& uid) {
  const auto pod =
      std::ranges::find_if(world_.pods, [&](const auto& one) { return one.meta.uid == uid; });
  if (pod == world_.pods.end()) return;
  const auto taken = [&](const std::string& node) {
    return std::ranges::any_of(world_.pods, [&](const auto& other) {
      return other.node == node && other.phase == "Running";
    });
  };
  const auto avoided = [&](const std::string& node) {
    return std::ranges::any_of(world_.job.status.avoided_nodes,
                               [&](const auto& one) { return one.node == node; });
  };
  for (const auto& node : world_.nodes) {
    if (taken(node.meta.name) || avoided(node.meta.name)) continue;
    pod->phase = "Running";
    pod->node = node.meta.name;
    pod->ips = {"10.0.0.1"};
    pod->ready = pod->started = true;
    running_.insert(uid);
    workers_.join(
        {pod->meta.name, uid, pod->node, std::stoi(pod->meta.labels.at("weir.dev/worker-index"))});
    return settle();
  }
  agenda_.after(kReport, [this, uid] { start(uid); });  // no node is free
}

void WholeLoop::kill(int worker) {
  for (auto& pod : world_.pods) {
    if (pod.phase != "Running") continue;
    if (pod.meta.labels.at("weir.dev/worker-index") != std::to_string(worker)) continue;
    log_.push_back(at() + pod.meta.name + " dies");
    ++deaths_;
    world_.now = metrics_.wall(agenda_.now());
    world_.fail(pod.meta.name, 1);
    running_.erase(pod.meta.uid);
    workers_.end(pod.meta.uid, true);
    return settle();
  }
}

}  // namespace weir::sim
