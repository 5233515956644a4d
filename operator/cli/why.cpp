// SPDX-License-Identifier: Apache-2.0
// `why JOB`: what status, conditions and events tell of a job's speed, or of why it makes no steps.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "operator/cli/explained.h"
#include "operator/cli/figures.h"
#include "operator/cli/views.h"
#include "worker/base/text.h"
#include "worker/protocol/messages.h"

namespace weir::cli {
namespace {

using std::chrono::seconds;

// Progress is written each 15 s, and each minute if there are 1000 jobs (crds/README.md "Status").
constexpr seconds kStale{150};
constexpr std::size_t kMostLinks = 4;  // slow links that are shown
// Workers report each 5 s, and the operator writes progress each 15 s or so.
constexpr seconds kReport{5}, kProgress{15};
constexpr std::int64_t kFirstSteps = 3;  // of a plan: the first one is left out, two are a mean
constexpr std::int64_t kEnoughSteps = 16;

void add(Lines& lines, const char* head, std::string_view text) {
  constexpr std::size_t kHead = 14;
  std::string padded = head;
  padded.resize(kHead, ' ');
  for (const std::string& line : paragraph(padded, text)) lines.push_back(line);
}

std::string told(const api::Condition& one) {
  return one.reason + (one.message.empty() ? "" : ": " + one.message);
}

bool ended(const JobView& job) {
  return is_true(job, "Complete") || is_true(job, "Failed");
}

std::string report_age(const JobView& job, api::Time now) {
  if (!job.report.last_report_time) return "";
  const auto age = now - *job.report.last_report_time;
  std::string text = ", as of " + age_text(age) + " ago";
  if (age > kStale && !ended(job) && !job.suspended) {
    text += ": no report has been written since (kubectl -n weir-system get pods)";
  }
  return text;
}

std::string why_heading(const JobView& job, api::Time now) {
  std::string text = job.name + ": " + state_of(job);
  if (job.report.has_progress) text += ", step " + step_text(job);
  const api::PlanStatus& plan = job.status.plan;
  if (plan.revision > 0) {
    text += ", plan " + std::to_string(plan.revision) + " (" + plan_text(job) + ")";
  }
  return text + report_age(job, now);
}

std::string step_sentence(const JobView& job) {
  const auto step = step_seconds(job);
  if (!step) return "No step time is known yet.";
  const api::PlanStatus& plan = job.status.plan;
  std::string text = "A step takes " + time_text(*step) + ".";
  if (const auto above = plan.bound_percent_measured) {
    return text + " No order on these devices and links can take less than about " +
           time_text(*step / (1 + *above / 100.0)) + ": this one is " + std::to_string(*above) +
           " % above that.";
  }
  const double predicted = std::strtod(plan.predicted_step_seconds.c_str(), nullptr);
  if (plan.bound_percent_simulated && predicted > 0) {
    return text + " By simulation no order on these devices and links can take less than about " +
           time_text(predicted / (1 + *plan.bound_percent_simulated / 100.0)) + ".";
  }
  return text + " How far that is above the best possible is not known yet.";
}

std::string link_text(const api::WorstLink& link, api::Time now) {
  std::string text = "link " + link.from_node + " -> " + link.to_node + " (stage " +
                     std::to_string(link.from_stage) + " -> " + std::to_string(link.to_stage) +
                     "): " + or_dash(link.bandwidth);
  text += ", usually " + (link.baseline.empty() ? "too fast to be timed" : link.baseline);
  if (link.since) text += ", for " + age_text(now - *link.since);
  return text;
}

void add_network(const JobView& job, api::Time now, Lines& lines) {
  const std::string& state = job.report.network_state;
  if (state == "Contended") {
    add(lines, "Network", "Contended: a link is slower than usual, and that costs time");
  } else if (state == "Hidden") {
    add(lines, "Network", "Hidden: a link is slower than usual, but the plan hides it");
  } else if (state == "Healthy") {
    add(lines, "Network", "Healthy: no link is slower than usual by more than noise");
  }
  std::size_t shown = 0;
  for (const api::WorstLink& link : job.report.worst_links) {
    // `since` marks the links that are slower than usual; the others are only the slowest ones.
    if (!link.since || shown == kMostLinks) continue;
    add(lines, "", link_text(link, now));
    ++shown;
  }
  const api::Condition* known = condition(job, "NetworkMetricsAvailable");
  // In mode Off nobody asks Prometheus, and workers tell what the network is like.
  if (known != nullptr && known->status != "True" && job.adaptation_mode != "Off")
    add(lines, "Network", "not known: " + told(*known));
}

const JobEvent* newest(const std::vector<JobEvent>& events, const char* reason) {
  const auto found = std::find_if(events.rbegin(), events.rend(),
                                  [&](const JobEvent& event) { return event.reason == reason; });
  return found == events.rend() ? nullptr : &*found;
}

void add_changes(const JobView& job, const std::optional<std::vector<JobEvent>>& events,
                 api::Time now, Lines& lines) {
  const JobEvent* last = nullptr;
  if (events) {
    for (const char* reason : {"PlanRetuned", "PlanRegrouped", "WorkerReplaced", "PlanOutcome",
                               "PlanRolledBack", "PlanRefused"}) {
      const JobEvent* event = newest(*events, reason);
      const bool later = last == nullptr || (event != nullptr && event->time >= last->time);
      if (event != nullptr && later) last = event;
    }
  }
  if (last != nullptr) {
    add(lines, "Last change",
        last->reason + " " + age_text(now - last->time) + " ago: " + last->note);
  } else if (!job.status.plan.measured_gain_percent.empty()) {
    add(lines, "Last change",
        "plan " + std::to_string(job.status.plan.revision) + ": measured " +
            job.status.plan.measured_gain_percent + " %, predicted " +
            or_dash(job.status.plan.predicted_gain_percent) + " %");
  }
}

// Until when no retune is made; nothing: it may be made now.
std::optional<api::Time> cooldown_end(const JobView& job, api::Time now) {
  if (!job.status.retune_last_change) return std::nullopt;
  const api::Time end =
      *job.status.retune_last_change + seconds(job.status.retune_cooldown_seconds);
  return end > now ? std::optional(end) : std::nullopt;
}

std::string operator_text(const JobView& job, const std::optional<std::vector<JobEvent>>& events,
                          api::Time now) {
  if (!job.managed_by.empty() && job.managed_by != "weir.dev/operator") {
    return "does nothing: spec.managedBy is " + job.managed_by;
  }
  if (job.adaptation_mode == "Off") return "changes nothing: spec.adaptation.mode is Off";
  if (job.frozen) return "changes nothing: the job has the annotation weir.dev/freeze-plan";
  if (is_true(job, "ReplanInProgress")) {
    return "is changing the plan: " + told(*condition(job, "ReplanInProgress"));
  }
  const api::Condition* known = condition(job, "NetworkMetricsAvailable");
  if (known != nullptr && known->status == "False") {
    return "changes nothing while the network is not known";
  }
  if (job.adaptation_mode == "Observe") {
    const JobEvent* proposed = events ? newest(*events, "PlanProposed") : nullptr;
    return std::string("only proposes: spec.adaptation.mode is Observe") +
           (proposed == nullptr
                ? ""
                : "; last proposal " + age_text(now - proposed->time) + " ago: " + proposed->note);
  }
  if (const auto end = cooldown_end(job, now)) {
    return "retunes not before " + age_text(*end - now) + " from now (cooldown)";
  }
  return "compares other orders each tick, and changes the plan when a gain is sure enough";
}

// Why no step is made: conditions in the order in which a job passes them.
void add_waiting(const JobView& job, Lines& lines) {
  for (const char* type : {"Accepted", "Suspended", "PodsScheduled", "WorkersReady"}) {
    const api::Condition* one = condition(job, type);
    if (one == nullptr) continue;
    const bool bad =
        std::string_view(type) == "Suspended" ? one->status == "True" : one->status != "True";
    if (bad && !(one->status == "Unknown" && one->message.empty())) {
      add(lines, type, told(*one));
    }
  }
  for (const api::GroupStatus& group : job.status.worker_groups) {
    if (group.ready >= group.desired && group.failed == 0) continue;
    std::string text = "group " + group.name + ": " + std::to_string(group.scheduled) + " of " +
                       std::to_string(group.desired) + " have a node, " +
                       std::to_string(group.ready) + " are ready";
    if (group.failed > 0) text += ", " + std::to_string(group.failed) + " have failed";
    if (!group.pending_reason.empty()) text += "; " + group.pending_reason;
    add(lines, "Pods", text);
  }
}

void add_warning(const std::optional<std::vector<JobEvent>>& events, api::Time now, Lines& lines) {
  if (!events) return;
  const auto last = std::find_if(events->rbegin(), events->rend(),
                                 [](const JobEvent& event) { return event.type == "Warning"; });
  if (last == events->rend()) return;
  add(lines, "Last warning",
      last->reason + " " + age_text(now - last->time) + " ago: " + last->note);
}

Lines of_a_waiting_job(const JobView& job, const std::optional<std::vector<JobEvent>>& events,
                       api::Time now) {
  const api::Condition* ready = condition(job, "Ready");
  Lines lines;
  if (ready == nullptr) {
    return paragraph("", job.name + ": no operator has seen it yet, " +
                             age_text(now - job.created) +
                             " after it was made (kubectl -n weir-system get pods)");
  }
  std::string text = job.name + ": " +
                     (job.report.step > 0 ? "no steps are made now, " +
                                                std::to_string(job.report.step) + " are complete"
                                          : "no step has been completed yet");
  text += " (" + state_of(job) + (ready->message.empty() ? "" : ": " + ready->message) + ")";
  lines = paragraph("", text);
  if (job.report.step > 0 && job.report.last_step_time) {
    add(lines, "Last step",
        age_text(now - *job.report.last_step_time) + " ago" + report_age(job, now));
  }
  add_waiting(job, lines);
  if (job.status.restarts > 0) {
    add(lines, "Restarts",
        std::to_string(job.status.restarts) +
            ", the last one: " + or_dash(job.status.last_restart_reason));
  }
  add_warning(events, now, lines);
  return lines;
}

Lines of_an_ended_job(const JobView& job) {
  const bool failed = is_true(job, "Failed");
  const api::Condition& how = *condition(job, failed ? "Failed" : "Complete");
  Lines lines = paragraph("", job.name + ": " + (failed ? "Failed" : "Complete") + " at step " +
                                  step_text(job) + ": " + told(how));
  if (job.status.restarts > 0) add(lines, "Restarts", std::to_string(job.status.restarts));
  return lines;
}

// Where causes are told, a contended link is one of them.
void add_degraded(const JobView& job, bool told, Lines& lines) {
  const api::Condition* degraded = condition(job, "Degraded");
  const bool is = degraded != nullptr && degraded->status == "True";
  const bool slows =
      is && (degraded->reason == "NetworkContended" || degraded->reason == "Straggler");
  if (told) {
    if (is && degraded->reason != "NetworkContended") add(lines, "Degraded", cli::told(*degraded));
    return;
  }
  add(lines, slows || !is ? "Main cause" : "Degraded",
      is ? cli::told(*degraded) : "none is known: the job runs as planned");
}

// Why nothing is told of where a step goes.
void add_not_known(const JobView& job, api::Time now, Lines& lines) {
  const api::PlanStatus& plan = job.status.plan;
  const int ranks = job.status.data_parallel * plan.stage_count;
  const std::int64_t steps = job.report.step - plan.applied_step;
  std::string why;
  if (job.report.sync_mode == "Partial" && job.status.data_parallel > 1) {
    why = "replicas that average have no common step";
  } else if (ranks > protocol::kMostSegmentRanks ||
             plan.stage_count > protocol::kMostSegmentStages) {
    why = "workers tell it of at most " + std::to_string(protocol::kMostSegmentRanks) +
          " ranks and " + std::to_string(protocol::kMostSegmentStages) + " stages";
  } else if (plan.applied_revision == plan.revision && steps >= 0 && steps < kEnoughSteps) {
    const double missing = static_cast<double>(std::max<std::int64_t>(0, kFirstSteps - steps));
    const auto written = job.report.last_report_time.value_or(now) + kProgress;
    const seconds wait =
        std::max({kReport, seconds(std::llround(missing * step_seconds(job).value_or(0))),
                  std::chrono::duration_cast<seconds>(written - now)});
    add(lines, "Not known",
        "too early: " + counted(steps, "step") + " since plan " + std::to_string(plan.revision) +
            "; try again in about " + age_text(wait));
    return;
  } else {
    why = "workers of an older release do not tell the parts of a step, so only status is shown";
  }
  add(lines, "Not known", "where a step goes: " + why);
}

}  // namespace

Lines why_lines(const JobView& job, const std::optional<std::vector<JobEvent>>& events,
                api::Time now) {
  if (ended(job)) return of_an_ended_job(job);
  if (!runs(job) || job.report.step == 0) return of_a_waiting_job(job, events, now);
  Lines lines = paragraph("", why_heading(job, now));
  for (const std::string& line : paragraph("", step_sentence(job))) lines.push_back(line);
  const bool told = !job.report.performance.lines.empty();
  add_degraded(job, told, lines);
  for (const auto& more : {cause_lines(job), remedy_lines(job)}) {
    lines.insert(lines.end(), more.begin(), more.end());
  }
  add_network(job, now, lines);
  add_changes(job, events, now, lines);
  add(lines, "The operator", operator_text(job, events, now));
  if (!events) add(lines, "Events", "not read: the history of changes is not shown");
  const Lines where = waterfall_lines(job);
  lines.insert(lines.end(), where.begin(), where.end());
  if (!told) add_not_known(job, now, lines);
  return lines;
}

}  // namespace weir::cli
