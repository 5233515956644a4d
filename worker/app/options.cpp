// SPDX-License-Identifier: Apache-2.0
#include "worker/app/options.h"

#include <charconv>
#include <limits>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>

#include "worker/base/host_port.h"
#include "worker/base/units.h"
#include "worker/base/utf8.h"
#include "worker/command_line/numbers.h"
#include "worker/http/text.h"
#include "worker/schedule/validate.h"

namespace weir::app {
namespace {

constexpr int kMostPorts = 65535;
constexpr double kLongestWait = 1e6;  // seconds
constexpr double kMost = 1e30;        // for numbers without a limit of their own
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr int kMostInt = std::numeric_limits<int>::max();
constexpr std::size_t kLongestError = 400;

#ifdef WEIR_CUDA
// On a node without a GPU the worker ends with an error.
constexpr const char* kDefaultDevice = "cuda";
#else
constexpr const char* kDefaultDevice = "cpu";
#endif

// Options as CLI11 fills them; texts and numbers are checked again later.
struct Raw {
  Options options;
  std::string pace_rate, pace_other_rate, pace_link;
  std::string log_level = "info", log_format = "json", precision = "fp32", graphs = "auto";
  double checkpoint_minutes = 10;
  double grace = 25, startup = 900, rejoin = 900, progress = 1800;
  std::optional<double> connect;
  int dead_after = 30, control_port = -1, data_port = -1, metrics_port = -1;
};

void add_training(CLI::App& app, Options& o, Raw& raw) {
  const std::string group = "Training";
  app.add_option("--model", o.model.name, "built-in model: mlp, gpt-tiny, gpt-125m, ...")
      ->capture_default_str()
      ->group(group);
  app.add_option("--data", o.data, "text file, read as bytes; unset: synthetic data")->group(group);
  app.add_option(
         "--validation-interval", o.validation_interval,
         "steps between two validations (the loss on data that is not trained on); the last step "
         "is always validated; 0 = never; must be equal on all workers")
      ->transform(whole_in(0, kMostSteps))
      ->capture_default_str()
      ->group(group);
  app.add_option("--validation-data", o.validation_data,
                 "text file for the validation; required if --data is set")
      ->group(group);
  app.add_option("--validation-samples", o.validation_samples,
                 "number of samples of a validation, rounded up to whole micro-batches")
      ->transform(whole_in(1, 1 << 24))
      ->capture_default_str()
      ->group(group);
  app.add_option("--steps", o.steps, "number of optimizer steps")
      ->transform(whole_in(1, kMostSteps))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seq", o.model.sequence, "tokens per sample")
      ->transform(whole_in(1, 65536))
      ->capture_default_str()
      ->group(group);
  app.add_option("--vocab", o.model.vocabulary, "size of the vocabulary; 256 for bytes")
      ->transform(whole_in(2, 1 << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", o.model.seed, "seed of initial values and data")
      ->transform(whole_in(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str()
      ->group(group);
  app.add_option("--precision", raw.precision,
                 "precision of activations and weights, also between workers: fp32 or bf16; "
                 "parameters, their gradients and Adam's moments are fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--lr", o.model.learning_rate, "learning rate of AdamW")
      ->transform(number_in(0, kMost))
      ->capture_default_str()
      ->group(group);
  app.add_option("--warmup", o.model.warmup_steps, "number of steps until the full learning rate")
      ->transform(whole_in(0, kMostInt))
      ->capture_default_str()
      ->group(group);
  app.add_option("--lr-schedule", o.model.schedule, "learning rate schedule: constant or cosine")
      ->check(CLI::IsMember({"constant", "cosine"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--weight-decay", o.model.weight_decay, "weight decay of AdamW")
      ->transform(number_in(0, kMost))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--grad-clip", o.grad_clip,
         "largest norm of all gradients together; 0 = no limit; must be equal on all workers")
      ->transform(number_in(0, kMost))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--diverged-after", o.diverged_after,
         "number of steps in a row with a loss or gradient that is not finite, after which the "
         "worker ends with exit code 85; such steps change no parameter; 0 = never; must be equal "
         "on all workers")
      ->transform(whole_in(0, 1 << 30))
      ->capture_default_str()
      ->group(group);
  app.add_option("--micro-batches", o.own_micro_batches,
                 "micro-batches per step if there is no plan")
      ->transform(whole_in(1, 65535))
      ->capture_default_str()
      ->group(group);
  app.add_option("--micro-batch-size", o.own_micro_batch_size,
                 "samples per micro-batch if there is no plan")
      ->transform(whole_in(1, 65535))
      ->capture_default_str()
      ->group(group);
}

void add_place(CLI::App& app, Options& o, Raw& raw) {
  const std::string group = "Plan and peers";
  app.add_option("--plan", o.plan_file,
                 "file with the plan document, for training without an operator")
      ->group(group);
  app.add_option("--control-url", o.control_url,
                 "URL of the operator's control API; unset: the worker trains without an operator")
      ->envname("WEIR_CONTROL_URL")
      ->group(group);
  app.add_option("--control-dir", o.control_dir, "folder with token and ca.crt for the control API")
      ->envname("WEIR_CONTROL_DIR")
      ->group(group);
  app.add_option(
         "--device", o.device,
         "device that computes: cpu, cuda or cuda:N (default " + std::string(kDefaultDevice) + ")")
      ->envname("WEIR_DEVICE")
      ->group(group);
  app.add_option(
         "--graphs", raw.graphs,
         "whether the ops of a micro-batch are launched as one CUDA graph: auto (if it is measured "
         "to be faster), on or off; results do not depend on it")
      ->envname("WEIR_GRAPHS")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--worker-index", o.worker_index,
                 "index of this worker; worker 0 also runs the coordinator")
      ->envname("WEIR_WORKER_INDEX")
      ->transform(whole_in(0, 65535))
      ->capture_default_str()
      ->group(group);
  app.add_option("--workers", o.workers, "number of workers of the job")
      ->envname("WEIR_WORKERS")
      ->transform(whole_in(1, 65536))
      ->capture_default_str()
      ->group(group);
  app.add_option("--coordinator", o.coordinator,
                 "host:port of worker 0; required on all other workers")
      ->envname("WEIR_COORDINATOR")
      ->group(group);
  app.add_option("--listen", o.listen,
                 "IP address of the ports; unset: loopback without an operator, else all addresses")
      ->group(group);
  app.add_option("--profile-source", o.profile_source,
                 "source of the first plan's profile: Measure (this worker times each layer) or "
                 "ConfigMap (the operator has a profile)")
      ->envname("WEIR_PROFILE_SOURCE")
      ->check(CLI::IsMember({"Measure", "ConfigMap"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--profile-rounds", o.profile_rounds, "number of times that each layer is timed")
      ->envname("WEIR_PROFILE_ROUNDS")
      ->transform(whole_in(1, 1000))
      ->capture_default_str()
      ->group(group);
  app.add_flag(
         "--probe-links", o.probe_links,
         "time the link from each worker to the next one before the first plan; used by worker 0")
      ->envname("WEIR_PROBE_LINKS")
      ->group(group);
  const auto port = [&](const std::string& name, int& value, const std::string& help) {
    app.add_option(name, value, help + "; 0 = any free port")
        ->transform(whole_in(0, kMostPorts))
        ->group(group);
  };
  port("--control-port", raw.control_port, "port of the coordinator (7070)");
  port("--data-port", raw.data_port, "port for tensors (7071)");
  port("--metrics-port", raw.metrics_port, "port of /metrics (9400; any with an own plan)");
}

void add_identity(CLI::App& app, Options& o) {
  const std::string group = "Identity, set by the operator";
  const auto text = [&](const std::string& name, std::string& value, const char* variable) {
    app.add_option(name, value)->envname(variable)->group(group);
  };
  text("--job-name", o.job_name, "WEIR_JOB_NAME");
  text("--job-namespace", o.job_namespace, "WEIR_JOB_NAMESPACE");
  text("--job-uid", o.job_uid, "WEIR_JOB_UID");
  text("--worker-group", o.worker_group, "WEIR_WORKER_GROUP");
  text("--node", o.node, "WEIR_NODE_NAME");
  text("--pod", o.pod, "WEIR_POD_NAME");
  text("--pod-uid", o.pod_uid, "WEIR_POD_UID");
  text("--pod-ips", o.pod_ips, "WEIR_POD_IPS");
  text("--job-key", o.job_key, "WEIR_JOB_KEY");
  text("--transport", o.transport, "WEIR_TRANSPORT");
  text("--interface", o.interface, "WEIR_INTERFACE");
  app.add_option("--attempt", o.attempt)
      ->envname("WEIR_ATTEMPT")
      ->transform(whole_in(0, kMostInt))
      ->group(group);
  app.add_option("--ranks", o.ranks)
      ->envname("WEIR_RANKS")
      ->transform(whole_in(0, kMostInt))
      ->group(group);
}

void add_emulation(CLI::App& app, Options& o, Raw& raw) {
  const std::string group = "Emulation, for timing on few cores";
  app.add_option(
         "--emulate-profile", o.emulate_profile,
         "profile.json with the time that each op takes at least; the arithmetic is still done")
      ->envname("WEIR_EMULATE_PROFILE")
      ->group(group);
  app.add_option("--emulate-device", o.emulate_device, "device class in that profile")
      ->envname("WEIR_EMULATE_DEVICE")
      ->group(group);
  app.add_option(
         "--emulate-slowness", o.emulate_slowness,
         "file of 'step factor' or '1.5s factor' lines: from then on ops take factor times as "
         "long")
      ->group(group);
  app.add_flag("--emulate-idle", o.emulate_idle,
               "skip the arithmetic but not the random numbers, for a stage beside one that "
               "really computes")
      ->group(group);
  app.add_option(
         "--emulate-send-window", o.emulate_send_window,
         "number of sends under way above which a send blocks compute; unset: sends do not block")
      ->transform(whole_in(0, 65535))
      ->group(group);
  app.add_option("--pace-rate", raw.pace_rate,
                 "rate limit of links on which this worker sends, e.g. 40Mbit")
      ->group(group);
  app.add_option("--pace-trace", o.pace_trace, "file of 'seconds share' lines for --pace-rate")
      ->group(group);
  app.add_option(
         "--pace-link", raw.pace_link,
         "link to which --pace-rate applies: 1-2, or one direction: 1-2:fwd, 1-2:bwd; unset: all")
      ->group(group);
  app.add_option("--pace-other-rate", raw.pace_other_rate,
                 "rate limit of links other than --pace-link; the trace does not apply")
      ->group(group);
}

void add_checkpoints(CLI::App& app, Options& o, Raw& raw) {
  const std::string group = "Checkpoints";
  constexpr double kLongestMinutes = 1e5;
  app.add_option("--checkpoint-dir", o.checkpoint_dir,
                 "folder that all workers share; training continues from its newest checkpoint; "
                 "unset: nothing is saved")
      ->envname("WEIR_CHECKPOINT_PATH")
      ->group(group);
  app.add_option("--checkpoint-interval", o.checkpoint_interval,
                 "steps between checkpoints; 0 = every --checkpoint-minutes")
      ->envname("WEIR_CHECKPOINT_INTERVAL")
      ->transform(whole_in(0, kMostSteps))
      ->capture_default_str()
      ->group(group);
  app.add_option("--checkpoint-minutes", raw.checkpoint_minutes,
                 "minutes between checkpoints, if --checkpoint-interval is 0")
      ->envname("WEIR_CHECKPOINT_MINUTES")
      ->transform(number_in(0, kLongestMinutes))
      ->capture_default_str()
      ->group(group);
  app.add_option("--checkpoint-keep", o.checkpoint_keep, "number of checkpoints that are kept")
      ->envname("WEIR_CHECKPOINT_KEEP")
      ->transform(whole_in(1, 10000))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--change-options", o.change_options,
               "continue from a checkpoint although its run had another learning rate, schedule or "
               "length of it, decay, clipping, seed or data; the log names the differences")
      ->group(group);
  app.add_option("--init-from", o.init_from, "checkpoint with the parameters of step 0")
      ->group(group);
}

void add_running(CLI::App& app, Options& o, Raw& raw) {
  const std::string group = "Running";
  const auto seconds = [&](const std::string& name, double& value, const std::string& help) {
    return app.add_option(name, value, help + ", seconds")
        ->transform(number_in(0, kLongestWait))
        ->capture_default_str()
        ->group(group);
  };
  seconds("--grace", raw.grace, "time for the running step and a checkpoint after SIGTERM")
      ->envname("WEIR_GRACE_SECONDS");
  // The limits of the job's spec; 0 = no limit.
  seconds("--startup-timeout", raw.startup,
          "wait for the first plan while the operator does not answer; 0 = no limit")
      ->envname("WEIR_STARTUP_TIMEOUT");
  seconds("--rejoin-timeout", raw.rejoin,
          "wait for a new plan after a lost peer while the operator does not answer; 0 = no limit")
      ->envname("WEIR_REJOIN_TIMEOUT");
  seconds("--progress-deadline", raw.progress,
          "longest wait without a message from a peer; 0 = no limit")
      ->envname("WEIR_PROGRESS_DEADLINE");
  app.add_option("--connect-timeout", raw.connect,
                 "wait until all neighbours are connected, seconds; 0 = no limit; unset: "
                 "--progress-deadline")
      ->transform(number_in(0, kLongestWait))
      ->group(group);
  app.add_option("--dead-after", raw.dead_after,
                 "silence after which a peer counts as dead, seconds")
      ->transform(whole_in(1, 86400))
      ->capture_default_str()
      ->group(group);
  app.add_option("--loss-log", o.loss_log, "file to which one JSON line per step is appended")
      ->group(group);
  app.add_option("--step-report", o.step_report, "steps between two log lines; 0 = none")
      ->transform(whole_in(0, kMostInt))
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-level", raw.log_level,
                 "lowest level of log lines: debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-format", raw.log_format, "format of log lines: json or text")
      ->check(CLI::IsMember({"json", "text"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--dry-run", o.dry_run, "print the steps of the program and exit")->group(group);
}

Error invalid(const std::string& message) {
  return {Code::kInvalid, message};
}

// Reads "1-2", "1-2:fwd" or "1-2:bwd".
Status read_link(const std::string& text, Options& options) {
  const auto wrong = [&] {
    return invalid("--pace-link: must be a link such as 1-2, 1-2:fwd or 1-2:bwd, found " +
                   in_quotes(text));
  };
  const std::string link = text.substr(0, text.find(':'));
  const std::string way = link.size() == text.size() ? "" : text.substr(link.size() + 1);
  const std::size_t dash = link.find('-');
  if (dash == std::string::npos) return wrong();
  int from = -1, to = -1;
  const auto number = [&](std::size_t at, std::size_t end, int& value) {
    const auto parsed = std::from_chars(link.data() + at, link.data() + end, value);
    return parsed.ec == std::errc() && parsed.ptr == link.data() + end;
  };
  if (!number(0, dash, from) || !number(dash + 1, link.size(), to)) return wrong();
  if (from < 0 || to != from + 1) return wrong();
  if (!way.empty() && way != "fwd" && way != "bwd") return wrong();
  options.pace_boundary = from;
  options.pace_channel = way.empty() ? -1 : way == "bwd" ? 1 : 0;
  return Unit{};
}

// Longer than any run, but small enough to be added to a time.
constexpr std::chrono::hours kNoLimit{24 * 365 * 50};

std::chrono::nanoseconds limit_of(double seconds) {
  return seconds == 0 ? std::chrono::nanoseconds(kNoLimit) : from_seconds(seconds);
}

std::optional<int> port_of(int value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

// Checks that depend on several options or that CLI11 cannot make.
Result<Options> complete(Raw raw) {
  Options& o = raw.options;
  if (!raw.pace_rate.empty()) {
    const Result<double> rate = parse_rate(raw.pace_rate);
    if (!rate) return rate.error().with("--pace-rate");
    o.pace_bytes_per_second = *rate;
  } else if (!o.pace_trace.empty() || !raw.pace_link.empty()) {
    return invalid("--pace-rate: required by --pace-trace and --pace-link, not set");
  }
  if (!raw.pace_other_rate.empty()) {
    if (raw.pace_link.empty())
      return invalid("--pace-link: required by --pace-other-rate, not set");
    const Result<double> rate = parse_rate(raw.pace_other_rate);
    if (!rate) return rate.error().with("--pace-other-rate");
    o.pace_other_bytes_per_second = *rate;
  }
  if (!raw.pace_link.empty()) {
    WEIR_TRY([[maybe_unused]] const Unit read, read_link(raw.pace_link, o));
  }
  if (o.validation_interval > 0 && !o.data.empty() && o.validation_data.empty()) {
    return invalid("--validation-data: required by --validation-interval with --data, not set");
  }
  if (o.validation_interval == 0 && !o.validation_data.empty()) {
    return invalid("--validation-data: has no effect without --validation-interval; set both");
  }
  if (o.ranks != 1)
    return invalid("WEIR_RANKS: must be 1, found " + std::to_string(o.ranks) +
                   "; a worker runs one rank");
  if (o.transport != "Auto" && o.transport != "TCP" && o.transport != "NCCL") {
    return invalid("WEIR_TRANSPORT: must be Auto, TCP or NCCL, found " + in_quotes(o.transport));
  }
  if (!o.control_url.empty() && !o.plan_file.empty()) {
    return invalid(
        "--plan: not allowed with WEIR_CONTROL_URL, plans then come from the operator; remove one "
        "of them");
  }
  if (!o.control_url.empty() && o.control_dir.empty()) {
    return invalid("WEIR_CONTROL_DIR: required by WEIR_CONTROL_URL, not set");
  }
  if (o.worker_index >= o.workers) {
    return invalid("--worker-index: must be below --workers " + std::to_string(o.workers) +
                   ", found " + std::to_string(o.worker_index));
  }
  if (o.worker_index > 0 && o.coordinator.empty()) {
    return invalid(
        "--coordinator: required on workers other than 0, not set; name host:port of worker 0");
  }
  if (!o.listen.empty() && !is_ip_address(o.listen)) {
    return invalid("--listen: must be an IP address, found " + in_quotes(o.listen));
  }
  if (!o.coordinator.empty()) {
    const auto address = parse_host_port(o.coordinator);
    if (!address) return address.error().with("--coordinator");
  }
  if (!o.control_url.empty()) {
    const auto url = http::parse_base_url(o.control_url);
    if (!url) return url.error().with("WEIR_CONTROL_URL");
  }
  if (std::int64_t{o.own_micro_batches} * o.own_micro_batch_size > schedule::kMostStepSamples) {
    return invalid("--micro-batch-size: " + std::to_string(o.own_micro_batch_size) + " times " +
                   std::to_string(o.own_micro_batches) + " --micro-batches is above " +
                   std::to_string(schedule::kMostStepSamples) + " samples a step");
  }
  if (o.plans_itself() && o.workers > 1) {
    return invalid("--workers: must be 1 without --plan and without an operator, found " +
                   std::to_string(o.workers));
  }
  if (o.device.empty()) o.device = o.emulated() ? "cpu" : kDefaultDevice;
  if (o.emulated() && o.device != "cpu") {
    return invalid("--device: must be cpu with --emulate-profile, found " + in_quotes(o.device));
  }
  if (!o.emulate_device.empty() && o.emulate_profile.empty()) {
    return invalid("--emulate-device: has no effect without --emulate-profile; set both");
  }
  if (!o.emulate_slowness.empty() && o.emulate_profile.empty()) {
    return invalid("--emulate-slowness: has no effect without --emulate-profile; set both");
  }
  if (o.emulate_idle && o.emulate_profile.empty()) {
    return invalid("--emulate-idle: has no effect without --emulate-profile; set both");
  }
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warn", LogLevel::kWarn},
                                                  {"error", LogLevel::kError}};
  o.log_level = levels.at(raw.log_level);
  o.log_format = raw.log_format == "text" ? LogFormat::kText : LogFormat::kJson;
  o.checkpoint_period = from_seconds(raw.checkpoint_minutes * 60);
  o.grace = from_seconds(raw.grace);
  o.startup_timeout = limit_of(raw.startup);
  o.rejoin_timeout = limit_of(raw.rejoin);
  o.progress_deadline = limit_of(raw.progress);
  // A neighbour that takes longer to load is no failure, so the deadline is that of progress.
  o.connect_timeout = limit_of(raw.connect.value_or(raw.progress));
  o.dead_after = std::chrono::seconds(raw.dead_after);
  o.control_port = port_of(raw.control_port);
  o.data_port = port_of(raw.data_port);
  o.metrics_port = port_of(raw.metrics_port);
  o.model.precision = raw.precision == "bf16" ? stage::Precision::kBf16 : stage::Precision::kFp32;
  o.graphs = raw.graphs == "auto" ? stage::GraphUse::kWhereFaster
             : raw.graphs == "on" ? stage::GraphUse::kAlways
                                  : stage::GraphUse::kOff;
  o.model.total_steps = o.steps;
  return std::move(o);
}

}  // namespace

Result<double> parse_rate(const std::string& text) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(parsed.ptr, text.data() + text.size());
  const std::map<std::string, double> units = {
      {"bit", 1.0 / 8}, {"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8},
      {"B", 1},         {"kB", 1e3},       {"MB", 1e6},       {"GB", 1e9}};
  const auto found = units.find(unit);
  // At least a byte per second, because times of slower rates would overflow.
  const bool good = parsed.ec == std::errc() && found != units.end() && number <= 1e15 &&
                    number * found->second >= 1;
  if (!good)
    return invalid("must be a rate such as 40Mbit or 5MB (per second), found " + in_quotes(text));
  return number * found->second;
}

Result<std::variant<Options, Help>> parse_options(int argc, const char* const* argv) {
  Raw raw;
  CLI::App app("Trains one pipeline stage of a PipelineJob, or a whole model alone.",
               "weir-worker");
  add_training(app, raw.options, raw);
  add_place(app, raw.options, raw);
  add_identity(app, raw.options);
  add_emulation(app, raw.options, raw);
  add_checkpoints(app, raw.options, raw);
  add_running(app, raw.options, raw);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return std::variant<Options, Help>(Help{app.help()});
  } catch (const CLI::ParseError& error) {
    return invalid(one_line(error.what(), kLongestError));
  }
  WEIR_TRY(Options options, complete(std::move(raw)));
  return std::variant<Options, Help>(std::move(options));
}

}  // namespace weir::app
