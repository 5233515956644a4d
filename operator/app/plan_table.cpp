// SPDX-License-Identifier: Apache-2.0
#include "operator/app/plan_table.h"

#include <algorithm>

#include "worker/base/text.h"
#include "worker/base/units.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/search_split.h"

namespace weir::operator_app {
namespace {

constexpr double kMilli = 1e3, kMega = 1e-6;

std::string servers_text(const std::vector<std::string>& servers) {
  constexpr std::size_t kShown = 4;
  if (servers.size() <= kShown) return joined(servers, ",");
  return servers[0] + "," + servers[1] + ",.." + servers.back();
}

std::string stage_rows(const planner::PlanReport& report) {
  std::vector<std::vector<std::string>> rows{{"stage", "layers", "class", "ranks", "servers",
                                              "forward ms", "backward ms", "cut MB", "send ms",
                                              "sync ms", "cap", "memory/limit GB"}};
  for (std::size_t s = 0; s < report.stages.size(); ++s) {
    const planner::StageReport& stage = report.stages[s];
    const schedule::LayerRange& layers = report.plan.stages[s];
    const planner::StageMemoryReport& memory = report.memory[s];
    rows.push_back({std::to_string(s),
                    std::to_string(layers.first) + "-" + std::to_string(layers.last),
                    stage.device_class, std::to_string(stage.ranks), servers_text(stage.servers),
                    fixed(stage.forward * kMilli, 3), fixed(stage.backward * kMilli, 3),
                    fixed(static_cast<double>(stage.cut_bytes) * kMega, 2),
                    fixed(stage.send_forward * kMilli, 3), fixed(stage.sync * kMilli, 3),
                    std::to_string(report.plan.schedule.caps[s]),
                    giga(memory.total_bytes) +
                        (memory.limit_bytes > 0 ? "/" + giga(memory.limit_bytes) : "")});
  }
  return columns(rows);
}

std::string bound_line(const planner::PlanReport& report, double seconds) {
  const planner::Optimality& it = report.optimality;
  std::string text = "bound " + fixed(it.lower_bound, 6) + " s: ";
  if (it.status == "optimal") {
    text += "optimal in this model";
  } else if (it.status == "gap") {
    text += "within " + fixed(it.gap * 100, 2) + " % of any plan in this model";
  } else {
    text += "heuristic, nothing is proved about other plans";
  }
  return text + " (" + it.formula + ")   planned in " + fixed(seconds, 3) + " s\n";
}

std::string candidate_line(const planner::PlanReport& report) {
  std::string text;
  for (const planner::KCandidate& candidate : report.candidates) {
    text += text.empty() ? "step in s by k   " : "   ";
    text += std::to_string(candidate.k) + ": ";
    text += candidate.why_not.empty() ? fixed(candidate.step_seconds, 6)
                                      : "does not fit, " + candidate.why_not;
  }
  return text.empty() ? "" : text + "\n";
}

std::string switch_lines(const planner::PlanReport& report) {
  std::string text;
  for (const planner::LinkSensitivity& it : report.sensitivity) {
    if (!it.switch_share) continue;
    text += "if link " + std::to_string(it.boundary) + "-" + std::to_string(it.boundary + 1) +
            " falls below " + fixed(*it.switch_share * 100, 0) + " % of its rate, k " +
            std::to_string(it.switch_k) + " (caps " + joined(it.switch_caps, ",") +
            ") is better by " + fixed(it.switch_gain * 100, 0) + " %\n";
  }
  return text;
}

std::string comparison_line(const planner::PlanReport& report, const planner::Comparison& it) {
  std::string text = "compare " + it.name + ": ";
  if (!it.why_not.empty()) return text + it.why_not + "\n";
  std::vector<std::string> stages;
  for (std::size_t s = 0; s < it.stages.size(); ++s) {
    stages.push_back(std::to_string(it.stages[s].first) + "-" + std::to_string(it.stages[s].last) +
                     (it.ranks[s] > 1 ? "x" + std::to_string(it.ranks[s]) : ""));
  }
  const double ratio = it.step_seconds / report.plan.predicted_step_seconds;
  return text + fixed(it.step_seconds, 6) + " s, " + fixed(ratio, 3) + " x ours, k " +
         std::to_string(it.k) + ", stages " + joined(stages, ",") + "\n";
}

}  // namespace

std::string fixed(double value, int places) {
  return format("%.*f", places, value);
}

std::string giga(std::int64_t bytes) {
  return fixed(static_cast<double>(bytes) * 1e-9, 1);
}

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += row[c];
      if (c + 1 < row.size()) line.append(widths[c] - row[c].size() + 2, ' ');
    }
    text += line + "\n";
  }
  return text;
}

std::string plan_table(const PlanInputs& inputs, const planner::PlanReport& report,
                       double seconds) {
  const schedule::Plan& plan = report.plan;
  const auto replicas = plan.micro_batches.size();
  std::string text =
      "model " + inputs.model_name + " (" + std::to_string(report.order.size()) + " nodes";
  if (report.search.ideals > 0) text += ", " + std::to_string(report.search.ideals) + " ideals";
  text += ")   cluster " + inputs.cluster_name + ", " + std::to_string(replicas) +
          (replicas == 1 ? " replica" : " replicas") + "   objective " + report.objective +
          "   M " + joined(plan.micro_batches, ",") + "\n";
  text += stage_rows(report);
  text += "step " + fixed(plan.predicted_step_seconds, 6) + " s   period " +
          fixed(report.period_seconds, 6) + " s, set by " + report.period_cause + "   k " +
          std::to_string(plan.schedule.k) + " " + schedule::name(plan.schedule.dispatch) +
          "   caps " + joined(plan.schedule.caps, ",") + "   idle " +
          std::to_string(report.idle_devices) + " devices\n";
  if (plan.schedule.split) {
    text += "split backwards: " + schedule::describe(*plan.schedule.split) + "; whole ones take " +
            fixed(report.whole_step_seconds, 6) + " s\n";
  }
  if (report.split_bound_seconds > 0) {
    text += "no order is below " + fixed(report.bound_seconds, 6) + " s with whole backwards, " +
            fixed(report.split_bound_seconds, 6) + " s with split ones\n";
  }
  if (report.tied_bytes > 0) {
    const double each_way = 2 * static_cast<double>(report.tied_bytes);  // sums are doubles
    text += "tied tables: stages 0 and " + std::to_string(report.stages.size() - 1) + " exchange " +
            fixed(each_way / 1e6, 1) + " MB each way after the last backward, " +
            fixed(report.tie_seconds, 6) + " s of the step\n";
  }
  const double whole =
      plan.schedule.split ? report.whole_step_seconds : plan.predicted_step_seconds;
  if (report.objective_seconds != whole) {
    text += "objective " + report.objective + " (" + report.optimality.formula +
            "): " + fixed(report.objective_seconds, 6) + " s\n";
  }
  text += bound_line(report, seconds);
  text += candidate_line(report);
  text += switch_lines(report);
  if (!report.idle_reason.empty()) text += "idle devices: " + report.idle_reason + "\n";
  for (const planner::Comparison& it : report.comparisons) text += comparison_line(report, it);
  for (const std::string& warning : report.warnings) text += "warning: " + warning + "\n";
  return text;
}

std::string simulation_table(const schedule::Plan& plan, const planner::SimulatedPlan& simulated) {
  std::string text;
  for (std::size_t r = 0; r < simulated.replicas.size(); ++r) {
    const planner::SimulatedReplica& replica = simulated.replicas[r];
    const schedule::Timeline& line = replica.timeline;
    if (simulated.replicas.size() > 1) text += "replica " + std::to_string(r) + "\n";
    std::vector<std::vector<std::string>> rows{{"stage", "layers", "busy s", "wait input s",
                                                "wait gradient s", "peak/cap", "memory/limit GB",
                                                "link busy >", "link busy <"}};
    const double step = simulated.step_seconds;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      double down = 0, up = 0;
      for (const schedule::TimedSend& send : line.sends) {
        if (send.boundary != static_cast<int>(s)) continue;
        (send.forward ? down : up) += to_seconds(send.end - send.start);
      }
      const planner::StageMemoryReport& memory = simulated.memory[s];
      const bool last = s + 1 == plan.stages.size();
      rows.push_back(
          {std::to_string(s),
           std::to_string(plan.stages[s].first) + "-" + std::to_string(plan.stages[s].last),
           fixed(to_seconds(line.busy[s]), 6), fixed(to_seconds(line.idle[s].wait_forward), 6),
           fixed(to_seconds(line.idle[s].wait_backward), 6),
           std::to_string(line.peak_in_flight[s]) + "/" +
               std::to_string(
                   (plan.schedule.split ? plan.schedule.split->held : plan.schedule.caps)[s]),
           giga(memory.total_bytes) +
               (memory.limit_bytes > 0 ? "/" + giga(memory.limit_bytes) : ""),
           last ? "" : fixed(100 * down / step, 1) + " %",
           last ? "" : fixed(100 * up / step, 1) + " %"});
    }
    text += columns(rows);
  }
  text += "step " + fixed(simulated.step_seconds, 6) + " s   by formula: sum " +
          fixed(simulated.forms.sum, 6) + ", slowest part " + fixed(simulated.forms.pivot, 6) +
          ", lower bound " + fixed(simulated.forms.bound, 6) +
          (simulated.split_bound_seconds > 0
               ? ", of split backwards " + fixed(simulated.split_bound_seconds, 6)
               : "") +
          "   period " + fixed(simulated.period_seconds, 6) + " s, set by " +
          simulated.period_cause + "\n";
  return text;
}

namespace {

char mark_of(const schedule::Op& op) {
  constexpr int kDigits = 10, kLetters = 26;
  switch (op.kind) {
    case schedule::OpKind::kForward:
      return static_cast<char>('0' + op.micro_batch % kDigits);
    case schedule::OpKind::kBackward:
      return static_cast<char>('a' + op.micro_batch % kLetters);
    case schedule::OpKind::kWeights:
      return static_cast<char>('A' + op.micro_batch % kLetters);
  }
  return '?';
}

}  // namespace

std::string text_timeline(const planner::SimulatedReplica& replica, double step_seconds,
                          int width) {
  const std::size_t stages = replica.timeline.busy.size();
  std::vector<std::string> rows(stages, std::string(static_cast<std::size_t>(width), '.'));
  for (const schedule::TimedOp& op : replica.timeline.ops) {
    const auto place = [&](std::chrono::nanoseconds time) {
      const double part = to_seconds(time) / step_seconds * width;
      return static_cast<std::size_t>(std::clamp(part, 0.0, static_cast<double>(width)));
    };
    const char mark = mark_of(op.op);
    std::string& row = rows[static_cast<std::size_t>(op.stage)];
    for (std::size_t c = place(op.start); c < place(op.end); ++c) row[c] = mark;
  }
  std::string text;
  for (std::size_t s = 0; s < stages; ++s) {
    text += "stage " + std::to_string(s) + " |" + rows[s] + "|\n";
  }
  return text;
}

}  // namespace weir::operator_app
