// SPDX-License-Identifier: Apache-2.0
// Command line and environment of weir-worker (worker/app/README.md). Parsing only: files are
// opened by the steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/base/log.h"
#include "worker/base/result.h"
#include "worker/stage/stage.h"

namespace weir::app {

struct Options {
  stage::ModelOptions model;  // --model --seq --vocab --seed --lr ...
  stage::GraphUse graphs = stage::GraphUse::kWhereFaster;
  std::string data;  // text file; empty: synthetic
  std::int64_t steps = 100;
  std::string validation_data;  // text file; empty: of the synthetic language
  std::int64_t validation_interval = 0;
  int validation_samples = 64;

  // Where plans come from: the operator (control_url), a file, or the worker's own one-stage plan.
  std::string plan_file;
  std::string control_url, control_dir;
  int own_micro_batches = 16, own_micro_batch_size = 4;  // of the worker's own plan

  // Who this worker is.
  std::string job_name = "standalone", job_namespace = "default", job_uid = "standalone";
  std::string worker_group, node = "localhost", pod, pod_uid, pod_ips;
  int worker_index = 0, workers = 1, attempt = 0, ranks = 1;
  std::string coordinator;  // host:port
  std::string job_key;      // hex; without an operator only
  std::string transport = "Auto", interface;

  std::string listen;  // address of the ports; empty: loopback without an operator, else all
  std::optional<int> control_port, data_port, metrics_port;  // 0 = any free one

  std::string device;  // "cpu", "cuda", "cuda:N"; not given: kDefaultDevice, emulated "cpu"
  std::string emulate_profile, emulate_device, emulate_slowness;
  bool emulate_idle = false;               // no arithmetic
  std::optional<int> emulate_send_window;  // sends block with more than so many on their way
  double pace_bytes_per_second = 0;        // 0 = unlimited
  double pace_other_bytes_per_second = 0;  // of links but the paced one; 0 = unlimited
  std::string pace_trace;
  int pace_boundary = -1, pace_channel = -1;  // -1 = all

  std::string checkpoint_dir;                                            // empty: nothing is saved
  std::int64_t checkpoint_interval = 0;                                  // steps; 0: by time
  std::chrono::nanoseconds checkpoint_period{std::chrono::minutes(10)};  // then
  int checkpoint_keep = 2;
  bool change_options = false;  // go on from a checkpoint of a run with other options
  std::string init_from;        // parameters of step 0, when there is no checkpoint

  std::chrono::nanoseconds grace{std::chrono::seconds(25)};
  std::chrono::nanoseconds startup_timeout{std::chrono::seconds(900)};
  std::chrono::nanoseconds connect_timeout{std::chrono::seconds(1800)};
  std::chrono::nanoseconds rejoin_timeout{std::chrono::seconds(900)};
  std::chrono::nanoseconds progress_deadline{std::chrono::seconds(1800)};
  std::chrono::seconds dead_after{30};

  std::string loss_log;
  int step_report = 10;  // a log line each so many steps; 0 = none
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kJson;
  bool dry_run = false;
  double grad_clip = 0;     // 0 = off
  int diverged_after = 10;  // skipped steps in a row; 0 = never

  // Of the first plan's profile; the operator sets both, by spec.model.profile.
  std::string profile_source = "Measure";
  int profile_rounds = 5;
  // Off by default: one short probe a link is coarse, and where all links are alike its noise would
  // choose the order of the stages.
  bool probe_links = false;

  bool standalone() const { return control_url.empty(); }
  std::string listen_ip() const {  // "" = all
    return !listen.empty() ? listen : standalone() ? "127.0.0.1" : "";
  }
  bool plans_itself() const { return standalone() && plan_file.empty(); }
  // A worker alone that saves coordinates itself.
  bool needs_peers() const { return !plans_itself() || saves(); }
  // Whose checkpoints this worker writes and goes on from; "" for one that was started by hand.
  std::string owner() const {
    const bool nobody = standalone() && job_name == Options().job_name;
    return nobody ? "" : job_namespace + "/" + job_name;
  }
  bool saves() const { return !checkpoint_dir.empty(); }
  bool measures() const { return !standalone() && profile_source == "Measure"; }
  bool emulated() const { return !emulate_profile.empty(); }
};

struct Help {
  std::string text;  // print to standard output, exit 0
};

// kInvalid: one line that names the option.
Result<std::variant<Options, Help>> parse_options(int argc, const char* const* argv);

// "40Mbit", "5MB", "800kbit": a rate per second; the unit is required, bits and bytes differ by 8.
Result<double> parse_rate(const std::string& text);

}  // namespace weir::app
