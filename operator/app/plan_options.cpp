// SPDX-License-Identifier: Apache-2.0
// The options of `plan` and `simulate` for CLI11.
#include "operator/app/plan_options.h"

#include <CLI/CLI.hpp>

#include "worker/command_line/numbers.h"

namespace weir::operator_app {
namespace {

const CLI::Validator kPositive = whole_in(1, 1'000'000'000);

void add_inputs(CLI::App& app, InputOptions& inputs) {
  app.add_option("--profile", inputs.profile,
                 "model and its times: graph.txt, profile.json, - for standard input, or "
                 "sailor:CLASS=FILE[,...]")
      ->required();
  app.add_option(
         "--cluster", inputs.cluster,
         "devices: cluster.json, - for standard input, or the short form "
         "COUNTxCLASS[:BYTES][@RATE][/FACTOR]+... with memory in bytes, bandwidth in bytes per "
         "second, and how many times slower than the first class; such as "
         "4xA:32e9@1e9+4xB:16e9/2")
      ->required();
  app.add_option("--sailor-info", inputs.sailor_info,
                 "file llm_info.json; a sailor: profile needs it");
  app.add_option("--sailor-model", inputs.sailor_model,
                 "model in --sailor-info, such as OPT-350; a sailor: profile needs it");
}

}  // namespace

void add_plan_options(CLI::App& app, PlanOptions& options) {
  add_inputs(app, options.inputs);
  app.add_option("--objective", options.objective,
                 "what to minimise: sync: the time of a step; async: the time of the slowest part")
      ->check(CLI::IsMember({"sync", "async"}))
      ->capture_default_str();
  app.add_option("--k-max", options.k_max, "largest k of kFkB to try")
      ->transform(kPositive)
      ->capture_default_str();
  app.add_option("--global-batch", options.global_batch,
                 "samples per step; default: replicas x micro-batches x samples per micro-batch")
      ->transform(kPositive);
  CLI::Option* size =
      app.add_option("--micro-batch", options.micro_batch,
                     "samples per micro-batch; default: those of the profile, or with "
                     "--global-batch the best that the planner finds");
  size->transform(kPositive);
  app.add_option("--micro-batches", options.micro_batches,
                 "micro-batches per replica and step; default: 16, or with --global-batch as many "
                 "as --micro-batch gives")
      ->transform(kPositive)
      ->excludes(size);
  app.add_option("--data-parallel", options.data_parallel, "number of replicas")
      ->transform(kPositive)
      ->capture_default_str();
  app.add_option("--stages", options.stages, "exact number of stages; default: the planner chooses")
      ->transform(kPositive);
  app.add_option("--ranks-per-stage", options.ranks_per_stage,
                 "most ranks of a replica that share a stage; default: no limit")
      ->transform(kPositive);
  app.add_option("--caps", options.caps, "in-flight caps to try: kfkb, slack or both")
      ->check(CLI::IsMember({"kfkb", "slack", "both"}))
      ->capture_default_str();
  app.add_flag("--use-all-devices", options.use_all_devices, "leave no device idle");
  app.add_flag("--keep-order", options.keep_order,
               "cut the layers in the order of the profile only");
  app.add_option("--compat", options.compat,
                 "earlier planner whose cost model is used instead of ours")
      ->check(CLI::IsMember({"pipedream", "pipedream-no-transfer", "sync0", "dapple"}));
  app.add_option("--compare", options.compare,
                 "planner whose cut is costed with our model, too, and shown beside our plan")
      ->check(CLI::IsMember({"pipedream", "dapple-formula", "even"}));
  app.add_flag("--json", options.json, "print one JSON object {plan, report}");
  app.add_flag("--explain", options.explain, "add run time and counts of the search to --json");
  app.add_option("--tolerance", options.tolerance,
                 "relative error at which the search for the bottleneck ends")
      ->transform(number_in(1e-12, 0.1))
      ->capture_default_str();
  app.add_option("--max-ideals", options.max_ideals,
                 "most ideals (sets of layers that may come first) to search; if there are more, "
                 "the plan has a certified gap instead of being exact")
      ->transform(whole_in(2, 100'000'000))
      ->capture_default_str();
  app.add_option("--max-memory", options.max_memory, "most bytes of memory for ideals")
      ->transform(number_in(1e6, 1e12))
      ->capture_default_str();
  app.add_option("--time-limit", options.time_limit,
                 "seconds after which the best plan so far is printed; if unset, the search ends "
                 "after a fixed number of steps")
      ->transform(number_in(0.001, 1e6));
  app.add_option("--threads", options.threads,
                 "threads that try micro-batch sizes in parallel; used only with --global-batch "
                 "and without --micro-batch or --micro-batches")
      ->transform(whole_in(1, 256))
      ->capture_default_str();
  app.add_flag("--require-optimal", options.require_optimal,
               "exit with code 6 if the plan is not proved optimal");
  app.add_option(
      "--out", options.out,
      "file for the plan document, which simulate --plan reads; if unset, none is written");
}

void add_simulate_options(CLI::App& app, SimulateOptions& options) {
  add_inputs(app, options.inputs);
  app.add_option("--plan", options.plan,
                 "plan: a plan document, output of plan --json, - for standard input, or a short "
                 "chain FIRST-LAST[xRANKS],... such as 0-16x3,17-39x1")
      ->required();
  app.add_option("--k", options.k, "k of kFkB; default: that of the plan")->transform(kPositive);
  app.add_option("--caps", options.caps,
                 "in-flight cap of each stage, separated by commas; default: those of the plan")
      ->delimiter(',')
      ->transform(kPositive);
  app.add_option("--dispatch", options.dispatch,
                 "order of ready work: hint or strict; default: that of the plan")
      ->check(CLI::IsMember({"hint", "strict"}));
  app.add_option("--micro-batches", options.micro_batches,
                 "micro-batches per replica and step; default: those of the plan")
      ->transform(kPositive);
  app.add_option("--share", options.share,
                 "FROM:TO=X: X (0 .. 1) of the bandwidth from server FROM to TO is available");
  app.add_option("--share-trace", options.share_trace,
                 "CSV file of shares that change, with lines seconds,from,to,share");
  app.add_option("--steps", options.steps, "number of steps to simulate, one after another")
      ->transform(whole_in(1, 100'000))
      ->capture_default_str();
  app.add_option(
      "--timeline", options.timeline,
      "file for a timeline of the first step: a picture if its name ends in .svg, else a "
      "Chrome trace, which Perfetto opens");
  app.add_flag("--text-timeline", options.text_timeline,
               "print the first step as text, one row per stage");
  app.add_flag("--json", options.json, "print one JSON object");
}

}  // namespace weir::operator_app
