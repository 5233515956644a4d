// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/controller.h"

#include <algorithm>
#include <cctype>
#include <pthread.h>
#include <string_view>
#include <utility>

#include "operator/api/decode.h"
#include "operator/api/names.h"
#include "operator/controller/reconcile/pass/refusals.h"
#include "operator/kube/status_error.h"
#include "worker/base/log.h"
#include "worker/protocol/codec.h"

namespace weir::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kConflictTries = 5;  // operator/controller/README.md "Passes"
constexpr milliseconds kConflictPause{10};
constexpr seconds kCacheBehind{1};  // usually the awaited event wakes the job earlier
constexpr seconds kNotLeading{1};
// A refused template may be accepted later (quota, service account).
constexpr seconds kRejectedAgain{30};
constexpr seconds kProfileErrorKept{5};
constexpr seconds kForeignKept{30};
constexpr seconds kHopelessAgain{60};
constexpr int kWarnAfterFailures = 10;  // a normal retry is debug (operator/README.md "Log")

constexpr auto kEvaluate = "evaluate";

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_plan_of(const api::ConfigMap& map, const api::PipelineJob& job) {
  return map.meta.owner_uid == job.meta.uid &&
         map.meta.name.starts_with(api::plan_config_maps(job.meta.name)) &&
         map.data.contains("plan.json");
}

// Objects of an earlier job of the same name. Two jobs would harm each other if they shared a
// checkpoint folder or if their pods mixed.
std::vector<reconcile::Leftover> leftovers_of(const cache::JobView& view) {
  std::vector<reconcile::Leftover> out;
  const auto& job = view.job->meta;
  const auto look_at = [&](const char* kind, const api::ObjectMeta& meta) {
    const auto of = meta.labels.find(api::kJobName);
    if (of == meta.labels.end() || of->second != job.name || meta.owner_uid == job.uid) return;
    out.push_back({std::string(kind) + " " + meta.name, !meta.owner_uid.empty()});
  };
  for (const auto& pod : view.pods) {  // pods of users may have our job label, but no attempt
    if (pod->meta.labels.contains(api::kAttempt)) look_at("Pod", pod->meta);
  }
  for (const auto& map : view.config_maps) {
    if (map->meta.name == api::control_config_map(job.name) ||
        map->meta.name.starts_with(api::plan_config_maps(job.name)))
      look_at("ConfigMap", map->meta);
  }
  if (view.service) look_at("Service", view.service->meta);
  if (view.pod_group) look_at("PodGroup", view.pod_group->meta);
  return out;
}

// True for conflicts, a slow or absent API server, and our own stop.
bool passes_by_itself(const kube::ApiError& error) {
  switch (error.code) {
    case Code::kConflict:
    case Code::kTimeout:
    case Code::kUnavailable:
    case Code::kThrottled:
    case Code::kCancelled:
    case Code::kGone:
    case Code::kInternal:
      return true;
    case Code::kUnauthorized:
    case Code::kForbidden:
    case Code::kNotFound:
    case Code::kInvalid:
    case Code::kModel:
      return false;
  }
  return false;
}

}  // namespace

std::vector<std::string> plan_kinds() {
  using schedule::Trigger;
  std::vector<std::string> out{kEvaluate};
  for (const Trigger trigger :
       {Trigger::kInitial, Trigger::kRetune, Trigger::kRegroup, Trigger::kReplace,
        Trigger::kRestart, Trigger::kResize, Trigger::kCompress, Trigger::kManual}) {
    out.push_back(lower_case(schedule::name(trigger)));
  }
  return out;
}

std::string planned_kind(const reconcile::AdaptationState& before,
                         const reconcile::Outcome& outcome) {
  for (const reconcile::Request& request : outcome.requests) {
    if (const auto* plan = std::get_if<reconcile::CreatePlan>(&request)) {
      return lower_case(schedule::name(plan->plan.trigger));
    }
  }
  if (!outcome.memory) return "";
  const adaptation::Memory& memory = outcome.memory->memory;
  if (memory.repartition.searches > before.memory.repartition.searches) {
    return lower_case(schedule::name(schedule::Trigger::kRegroup));
  }
  // An empty optional is less.
  return memory.last_evaluation > before.memory.last_evaluation ? kEvaluate : "";
}

Controller::Controller(Executor::Parts parts, ControllerOptions options)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      executor_(parts_),
      queue_(parts_.clock, options_.queue) {}

Controller::~Controller() {
  stop(parts_.clock.now());
}

void Controller::start() {
  alive_ = parts_.clock.now().time_since_epoch().count();
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
    pthread_setname_np(threads_.back().native_handle(), ("reconcile-" + std::to_string(i)).c_str());
  }
}

bool Controller::stop(SteadyTime deadline) {
  queue_.shut_down();
  for (std::jthread& thread : threads_) thread.request_stop();
  std::stop_source never;
  while (running_ > 0 && parts_.clock.now() < deadline) {
    parts_.clock.sleep_until(parts_.clock.now() + milliseconds(20), never.get_token());
  }
  if (running_ > 0) return false;
  threads_.clear();
  return true;
}

SteadyTime Controller::last_alive() const {
  if (queue_.depth() == 0) return parts_.clock.now();
  return SteadyTime(SteadyTime::duration(alive_.load()));
}

void Controller::run(std::stop_token stop) {
  while (const auto key = queue_.get(stop)) {
    ++running_;
    reconcile_key(*key);
    queue_.done(*key);
    --running_;
    alive_ = parts_.clock.now().time_since_epoch().count();
  }
}

std::shared_ptr<JobMemory> Controller::memory_of(const std::string& key, const std::string& uid) {
  const std::lock_guard lock(memory_mutex_);
  auto& place = memory_[key];
  if (!place || place->uid != uid) {
    place = std::make_shared<JobMemory>();
    place->uid = uid;
  }
  return place;
}

// Drops fetched answers that may have changed.
void Controller::forget_old_answers(const api::PipelineJob& job, JobMemory& memory) const {
  const SteadyTime now = parts_.clock.now();
  if (memory.template_check && !memory.template_check->accepted &&
      now - memory.template_checked > kRejectedAgain) {
    memory.template_check.reset();
  }
  if (memory.foreign_service_owner && now - memory.foreign_seen > kForeignKept) {
    memory.foreign_service_owner.reset();
  }
  const auto replan = job.meta.annotations.find(api::kReplan);
  const std::string asked = replan == job.meta.annotations.end() ? "" : replan->second;
  if (memory.profile &&
      ((!memory.profile->error.empty() && now - memory.profile_read > kProfileErrorKept) ||
       memory.replan_seen != asked)) {
    memory.profile.reset();
  }
  memory.replan_seen = asked;
  reconcile::forget_old(memory.refused, parts_.clock.system_now());
}

reconcile::Snapshot Controller::snapshot_of(const std::string& key, const cache::JobView& view,
                                            JobMemory& memory) const {
  const api::PipelineJob& job = *view.job;
  reconcile::Snapshot out;
  out.job = view.job;
  out.pods_confirmed = memory.pods_confirmed;
  for (const auto& pod : view.pods) {
    if (pod->meta.owner_uid == job.meta.uid) out.pods.push_back(pod);
  }
  std::map<std::string, schedule::Plan> plans;  // of ConfigMaps that still exist
  for (const auto& map : view.config_maps) {
    if (map->meta.name == api::control_config_map(job.meta.name) &&
        map->meta.owner_uid == job.meta.uid) {
      const auto text = [&](const char* entry) {
        const auto found = map->data.find(entry);
        return found == map->data.end() ? "" : found->second;
      };
      out.control_ca = text("ca.crt");
      out.written_url = text("url");
    }
    if (!is_plan_of(*map, job)) continue;
    const auto known = memory.plans.find(map->meta.uid);
    if (known != memory.plans.end()) {
      plans.insert(memory.plans.extract(known));
    } else if (auto plan = protocol::decode_plan(map->data.at("plan.json"))) {
      plans.emplace(map->meta.uid, *std::move(plan));
    } else {
      log_warn("controller", "plan skipped",
               {{"config_map", map->meta.name}, {"error", plan.error().message}});
    }
  }
  memory.plans = std::move(plans);
  for (const auto& [uid, plan] : memory.plans) out.plans.push_back(plan);
  std::ranges::sort(out.plans, {}, &schedule::Plan::revision);
  out.leftovers = leftovers_of(view);
  out.taken_names = memory.taken_pod_names;
  std::erase_if(memory.pod_warnings, [&](const auto& entry) {
    return std::ranges::none_of(out.pods,
                                [&](const auto& pod) { return pod->meta.uid == entry.first; });
  });
  out.pod_warnings = memory.pod_warnings;
  out.service_exists = view.service != nullptr || memory.foreign_service_owner.has_value();
  out.service_owner_uid =
      view.service ? view.service->meta.owner_uid : memory.foreign_service_owner.value_or("");
  out.control_url = parts_.control_url();
  out.ca_bundle = parts_.ca_bundle();
  ControlView control = options_.control(key, job.meta.uid);
  out.members = std::move(control.members);
  out.report = std::move(control.report);
  out.claims = std::move(control.claims);
  out.nodes = parts_.cache.nodes();
  out.adaptation = memory.adaptation;
  out.adaptation.memory.calibration = calibration();
  out.memo = &memory.memo;
  out.template_check = memory.template_check;
  out.profile = memory.profile;
  out.refused = memory.refused;
  out.gang = memory.gang;
  out.gang.watched = view.pod_groups_watched;
  if (view.pod_group && view.pod_group->meta.owner_uid == job.meta.uid)
    out.gang.seen = view.pod_group;
  out.status_written = memory.status_written;
  out.jobs = static_cast<int>(parts_.cache.job_count());
  out.now = parts_.clock.system_now();
  out.leading_since = options_.leading_since().value_or(out.now);
  return out;
}

gate::Calibration Controller::calibration() const {
  const std::lock_guard lock(memory_mutex_);
  return calibration_;
}

void Controller::learn(const gate::Observation& observation) {
  {
    const std::lock_guard lock(memory_mutex_);
    gate::learn(calibration_, observation);
  }
  if (options_.judged) options_.judged(observation);
}

void Controller::report_applied(const cache::JobView& view, JobMemory& memory,
                                const reconcile::Outcome& outcome) const {
  for (const reconcile::Request& request : outcome.requests) {
    if (const auto* plan = std::get_if<reconcile::CreatePlan>(&request)) {
      memory.plan_made = {plan->plan.revision, parts_.clock.now()};
    }
  }
  if (!outcome.status || !memory.plan_made) return;
  const api::PlanStatus& plan = outcome.status->status.plan;
  if (plan.applied_revision != memory.plan_made->first ||
      view.job->status.plan.applied_revision == plan.applied_revision) {
    return;
  }
  if (options_.applied) {
    options_.applied(lower_case(plan.trigger), parts_.clock.now() - memory.plan_made->second);
  }
  memory.plan_made.reset();
}

// Reads, decides, acts. After a conflict the cache was behind, so it reads again, a few times.
Executed Controller::pass(const std::string& key) {
  for (int tries = 1;; ++tries) {
    const cache::JobView view = parts_.cache.view(key);
    if (!view.job) {
      {
        const std::lock_guard lock(memory_mutex_);
        memory_.erase(key);
      }
      if (options_.on_gone) options_.on_gone(key);
      return executor_.let_go(view);
    }
    if (!parts_.cache.caught_up(key)) {
      Executed behind;
      behind.requeue = kCacheBehind;
      return behind;
    }
    const auto memory = memory_of(key, view.job->meta.uid);
    forget_old_answers(*view.job, *memory);
    const auto snapshot = snapshot_of(key, view, *memory);
    const SteadyTime begin = parts_.clock.now();
    const auto outcome = reconcile::reconcile(snapshot, options_.estimates(key, view.job->meta.uid),
                                              options_.tunables);
    const std::string kind = planned_kind(snapshot.adaptation, outcome);
    if (options_.planned && !kind.empty()) {
      options_.planned(kind.c_str(), parts_.clock.now() - begin);
    }
    if (!outcome.empty() && !parts_.may_write()) {
      Executed later;
      later.requeue = kNotLeading;
      return later;
    }
    Executed executed = executor_.run(view, *memory, outcome);
    if (!executed.error && !executed.refused) {
      report_applied(view, *memory, outcome);
      if (outcome.judged) learn(*outcome.judged);
    }
    if (memory->template_check && !memory->template_check->accepted) {
      executed.requeue = std::min<milliseconds>(executed.requeue.value_or(kRejectedAgain),
                                                kRejectedAgain + seconds(1));
    }
    const bool conflict = executed.error && executed.error->http_status == 409;
    if (!conflict || tries == kConflictTries) return executed;
    std::stop_source never;
    parts_.clock.sleep_until(parts_.clock.now() + kConflictPause, never.get_token());
  }
}

void Controller::reconcile_key(const std::string& key) {
  const SteadyTime begin = parts_.clock.now();
  const Executed executed = pass(key);
  settle(key, executed);
  if (!options_.observe) return;
  const char* result = executed.error                 ? "error"
                       : executed.again               ? "requeue"
                       : executed.requeue.has_value() ? "requeue_after"
                                                      : "success";
  options_.observe(result, parts_.clock.now() - begin);
}

void Controller::settle(const std::string& key, const Executed& executed) {
  if (executed.error) {
    const LogFields fields = {{"job", key},
                              {"action", executed.failed},
                              {"status", executed.error->http_status},
                              {"reason", executed.error->reason},
                              {"error", executed.error->message}};
    // A refusal is a warning at once; an error that passes by itself only if it lasts.
    const int failures = queue_.failures(key);
    const bool warns = passes_by_itself(*executed.error)
                           ? failures > 0 && failures % kWarnAfterFailures == 0
                           : failures % kWarnAfterFailures == 0;
    const LogLevel level = warns ? LogLevel::kWarn : LogLevel::kDebug;
    if (log_enabled(level)) log(level, "controller", "pass ended early", fields);
    queue_.add_rate_limited(key);
    return;
  }
  queue_.forget(key);
  if (executed.hopeless) {
    queue_.add_after(key, kHopelessAgain);
  } else if (executed.again) {
    queue_.add(key);
  } else if (executed.requeue) {
    queue_.add_after(key, *executed.requeue);
  }
}

}  // namespace weir::controller
