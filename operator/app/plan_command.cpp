// SPDX-License-Identifier: Apache-2.0
#include "operator/app/plan_command.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <istream>
#include <ostream>

#include <nlohmann/json.hpp>

#include "operator/app/plan_inputs.h"
#include "operator/app/plan_table.h"
#include "operator/planner/plan.h"
#include "operator/planner/tool/compare.h"
#include "operator/planner/tool/report_json.h"
#include "worker/base/file_error.h"
#include "worker/base/text.h"
#include "worker/protocol/codec.h"
#include "worker/schedule/validate.h"

namespace weir::operator_app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUsualMicroBatches = 16;                 // per step, if no option says so
constexpr std::int64_t kToolEvents = 20'000'000;       // about half a second of simulation
constexpr std::int64_t kToolPlacements = 100'000'000;  // about 3 s of scoring placements

// The signal handler sets this flag. A handler may touch nothing but lock-free atomics.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_interrupt(int number) {
  interrupted.store(true);
  std::signal(number, SIG_DFL);  // a second Ctrl-C ends the program at once
}

// While a guard lives, Ctrl-C makes the search end with the best plan so far.
class InterruptGuard {
 public:
  InterruptGuard() : before_(std::signal(SIGINT, on_interrupt)) { interrupted.store(false); }
  ~InterruptGuard() { std::signal(SIGINT, before_ == SIG_ERR ? SIG_DFL : before_); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  void (*before_)(int);
};

// Sets the batch of the request. By default it is 16 micro-batches of the profile's size.
Status set_batch(const PlanOptions& options, const PlanInputs& inputs, planner::Request& request) {
  const auto replicas = static_cast<std::int64_t>(options.data_parallel);
  std::int64_t batch = 0;
  if (options.global_batch) {
    batch = *options.global_batch;
    if (options.micro_batch) request.micro_batch_size = *options.micro_batch;
    if (options.micro_batches) {
      const std::int64_t parts = replicas * *options.micro_batches;
      if (batch % parts != 0) {
        return invalid("plan: --global-batch " + std::to_string(batch) + " is no multiple of " +
                       std::to_string(parts) + " micro-batches");
      }
      request.micro_batch_size = static_cast<int>(batch / parts);
    }
  } else {
    request.micro_batch_size = options.micro_batch.value_or(inputs.profile_samples);
    batch = replicas * *request.micro_batch_size *
            std::int64_t{options.micro_batches.value_or(kUsualMicroBatches)};
  }
  if (batch > 1'000'000'000) return invalid("plan: the batch is above 1e9 samples");
  const std::int64_t parts = batch / request.micro_batch_size.value_or(static_cast<int>(batch));
  if (parts > schedule::kMostMicroBatches) {
    return invalid("plan: " + std::to_string(parts) + " micro-batches a step are above " +
                   std::to_string(schedule::kMostMicroBatches));
  }
  request.global_batch = static_cast<int>(batch);
  return Unit{};
}

Result<planner::Request> request_of(const PlanOptions& options, const PlanInputs& inputs) {
  planner::Request request;
  WEIR_OK(set_batch(options, inputs, request));
  request.stages = options.stages;
  request.k_max = options.k_max;
  request.objective =
      options.objective == "async" ? planner::Objective::kAsync : planner::Objective::kSync;
  request.data_parallel = options.data_parallel;
  request.most_ranks_per_stage = options.ranks_per_stage.value_or(0);
  request.use_all_devices = options.use_all_devices;
  request.keep_order = options.keep_order;
  request.tolerance = options.tolerance;
  request.sensitivity = true;
  request.tie_of_k = 0;
  request.split = options.split == "auto";
  if (options.caps == "slack") request.cap_rules = planner::CapRules::kSlack;
  if (options.caps == "both") request.cap_rules = planner::CapRules::kBoth;
  if (options.compat == "pipedream") request.compat = planner::Compat::kPipedream;
  if (options.compat == "pipedream-no-transfer") {
    request.compat = planner::Compat::kPipedreamNoTransfer;
  }
  if (options.compat == "dapple") request.compat = planner::Compat::kDapple;
  if (options.compat == "sync0") {
    request.compat = planner::Compat::kSync0;
    request.k_initial = options.k_max;  // this model has one k
  }
  if (options.compat.starts_with("pipedream")) request.objective = planner::Objective::kAsync;
  return request;
}

planner::Rival rival_of(const std::string& name) {
  if (name == "pipedream") return planner::Rival::kPipedream;
  if (name == "dapple-formula") return planner::Rival::kDappleFormula;
  return planner::Rival::kEven;
}

void add_warnings(const PlanInputs& inputs, planner::PlanReport& report) {
  for (const planner::DeviceClass& known : inputs.cluster.classes) {
    const auto& times = inputs.model.layers.front().times;
    if (times.contains(known.name) || (times.size() == 1 && times.begin()->first.empty())) continue;
    report.warnings.push_back("class " + known.name + " has no times in the profile: " +
                              format("%g", known.speed_factor) + " x those of its first class");
  }
}

std::string json_text(const planner::PlanReport& report, const PlanOptions& options,
                      double seconds) {
  std::string text = planner::encode_report(report, options.explain);
  if (options.explain) {
    nlohmann::ordered_json runtime = {{"seconds", seconds}, {"threads", options.threads}};
    text.pop_back();
    text += ",\"runtime\":" + runtime.dump() + "}";
  }
  return "{\"plan\":" + protocol::encode_plan(report.plan) + ",\"report\":" + text + "}\n";
}

int planned_exit_code(const planner::PlanReport& report, const PlanOptions& options) {
  if (interrupted.load()) return kInterrupted;
  if (options.require_optimal && report.optimality.status != "optimal") return kNotOptimal;
  return 0;
}

int fail(std::ostream& err, const Error& error) {
  err << error.message << "\n";
  return error.code == Code::kNotFound ? kNoPlanFits : kBadInput;
}

}  // namespace

int plan_command(const PlanOptions& options, std::istream& in, std::ostream& out,
                 std::ostream& err) {
  const InterruptGuard guard;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  auto inputs = read_inputs(options.inputs, in);
  if (!inputs) return fail(err, inputs.error());
  auto request = request_of(options, *inputs);
  if (!request) return fail(err, request.error());
  planner::Limits limits;
  limits.ideals = options.max_ideals;
  limits.memory_bytes = static_cast<std::int64_t>(options.max_memory);
  limits.threads = options.threads;
  limits.simulated_events = kToolEvents;
  limits.placement_work = kToolPlacements;
  limits.stop = [&] {
    return interrupted.load() || (options.time_limit > 0 && seconds() > options.time_limit);
  };
  auto report = planner::plan(inputs->model, inputs->cluster, *request, limits);
  if (!report) return fail(err, report.error().with("plan"));
  add_warnings(*inputs, *report);
  if (!options.compare.empty()) {
    report->comparisons.push_back(planner::compare(inputs->model, inputs->cluster, *request, limits,
                                                   rival_of(options.compare), *report));
  }
  if (!options.out.empty()) {
    errno = 0;
    std::ofstream file(options.out, std::ios::binary);
    file << protocol::encode_plan(report->plan) << "\n";
    if (!file.flush()) return fail(err, unwritable(options.out));
  }
  out << (options.json ? json_text(*report, options, seconds())
                       : plan_table(*inputs, *report, seconds()));
  if (!options.json && options.out.empty()) {
    out << "the plan is not written; --out plan.json does so, for simulate --plan plan.json\n";
  }
  if (!out.flush()) return kInternalError;
  return planned_exit_code(*report, options);
}

}  // namespace weir::operator_app
