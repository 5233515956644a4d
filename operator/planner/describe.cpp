// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/describe.h"

#include <algorithm>
#include <set>

#include "worker/base/units.h"
#include "worker/schedule/bounds.h"
#include "worker/schedule/search_split.h"

namespace weir::planner {
namespace {

constexpr double kOptimal = 1e-6;  // the largest gap that counts as none

double seconds_over(const std::vector<std::int64_t>& sums, int first, int end) {
  return 1e-9 * static_cast<double>(sums[static_cast<std::size_t>(end)] -
                                    sums[static_cast<std::size_t>(first)]);
}

const Device& device_of(const Setting& setting, int index) {
  return setting.cluster->devices[static_cast<std::size_t>(index)];
}

void fill_plan(const Selection& from, PlanReport& report) {
  const Setting& setting = from.setting;
  const Layout& layout = from.chosen;
  schedule::Plan& plan = report.plan;
  plan.schedule = schedule_of(setting, layout);
  plan.micro_batches = setting.micro_batches;
  plan.predicted_step_seconds = layout.seconds;
  plan.profile_digest = setting.model->digest;
  std::set<std::pair<std::string, int>> busy;
  std::set<std::string> busy_pods;
  for (std::size_t s = 0; s < layout.stages(); ++s) {
    plan.stages.push_back({layout.first[s], layout.first[s + 1] - 1});
  }
  for (std::size_t r = 0; r < layout.devices.size(); ++r) {
    for (std::size_t s = 0; s < layout.stages(); ++s) {
      for (const int index : layout.devices[r][s]) {
        const Device& device = device_of(setting, index);
        plan.ranks.push_back({device.pod, device.pod_uid, device.ip, device.node, device.local,
                              static_cast<int>(r), static_cast<int>(s), device.data_port});
        busy.insert({device.pod, device.local});
        busy_pods.insert(device.pod);
      }
    }
  }
  for (const Device& device : setting.cluster->devices) {
    if (!busy.contains({device.pod, device.local})) ++report.idle_devices;
    if (busy_pods.insert(device.pod).second) plan.idle.push_back(device.pod);
  }
}

void fill_stages(const Selection& from, const std::vector<Pipeline>& pipelines,
                 PlanReport& report) {
  const Setting& setting = from.setting;
  const Layout& layout = from.chosen;
  for (const int node : layout.line->nodes) {
    report.order.push_back(setting.dag.layer[static_cast<std::size_t>(node)]);
  }
  const std::vector<double> rings = rings_of(setting, layout);
  const Pipeline& pipeline = pipelines.front();
  for (std::size_t s = 0; s < layout.stages(); ++s) {
    const int first = layout.first[s], end = layout.first[s + 1];
    StageReport stage;
    stage.nodes.assign(report.order.begin() + first, report.order.begin() + end);
    std::ranges::sort(stage.nodes);
    stage.device_class = setting.kinds[static_cast<std::size_t>(layout.kinds[s])].device_class;
    stage.ranks = layout.ranks[s];
    for (const int index : layout.devices.front()[s]) {
      stage.servers.push_back(device_of(setting, index).node);
    }
    const StageCost& cost = pipeline.stages[s];
    stage.forward = cost.forward;
    stage.backward = cost.backward;
    stage.sync = rings[s];
    const auto column = static_cast<std::size_t>(
        setting.classes[static_cast<std::size_t>(layout.kinds[s])].columns.front());
    stage.update = seconds_over(layout.line->update[column], first, end);
    if (s + 1 < layout.stages()) {
      stage.cut_bytes = layout.line->cut[static_cast<std::size_t>(end)];
      for (const Pipeline& replica : pipelines) {  // the slowest replica's
        stage.send_forward = std::max(stage.send_forward, replica.send_forward[s]);
        stage.send_backward = std::max(stage.send_backward, replica.send_backward[s]);
      }
      report.boundary_bytes.push_back(stage.cut_bytes);
    }
    report.stage_times.push_back({from_seconds(stage.forward), from_seconds(stage.backward),
                                  from_seconds(cost.backward_input),
                                  from_seconds(cost.backward_weights)});
    report.memory.push_back(memory_of(setting, layout, s));
    report.memory_bytes.push_back(report.memory.back().total_bytes);
    report.stages.push_back(std::move(stage));
  }
}

// Simulates replica 0.
void fill_timeline(const Selection& from, const Pipeline& pipeline, PlanReport& report) {
  schedule::PipelineModel model = simulated_model(pipeline);
  model.record = true;
  const auto run = schedule::simulate(schedule_of(from.setting, from.chosen),
                                      from.setting.micro_batches.front(), model);
  if (!run) return;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    StageTimeline line;
    double first_backward = -1, last_forward = 0, end = 0;
    for (const schedule::TimedOp& op : run->ops) {
      if (op.stage != static_cast<int>(s)) continue;
      const double start = to_seconds(op.start);
      end = to_seconds(op.end);
      if (op.op.kind == schedule::OpKind::kForward) {
        last_forward = end;
      } else if (op.op.kind == schedule::OpKind::kBackward && first_backward < 0) {
        first_backward = start;
      }
    }
    line.warm_up = std::max(0.0, first_backward);
    line.drain = report.plan.predicted_step_seconds - std::max(last_forward, line.warm_up);
    line.steady = std::max(0.0, last_forward - line.warm_up);
    line.busy = to_seconds(run->busy[s]);
    line.idle_input = to_seconds(run->idle[s].wait_forward);
    line.idle_gradient = to_seconds(run->idle[s].wait_backward);
    line.idle_sync = std::max(0.0, report.plan.predicted_step_seconds - end);
    report.timeline.push_back(line);
  }
}

void fill_candidates(const Selection& from, PlanReport& report) {
  for (const Layout& layout : from.scored.by_k) {
    KCandidate candidate;
    candidate.k = layout.k;
    candidate.step_seconds = layout.seconds;
    candidate.caps = layout.caps;
    candidate.split = layout.split;
    for (std::size_t s = 0; s < layout.stages(); ++s) {
      candidate.memory_bytes =
          std::max(candidate.memory_bytes, memory_of(from.setting, layout, s).total_bytes);
    }
    report.candidates.push_back(std::move(candidate));
  }
  for (const auto& [k, why_not] : from.scored.why_not) {
    KCandidate candidate;
    candidate.k = k;
    candidate.why_not = why_not;
    report.candidates.push_back(std::move(candidate));
  }
  std::ranges::sort(report.candidates, {}, &KCandidate::k);
}

std::string tolerance_text(double tolerance) {
  std::string text = std::to_string(tolerance);  // six places
  while (text.size() > 3 && text.back() == '0') text.pop_back();
  return text;
}

void fill_optimality(const Selection& from, PlanReport& report) {
  const Request& request = *from.setting.request;
  const bool other_formula =
      request.compat != Compat::kNone || request.objective == Objective::kAsync;
  report.objective = request.objective == Objective::kAsync ? "async" : "sync";
  // Bound and value are of whole backwards.
  report.objective_seconds = other_formula       ? from.answer.value
                             : from.chosen.split ? from.chosen.whole_seconds
                                                 : from.chosen.seconds;
  Optimality& it = report.optimality;
  const double value = report.objective_seconds;
  it.upper_bound = value;
  it.lower_bound = std::clamp(from.lower_bound, 0.0, value);
  it.gap = it.lower_bound > 0 ? value / it.lower_bound - 1 : 0;
  it.formula = from.answer.formula + ", tolerance " +
               tolerance_text(other_formula ? request.tolerance : kOptimal);
  const double within = other_formula ? std::max(request.tolerance, kOptimal) : kOptimal;
  if (from.stopped || (it.lower_bound <= 0 && value > 0) || !from.answer.complete) {
    it.status = "heuristic";
  } else {
    it.status = it.gap <= within && from.answer.search.complete ? "optimal" : "gap";
  }
  report.lower_bound_seconds = it.lower_bound;
  report.search = from.answer.search;
  report.search.complete = from.answer.search.complete && !from.stopped;
}

void fill_idle_reason(const Selection& from, PlanReport& report) {
  if (report.idle_devices == 0) return;
  const Layout* larger = nullptr;
  for (const std::vector<Layout>* list : {&from.scored.by_k, &from.scored.others}) {
    for (const Layout& layout : *list) {
      if (layout.device_count() <= from.chosen.device_count()) continue;
      if (larger == nullptr || better(layout, *larger)) larger = &layout;
    }
  }
  report.idle_reason =
      larger == nullptr
          ? "no plan with more devices is among the best of this model and cluster"
          : "the best plan found with " +
                std::to_string(larger->device_count() * from.setting.request->data_parallel) +
                " devices takes " + std::to_string(larger->seconds) + " s";
}

}  // namespace

std::string period_cause(const Pipeline& pipeline, int k) {
  std::string cause = "stage 0";
  double most = 0;
  const auto offer = [&](double seconds, const std::string& what) {
    if (seconds <= most * (1 + 1e-12)) return;
    most = seconds;
    cause = what;
  };
  const std::vector<StageCost>& stages = pipeline.stages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    offer(stages[s].forward + stages[s].backward, "stage " + std::to_string(s));
  }
  const auto pair = [](std::size_t a, std::size_t b) {
    return std::to_string(a) + "-" + std::to_string(b);
  };
  const bool held = !pipeline.hold_forward.empty();
  for (std::size_t b = 0; b + 1 < stages.size(); ++b) {
    offer(held ? std::max(pipeline.hold_forward[b], pipeline.hold_backward[b])
               : std::max(pipeline.send_forward[b], pipeline.send_backward[b]),
          "link " + pair(b, b + 1));
  }
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    double loop = stages[s].forward + stages[s].backward;
    const double mb = std::max(stages[s].backward, pipeline.send_backward[s]);
    for (std::size_t q = s + 1; q < stages.size(); ++q) {
      loop += pipeline.send_forward[q - 1] + pipeline.send_backward[q - 1] + stages[q].forward +
              stages[q].backward;
      const double mf = std::max(stages[q].forward, pipeline.send_forward[q - 1]);
      offer((loop + (k - 1) * (mf + mb)) / (k * static_cast<double>(q - s + 1)),
            "loop " + pair(s, q));
    }
  }
  return cause;
}

PlanReport describe(const Selection& from) {
  PlanReport report;
  fill_plan(from, report);
  std::vector<Pipeline> pipelines;
  const std::vector<double> rings = rings_of(from.setting, from.chosen);
  for (std::size_t r = 0; r < from.chosen.devices.size(); ++r) {
    pipelines.push_back(pipeline_of(from.setting, from.chosen, r, rings));
  }
  fill_stages(from, pipelines, report);
  const Pipeline& first = pipelines.front();
  fill_timeline(from, first, report);
  const int k = std::max(1, from.chosen.k);
  report.period_seconds = period(first, k);
  report.period_cause = period_cause(first, k);
  const StepForms forms = step_forms(first, from.setting.micro_batches.front(), k);
  report.sum_seconds = forms.sum;
  report.pivot_seconds = forms.pivot;
  report.bound_seconds = forms.bound;
  if (schedule::has_weights(report.stage_times)) {
    report.split_bound_seconds = to_seconds(schedule::least_step(
        simulated_model(first), from.setting.micro_batches.front(), schedule::Backwards::kSplit));
  }
  if (from.chosen.split) report.whole_step_seconds = from.chosen.whole_seconds;
  if (from.chosen.stages() > 1) {
    report.tied_bytes = from.setting.model->tied_bytes;
    report.tie_seconds = tie_seconds(from.setting, from.chosen);
  }
  fill_candidates(from, report);
  fill_optimality(from, report);
  fill_idle_reason(from, report);
  if (from.setting.request->sensitivity) {
    report.sensitivity = sensitivity_of(from.setting, from.chosen, from.scored.by_k);
  }
  return report;
}

}  // namespace weir::planner
