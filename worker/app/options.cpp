// SPDX-License-Identifier: Apache-2.0
#include "worker/app/options.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "worker/app/contradictions.h"
#include "worker/base/units.h"
#include "worker/base/utf8.h"
#include "worker/command_line/numbers.h"
#include "worker/command_line/rows.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::app {
namespace {

constexpr int kMostPorts = 65535;
constexpr int kMostThreads = 1024;
constexpr double kLongestWait = 1e6;  // seconds
constexpr double kMost = 1e30;        // for numbers without a limit of their own
constexpr double kMostBeta = 0.9999999, kLeastEpsilon = 1e-30;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr int kMostFlightEvents = 1 << 20;  // 32 MiB
constexpr int kMostDscp = 63;
constexpr int kMostInt = std::numeric_limits<int>::max();
constexpr std::size_t kLongestError = 400;

#ifdef WEIR_CUDA
// On a node without a GPU the worker ends with an error.
constexpr const char* kDefaultDevice = "cuda";
#else
constexpr const char* kDefaultDevice = "cpu";
#endif

// Values that are checked with others once all are known.
struct Raw {
  Options options;
  std::optional<double> connect;  // seconds
  std::vector<std::string> model_options;
};

const Words<LogLevel> kLevels = {{"debug", LogLevel::kDebug},
                                 {"info", LogLevel::kInfo},
                                 {"warn", LogLevel::kWarn},
                                 {"error", LogLevel::kError}};
const Words<transport::tcp::SumEncoding> kSumEncodings = {
    {"auto", transport::tcp::SumEncoding::kAuto},
    {"raw", transport::tcp::SumEncoding::kRaw},
    {"packed", transport::tcp::SumEncoding::kPacked}};
const Words<bool> kOnOrOff = {{"on", true}, {"off", false}};
const Words<LogFormat> kFormats = {{"json", LogFormat::kJson}, {"text", LogFormat::kText}};
const Words<stage::Precision> kPrecisions = {{"fp32", stage::Precision::kFp32},
                                             {"bf16", stage::Precision::kBf16}};
const Words<stage::GraphUse> kGraphUses = {{"auto", stage::GraphUse::kWhereFaster},
                                           {"on", stage::GraphUse::kAlways},
                                           {"off", stage::GraphUse::kOff}};

const Words<coordinator::NeighborCopies> kNeighborCopies = {
    {"Auto", coordinator::NeighborCopies::kAuto},
    {"On", coordinator::NeighborCopies::kOn},
    {"Off", coordinator::NeighborCopies::kOff}};

const std::map<std::string, data::TokenType> kDataTypes = {
    {"u8", data::TokenType::kU8}, {"u16", data::TokenType::kU16}, {"u32", data::TokenType::kU32}};

// Longer than any run, but small enough to be added to a time.
constexpr std::chrono::hours kNoLimit{24 * 365 * 50};

// As a CLI::Validator: an error, or nothing.
std::string refuse_congestion_control(const std::string& name) {
  constexpr std::size_t kLongest = 15;  // of the kernel
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= kLongest && std::ranges::all_of(name, fits)) return "";
  return "must be 1 to 15 of a-z 0-9 _ -, found \"" + name + "\"";
}

std::chrono::nanoseconds limit_of(double seconds) {
  return seconds == 0 ? std::chrono::nanoseconds(kNoLimit) : from_seconds(seconds);
}

// Sizes of the models "gpt" and "llama", and choices for a folder of Hugging Face.
void add_built_in(Rows& rows, Options& o) {
  const CLI::Validator size = whole_in(1, 1 << 20);
  const auto add = [&](const char* option, int& value, const char* text) {
    rows.add(option, value, text, size)->default_str("");
  };
  add("--layers", o.model.blocks, "number of transformer blocks of --model=gpt or llama");
  add("--width", o.model.width, "numbers per token between the blocks of --model=gpt or llama");
  add("--heads", o.model.heads, "number of attention heads of --model=gpt or llama");
  add("--kv-heads", o.model.kv_heads,
      "number of heads of keys and values of --model=llama; unset: as many as --heads");
  add("--ffn", o.model.ffn, "width of the MLP of --model=llama; unset: 8/3 of --width");
  rows.add_read(
      "--init", o.random_init, std::string("folder"),
      [](const std::string& word) { return word == "random"; },
      "initial values of --model=hf:DIR: those of the folder, if it has any, or random",
      CLI::IsMember({"folder", "random"}));
  rows.add("--untie", o.untie, "train a copy of a table that --model=hf:DIR ties to another one");
}

void add_training(Rows& rows, Raw& raw) {
  Options& o = raw.options;
  rows.group("Training");
  if (o.hosted) {
    rows.add("--model", o.model.name, "the model whose layers this program computes")
        ->default_str("");
  } else {
    rows.add(
        "--model", o.model.name,
        "built-in model: mlp, gpt-tiny, gpt-125m, ..., gpt or llama with its sizes, or hf:DIR, "
        "a folder of Hugging Face; with --plugin a text for it");
    rows.add("--plugin", o.plugin,
             "shared library with layers of your own (weir_layers.h), instead of a built-in model");
  }
  rows.add("--model-option", raw.model_options,
           std::string("KEY=VALUE for ") +
               (o.hosted ? "the model" : "--plugin, or of config.json") +
               "; may be given several times; a VALUE that is JSON is passed as it "
               "is, another one as text")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  rows.add("--recompute", o.model.recompute,
           "layers that keep their input only and run again before their backward: none, all, or a "
           "list as block0-block3,head");
  if (!o.hosted) add_built_in(rows, o);
  rows.add("--data", o.data,
           "[WEIGHT:]PATH[,...]: files of tokens and their shares; PATH of PATH.bin and PATH.idx "
           "(Megatron), a file of llm.c, or any other file as --data-type says; unset: synthetic "
           "data");
  rows.add_read(
      "--data-type", o.data_type, std::string(),
      [](const std::string& word) { return kDataTypes.at(word); },
      "type of the tokens in files without a header: u8, u16 or u32; unset: bytes of a text",
      CLI::IsMember({"u8", "u16", "u32"}));
  rows.add("--validation-interval", o.validation_interval,
           "steps between two validations (the loss on data that is not trained on); the last step "
           "is always validated; 0 = never; must be equal on all workers",
           whole_in(0, kMostSteps));
  rows.add("--validation-data", o.validation_data,
           "files for the validation, as --data; required if --data is set");
  rows.add("--validation-samples", o.validation_samples,
           "number of samples of a validation, rounded up to whole micro-batches",
           whole_in(1, 1 << 24));
  rows.add("--steps", o.steps, "number of optimizer steps", whole_in(1, kMostSteps));
  rows.add("--seq", o.model.sequence, "tokens per sample", whole_in(1, 65536));
  rows.add("--vocab", o.model.vocabulary,
           "size of the vocabulary; 256 for bytes of a text, above the largest token of other data",
           whole_in(2, 1 << 20));
  rows.add("--seed", o.model.seed, "seed of initial values and data",
           whole_in(0, std::numeric_limits<std::int64_t>::max()));
  rows.add("--precision", o.model.precision, kPrecisions,
           "precision of activations and weights, also between workers: fp32 or bf16; "
           "parameters, their gradients and Adam's moments are fp32");
  rows.add("--lr", o.model.learning_rate, "learning rate of AdamW", number_in(0, kMost));
  rows.add("--warmup", o.model.warmup_steps, "number of steps until the full learning rate",
           whole_in(0, kMostInt));
  rows.add("--lr-schedule", o.model.schedule,
           "learning rate after the warm-up: constant, cosine, linear (both fall until the last "
           "step) or wsd (constant, then linear over --decay-steps)",
           CLI::IsMember({"constant", "cosine", "linear", "wsd"}));
  rows.add("--min-lr-ratio", o.model.min_ratio,
           "ratio of the last learning rate to --lr; unset: 0.1 for cosine, 0 for linear and wsd",
           number_in(0, 1));
  rows.add("--decay-steps", o.model.decay_steps,
           "number of last steps in which wsd falls; unset: a tenth of --steps",
           whole_in(1, kMostSteps))
      ->default_str("");
  // Within these limits they are such numbers as float32, too.
  rows.add("--beta1", o.model.beta1, "decay of AdamW's first moment", number_in(0, kMostBeta));
  rows.add("--beta2", o.model.beta2, "decay of AdamW's second moment", number_in(0, kMostBeta));
  rows.add("--epsilon", o.model.epsilon, "AdamW's epsilon", number_in(kLeastEpsilon, 1));
  rows.add("--weight-decay", o.model.weight_decay, "weight decay of AdamW", number_in(0, kMost));
  rows.add("--grad-clip", o.grad_clip,
           "largest norm of all gradients together; 0 = no limit; must be equal on all workers",
           number_in(0, kMost));
  rows.add("--diverged-after", o.diverged_after,
           "number of steps in a row with a loss or gradient that is not finite, after which the "
           "worker ends with exit code 85; such steps change no parameter; 0 = never; must be "
           "equal on all workers",
           whole_in(0, 1 << 30));
  rows.add("--micro-batches", o.own_micro_batches, "micro-batches per step if there is no plan",
           whole_in(1, 65535));
  rows.add("--micro-batch-size", o.own_micro_batch_size,
           "samples per micro-batch if there is no plan", whole_in(1, 65535));
}

void add_place(Rows& rows, Options& o) {
  rows.group("Plan and peers");
  rows.add("--plan", o.plan_file, "file with the plan document, for training without an operator");
  rows.add("--control-url", o.control_url,
           "URL of the operator's control API; unset: the worker trains without an operator",
           "WEIR_CONTROL_URL");
  rows.add("--control-dir", o.control_dir, "folder with token and ca.crt for the control API",
           "WEIR_CONTROL_DIR");
  rows.add(
      "--device", o.device,
      std::string("device that computes: cpu, cuda or cuda:N (default ") + kDefaultDevice + ")",
      "WEIR_DEVICE");
  rows.add("--threads", o.threads,
           "threads that compute on the device cpu; unset: the CPUs that this process may use, by "
           "its affinity and its container's quota; results do not depend on it",
           "WEIR_THREADS", whole_in(1, kMostThreads));
  rows.add("--graphs", o.graphs, kGraphUses,
           "whether the ops of a micro-batch are launched as one CUDA graph: auto (if it is "
           "measured to be faster), on or off; results do not depend on it",
           "WEIR_GRAPHS");
  rows.add(
      "--worker-index", o.worker_index,
      "index of this worker; worker 0 also coordinates, unless the operator names another worker",
      "WEIR_WORKER_INDEX", whole_in(0, 65535));
  rows.add("--workers", o.workers, "number of workers of the job", "WEIR_WORKERS",
           whole_in(1, 65536));
  rows.add("--coordinator", o.coordinator, "host:port of worker 0; required on all other workers",
           "WEIR_COORDINATOR");
  rows.add("--listen", o.listen,
           "IP address of the ports; unset: loopback without an operator, else all addresses");
  rows.add("--profile-source", o.profile_source,
           "source of the first plan's profile: Measure (this worker times each layer) or "
           "ConfigMap (the operator has a profile)",
           "WEIR_PROFILE_SOURCE", CLI::IsMember({"Measure", "ConfigMap"}));
  rows.add("--profile-rounds", o.profile_rounds, "number of times that each layer is timed",
           "WEIR_PROFILE_ROUNDS", whole_in(1, 1000));
  rows.add(
      "--probe-links,!--no-probe-links", o.probe_links,
      "time the links from each worker to the next one and back before the first plan; used by "
      "worker 0; --no-probe-links: they count as 10 Gbit/s until they are measured",
      "WEIR_PROBE_LINKS");
  const CLI::Validator port = whole_in(0, kMostPorts);
  rows.add("--control-port", o.control_port, "port of the coordinator (7070); 0 = any free port",
           port);
  rows.add("--data-port", o.data_port, "port for tensors (7071); 0 = any free port", port);
  rows.add("--metrics-port", o.metrics_port,
           "port of /metrics (9400; any with an own plan); 0 = any free port", port);
}

void add_identity(Rows& rows, Options& o) {
  rows.group("Identity, set by the operator");
  rows.add("--job-name", o.job_name, "", "WEIR_JOB_NAME");
  rows.add("--job-namespace", o.job_namespace, "", "WEIR_JOB_NAMESPACE");
  rows.add("--job-uid", o.job_uid, "", "WEIR_JOB_UID");
  rows.add("--worker-group", o.worker_group, "", "WEIR_WORKER_GROUP");
  rows.add("--node", o.node, "", "WEIR_NODE_NAME");
  rows.add("--pod", o.pod, "", "WEIR_POD_NAME");
  rows.add("--pod-uid", o.pod_uid, "", "WEIR_POD_UID");
  rows.add("--pod-ips", o.pod_ips, "", "WEIR_POD_IPS");
  rows.add("--job-key", o.job_key, "", "WEIR_JOB_KEY");
  rows.add("--transport", o.transport, "", "WEIR_TRANSPORT");
  rows.add("--interface", o.interface, "", "WEIR_INTERFACE");
  rows.add("--attempt", o.attempt, "", "WEIR_ATTEMPT", whole_in(0, kMostInt));
  rows.add("--ranks", o.ranks, "", "WEIR_RANKS", whole_in(0, kMostInt));
}

void add_checkpoints(Rows& rows, Options& o) {
  rows.group("Checkpoints");
  constexpr double kLongestMinutes = 1e5;
  rows.add("--checkpoint-dir", o.checkpoint_dir,
           "folder that all workers share; training continues from its newest checkpoint; "
           "unset: nothing is saved",
           "WEIR_CHECKPOINT_PATH");
  rows.add("--checkpoint-interval", o.checkpoint_interval,
           "steps between checkpoints; 0 = every --checkpoint-minutes", "WEIR_CHECKPOINT_INTERVAL",
           whole_in(0, kMostSteps));
  rows.add_read(
      "--checkpoint-minutes", o.checkpoint_period, to_seconds(o.checkpoint_period) / 60,
      [](double minutes) { return from_seconds(minutes * 60); },
      "minutes between checkpoints, if --checkpoint-interval is 0", "WEIR_CHECKPOINT_MINUTES",
      number_in(0, kLongestMinutes));
  rows.add("--checkpoint-keep", o.checkpoint_keep, "number of checkpoints that are kept",
           "WEIR_CHECKPOINT_KEEP", whole_in(1, 10000));
  rows.add("--recovery-dir", o.recovery_dir,
           "folder in memory for snapshots of this worker and copies of a neighbor's, from which "
           "training goes on after a failure; unset: none are taken",
           "WEIR_RECOVERY_PATH");
  rows.add("--recovery-every", o.recovery_every,
           "steps between snapshots; more where they would cost over 1 % of the time",
           "WEIR_RECOVERY_EVERY", whole_in(1, kMostInt));
  rows.add("--recovery-copies", o.recovery_copies, kNeighborCopies,
           "whether a neighbor keeps each snapshot, too, for the loss of a whole worker; Auto: "
           "while memory and network suffice",
           "WEIR_RECOVERY_COPIES");
  rows.add("--change-options", o.change_options,
           "continue from a checkpoint although its run had another learning rate, schedule or "
           "length of it, decay, clipping, seed or data; the log names the differences");
  rows.add("--init-from", o.init_from,
           "checkpoint, or a folder of Hugging Face, with the parameters of step 0");
  rows.add("--export", o.export_to,
           "at the end of training worker 0 writes the model as a folder of Hugging Face: hf (into "
           "hf of --checkpoint-dir) or hf:DIR");
  rows.add_read(
      "--export-dtype", o.export_type, std::string("fp32"),
      [](const std::string& word) { return std::string(word == "bf16" ? "BF16" : "F32"); },
      "type of the numbers of --export: fp32 or bf16", CLI::IsMember({"fp32", "bf16"}));
}

void add_running(Rows& rows, Raw& raw) {
  Options& o = raw.options;
  rows.group("Running");
  const CLI::Validator wait = number_in(0, kLongestWait);
  rows.add_time("--grace", o.grace, from_seconds,
                "time for the running step and a checkpoint after SIGTERM, seconds",
                "WEIR_GRACE_SECONDS", wait);
  // The limits of the job's spec; 0 = no limit.
  rows.add_time("--startup-timeout", o.startup_timeout, limit_of,
                "wait for the first plan while the operator does not answer; 0 = no limit, seconds",
                "WEIR_STARTUP_TIMEOUT", wait);
  rows.add_time("--rejoin-timeout", o.rejoin_timeout, limit_of,
                "wait for a new plan after a lost peer while the operator does not answer; 0 = no "
                "limit, seconds",
                "WEIR_REJOIN_TIMEOUT", wait);
  rows.add_time(
      "--progress-deadline", o.progress_deadline, limit_of,
      "longest wait without a message from a peer, or of one for the engine; 0 = no limit, seconds",
      "WEIR_PROGRESS_DEADLINE", wait);
  rows.add("--connect-timeout", raw.connect,
           "wait until all neighbours are connected, seconds; 0 = no limit; unset: "
           "--progress-deadline",
           wait);
  rows.add_read(
      "--dead-after", o.dead_after, static_cast<int>(o.dead_after.count()),
      [](int given) { return std::chrono::seconds(given); },
      "silence after which a peer counts as dead, seconds", whole_in(1, 86400));
  rows.add_read(
      "--lost-after", o.lost_after, static_cast<int>(o.lost_after.count()),
      [](int given) { return std::chrono::seconds(given); },
      "silence on the control port after which the coordinator counts a worker as lost, and a "
      "worker asks who coordinates, seconds; 0 = as "
      "--dead-after",
      "WEIR_LOST_AFTER", whole_in(0, 86400));
  rows.add("--connections", o.connections,
           "TCP connections per link and direction in which this worker sends; 0 = chosen by "
           "measuring, at most 8",
           "WEIR_CONNECTIONS", whole_in(0, transport::kMostConnections));
  rows.add("--congestion-control", o.congestion_control,
           "TCP congestion control of data sockets, such as bbr; unset, or not allowed on this "
           "machine: the kernel's default",
           "WEIR_CONGESTION_CONTROL", CLI::Validator(refuse_congestion_control, std::string()));
  rows.add("--dscp-boundary", o.boundary_dscp,
           "DSCP of tensors between stages, for networks that honour it; unset: no mark",
           "WEIR_DSCP_BOUNDARY", whole_in(0, kMostDscp));
  rows.add("--dscp-bulk", o.bulk_dscp, "DSCP of sums, averages, state and copies; unset: no mark",
           "WEIR_DSCP_BULK", whole_in(0, kMostDscp));
  rows.add("--sum-encoding", o.sum_encoding, kSumEncodings,
           "form in which replicas send their sums by TCP: raw, packed (fewer bytes, the same "
           "bits), or auto: packed while the network is slow");
  rows.add("--traffic-order", o.traffic_order, kOnOrOff,
           "on: tensors between stages pass this worker's port before sums, and those before "
           "averages, state and copies; off: side by side, to compare");
  rows.add("--loss-log", o.loss_log, "file to which one JSON line per step is appended");
  rows.add("--log-dir", o.log_dir,
           "folder for the curves of training: metrics.jsonl and event files of TensorBoard, "
           "written by the worker that coordinates; unset: log in --checkpoint-dir");
  rows.add("--log-every", o.log_every,
           "steps between two lines of these; 0 = each step, at most ten a second",
           whole_in(0, kMostInt));
  rows.add("--flight-events", o.flight_events,
           "events of 32 bytes that the flight recorder of this rank keeps; 0 switches it off, and "
           "with it the traces and dumps of this rank",
           whole_in(0, kMostFlightEvents));
  rows.add("--trace-file", o.trace_file,
           "file that gets what this rank did in --trace-steps, for `kubectl weir trace --from`");
  rows.add("--trace-steps", o.trace_steps, "steps of it, FIRST-LAST, counted from 1");
  rows.add("--step-report", o.step_report, "steps between two log lines; 0 = none",
           whole_in(0, kMostInt));
  rows.add("--log-level", o.log_level, kLevels,
           "lowest level of log lines: debug, info, warn or error");
  rows.add("--log-format", o.log_format, kFormats, "format of log lines: json or text");
  rows.add("--dry-run", o.dry_run, "print the steps of the program and exit");
  if (o.hosted) return;
  rows.add("--describe", o.describe,
           "print the layers of --model or --plugin, what they keep and need, and exit");
}

// The options as a JSON object with sorted keys.
Result<std::string> json_of(const std::vector<std::string>& options) {
  nlohmann::json object = nlohmann::json::object();
  for (const std::string& option : options) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid("--model-option: must be KEY=VALUE, found " + in_quotes(option));
    }
    const std::string value = option.substr(equals + 1);
    nlohmann::json parsed = nlohmann::json::parse(value, nullptr, false);
    if (parsed.is_discarded()) parsed = value;
    if (!object.emplace(option.substr(0, equals), std::move(parsed)).second) {
      return invalid("--model-option: " + option.substr(0, equals) + " is there twice");
    }
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<Options> complete(Raw raw) {
  Options& o = raw.options;
  WEIR_TRY(o.model.model_options, json_of(raw.model_options));
  WEIR_OK(emulate::complete(o.emulation));
  if (o.device.empty()) o.device = o.emulated() ? "cpu" : kDefaultDevice;
  if (const std::string message = contradiction(o); !message.empty()) return invalid(message);
  // A neighbour that takes longer to load is no failure, so the deadline is that of progress.
  o.connect_timeout = raw.connect ? limit_of(*raw.connect) : o.progress_deadline;
  o.model.total_steps = o.steps;
  return std::move(o);
}

}  // namespace

Result<std::variant<Options, Help>> parse_options(int argc, const char* const* argv,
                                                  const char* host) {
  Raw raw;
  raw.options.hosted = host != nullptr;
  CLI::App app("Trains one pipeline stage of a PipelineJob, or a whole model alone.",
               host != nullptr ? host : "weir-worker");
  Rows rows(app);
  add_training(rows, raw);
  add_place(rows, raw.options);
  add_identity(rows, raw.options);
  emulate::add_options(rows, raw.options.emulation);
  add_checkpoints(rows, raw.options);
  add_running(rows, raw);
  try {
    app.parse(argc, argv);
    // The layers name their model.
    const bool named = app.get_option("--model")->count() > 0;
    raw.options.vocabulary_given = app.get_option("--vocab")->count() > 0;
    if (raw.options.foreign() && !named) raw.options.model.name.clear();
  } catch (const CLI::CallForHelp&) {
    return std::variant<Options, Help>(Help{app.help()});
  } catch (const CLI::ParseError& error) {
    return invalid(one_line(error.what(), kLongestError));
  }
  WEIR_TRY(Options options, complete(std::move(raw)));
  return std::variant<Options, Help>(std::move(options));
}

}  // namespace weir::app
