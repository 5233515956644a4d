// SPDX-License-Identifier: Apache-2.0
// CLI11's part of `plan` and `simulate`.
#include "operator/app/plan_options.h"

#include <CLI/CLI.hpp>

#include "worker/command_line/numbers.h"

namespace weir::operator_app {
namespace {

const CLI::Validator kPositive = whole_in(1, 1'000'000'000);

void add_inputs(CLI::App& app, InputOptions& inputs) {
  app.add_option("--profile", inputs.profile,
                 "graph.txt, profile.json, - for standard input, or sailor:CLASS=FILE[,...]")
      ->required();
  app.add_option(
         "--cluster", inputs.cluster,
         "cluster.json, -, or the short form COUNTxCLASS[:BYTES][@RATE][/FACTOR]+...: memory "
         "in bytes, bandwidth in bytes per second, times as slow as the first class; such "
         "as 4xA:32e9@1e9+4xB:16e9/2")
      ->required();
  app.add_option("--sailor-info", inputs.sailor_info, "llm_info.json of a sailor: profile");
  app.add_option("--sailor-model", inputs.sailor_model, "model in --sailor-info, such as OPT-350");
}

}  // namespace

void add_plan_options(CLI::App& app, PlanOptions& options) {
  add_inputs(app, options.inputs);
  app.add_option("--objective", options.objective, "sync: time of a step; async: bottleneck")
      ->check(CLI::IsMember({"sync", "async"}))
      ->capture_default_str();
  app.add_option("--k-max", options.k_max, "largest k of kFkB to try")
      ->transform(kPositive)
      ->capture_default_str();
  app.add_option("--global-batch", options.global_batch, "samples of a step")->transform(kPositive);
  CLI::Option* size = app.add_option("--micro-batch", options.micro_batch,
                                     "samples of a micro-batch; default: the profile's");
  size->transform(kPositive);
  app.add_option("--micro-batches", options.micro_batches,
                 "micro-batches of a replica and step; default 16")
      ->transform(kPositive)
      ->excludes(size);
  app.add_option("--data-parallel", options.data_parallel, "replicas")
      ->transform(kPositive)
      ->capture_default_str();
  app.add_option("--stages", options.stages, "exactly so many stages")->transform(kPositive);
  app.add_option("--ranks-per-stage", options.ranks_per_stage,
                 "most ranks of a replica that share a stage; default: as many as there are")
      ->transform(kPositive);
  app.add_option("--caps", options.caps, "caps in flight to try: kfkb, slack or both")
      ->check(CLI::IsMember({"kfkb", "slack", "both"}))
      ->capture_default_str();
  app.add_flag("--use-all-devices", options.use_all_devices, "leave no device idle");
  app.add_flag("--keep-order", options.keep_order, "stages are ranges of the profile's own order");
  app.add_option("--compat", options.compat, "cost model of an earlier planner")
      ->check(CLI::IsMember({"pipedream", "pipedream-no-transfer", "sync0", "dapple"}));
  app.add_option("--compare", options.compare, "also show what another planner's cut costs here")
      ->check(CLI::IsMember({"pipedream", "dapple-formula", "even"}));
  app.add_flag("--json", options.json, "one JSON object {plan, report}");
  app.add_flag("--explain", options.explain, "with run time and search counts");
  app.add_option("--tolerance", options.tolerance, "of the bottleneck's search, relative")
      ->transform(number_in(1e-12, 0.1))
      ->capture_default_str();
  app.add_option("--max-ideals", options.max_ideals, "above: certified gap instead of exact")
      ->transform(whole_in(2, 100'000'000))
      ->capture_default_str();
  app.add_option("--max-memory", options.max_memory, "bytes for ideals")
      ->transform(number_in(1e6, 1e12))
      ->capture_default_str();
  app.add_option("--time-limit", options.time_limit,
                 "seconds; then the best plan so far; none: ends after a fixed count of steps")
      ->transform(number_in(0.001, 1e6));
  app.add_option("--threads", options.threads,
                 "threads that try micro-batch sizes (none given: --global-batch) side by side")
      ->transform(whole_in(1, 256))
      ->capture_default_str();
  app.add_flag("--require-optimal", options.require_optimal, "exit 6 unless proved optimal");
  app.add_option(
      "--out", options.out,
      "file for the plan document, which simulate --plan reads; without it none is written");
}

void add_simulate_options(CLI::App& app, SimulateOptions& options) {
  add_inputs(app, options.inputs);
  app.add_option("--plan", options.plan,
                 "plan document, output of plan --json, -, or a short chain 0-16x3,17-39x1")
      ->required();
  app.add_option("--k", options.k, "instead of the plan's")->transform(kPositive);
  app.add_option("--caps", options.caps, "instead of the plan's, separated by commas")
      ->delimiter(',')
      ->transform(kPositive);
  app.add_option("--dispatch", options.dispatch, "hint or strict, instead of the plan's")
      ->check(CLI::IsMember({"hint", "strict"}));
  app.add_option("--micro-batches", options.micro_batches, "of every replica")
      ->transform(kPositive);
  app.add_option("--share", options.share, "FROM:TO=X: the share of a link that is left");
  app.add_option("--share-trace", options.share_trace, "CSV file: seconds,from,to,share");
  app.add_option("--steps", options.steps, "steps to simulate, one after another")
      ->transform(whole_in(1, 100'000))
      ->capture_default_str();
  app.add_option("--timeline", options.timeline,
                 "file of the first step: .svg a picture, else a Chrome trace (opens in Perfetto)");
  app.add_flag("--text-timeline", options.text_timeline, "the first step as text, one row a stage");
  app.add_flag("--json", options.json, "one JSON object");
}

}  // namespace weir::operator_app
