// SPDX-License-Identifier: Apache-2.0
// The operator's side of the control API, its passes and its leaders.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "operator/control/coordinator.h"
#include "tests/sim/recovery_parts.h"

namespace weir::sim {
namespace {

constexpr double kResend = 1;    // s, of requests to the operator
constexpr double kPoll = 0.2;    // s
constexpr double kWatch = 0.05;  // s, until the operator sees a change
constexpr int kMostPasses = 12;
const std::string kKey = "team/job";

}  // namespace

void RecoveryWorld::call(const Worker& worker, std::function<void(Worker&)> work) {
  const auto opens = [this](const Worker& one) {
    return operator_up_ && awake(one) && !one.cut && !one.cut_from_operator;
  };
  if (!opens(worker)) return;
  agenda_.after(2 * soon() + 0.02 * random_.uniform(),
                [this, opens, uid = worker.uid, life = worker.life, work = std::move(work)] {
                  Worker* const same = find(uid);
                  if (same != nullptr && same->life == life && opens(*same)) work(*same);
                });
}

api::Pod* RecoveryWorld::pod_of(const std::string& uid) {
  const auto found =
      std::ranges::find_if(world_.pods, [&](const auto& pod) { return pod.meta.uid == uid; });
  return found == world_.pods.end() ? nullptr : &*found;
}

cache::JobView RecoveryWorld::view() const {
  cache::JobView view;
  view.job = std::make_shared<const api::PipelineJob>(world_.job);
  for (const auto& pod : world_.pods) view.pods.push_back(std::make_shared<const api::Pod>(pod));
  return view;
}

// operator/control/routes.cpp, take_join.
std::optional<protocol::CoordinatorPlace> RecoveryWorld::take_join(
    const Worker& worker, std::optional<std::int64_t> lost_term) {
  const auto place = control_server::coordinator_of(view());
  const bool gone = !place && world_.job.status.coordinator;
  const auto lost = gone ? control_server::term_of(world_.job) : lost_term;
  if (lost && (gone || world_.job.status.plan.revision > 0)) {
    hub_->take_claim(kKey, world_.job.meta.uid, worker.uid, *lost);
  }
  return place;
}

bool RecoveryWorld::Source::served(Worker& worker) const {
  const api::Pod* const pod = world_.pod_of(worker.uid);
  if (pod == nullptr) return false;
  if (control_server::coordinates(world_.world_.job, *pod)) return true;
  callbacks_.on_moved(control_server::term_of(world_.world_.job));
  return false;
}

void RecoveryWorld::Source::tick() {
  const double now = world_.agenda_.now();
  const auto mine = [this](Worker& worker) { return worker.source == this && served(worker); };
  if (register_ && now >= register_at_) {
    register_at_ = now + kResend;
    world_.call(owner_, [this, mine, body = *register_, which = registers_](Worker& worker) {
      if (!mine(worker)) return;
      const bool taken = world_.hub_->take_register(kKey, body) == 202;
      if (taken && which == registers_) register_.reset();  // else another one came meanwhile
    });
  }
  if (report_ && now >= report_at_) {
    report_at_ = now + kResend;
    world_.call(owner_, [this, mine, body = *report_](Worker& worker) {
      if (!mine(worker)) return;
      const int code = world_.hub_->take_report(kKey, body);
      if (report_ && report_->sequence == body.sequence) report_.reset();
      if (code == 428) callbacks_.on_register_wanted();
    });
  }
  if (now < poll_at_) return;
  poll_at_ = now + kPoll;
  world_.call(owner_, [this, mine](Worker& worker) {
    if (!mine(worker)) return;
    const schedule::Plan* const plan = world_.world_.plan();
    if (plan != nullptr && plan->revision > have_) callbacks_.on_plan(*plan);
  });
}

void RecoveryWorld::pass_soon() {
  if (std::exchange(passing_, true)) return;
  agenda_.after(kWatch, [this] {
    passing_ = false;
    settle();
  });
}

void RecoveryWorld::settle() {
  world_.now = clock_->system_now();
  if (settling_) return;
  if (!operator_up_) return run_pods();  // kubelets go on
  settling_ = true;
  const std::string& uid = world_.job.meta.uid;
  world_.members.reset();
  world_.report.reset();
  world_.claims.clear();
  if (auto members = hub_->members(kKey, uid))
    world_.members = reconcile::MembersView{std::move(members->body), members->received};
  if (auto report = hub_->report(kKey, uid))
    world_.report = reconcile::ReportView{std::move(report->body), report->received};
  for (auto& claim : hub_->claims(kKey, uid))
    world_.claims.push_back({claim.pod_uid, claim.term, claim.received});
  bool changed = true;
  int passes = 0;
  for (; changed && passes < kMostPasses; ++passes) {
    const reconcile::Outcome outcome = world_.pass();
    world_.apply(outcome);
    check_terms();
    for (const auto& event : outcome.events) note("event " + event.reason + ": " + event.note);
    for (const auto& request : outcome.requests) {
      if (const auto* plan = std::get_if<reconcile::CreatePlan>(&request)) {
        std::string ranks;
        for (const auto& rank : plan->plan.ranks) ranks += " " + rank.pod;
        note("plan " + std::to_string(plan->plan.revision) + ":" + ranks);
      }
    }
    if (outcome.requeue) {
      agenda_.after(std::chrono::duration<double>(*outcome.requeue).count(),
                    [this, wake = ++wake_] {
                      if (wake == wake_) settle();
                    });
    }
    changed = !outcome.requests.empty() || outcome.status || !outcome.events.empty() ||
              outcome.report.has_value();
    run_pods();
  }
  if (passes == kMostPasses) fail("no fixed point");
  const auto& failed = world_.condition("Failed");
  if (failed.status == "True") fail("the job has failed: " + failed.message);
  settling_ = false;
}

void RecoveryWorld::lead_again() {
  if (operator_up_ || agenda_.now() < operator_back_) return;
  operator_up_ = true;
  note("another leader of the operator");
  hub_ = std::make_unique<control_server::Hub>(*clock_);
  hub_->on_change([this](const std::string&) { pass_soon(); });
  world_.adaptation = {};
  world_.gang = {};
  world_.memo = std::make_shared<facts::Memo>();
  world_.template_check.reset();
  world_.leading_since = world_.now = clock_->system_now();
  settle();
}

// One coordinator a term.
void RecoveryWorld::check_terms() {
  const auto& named = world_.job.status.coordinator;
  if (!named) return;
  const auto [entry, first] = holder_of_term_.emplace(named->term, named->pod_uid);
  if (!first && entry->second != named->pod_uid) {
    fail("term " + std::to_string(named->term) + " has two coordinators");
  }
}

}  // namespace weir::sim
