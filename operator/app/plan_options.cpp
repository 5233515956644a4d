// SPDX-License-Identifier: Apache-2.0
// The options of `plan` and `simulate` for CLI11.
#include "operator/app/plan_options.h"

#include <CLI/CLI.hpp>

#include "worker/command_line/numbers.h"
#include "worker/command_line/rows.h"

namespace weir::operator_app {
namespace {

const CLI::Validator kPositive = whole_in(1, 1'000'000'000);

void add_inputs(Rows& rows, InputOptions& inputs) {
  rows.add("--profile", inputs.profile,
           "model and its times: graph.txt, profile.json, - for standard input, or "
           "sailor:CLASS=FILE[,...]")
      ->required();
  rows.add("--cluster", inputs.cluster,
           "devices: cluster.json, - for standard input, or the short form "
           "COUNTxCLASS[:BYTES][@RATE][/FACTOR]+... with memory in bytes, bandwidth in bytes per "
           "second, and how many times slower than the first class; such as "
           "4xA:32e9@1e9+4xB:16e9/2")
      ->required();
  rows.add("--sailor-info", inputs.sailor_info, "file llm_info.json; a sailor: profile needs it");
  rows.add("--sailor-model", inputs.sailor_model,
           "model in --sailor-info, such as OPT-350; a sailor: profile needs it");
}

}  // namespace

void add_plan_options(CLI::App& app, PlanOptions& options) {
  Rows rows(app);
  add_inputs(rows, options.inputs);
  rows.add("--objective", options.objective,
           "what to minimise: sync: the time of a step; async: the time of the slowest part",
           CLI::IsMember({"sync", "async"}));
  rows.add("--k-max", options.k_max, "largest k of kFkB to try", kPositive);
  rows.add("--global-batch", options.global_batch,
           "samples per step; default: replicas x micro-batches x samples per micro-batch",
           kPositive);
  CLI::Option* size = rows.add("--micro-batch", options.micro_batch,
                               "samples per micro-batch; default: those of the profile, or with "
                               "--global-batch the best that the planner finds");
  size->transform(kPositive);
  rows.add("--micro-batches", options.micro_batches,
           "micro-batches per replica and step; default: 16, or with --global-batch as many "
           "as --micro-batch gives",
           kPositive)
      ->excludes(size);
  rows.add("--data-parallel", options.data_parallel, "number of replicas", kPositive);
  rows.add("--stages", options.stages, "exact number of stages; default: the planner chooses",
           kPositive);
  rows.add("--ranks-per-stage", options.ranks_per_stage,
           "most ranks of a replica that share a stage; default: no limit", kPositive);
  rows.add("--caps", options.caps, "in-flight caps to try: kfkb, slack or both",
           CLI::IsMember({"kfkb", "slack", "both"}));
  rows.add(
      "--split", options.split,
      "whether backward passes may be split where the profile has times of their parts: auto or "
      "never",
      CLI::IsMember({"auto", "never"}));
  rows.add("--use-all-devices", options.use_all_devices, "leave no device idle");
  rows.add("--keep-order", options.keep_order, "cut the layers in the order of the profile only");
  rows.add("--compat", options.compat, "earlier planner whose cost model is used instead of ours",
           CLI::IsMember({"pipedream", "pipedream-no-transfer", "sync0", "dapple"}));
  rows.add("--compare", options.compare,
           "planner whose cut is costed with our model, too, and shown beside our plan",
           CLI::IsMember({"pipedream", "dapple-formula", "even"}));
  rows.add("--json", options.json, "print one JSON object {plan, report}");
  rows.add("--explain", options.explain, "add run time and counts of the search to --json");
  rows.add("--tolerance", options.tolerance,
           "relative error at which the search for the bottleneck ends", number_in(1e-12, 0.1));
  rows.add("--max-ideals", options.max_ideals,
           "most ideals (sets of layers that may come first) to search; if there are more, "
           "the plan has a certified gap instead of being exact",
           whole_in(2, 100'000'000));
  rows.add("--max-memory", options.max_memory, "most bytes of memory for ideals",
           number_in(1e6, 1e12));
  rows.add("--time-limit", options.time_limit,
           "seconds after which the best plan so far is printed; if unset, the search ends "
           "after a fixed number of steps",
           number_in(0.001, 1e6))
      ->default_str("");
  rows.add("--threads", options.threads,
           "threads that try micro-batch sizes in parallel; used only with --global-batch "
           "and without --micro-batch or --micro-batches",
           whole_in(1, 256));
  rows.add("--require-optimal", options.require_optimal,
           "exit with code 6 if the plan is not proved optimal");
  rows.add("--out", options.out,
           "file for the plan document, which simulate --plan reads; if unset, none is written");
}

void add_simulate_options(CLI::App& app, SimulateOptions& options) {
  Rows rows(app);
  add_inputs(rows, options.inputs);
  rows.add("--plan", options.plan,
           "plan: a plan document, output of plan --json, - for standard input, or a short "
           "chain FIRST-LAST[xRANKS],... such as 0-16x3,17-39x1")
      ->required();
  rows.add("--k", options.k, "k of kFkB; default: that of the plan", kPositive);
  rows.add("--caps", options.caps,
           "in-flight cap of each stage, separated by commas; default: those of the plan",
           kPositive)
      ->delimiter(',');
  rows.add("--dispatch", options.dispatch,
           "order of ready work: hint or strict; default: that of the plan",
           CLI::IsMember({"hint", "strict"}));
  rows.add("--micro-batches", options.micro_batches,
           "micro-batches per replica and step; default: those of the plan", kPositive);
  rows.add("--share", options.share,
           "FROM:TO=X: X (0 .. 1) of the bandwidth from server FROM to TO is available");
  rows.add("--share-trace", options.share_trace,
           "CSV file of shares that change, with lines seconds,from,to,share");
  rows.add("--steps", options.steps, "number of steps to simulate, one after another",
           whole_in(1, 100'000));
  rows.add("--timeline", options.timeline,
           "file for a timeline of the first step: a picture if its name ends in .svg, else a "
           "Chrome trace, which Perfetto opens");
  rows.add("--text-timeline", options.text_timeline,
           "print the first step as text, one row per stage");
  rows.add("--json", options.json, "print one JSON object");
}

}  // namespace weir::operator_app
