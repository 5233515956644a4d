// SPDX-License-Identifier: Apache-2.0
// Measurements in status: the network, progress, worst links.
#include <cmath>

#include "operator/adaptation/shares/propose.h"
#include "operator/controller/reconcile/pass.h"
#include "worker/base/random.h"

namespace weir::reconcile {
namespace {

constexpr const char* kContended = "NetworkContended";

struct Degradation {
  std::string reason, text;
};

const estimator::LinkEstimate* slowest_contended(const Pass& pass) {
  const estimator::LinkEstimate* slow = nullptr;
  for (const auto* links : {&pass.estimates.links, &pass.estimates.sync_links}) {
    for (const auto& link : *links) {
      if (link.preempted && (slow == nullptr || link.now < slow->now)) slow = &link;
    }
  }
  return slow;
}

std::optional<std::string> straggler_of(const Pass& pass) {
  if (pass.plan == nullptr || pass.plan->replica_count() < 2) return std::nullopt;
  return shares::straggler(facts_of(pass));
}

// The worst problem that is measured of a job that trains.
std::optional<Degradation> degradation(Pass& pass) {
  if (pass.snapshot.report && pass.snapshot.report->body.skipped_in_row > 0) {
    const auto& report = pass.snapshot.report->body;
    return Degradation{"StepsSkipped", std::to_string(report.skipped_in_row) +
                                           " steps in a row up to step " +
                                           std::to_string(report.step) +
                                           " changed no parameter: loss or gradient is not finite"};
  }
  if (const auto why = reduced(pass)) return Degradation{"ReducedReplicas", *why};
  if (const auto* slow = slowest_contended(pass)) {
    return Degradation{kContended, "link " + slow->from_node + "->" + slow->to_node + " " +
                                       bits_per_second(slow->now) + " of " +
                                       bits_per_second(slow->baseline)};
  }
  if (const auto who = straggler_of(pass)) return Degradation{"Straggler", *who};
  return std::nullopt;
}

}  // namespace

void show_network(Pass& pass) {
  using estimator::Freshness;
  const auto& estimates = pass.estimates;
  const bool off = pass.spec().adaptation.mode == api::AdaptationMode::kOff;
  const bool alone = pass.plan != nullptr && pass.plan->ranks.size() < 2;
  // Unknown, not False, if nobody need act.
  if (off) {
    pass.set("NetworkMetricsAvailable", "Unknown", "Disabled", "adaptation.mode is Off");
  } else if (estimates.freshness == Freshness::kFresh) {
    pass.set("NetworkMetricsAvailable", "True", "Fresh",
             std::to_string(estimates.links.size()) + " link directions measured");
  } else if (alone && estimates.freshness == Freshness::kNoSeries) {
    pass.set("NetworkMetricsAvailable", "Unknown", "NoLinks", "one worker trains, it has no links");
  } else if (pass.status.plan.applied_revision == 0) {
    pass.set("NetworkMetricsAvailable", "Unknown", estimator::name(estimates.freshness),
             "training has not started");
  } else {
    if (pass.is("NetworkMetricsAvailable", "True")) {
      pass.event("Warning", "MetricsUnavailable",
                 std::string(estimator::name(estimates.freshness)) + ": " + estimates.detail,
                 "Adapt");
    }
    pass.set("NetworkMetricsAvailable", "False", estimator::name(estimates.freshness),
             estimates.detail);
  }
  const auto* before = api::find_condition(pass.status.conditions, "Degraded");
  const std::string old = before != nullptr && before->status == "True" ? before->reason : "";
  const auto worst = degradation(pass);
  if (old == kContended && !slowest_contended(pass)) {
    pass.event("Normal", "NetworkRecovered", "all links are back above 90 % of their baseline",
               "Observe");
  }
  if (worst) {
    if (old != worst->reason) pass.event("Warning", worst->reason, worst->text, "Observe");
    return pass.set("Degraded", "True", worst->reason, worst->text);
  }
  if (old != "PredictedGainMissed" || pass.adaptation.memory.plan_change) {
    pass.set("Degraded", pass.status.plan.applied_revision == 0 ? "Unknown" : "False", "AsPlanned",
             "");
  }
}

namespace {

void show_sync(const Pass& pass, api::ReportStatus& shown) {
  shown.sync_mode = "Exact";
  if (pass.plan == nullptr) return;
  shown.sync_mode = schedule::name(pass.plan->sync.mode);
  shown.micro_batch_shares = pass.plan->micro_batches;
  if (pass.plan->replica_count() < 2) return;
  const bool exact = pass.plan->sync.mode == schedule::SyncMode::kExact;
  shown.sync_group_size_max = exact ? pass.plan->replica_count() : pass.plan->sync.group_size_max;
  if (!exact) {
    const auto& groups = pass.snapshot.report->body.sync;
    if (!groups) return;
    shown.sync_mean_group_size = number(groups->mean_group_size, 1);
    shown.sync_max_staleness = number(groups->max_staleness, 1);
    return;
  }
  shown.sync_mean_group_size = number(pass.plan->replica_count(), 1);
  shown.sync_max_staleness = "0";
}

// Interval of progress in status. Each job has its own, so that not all jobs write at once.
std::chrono::milliseconds progress_interval(const Pass& pass) {
  constexpr int kProgressPerSecond = 20;  // of all jobs together
  constexpr double kJitter = 0.2;
  const auto least = stretched(pass, pass.tunables.progress_status, kProgressPerSecond);
  const double drawn = Random(mix_seed(0, pass.job().meta.uid)).uniform();
  const std::chrono::duration<double> seconds = least * (1 - kJitter + 2 * kJitter * drawn);
  return std::chrono::duration_cast<std::chrono::milliseconds>(seconds);
}

// Progress in percent. A checkpoint may have more steps than the job wants now.
int percent_done(std::int64_t step, std::int64_t total) {
  if (step <= 0 || total <= 0) return 0;
  if (step >= total) return 100;
  return static_cast<int>(100 * static_cast<double>(step) / static_cast<double>(total));
}

std::int64_t seconds_left(std::int64_t steps, double seconds_each) {
  constexpr double kMost = 1e15;  // beyond what a double counts exactly
  const double left = static_cast<double>(std::max<std::int64_t>(steps, 0)) * seconds_each;
  return static_cast<std::int64_t>(std::min(left, kMost));
}

// Whether a report or a sample is newer than the one in status. Times in status have whole seconds.
bool has_news(const Pass& pass) {
  using std::chrono::floor;
  using std::chrono::seconds;
  const auto& old = pass.job().report;
  if (!old.last_report_time ||
      floor<seconds>(pass.snapshot.report->received) > floor<seconds>(*old.last_report_time)) {
    return true;
  }
  return pass.estimates.freshness == estimator::Freshness::kFresh && old.last_sample_time &&
         pass.now() >= *old.last_sample_time + pass.tunables.network_status;
}

// Whether a restart is recorded, but its plan is not in force. Then a new coordinator reports step
// 0.
bool between_runs(const Pass& pass) {
  const auto& last = pass.status.last_restart_time;
  const auto& plan = pass.status.plan;
  if (plan.trigger == schedule::name(schedule::Trigger::kRestart) &&
      plan.applied_revision != plan.revision) {
    return true;
  }
  return last && (!plan.time || *plan.time <= *last);
}

}  // namespace

void show_report(Pass& pass) {
  const auto& old = pass.job().report;
  const bool network_moved =
      pass.estimates.freshness == estimator::Freshness::kFresh &&
      (slowest_contended(pass) != nullptr) != (old.network_state == "Contended");
  const auto* suspended = api::find_condition(pass.job().status.conditions, "Suspended");
  const bool pauses = pass.is("Suspended", "True") &&  // this is the last report before the pause
                      (suspended == nullptr || suspended->status != "True");
  const bool ended = pass.is("Complete", "True") || pass.is("Failed", "True") || pauses;
  const bool restarts = pass.status.restarts != pass.job().status.restarts;
  if (!pass.snapshot.report) return;
  const Time next = pass.now() + progress_interval(pass);  // the pass then also notices silence
  if (!network_moved && !ended && !restarts) {
    if (!has_news(pass)) return pass.wake_at(next);
    const Time due = old.last_report_time.value_or(Time{}) + progress_interval(pass);
    if (pass.now() < due) return pass.wake_at(due);
  }
  const auto& report = pass.snapshot.report->body;
  api::ReportStatus shown;
  shown.has_progress = true;
  // A coordinator ends with success only after the last step; its last report may be missing.
  std::int64_t step = report.step;
  if (pass.is("Complete", "True")) step = std::max(step, report.total_steps);
  if (ended && old.step == step && !has_news(pass)) return;  // the pass before has written it
  if (between_runs(pass)) step = std::max(step, old.step);   // event ProgressLost needs it
  shown.step = step;
  shown.total_steps = report.total_steps;
  shown.percentage = percent_done(step, report.total_steps);
  shown.samples_per_second = number(report.samples_per_second, 1);
  shown.loss = std::isfinite(report.loss) ? number(report.loss, 4) : "";
  shown.bubble_percent = percent(report.bubble_ratio);
  shown.last_checkpoint_step = old.last_checkpoint_step;
  if (report.last_checkpoint_step >= 0) shown.last_checkpoint_step = report.last_checkpoint_step;
  if (report.samples_per_second > 0) {
    shown.estimated_remaining_seconds = seconds_left(
        report.total_steps - step, pass.spec().global_batch / report.samples_per_second);
  }
  shown.last_step_time = step != old.step || !old.last_step_time ? pass.snapshot.report->received
                                                                 : *old.last_step_time;
  shown.last_report_time = pass.snapshot.report->received;
  show_sync(pass, shown);
  const bool fresh = pass.estimates.freshness == estimator::Freshness::kFresh;
  shown.network_state = !fresh ? "Unknown" : slowest_contended(pass) ? "Contended" : "Healthy";
  shown.last_sample_time = pass.estimates.last_sample;
  auto links = pass.estimates.links;
  links.insert(links.end(), pass.estimates.sync_links.begin(), pass.estimates.sync_links.end());
  std::ranges::sort(links, {}, &estimator::LinkEstimate::now);
  constexpr std::size_t kWorst = 16;
  for (const auto& link : links) {
    if (shown.worst_links.size() == kWorst || link.now <= 0) continue;
    using estimator::Direction;
    const auto& [replica, boundary, direction, sender] = link.link;
    api::WorstLink worst;
    worst.from_node = link.from_node;
    worst.to_node = link.to_node;
    worst.from_stage = direction == Direction::kBackward ? boundary + 1 : boundary;
    worst.to_stage = direction == Direction::kForward ? boundary + 1 : boundary;
    worst.bandwidth = bits_per_second(link.now);
    worst.baseline = link.baseline > 0 ? bits_per_second(link.baseline) : "";
    worst.since = link.since;
    shown.worst_links.push_back(std::move(worst));
  }
  pass.out.report = PatchReport{std::move(shown)};
  if (!ended) pass.wake_at(next);
}

}  // namespace weir::reconcile
