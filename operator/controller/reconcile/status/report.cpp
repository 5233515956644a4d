// SPDX-License-Identifier: Apache-2.0
// Measurements in status: the network, progress, worst links.
#include <cmath>

#include "operator/adaptation/shares/propose.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/controller/reconcile/status/status.h"
#include "worker/base/random.h"

namespace weir::reconcile {
namespace {

constexpr const char* kContended = "NetworkContended";

struct Degradation {
  std::string reason, text;
};

const estimator::LinkEstimate* slowest_contended(const View& view) {
  const estimator::LinkEstimate* slow = nullptr;
  for (const auto* links : {&view.estimates.links, &view.estimates.sync_links}) {
    for (const auto& link : *links) {
      if (link.preempted && (slow == nullptr || link.now < slow->now)) slow = &link;
    }
  }
  return slow;
}

bool usually_untimed(const Draft& draft, const estimator::LinkEstimate& link) {
  const auto& usual = draft.adaptation.network.usual;
  const auto known = usual.find({link.from_node, link.to_node});
  return known != usual.end() && known->second.untimed;
}

// E.g. "link n1->n2 38.0Mbit/s, usually 3.4Gbit/s, costs 321 ms a step (21.2 %)".
std::string contention_text(const Draft& draft, const estimator::LinkEstimate& slow) {
  const auto& network = draft.adaptation.network;
  std::string text =
      "link " + slow.from_node + "->" + slow.to_node + " " + bits_per_second(slow.now) +
      ", usually " +
      (usually_untimed(draft, slow) ? "too fast to be timed" : bits_per_second(slow.baseline));
  if (network.cost_seconds > 0) {
    text += ", costs " + number(1000 * network.cost_seconds, 0) + " ms a step (" +
            percent(network.cost_part) + " %)";
  }
  return text;
}

std::string network_state(const View& view, const Draft& draft) {
  if (slowest_contended(view) != nullptr) return "Contended";
  const auto& contention = draft.adaptation.network.contention;
  if (estimator::network_state(contention) == estimator::NetworkState::kHidden) return "Hidden";
  return view.estimates.freshness == estimator::Freshness::kFresh ? "Healthy" : "Unknown";
}

// Whether a change of the network's state is written at once.
bool tells(const std::string& state, const std::string& before) {
  const auto slow = [](const std::string& one) { return one == "Contended" || one == "Hidden"; };
  return state != before && (slow(state) || slow(before));
}

std::optional<std::string> straggler_of(const View& view, const Draft& draft) {
  if (view.plan == nullptr || view.plan->replica_count() < 2) return std::nullopt;
  return shares::straggler(facts_of(view, draft));
}

// The worst problem that is measured of a job that trains.
std::optional<Degradation> degradation(const View& view, Draft& draft) {
  if (view.snapshot.report && view.snapshot.report->body.skipped_in_row > 0) {
    const auto& report = view.snapshot.report->body;
    return Degradation{"StepsSkipped", std::to_string(report.skipped_in_row) +
                                           " steps in a row up to step " +
                                           std::to_string(report.step) +
                                           " changed no parameter: loss or gradient is not finite"};
  }
  if (const auto why = reduced(view, draft)) return Degradation{"ReducedReplicas", *why};
  if (const auto dead = dead_link_text(view)) return Degradation{name(Cause::kLinkDead), *dead};
  if (const auto* slow = slowest_contended(view)) {
    return Degradation{kContended, contention_text(draft, *slow)};
  }
  if (const auto who = straggler_of(view, draft)) return Degradation{"Straggler", *who};
  return std::nullopt;
}

}  // namespace

void show_network(const View& view, Draft& draft) {
  using estimator::Freshness;
  const auto& estimates = view.estimates;
  const bool off = view.spec().adaptation.mode == api::AdaptationMode::kOff;
  const bool alone = view.plan != nullptr && view.plan->ranks.size() < 2;
  // Unknown, not False, if nobody need act.
  if (off) {
    draft.set("NetworkMetricsAvailable", "Unknown", "Disabled", "adaptation.mode is Off");
  } else if (estimates.freshness == Freshness::kFresh) {
    draft.set("NetworkMetricsAvailable", "True", "Fresh",
              std::to_string(estimates.links.size()) + " link directions measured");
  } else if (network_known(facts_of(view, draft))) {
    draft.set("NetworkMetricsAvailable", "True", "Fresh", "all links are too fast to be timed");
  } else if (alone && estimates.freshness == Freshness::kNoSeries) {
    draft.set("NetworkMetricsAvailable", "Unknown", "NoLinks",
              "one worker trains, it has no links");
  } else if (draft.status.plan.applied_revision == 0) {
    draft.set("NetworkMetricsAvailable", "Unknown", estimator::name(estimates.freshness),
              "training has not started");
  } else {
    if (draft.is("NetworkMetricsAvailable", "True")) {
      draft.event("Warning", "MetricsUnavailable",
                  std::string(estimator::name(estimates.freshness)) + ": " + estimates.detail,
                  "Adapt");
    }
    draft.set("NetworkMetricsAvailable", "False", estimator::name(estimates.freshness),
              estimates.detail);
  }
  const auto* before = api::find_condition(draft.status.conditions, "Degraded");
  const std::string old = before != nullptr && before->status == "True" ? before->reason : "";
  const auto worst = degradation(view, draft);
  if (old == kContended && !slowest_contended(view)) {
    draft.event("Normal", "NetworkRecovered",
                network_state(view, draft) == "Hidden"
                    ? "the plan hides the slow link"
                    : "all links are back above 90 % of their usual rates",
                "Observe");
  }
  if (worst) {
    const bool told = trains_reduced(view, draft);  // ReplicasReduced
    if (old != worst->reason && !told)
      draft.event("Warning", worst->reason, worst->text, "Observe");
    return draft.set("Degraded", "True", worst->reason, worst->text);
  }
  if (old != "PredictedGainMissed" || draft.adaptation.memory.plan_change) {
    draft.set("Degraded", draft.status.plan.applied_revision == 0 ? "Unknown" : "False",
              "AsPlanned", "");
  }
}

namespace {

void show_sync(const View& view, api::ReportStatus& shown) {
  shown.sync_mode = "Exact";
  if (view.plan == nullptr) return;
  shown.sync_mode = schedule::name(view.plan->sync.mode);
  shown.micro_batch_shares = view.plan->micro_batches;
  if (view.plan->replica_count() < 2) return;
  const bool exact = view.plan->sync.mode == schedule::SyncMode::kExact;
  shown.sync_group_size_max = exact ? view.plan->replica_count() : view.plan->sync.group_size_max;
  if (!exact) {
    const auto& groups = view.snapshot.report->body.sync;
    if (!groups) return;
    shown.sync_mean_group_size = number(groups->mean_group_size, 1);
    shown.sync_max_staleness = number(groups->max_staleness, 1);
    return;
  }
  shown.sync_mean_group_size = number(view.plan->replica_count(), 1);
  shown.sync_max_staleness = "0";
}

// A codec that was there before has been there since then.
std::vector<api::LinkCompression> compression_of(const View& view, const Draft& draft) {
  constexpr std::size_t kMost = 16;
  std::vector<api::LinkCompression> all;
  for (const LinkCodecs& codecs : draft.adaptation.network.codecs_in_force) {
    if (all.size() == kMost) break;
    api::LinkCompression one{
        .link = std::to_string(codecs.boundary) + "-" + std::to_string(codecs.boundary + 1),
        .forward = name(codecs.forward),
        .backward = name(codecs.backward),
        .since_step = draft.status.plan.applied_step,
        .error_ratio = number(codecs.rounding_error, 4),
        .payload_bytes = codecs.payload_bytes,
        .wire_bytes = codecs.wire_bytes};
    for (const api::LinkCompression& before : view.job().report.compression) {
      const bool same = before.link == one.link && before.forward == one.forward &&
                        before.backward == one.backward;
      if (same) one.since_step = std::min(one.since_step, before.since_step);
    }
    all.push_back(std::move(one));
  }
  return all;
}

// Steps that were trained with codecs until now, as the coordinator tells. One of an older release
// does not: of the steps since the last status those up to the applied one then belong to the plan
// before; if there was more than one, the others are not told apart.
std::int64_t compressed_steps(const View& view, const Draft& draft, std::int64_t step) {
  const api::ReportStatus& old = view.job().report;
  const protocol::Report& told = view.snapshot.report->body;
  if (told.compressed_steps) return std::clamp<std::int64_t>(*told.compressed_steps, 0, step);
  // As in the status of this pass, which may have seen only now that the plan is applied.
  const auto revision = static_cast<std::uint32_t>(draft.status.plan.applied_revision);
  const schedule::Plan *before = nullptr, *applied_plan = nullptr;
  for (const schedule::Plan& plan : view.snapshot.plans) {
    if (plan.revision < revision) before = &plan;
    if (plan.revision == revision) applied_plan = &plan;
  }
  if (applied_plan == nullptr || step <= old.step) return old.compressed_steps;
  const std::int64_t applied = std::clamp(draft.status.plan.applied_step, old.step, step);
  const bool compressed = before != nullptr && !before->codecs.raw();
  return old.compressed_steps + (compressed ? applied - old.step : 0) +
         (applied_plan->codecs.raw() ? 0 : step - applied);
}

// Interval of progress in status. Each job has its own, so that not all jobs write at once.
std::chrono::milliseconds progress_interval(const View& view) {
  constexpr int kProgressPerSecond = 20;  // of all jobs together
  constexpr double kJitter = 0.2;
  const auto least = stretched(view, view.tunables.progress_status, kProgressPerSecond);
  const double drawn = Random(mix_seed(0, view.job().meta.uid)).uniform();
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
bool has_news(const View& view) {
  using std::chrono::floor;
  using std::chrono::seconds;
  const auto& old = view.job().report;
  if (!old.last_report_time ||
      floor<seconds>(view.snapshot.report->received) > floor<seconds>(*old.last_report_time)) {
    return true;
  }
  return view.estimates.freshness == estimator::Freshness::kFresh && old.last_sample_time &&
         view.now() >= *old.last_sample_time + view.tunables.network_status;
}

// Whether a restart is recorded, but its plan is not in force. Then a new coordinator reports step
// 0.
bool between_runs(const Draft& draft) {
  const auto& last = draft.status.last_restart_time;
  const auto& plan = draft.status.plan;
  if (plan.trigger == schedule::name(schedule::Trigger::kRestart) &&
      plan.applied_revision != plan.revision) {
    return true;
  }
  return last && (!plan.time || *plan.time <= *last);
}

}  // namespace

void show_report(const View& view, Draft& draft) {
  const auto& old = view.job().report;
  const bool network_moved = tells(network_state(view, draft), old.network_state);
  const auto* suspended = api::find_condition(view.job().status.conditions, "Suspended");
  const bool pauses = draft.is("Suspended", "True") &&  // this is the last report before the pause
                      (suspended == nullptr || suspended->status != "True");
  const bool ended = draft.is("Complete", "True") || draft.is("Failed", "True") || pauses;
  const bool restarts = draft.status.restarts != view.job().status.restarts;
  if (!view.snapshot.report) return;
  const Time next = view.now() + progress_interval(view);  // the pass then also notices silence
  if (!network_moved && !ended && !restarts) {
    if (!has_news(view)) return draft.wake_at(next);
    const Time due = old.last_report_time.value_or(Time{}) + progress_interval(view);
    if (view.now() < due) return draft.wake_at(due);
  }
  const auto& report = view.snapshot.report->body;
  api::ReportStatus shown;
  shown.has_progress = true;
  // A coordinator ends with success only after the last step; its last report may be missing.
  std::int64_t step = report.step;
  if (draft.is("Complete", "True")) step = std::max(step, report.total_steps);
  if (ended && old.step == step && !has_news(view)) return;  // the pass before has written it
  if (between_runs(draft)) step = std::max(step, old.step);  // event ProgressLost needs it
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
        report.total_steps - step, view.spec().global_batch / report.samples_per_second);
  }
  shown.compressed_steps = compressed_steps(view, draft, step);
  shown.last_step_time = step != old.step || !old.last_step_time ? view.snapshot.report->received
                                                                 : *old.last_step_time;
  shown.last_report_time = view.snapshot.report->received;
  show_sync(view, shown);
  if (!ended) show_performance(view, draft, shown);
  shown.network_state = ended ? "Unknown" : network_state(view, draft);
  shown.last_sample_time = view.estimates.last_sample;
  if (!ended) shown.compression = compression_of(view, draft);
  auto links = view.estimates.links;
  links.insert(links.end(), view.estimates.sync_links.begin(), view.estimates.sync_links.end());
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
    const bool usual = link.baseline > 0 && !usually_untimed(draft, link);
    worst.baseline = usual ? bits_per_second(link.baseline) : "";
    worst.since = link.since;
    shown.worst_links.push_back(std::move(worst));
  }
  draft.out.report = PatchReport{std::move(shown)};
  if (!ended) draft.wake_at(next);
}

}  // namespace weir::reconcile
