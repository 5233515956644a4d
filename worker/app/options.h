// SPDX-License-Identifier: Apache-2.0
// Command line and environment of weir-worker (worker/app/README.md). Only parses them: the steps
// open the files.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker/base/log.h"
#include "worker/base/result.h"
#include "worker/coordinator/checkpoints.h"
#include "worker/data/token_layout.h"
#include "worker/emulate/options.h"
#include "worker/engine/flight_recorder.h"
#include "worker/stage/stage.h"
#include "worker/transport/tcp/packed_sums.h"

namespace weir::app {

inline constexpr std::string_view kFolder = "hf:";  // in --model and --export

struct Options {
  stage::ModelOptions model;  // --model --seq --vocab --seed --lr ...
  std::string plugin;         // library with layers of one's own; empty: a built-in model
  bool hosted = false;        // the program that loaded libweir-worker.so has the layers
  // For --model=hf:DIR: initial values are random, not those of the folder; a tied table is copied;
  // --vocab is given, so it must be that of the folder.
  bool random_init = false, untie = false, vocabulary_given = false;
  stage::GraphUse graphs = stage::GraphUse::kWhereFaster;
  std::string data;                          // [WEIGHT:]PATH[,...]; empty: synthetic data
  std::optional<data::TokenType> data_type;  // of files without a header; nothing: text
  std::int64_t steps = 100;
  std::string validation_data;  // empty: validation part of the synthetic data
  std::int64_t validation_interval = 0;
  int validation_samples = 64;

  // Source of plans: the operator (control_url), a file, or the worker's own plan with one stage.
  std::string plan_file;
  std::string control_url, control_dir;
  int own_micro_batches = 16, own_micro_batch_size = 4;  // for the worker's own plan

  // Identity of this worker.
  std::string job_name = "standalone", job_namespace = "default", job_uid = "standalone";
  std::string worker_group, node = "localhost", pod, pod_uid, pod_ips;
  int worker_index = 0, workers = 1, attempt = 0, ranks = 1;
  std::string coordinator;  // host:port
  std::string job_key;      // hex; used only without an operator
  std::string transport = "Auto", interface;

  // Address of the ports; empty: loopback without an operator, else all addresses.
  std::string listen;
  std::optional<int> control_port, data_port, metrics_port;  // 0 = any free port

  std::string device;  // "cpu", "cuda" or "cuda:N"; empty: kDefaultDevice, with emulation "cpu"
  emulate::Options emulation;
  std::optional<int> threads;  // of the device cpu; unset: all CPUs that the process may use

  std::string checkpoint_dir;            // empty: nothing is saved
  std::int64_t checkpoint_interval = 0;  // steps; 0 = by time
  // Used if checkpoint_interval is 0.
  std::chrono::nanoseconds checkpoint_period{std::chrono::minutes(10)};
  int checkpoint_keep = 2;
  std::string recovery_dir;         // empty: no snapshots are taken
  std::int64_t recovery_every = 4;  // steps between them
  coordinator::NeighborCopies recovery_copies = coordinator::NeighborCopies::kAuto;
  bool change_options = false;  // continue from a checkpoint of a run with other options
  std::string init_from;        // parameters of step 0 if there is no checkpoint
  std::string export_to;        // "hf" or "hf:DIR": at the end of training; empty: no export
  std::string export_type = "F32";

  std::chrono::nanoseconds grace{std::chrono::seconds(25)};
  std::chrono::nanoseconds startup_timeout{std::chrono::seconds(900)};
  std::chrono::nanoseconds connect_timeout{std::chrono::seconds(1800)};
  std::chrono::nanoseconds rejoin_timeout{std::chrono::seconds(900)};
  std::chrono::nanoseconds progress_deadline{std::chrono::seconds(1800)};
  std::chrono::seconds dead_after{30};
  std::chrono::seconds lost_after{0};           // of a worker or the coordinator; 0 = dead_after
  int connections = 0;                          // per link and direction; 0 = chosen by measuring
  std::string congestion_control;               // "" = the kernel's default
  std::optional<int> boundary_dscp, bulk_dscp;  // nothing: no mark
  bool traffic_order = true;
  transport::tcp::SumEncoding sum_encoding = transport::tcp::SumEncoding::kAuto;

  std::string loss_log;
  std::string log_dir;   // of the training log; empty: log of the checkpoint folder, or none
  int log_every = 0;     // steps between two lines of it; 0 = at most ten a second
  int step_report = 10;  // steps between two log lines; 0 = none
  int flight_events = static_cast<int>(engine::FlightRecorder::kEvents);  // 0 = none
  std::string trace_file, trace_steps;  // of what this rank did in steps FIRST-LAST
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kJson;
  bool dry_run = false, describe = false;
  double grad_clip = 0;     // 0 = off
  int diverged_after = 10;  // skipped steps in a row; 0 = never

  // How the first plan gets its profile. The operator sets both from spec.model.profile.
  std::string profile_source = "Measure";
  int profile_rounds = 5;
  // One short probe of a link is coarse: the operator takes probes within a factor of two for
  // equal links (operator/facts/node_bandwidth.h), so that noise does not order the stages.
  bool probe_links = true;

  bool standalone() const { return control_url.empty(); }
  std::string listen_ip() const {  // "" = all addresses
    return !listen.empty() ? listen : standalone() ? "127.0.0.1" : "";
  }
  // After this long unheard a worker, or the coordinator, counts as lost.
  std::chrono::seconds silence() const { return lost_after.count() > 0 ? lost_after : dead_after; }
  bool plans_itself() const { return standalone() && plan_file.empty(); }
  // A single worker that saves, takes snapshots or writes a training log runs a coordinator, too.
  bool needs_peers() const {
    return !plans_itself() || saves() || !log_dir.empty() || !recovery_dir.empty();
  }
  // Owner of the checkpoints that this worker writes and continues from; "" if started by hand.
  std::string owner() const {
    const bool nobody = standalone() && job_name == Options().job_name;
    return nobody ? "" : job_namespace + "/" + job_name;
  }
  bool foreign() const { return hosted || !plugin.empty(); }
  // Folder of Hugging Face whose model is built in; "" for other models.
  std::string folder() const {
    return !foreign() && model.name.starts_with(kFolder) ? model.name.substr(kFolder.size()) : "";
  }
  // Folder into which training exports; "" = it does not.
  std::string export_folder() const {
    if (export_to.empty()) return "";
    return export_to == "hf" ? checkpoint_dir + "/hf" : export_to.substr(kFolder.size());
  }
  // Folder of the training log; "" = none is written.
  std::string log_folder() const {
    return !log_dir.empty() || checkpoint_dir.empty() ? log_dir : checkpoint_dir + "/log";
  }
  bool saves() const { return !checkpoint_dir.empty(); }
  bool measures() const { return !standalone() && profile_source == "Measure"; }
  bool emulated() const { return !emulation.profile.empty(); }
};

struct Help {
  std::string text;  // printed to standard output; exit code 0
};

// kInvalid with one line that names the option. host: name of the program that has the layers,
// whose help then names no built-in models; null for weir-worker.
Result<std::variant<Options, Help>> parse_options(int argc, const char* const* argv,
                                                  const char* host = nullptr);

}  // namespace weir::app
