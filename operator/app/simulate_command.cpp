// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <ostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "operator/app/plan_command.h"
#include "operator/app/plan_inputs.h"
#include "operator/app/plan_table.h"
#include "operator/app/svg_timeline.h"
#include "operator/planner/tool/check.h"
#include "worker/base/file_error.h"
#include "worker/base/units.h"
#include "worker/schedule/caps.h"
#include "worker/timeline/chrome_trace.h"

namespace weir::operator_app {
namespace {

using nlohmann::ordered_json;
using planner::ShareChange;

constexpr int kTimelineWidth = 120;
constexpr double kLatestChange = 1e9;  // seconds, 30 years

// Reads a finite number. kNotFound: the text does not begin with a number.
Result<double> number_from(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string why = "\"" + text + "\" is no number";
  if (error == std::errc::invalid_argument) return Error{Code::kNotFound, why};
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return invalid(why);
  }
  return value;
}

Status check_change(const planner::Cluster& cluster, const ShareChange& change) {
  for (const std::string& node : {change.from_node, change.to_node}) {
    if (std::ranges::none_of(cluster.devices,
                             [&](const planner::Device& device) { return device.node == node; })) {
      return invalid("no server \"" + node + "\"");
    }
  }
  if (!(change.share > 0 && change.share <= 1)) {
    return invalid("expected a share above 0 and at most 1");
  }
  return Unit{};
}

// Reads FROM:TO=X of --share.
Result<ShareChange> share_of(const std::string& text, const planner::Cluster& cluster) {
  const std::size_t colon = text.find(':'), equals = text.rfind('=');
  if (colon == std::string::npos || equals == std::string::npos || equals < colon) {
    return invalid("--share " + text + ": expected FROM:TO=X");
  }
  ShareChange change;
  change.from_node = text.substr(0, colon);
  change.to_node = text.substr(colon + 1, equals - colon - 1);
  auto share = number_from(text.substr(equals + 1));
  if (!share) return share.error().with("--share " + text);
  change.share = *share;
  if (auto good = check_change(cluster, change); !good) {
    return good.error().with("--share " + text);
  }
  return change;
}

std::string trace_events_of(const planner::SimulatedPlan& simulated) {
  std::vector<const schedule::Timeline*> replicas;
  for (const auto& replica : simulated.replicas) replicas.push_back(&replica.timeline);
  return timeline::chrome_trace(replicas);
}

// Reads lines of seconds,from,to,share. If the first line begins with no number, it is a header.
Result<std::vector<ShareChange>> trace_of(const std::string& text, const std::string& name,
                                          const planner::Cluster& cluster) {
  std::vector<ShareChange> changes;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, ',');) fields.push_back(field);
    const std::string where = name + ":" + std::to_string(number);
    if (fields.size() != 4) return invalid(where + ": expected seconds,from,to,share");
    const auto seconds = number_from(fields[0]);
    if (!seconds && number == 1 && seconds.error().code == Code::kNotFound) continue;
    if (!seconds) return seconds.error().with(where);
    ShareChange change{.seconds = *seconds, .from_node = fields[1], .to_node = fields[2]};
    const auto share = number_from(fields[3]);
    if (!share) return share.error().with(where);
    change.share = *share;
    if (auto good = check_change(cluster, change); !good) return good.error().with(where);
    if (change.seconds < 0 || (!changes.empty() && change.seconds < changes.back().seconds)) {
      return invalid(where + ": times must rise from 0");
    }
    if (change.seconds > kLatestChange) {
      return invalid(where + ": \"" + fields[0] + "\" is beyond 1e9 seconds");
    }
    changes.push_back(std::move(change));
  }
  return changes;
}

// Changes the plan as the options say.
Status apply(const SimulateOptions& options, schedule::Plan& plan, std::ostream& err) {
  schedule::Schedule& schedule = plan.schedule;
  if (options.micro_batches) {
    for (int& share : plan.micro_batches) share = *options.micro_batches;
  }
  const int least = plan.micro_batches.empty() ? 1 : *std::ranges::min_element(plan.micro_batches);
  if (options.k) {
    schedule.k = std::min(*options.k, least);
    schedule.caps = schedule::kfkb_caps(plan.stage_count(), least, schedule.k);
  } else if (options.micro_batches) {
    for (int& cap : schedule.caps) cap = std::min(cap, least);
  }
  if (!options.caps.empty()) {
    schedule.caps = options.caps;
    schedule.k = std::min(schedule::k_of_caps(schedule.caps), least);
  }
  if (schedule.split) {  // within the caps and the step that were asked for
    const std::size_t values = std::min(schedule.split->held.size(), schedule.caps.size());
    for (std::size_t s = 0; s < values; ++s) {
      int& held = schedule.split->held[s];
      held = std::min(std::max(held, schedule.caps[s]), least);
    }
    for (int& postponed : schedule.split->postponed) postponed = std::min(postponed, least);
  }
  if (schedule.caps.size() != plan.stages.size()) {
    return invalid("--caps: " + std::to_string(schedule.caps.size()) + " values for " +
                   std::to_string(plan.stages.size()) + " stages");
  }
  const auto asked = options.dispatch == "hint"     ? schedule::Dispatch::kHint
                     : options.dispatch == "strict" ? schedule::Dispatch::kStrict
                                                    : schedule.dispatch;
  const auto in_force = schedule::dispatch_in_force(schedule, asked);
  schedule.dispatch = in_force;
  if (in_force == asked || options.dispatch.empty()) return Unit{};
  schedule.dispatch = asked;
  err << "warning: workers would run these caps of k=1 with dispatch strict; --dispatch hint is "
         "simulated\n";
  return Unit{};
}

ordered_json json_of(const schedule::Plan& plan, const planner::SimulatedPlan& simulated) {
  ordered_json replicas = ordered_json::array();
  for (const planner::SimulatedReplica& replica : simulated.replicas) {
    ordered_json stages = ordered_json::array();
    const schedule::Timeline& line = replica.timeline;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const planner::StageMemoryReport& memory = simulated.memory[s];
      stages.push_back({{"busySeconds", to_seconds(line.busy[s])},
                        {"idleInputSeconds", to_seconds(line.idle[s].wait_forward)},
                        {"idleGradientSeconds", to_seconds(line.idle[s].wait_backward)},
                        {"peakInFlight", line.peak_in_flight[s]},
                        {"cap", plan.schedule.caps[s]},
                        {"memoryBytes", memory.total_bytes},
                        {"limitBytes", memory.limit_bytes}});
    }
    ordered_json links = ordered_json::array();
    for (std::size_t b = 0; b + 1 < plan.stages.size(); ++b) {
      double down = 0, up = 0;
      for (const schedule::TimedSend& send : line.sends) {
        if (send.boundary != static_cast<int>(b)) continue;
        (send.forward ? down : up) += to_seconds(send.end - send.start);
      }
      links.push_back({{"boundary", b},
                       {"forwardBusyShare", down / simulated.step_seconds},
                       {"backwardBusyShare", up / simulated.step_seconds}});
    }
    replicas.push_back({{"stages", std::move(stages)}, {"links", std::move(links)}});
  }
  ordered_json json = {{"stepSeconds", simulated.step_seconds},
                       {"sumFormSeconds", simulated.forms.sum},
                       {"pivotFormSeconds", simulated.forms.pivot},
                       {"boundSeconds", simulated.forms.bound}};
  if (simulated.split_bound_seconds > 0) json["splitBoundSeconds"] = simulated.split_bound_seconds;
  json["periodSeconds"] = simulated.period_seconds;
  json["setBy"] = simulated.period_cause;
  json["replicas"] = std::move(replicas);
  return json;
}

struct Prepared {
  PlanInputs inputs;
  PlanToSimulate plan;
  std::vector<ShareChange> changes;
};

Result<Prepared> prepare(const SimulateOptions& options, std::istream& in, std::ostream& err) {
  Prepared ready;
  WEIR_TRY(ready.inputs, read_inputs(options.inputs, in));
  WEIR_TRY(ready.plan, read_plan(options, ready.inputs, in));
  WEIR_OK(apply(options, ready.plan.plan, err));
  for (const std::string& text : options.share) {
    WEIR_TRY(const ShareChange change, share_of(text, ready.inputs.cluster));
    planner::LinkRate link = link_between(ready.inputs.cluster, change.from_node, change.to_node);
    link.available_share = change.share;
    ready.inputs.cluster.links.push_back(std::move(link));
  }
  if (!options.share_trace.empty()) {
    WEIR_TRY(const std::string text, read_text(options.share_trace, in));
    WEIR_TRY(ready.changes, trace_of(text, options.share_trace, ready.inputs.cluster));
  }
  return ready;
}

}  // namespace

int simulate_command(const SimulateOptions& options, std::istream& in, std::ostream& out,
                     std::ostream& err) {
  const auto fail = [&](const Error& error) {
    err << error.message << "\n";
    return kBadInput;
  };
  auto ready = prepare(options, in, err);
  if (!ready) return fail(ready.error());
  const PlanInputs& inputs = ready->inputs;
  const schedule::Plan& plan = ready->plan.plan;
  planner::CheckOptions check;
  check.order = ready->plan.order;
  check.many_ranks = true;
  const planner::CheckedPlan checked = check_plan(inputs.model, inputs.cluster, plan, check);
  for (const std::string& line : checked.broken) {
    // --dispatch hint breaks this rule on purpose; apply() has printed a warning.
    if (options.dispatch == "hint" && line.starts_with("schedule.dispatch")) continue;
    err << line << "\n";
  }
  const bool broken = std::ranges::any_of(checked.broken, [&](const std::string& line) {
    return options.dispatch != "hint" || !line.starts_with("schedule.dispatch");
  });
  if (broken) return kPlanBreaksARule;

  std::string text;
  ordered_json steps = ordered_json::array();
  double now = 0;
  for (int step = 0; step < options.steps; ++step) {
    const auto simulated =
        simulate_plan(inputs.model, inputs.cluster, plan, check.order, ready->changes, now);
    if (!simulated) return fail(simulated.error());
    if (step == 0) {
      if (!options.timeline.empty()) {
        errno = 0;
        std::ofstream file(options.timeline, std::ios::binary);
        file << (options.timeline.ends_with(".svg") ? svg_timeline(*simulated)
                                                    : trace_events_of(*simulated));
        if (!file.flush()) return fail(unwritable(options.timeline));
      }
      text += simulation_table(plan, *simulated);
      if (options.text_timeline) {
        text += text_timeline(simulated->replicas.front(), simulated->step_seconds, kTimelineWidth);
      }
      if (options.json && options.steps == 1) steps = json_of(plan, *simulated);
    }
    if (options.steps > 1) {
      text += "step " + std::to_string(step) + " at " + fixed(now, 6) +
              " s: " + fixed(simulated->step_seconds, 6) + " s\n";
      steps.push_back({{"startSeconds", now}, {"stepSeconds", simulated->step_seconds}});
    }
    now += simulated->step_seconds;
  }
  if (options.json) {
    out << (options.steps > 1 ? ordered_json{{"steps", steps}} : steps).dump() << "\n";
  } else {
    out << text;
  }
  return out.flush() ? 0 : kInternalError;
}

}  // namespace weir::operator_app
