// SPDX-License-Identifier: Apache-2.0
// The best plan by DAPPLE's score as a plan of ours: placed, simulated and reported like any other.
#include <algorithm>
#include <numeric>

#include "operator/planner/dapple/dapple.h"
#include "operator/planner/describe.h"
#include "operator/planner/engines.h"
#include "operator/planner/setting.h"
#include "worker/base/text.h"

namespace weir::planner {
namespace {

// Ranges of the model's order. One micro-batch is the profiled batch: times are those of our model
// for its size.
DappleProblem problem_of(const Setting& setting, const Line& line) {
  DappleProblem problem;
  problem.profile_batch = problem.micro_batch = setting.micro_batch_size;
  problem.global_batch = setting.request->global_batch;
  const DagTimes& times = setting.dag.classes.front();
  for (int node = 0; node < setting.dag.nodes; ++node) {
    const auto n = static_cast<std::size_t>(node);
    problem.seconds.push_back(1e-9 * static_cast<double>(times.forward[n] + times.backward[n]));
    problem.output_bytes.push_back(static_cast<double>(line.cut[n + 1]));
    problem.parameter_bytes.push_back(static_cast<double>(setting.dag.parameters[n]));
  }
  for (int server = 0; server < setting.topology->servers(); ++server) {
    problem.cards.push_back(static_cast<int>(setting.topology->devices_on(server).size()));
  }
  return problem;
}

Layout layout_of(const Setting& setting, std::shared_ptr<const Line> line, const DapplePlan& plan) {
  Layout layout;
  layout.line = std::move(line);
  layout.first = {0};
  const auto replicas = static_cast<std::size_t>(plan.replicas);
  layout.devices.assign(replicas, {});
  std::vector<std::size_t> used(static_cast<std::size_t>(setting.topology->servers()), 0);
  for (const DappleStage& stage : plan.stages) {
    layout.first.push_back(stage.end);
    layout.kinds.push_back(0);
    layout.ranks.push_back(stage.ranks);
    std::vector<int> devices;  // server after server
    for (std::size_t server = 0; server < used.size(); ++server) {
      const std::vector<int>& here = setting.topology->devices_on(static_cast<int>(server));
      for (int i = 0; i < stage.cards[server]; ++i) devices.push_back(here[used[server]++]);
    }
    for (std::size_t r = 0; r < replicas; ++r) {
      const auto from = devices.begin() + static_cast<std::ptrdiff_t>(r) * stage.ranks;
      layout.devices[r].emplace_back(from, from + stage.ranks);
    }
  }
  const int least = *std::ranges::min_element(setting.micro_batches);
  layout.k = ks_of(*setting.request, least).front();
  layout.caps = caps_of(*setting.request, CapRules::kKfkb, static_cast<int>(layout.stages()), least,
                        layout.k);
  layout.seconds = simulated_step(setting, layout);
  return layout;
}

}  // namespace

Result<PlanReport> plan_by_dapple(const Model& model, const Cluster& cluster,
                                  const Request& request) {
  const placement::Topology topology(cluster);
  Request asked = request;
  asked.data_parallel = 1;
  WEIR_TRY(const std::vector<int> sizes, micro_batch_sizes(asked));
  WEIR_TRY(Setting setting, setting_of(model, cluster, asked, topology, sizes.front()));
  if (setting.kinds.size() != 1) return invalid("DAPPLE's planner knows one class of devices");
  std::vector<int> order(static_cast<std::size_t>(setting.dag.nodes));
  std::iota(order.begin(), order.end(), 0);
  const std::shared_ptr<const Line> line = line_of(setting.dag, std::move(order));
  const DappleProblem problem = problem_of(setting, *line);
  WEIR_TRY(const DapplePlan plan, plan_dapple(problem));

  asked.data_parallel = plan.replicas;
  WEIR_TRY(setting, setting_of(model, cluster, asked, topology, sizes.front()));
  Scored scored;
  scored.by_k.push_back(layout_of(setting, line, plan));
  EngineAnswer answer;
  answer.value = plan.seconds;
  answer.complete = true;
  answer.search.complete = plan.finished;
  answer.formula =
      format("dapple, speed-up %.6g over one device, over ranges of the model's order", plan.score);
  // Unless all was looked at: every device at work all the time.
  const int devices = static_cast<int>(cluster.devices.size());
  const double bound = plan.finished ? plan.seconds : plan.seconds * plan.score / devices;
  return describe({.setting = setting,
                   .chosen = scored.by_k.front(),
                   .scored = scored,
                   .answer = answer,
                   .lower_bound = bound,
                   .stopped = false});
}

}  // namespace weir::planner
