// SPDX-License-Identifier: Apache-2.0
#include "operator/app/exposition.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "operator/controller/reconcile/pass/causes.h"
#include "operator/explain/deviations.h"
#include "operator/explain/waterfall.h"
#include "worker/base/units.h"

namespace weir::operator_app {
namespace {

using telemetry::Family;
using telemetry::Labels;
using telemetry::Type;
using telemetry::with;

constexpr std::size_t kWorstLinks = 16;  // worker/telemetry/README.md "Operator"

Labels labels_of(const api::PipelineJob& job) {
  return {{"pipeline_namespace", job.meta.namespace_name}, {"pipeline_job", job.meta.name}};
}
void add(Family& family, Labels labels, double value) {
  family.samples.push_back({std::move(labels), value, {}});
}

void add_conditions(Family& family, const api::PipelineJob& job) {
  for (const api::Condition& condition : job.status.conditions) {
    for (const char* status : {"True", "False", "Unknown"}) {
      add(family, with(with(labels_of(job), "condition", condition.type), "status", status),
          condition.status == status ? 1 : 0);
    }
  }
}

void add_reasons(Family& family, const api::PipelineJob& job) {
  for (const api::Condition& condition : job.status.conditions) {
    if (condition.reason.empty()) continue;
    add(family, with(with(labels_of(job), "condition", condition.type), "reason", condition.reason),
        1);
  }
}

void add_links(Family& family, const JobFacts& facts) {
  // The worst direction and replica of each node pair, at most kWorstLinks of them.
  std::map<std::pair<std::string, std::string>, double> ratios;
  for (const auto* links : {&facts.estimates.links, &facts.estimates.sync_links}) {
    for (const estimator::LinkEstimate& link : *links) {
      if (link.baseline <= 0) continue;
      const auto [place, fresh] =
          ratios.try_emplace({link.from_node, link.to_node}, link.now / link.baseline);
      if (!fresh) place->second = std::min(place->second, link.now / link.baseline);
    }
  }
  std::vector<std::pair<double, std::pair<std::string, std::string>>> worst;
  for (const auto& [nodes, ratio] : ratios) worst.emplace_back(ratio, nodes);
  std::ranges::sort(worst);
  worst.resize(std::min(worst.size(), kWorstLinks));
  for (const auto& [ratio, nodes] : worst) {
    add(family,
        with(with(labels_of(*facts.job), "from_node", nodes.first), "to_node", nodes.second),
        ratio);
  }
}

double number_of(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void add_gains(Family& family, const api::PipelineJob& job) {
  const api::PlanStatus& plan = job.status.plan;
  for (const auto& [gain, text] : {std::pair{"predicted", plan.predicted_gain_percent},
                                   std::pair{"measured", plan.measured_gain_percent}}) {
    if (!text.empty()) add(family, with(labels_of(job), "gain", gain), number_of(text));
  }
}

void add_shares(Family& family, const api::PipelineJob& job) {
  for (std::size_t replica = 0; replica < job.report.micro_batch_shares.size(); ++replica) {
    add(family, with(labels_of(job), "replica", std::to_string(replica)),
        job.report.micro_batch_shares[replica]);
  }
}

// Names that others may have written into status are left out.
void add_lines(Family& family, const api::PipelineJob& job) {
  for (const auto& [line, milliseconds] : job.report.performance.lines) {
    const bool known = std::ranges::find(explain::kLineNames, line) != explain::kLineNames.end();
    if (known) add(family, with(labels_of(job), "line", line), number_of(milliseconds) / 1000);
  }
}

void add_cause(Family& family, const api::PipelineJob& job) {
  const api::Performance& performance = job.report.performance;
  const bool known =
      std::ranges::find(explain::kKindNames, performance.cause) != explain::kKindNames.end();
  if (!known) return;
  add(family, with(labels_of(job), "kind", performance.cause),
      number_of(performance.cause_seconds));
}

// How many links the field names: "1-2:Int8, 3-4:BF16/Int8".
double links_in(const std::string& codecs) {
  return codecs.empty() ? 0 : 1 + static_cast<double>(std::ranges::count(codecs, ','));
}

struct TierOutcome {
  const char *event, *tier, *outcome;
};
constexpr TierOutcome kChanges[] = {{"PlanRetuned", "retune", "applied"},
                                    {"PlanRegrouped", "regroup", "applied"},
                                    {"PlanCompressed", "compress", "applied"},
                                    {"PlanDecompressed", "compress", "applied"},
                                    {"CompressionReverted", "compress", "rolled_back"},
                                    {"PlanRefused", "retune", "refused"},
                                    {"PlanRolledBack", "retune", "rolled_back"},
                                    {"PlanProposed", "retune", "proposed"}};

}  // namespace

std::vector<Family> job_families(const std::vector<JobFacts>& jobs, SystemTime now) {
  Family condition{"weir_job_condition", "Conditions of the job.", Type::kGauge, {}};
  Family why{"weir_job_condition_reason", "Reasons of the job's conditions.", Type::kGauge, {}};
  Family target{"weir_job_target_steps", "Steps that the job is to do.", Type::kGauge, {}};
  Family revision{"weir_job_plan_revision", "Newest plan.", Type::kGauge, {}};
  Family applied{"weir_job_plan_applied_revision", "Plan that the workers run.", Type::kGauge, {}};
  Family k{"weir_job_plan_k", "k of the newest plan.", Type::kGauge, {}};
  Family compressed{"weir_job_compressed_links",
                    "Links that carry fewer bits in the newest plan.",
                    Type::kGauge,
                    {}};
  Family step{"weir_job_plan_predicted_step_seconds", "Predicted step time.", Type::kGauge, {}};
  Family bound{"weir_job_plan_bound_percent",
               "How far a step is above what no order can beat.",
               Type::kGauge,
               {}};
  Family trigger{"weir_job_plan_trigger", "What led to the newest plan.", Type::kGauge, {}};
  Family gain{"weir_job_plan_gain_percent", "Gain of the newest plan.", Type::kGauge, {}};
  Family share{
      "weir_job_micro_batch_share", "Micro-batches of a replica in a step.", Type::kGauge, {}};
  Family age{"weir_job_metrics_age_seconds", "Age of the newest link sample.", Type::kGauge, {}};
  Family ratio{"weir_job_link_bandwidth_ratio",
               "Bandwidth now over baseline, worst links.",
               Type::kGauge,
               {}};
  Family restarts{"weir_job_restarts_total", "Restarts of the job.", Type::kCounter, {}};
  Family lost{"weir_job_lost_steps_total",
              "Complete steps that were done again after lost workers.",
              Type::kCounter,
              {}};
  Family term{"weir_job_coordinator_term",
              "Number of the worker that coordinates; the first one has 1.",
              Type::kGauge,
              {}};
  Family lines{
      "weir_job_step_line_seconds", "Where a step goes; the lines add up to it.", Type::kGauge, {}};
  Family cause{"weir_job_cause_seconds",
               "What makes a step slow, and what a step would save without it.",
               Type::kGauge,
               {}};
  for (const JobFacts& facts : jobs) {
    const api::PipelineJob& job = *facts.job;
    const api::PlanStatus& plan = job.status.plan;
    add_conditions(condition, job);
    add_reasons(why, job);
    add_shares(share, job);
    add_lines(lines, job);
    add_cause(cause, job);
    if (job.report.total_steps > 0) {
      add(target, labels_of(job), static_cast<double>(job.report.total_steps));
    }
    std::map<std::string, int> counts;
    for (const reconcile::CauseRow& row : reconcile::kCauses) counts[row.name] = 0;
    for (const auto& each : job.status.restart_reasons) counts[each.reason] = each.count;
    // Prometheus sees no increase in a counter that first appears at 1, so all begin at 0.
    for (const auto& [reason, count] : counts) {
      add(restarts, with(labels_of(job), "reason", reason), count);
    }
    add(lost, labels_of(job), static_cast<double>(job.status.recovery.lost_steps));
    const auto& named = job.status.coordinator;
    add(term, labels_of(job), static_cast<double>(named ? named->term : protocol::kFirstTerm));
    if (plan.revision > 0) {
      add(revision, labels_of(job), static_cast<double>(plan.revision));
      add(applied, labels_of(job), static_cast<double>(plan.applied_revision));
      add(k, labels_of(job), plan.k);
      add(compressed, labels_of(job), links_in(plan.codecs));
      add(step, labels_of(job), number_of(plan.predicted_step_seconds));
      if (!plan.trigger.empty()) add(trigger, with(labels_of(job), "trigger", plan.trigger), 1);
      add_gains(gain, job);
      if (plan.bound_percent_simulated) {
        add(bound, with(labels_of(job), "step", "simulated"), *plan.bound_percent_simulated);
      }
      if (plan.bound_percent_measured) {
        add(bound, with(labels_of(job), "step", "measured"), *plan.bound_percent_measured);
      }
    }
    if (facts.estimates.last_sample) {
      add(age, labels_of(job), to_seconds(now - *facts.estimates.last_sample));
    }
    add_links(ratio, facts);
  }
  return {condition, why,   target, revision, applied,  k,    compressed, step,  bound, trigger,
          gain,      share, age,    ratio,    restarts, lost, term,       lines, cause};
}

void PlanChanges::count(const api::PipelineJob& job, const std::string& event_reason) {
  for (const TierOutcome& change : kChanges) {
    if (event_reason != change.event) continue;
    const std::lock_guard lock(mutex_);
    ++counts_[job.meta.uid][{change.tier, change.outcome}];
  }
}

Family PlanChanges::family(const std::vector<JobFacts>& jobs) {
  Family family{
      "weir_job_plan_changes_total", "Plan changes by tier and outcome.", Type::kCounter, {}};
  const std::lock_guard lock(mutex_);
  std::set<std::string> live;
  for (const JobFacts& facts : jobs) {
    live.insert(facts.job->meta.uid);
    auto& counts = counts_[facts.job->meta.uid];
    counts.try_emplace({"retune", "applied"}, 0);  // from 0, as in job_families
    for (const auto& [change, count] : counts) {
      add(family, with(with(labels_of(*facts.job), "tier", change.first), "outcome", change.second),
          count);
    }
  }
  std::erase_if(counts_, [&](const auto& entry) { return !live.contains(entry.first); });
  return family;
}

}  // namespace weir::operator_app
