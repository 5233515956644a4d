// SPDX-License-Identifier: Apache-2.0
// In this room only this file includes CLI11, which takes 7 s to compile.
#include "operator/cli/options.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "operator/cli/text.h"
#include "worker/command_line/numbers.h"
#include "worker/protocol/messages.h"

namespace weir::cli {
namespace {

constexpr int kWrongOptions = 2;
constexpr int kMostReplicas = 256;  // of the CRD
constexpr int kMostRanks = 4096;
constexpr int kMostTail = 1000000;

struct Described {
  Command command;
  const char* name;
  const char* help;
  const char* footer;
};

constexpr Described kCommands[] = {
    {Command::kTop, "top", "state, speed and network of all jobs, or the ranks of one",
     "OVER-BOUND: how far a step is above what no order of work can beat on these devices and "
     "links;\n"
     "with ~ by simulation, as it is not measured yet.\n"
     "STEP-TIME: the global batch over SAMPLES/S. DATA-AGE: the age of the last report."},
    {Command::kWhy, "why", "why a job is slow, or why it makes no steps",
     "It tells what status, conditions and events of the job say, and what they do not say.\n"
     "Figures are those of the last report; its age is in the first line."},
    {Command::kPlan, "plan", "the plan by stage, and what each revision promised and brought",
     "Promises are in the plans' ConfigMaps, of which the last five stay. What was measured is in\n"
     "events, which most clusters keep for an hour."},
    {Command::kLogs, "logs", "the log of the worker that has a rank", ""},
    {Command::kCheckpoints, "checkpoints",
     "where a job saves, and the newest step that it has saved", ""},
    {Command::kSuspend, "suspend", "stop a job: it saves, its pods end, its status stays", ""},
    {Command::kResume, "resume", "let a suspended job go on", ""},
    {Command::kScale, "scale", "set the number of replicas of a job, also while it runs", ""},
    {Command::kTrace, "trace", "the newest steps of a job as a trace that ui.perfetto.dev shows",
     "All ops, waits and tensors of all ranks, on one clock. Ranks record at all times, so "
     "nothing\n"
     "is disturbed. With --from it asks no cluster: workers write such files with\n"
     "--trace-file=FILE --trace-steps=FIRST-LAST; name one of each rank."},
    {Command::kVersion, "version", "print the version", ""},
};

void add_where(CLI::App& to, Options& options) {
  to.add_option("-n,--namespace", options.namespace_name,
                "namespace of the job; default: that of the context");
  to.add_option("--context", options.context,
                "context of the kubeconfig; default: the current one");
  to.add_option("--kubeconfig", options.kubeconfig,
                "kubeconfig file; default: KUBECONFIG, then ~/.kube/config");
}

void add_own(CLI::App& to, Command command, Options& options) {
  CLI::Option* job = nullptr;
  if (command == Command::kTrace) {
    to.add_option("JOB", options.job, "name of a PipelineJob that trains");
    auto* const steps = to.add_option("--steps", options.steps, "how many of its newest steps")
                            ->capture_default_str()
                            ->transform(whole_in(1, protocol::kMostTraceSteps));
    auto* const replica = to.add_option("--replica", options.replica, "of one replica only")
                              ->transform(whole_in(0, kMostReplicas - 1));
    auto* const flight = to.add_flag("--flight", options.flight,
                                     "the newest dump: of a slow step, a stall, or a lost rank")
                             ->excludes(steps)
                             ->excludes(replica);
    to.add_option("--from", options.from, "files of workers, instead of a job")
        ->excludes(steps)
        ->excludes(replica)
        ->excludes(flight);
    to.add_option("-o,--output", options.output, "file that gets the trace")->capture_default_str();
    add_where(to, options);
    return;
  }
  if (command != Command::kVersion) {
    job = to.add_option("JOB", options.job, "name of a PipelineJob");
    add_where(to, options);
  }
  switch (command) {
    case Command::kTop:
      job->description("name of a PipelineJob, whose ranks are shown; default: all jobs");
      to.add_flag("-A,--all-namespaces", options.all_namespaces, "the jobs of all namespaces");
      return;
    case Command::kLogs:
      to.add_option("--rank", options.rank, "rank, as `top JOB` lists them")
          ->required()
          ->transform(whole_in(0, kMostRanks));
      to.add_flag("-f,--follow", options.follow, "go on as the log grows");
      to.add_option("--tail", options.tail, "begin with so many lines at its end; default: all")
          ->transform(whole_in(0, kMostTail));
      break;
    case Command::kScale:
      to.add_option("REPLICAS", options.replicas, "number of replicas")
          ->required()
          ->transform(whole_in(1, kMostReplicas));
      break;
    case Command::kWhy:
    case Command::kPlan:
    case Command::kCheckpoints:
    case Command::kSuspend:
    case Command::kResume:
      break;
    case Command::kTrace:
    case Command::kVersion:
      return;
  }
  job->required();
}

}  // namespace

const char* name(Command command) {
  for (const Described& one : kCommands) {
    if (one.command == command) return one.name;
  }
  return "";
}

Parsed parse_options(int argc, const char* const* argv) {
  Parsed parsed;
  CLI::App app("Shows and steers pipeline-training jobs of Weir.", "kubectl weir");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done; 1 the cluster or the job says no; 2 wrong options or kubeconfig.");
  add_where(app, parsed.options);
  for (const Described& one : kCommands) {
    CLI::App* sub = app.add_subcommand(one.name, one.help);
    add_own(*sub, one.command, parsed.options);
    sub->footer(one.footer);
    sub->callback([&parsed, command = one.command] { parsed.options.command = command; });
  }
  try {
    app.parse(argc, argv);
    if (parsed.options.all_namespaces && !parsed.options.job.empty()) {
      throw CLI::ValidationError("--all-namespaces", "does not go with the name of a job");
    }
    const Command command = parsed.options.command;
    const bool of_all =
        command == Command::kTop || command == Command::kTrace || command == Command::kVersion;
    if (command == Command::kTrace && parsed.options.job.empty() == parsed.options.from.empty()) {
      throw CLI::ValidationError("trace", "needs either the name of a job or --from");
    }
    if (!of_all && parsed.options.job.empty()) throw CLI::RequiredError("JOB");
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      parsed.exit_code = app.exit(e, std::cout, std::cerr);
    } else {
      std::cerr << "kubectl weir: " << printable(e.what()) << " (kubectl weir --help)\n";
      parsed.exit_code = kWrongOptions;
    }
  }
  return parsed;
}

}  // namespace weir::cli
