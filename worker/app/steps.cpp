// SPDX-License-Identifier: Apache-2.0
// Start and end of a worker. What it computes with: opening_steps.cpp; peers and their connections:
// peers.cpp.
#include "worker/app/steps.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "worker/app/agreement.h"
#include "worker/app/checkpoints.h"
#include "worker/app/coordination.h"
#include "worker/app/describe.h"
#include "worker/app/exposition.h"
#include "worker/app/hang_watch.h"
#include "worker/app/opening_steps.h"
#include "worker/app/own_plan.h"
#include "worker/app/peers.h"
#include "worker/app/profile.h"
#include "worker/app/snapshots.h"
#include "worker/base/log.h"
#include "worker/base/termination.h"
#include "worker/checkpoint/load.h"
#include "worker/huggingface/export.h"
#include "worker/huggingface/model.h"
#include "worker/stage/foreign/call.h"
#include "worker/transport/staged_collective.h"

#ifndef WEIR_VERSION
#define WEIR_VERSION "unknown"
#endif

namespace weir::app {
namespace {

using Outcome = std::optional<Failure>;

// Part of the grace that is kept for the end of the process.
constexpr auto kExit = std::chrono::seconds(5);
// Time for a leaving coordinator to report what it saved.
constexpr auto kLastReport = std::chrono::seconds(3);

engine::Options engine_options(const State& state) {
  const Options& o = state.options;
  return {.job_uid = o.job_uid,
          .job_key = state.job_key,
          .identity = {.pod = o.pod, .pod_uid = o.pod_uid},
          .node = o.node,
          .total_steps = o.steps,
          .startup_timeout = o.startup_timeout,
          .connect_timeout = o.connect_timeout,
          .progress_deadline = o.progress_deadline,
          .rejoin_timeout = o.rejoin_timeout,
          .diverged_after = o.diverged_after,
          .grad_clip = o.grad_clip,
          .flight_events = static_cast<std::size_t>(o.flight_events),
          .validation = {.interval = o.validation_interval, .samples = o.validation_samples},
          .saves = o.saves(),
          .needs_copies = o.recovery_copies == coordinator::NeighborCopies::kOn};
}

Result<std::unique_ptr<stage::Stage>> build_stage(State& state, int first, int last,
                                                  stage::Initial initial) {
  WEIR_TRY(
      std::unique_ptr<stage::Stage> made,
      stage::make_stage(*state.model, first, last, *state.device, state.options.graphs, initial));
  if (!state.emulation) return made;
  return state.emulation->around(std::move(made), first, last);
}

Result<std::unique_ptr<transport::Communicator>> connect_links(
    State& state, const transport::Generation& generation,
    std::chrono::steady_clock::time_point deadline, std::stop_token stop) {
  WEIR_TRY(std::unique_ptr<transport::Communicator> links,
           state.transport->connect(generation, deadline, stop));
  if (state.nccl) {
    WEIR_TRY(links, state.nccl->connect(generation, std::move(links), deadline, stop));
  }
  const std::optional<int> window = state.options.emulation.send_window;
  if (links && window) return emulate::around(std::move(links), *window);
  return links;
}

Result<std::unique_ptr<transport::Collective>> connect_replicas(
    State& state, const transport::ReplicaGroupGeneration& generation,
    std::chrono::steady_clock::time_point deadline, const std::stop_token& stop) {
  WEIR_TRY(std::unique_ptr<transport::Collective> replicas,
           state.transport->connect_replica_group(generation, deadline, stop));
  if (!state.nccl || generation.of_ties) {
    return transport::staged(*state.device, std::move(replicas));
  }
  return state.nccl->connect_replica_group(generation, std::move(replicas), deadline, stop);
}

// {"event": "step", "step": 10, "samples": 64, "seconds": 0.5, "loss": 2.1}; the loss on the last
// stage only.
void tell_layers(const weir_layers& layers, const engine::StepRecord& record) {
  std::string json = "{\"event\": \"step\", \"step\": " + std::to_string(record.step + 1) +
                     ", \"samples\": " + std::to_string(record.samples) +
                     ", \"seconds\": " + exact_text(record.iteration_seconds);
  if (record.last_stage && std::isfinite(record.loss)) {
    json += ", \"loss\": " + exact_text(record.loss);
  }
  stage::notice(layers, json + "}");
}

void on_step(State& state, const engine::StepRecord& record) {
  if (state.layers != nullptr) tell_layers(*state.layers, record);
  if (state.loss_log) state.loss_log->write(record, state.options.emulated());
  if (state.trace_file) {
    state.trace_file->step_done(record.step + 1, *state.engine, state.clock);
  }
  if (state.agent) {
    // Memory that was free when the step used most.
    device::Device& device = *state.device;
    const std::int64_t free =
        device.memory_free_bytes() + device.bytes_in_use() - device.take_recent_peak();
    protocol::StageStatus status = status_of(record, device.bytes_peak(), device.memory_bytes(),
                                             std::max<std::int64_t>(0, free));
    const CpuShortage shortage = state.cpu_shortage.take(state.clock.now());
    status.queued_seconds = shortage.queued_seconds;
    status.throttled_seconds = shortage.throttled_seconds;
    status.sent = state.sent.take(state.engine->links(), record.sent);
    status.skipped_steps = state.engine->statistics().skipped_steps;
    status.validation = std::exchange(state.validated, std::nullopt);
    state.engine->mailbox().tell(status);
  }
  if (record.skipped) {
    log_warn(kComponent,
             "step skipped: its loss or gradient is not finite; no parameter has changed",
             {{"step", record.step + 1},
              {"stage", record.stage},
              {"loss", record.loss},
              {"in_a_row", record.skipped_in_row}});
  }
  const int every = state.options.step_report;
  if (every == 0 || (record.step + 1) % every != 0) return;
  if (record.last_stage) {
    log_info(kComponent, "step",
             {{"step", record.step + 1},
              {"epoch", record.epoch},
              {"loss", record.loss},
              {"step_seconds", record.iteration_seconds}});
  } else {
    log_info(kComponent, "step",
             {{"step", record.step + 1},
              {"epoch", record.epoch},
              {"stage", record.stage},
              {"step_seconds", record.iteration_seconds}});
  }
}

void add_checkpoints(State& state, engine::Parts& parts) {
  if (!state.options.init_from.empty()) {
    parts.init = [from = state.options.init_from, &state](stage::Stage& stage) -> Status {
      const Status loaded = huggingface::is_folder(from)
                                ? huggingface::load_values(from, *state.model, stage)
                                : checkpoint::load_values(from, stage);
      return loaded ? loaded : Status(loaded.error().with("--init-from"));
    };
  }
  if (!state.options.saves()) return;
  state.checkpoints = std::make_shared<Checkpoints>(
      state.options.checkpoint_dir, state.options.owner(), *state.model,
      settings_of_checkpoint(state.options, *state.dataset));
  parts.load = [&state](stage::Stage& stage, std::int64_t step) {
    return state.checkpoints->load(stage, step);
  };
  parts.save = [&state](stage::Stage& stage, std::int64_t step, const auto& mine) {
    // If the device has failed, its next op returns the error.
    static_cast<void>(state.device->synchronize());
    state.checkpoints->save(stage, step, mine, [&state](std::chrono::nanoseconds took) {
      state.engine->checkpoint_written(took);
    });
    emulate::delay_copy(state.options.emulation.save_delay);
  };
}

// Several workers of a machine may name one folder.
void add_snapshots(State& state, engine::Parts& parts) {
  const Options& o = state.options;
  if (o.recovery_dir.empty()) return;
  state.snapshots = std::make_shared<Snapshots>(
      o.recovery_dir + "/" + o.pod, o.job_uid + "/" + o.pod, *state.model,
      settings_of_checkpoint(o, *state.dataset),
      Snapshots::Wire{.exchange = state.transport ? &state.transport->state() : nullptr,
                      .job_uid = o.job_uid,
                      .job_key = state.job_key});
  parts.snapshots = state.snapshots.get();
}

// A single worker is its own coordinator: one plan, one stage, no links.
void start_own_plan(State& state) {
  const Options& o = state.options;
  state.engine->mailbox().put(protocol::Prepare{
      own_plan(o.job_uid, o.pod, o.pod_uid, static_cast<int>(state.model->layers.size()),
               o.own_micro_batches, o.own_micro_batch_size)});
}

void go_on_with_own_plan(State& state, const protocol::Message& answer) {
  engine::Mailbox& mailbox = state.engine->mailbox();
  // Not through `shutdown`: its lock may be held by a thread that waits for the mailbox.
  const auto refused = [&state](const std::string& reason) {
    state.refusal = reason;
    state.engine->leave(std::chrono::nanoseconds(0));
  };
  if (const auto* const reject = std::get_if<protocol::Reject>(&answer)) refused(reject->reason);
  if (std::holds_alternative<protocol::Ready>(answer)) mailbox.put(protocol::Commit{.revision = 1});
  if (const auto* const built = std::get_if<protocol::ReadyState>(&answer)) {
    if (!built->error.empty()) return refused(built->error);
    mailbox.put(protocol::Go{.revision = 1});
  }
}

void send(State& state, const protocol::Message& message) {
  if (control::Agent* const line = state.line) return line->send(message);
  if (!state.options.needs_peers()) go_on_with_own_plan(state, message);
}

// True if the operator answers or, on other workers, the coordinator is connected. Then plans will
// come, or the pod will be deleted.
bool in_touch(const State& state) {
  if (state.options.standalone()) return false;
  bool coordinates = false, answered = false;
  state.coordinator.with([&](const coordinator::Coordinator& coordinator) {
    coordinates = true;
    answered = coordinator.in_touch();
  });
  return coordinates ? answered : state.agent && state.agent->connected();
}

Outcome make_engine(State& state) {
  engine::Parts parts{
      .model = *state.model,
      .device = *state.device,
      .dataset = *state.dataset,
      .clock = state.clock,
      .connect =
          [&state](const transport::Generation& generation, auto deadline, std::stop_token stop) {
            return connect_links(state, generation, deadline, std::move(stop));
          },
      .make_stage =
          [&state](int first, int last, stage::Initial initial) {
            return build_stage(state, first, last, initial);
          },
      .connect_replica_group =
          [&state](const transport::ReplicaGroupGeneration& generation, auto deadline,
                   std::stop_token stop) {
            return connect_replicas(state, generation, deadline, stop);
          },
      .validation = state.validation.get(),
      .lateness = state.emulation ? state.emulation->lateness() : nullptr,
      .state = state.transport ? &state.transport->state() : nullptr,
      .measure =
          [&state](const protocol::Measure& request, std::stop_token stop) {
            return measure_profile(
                {.model = *state.model,
                 .device = *state.device,
                 .emulation = state.emulation ? &state.emulation->times() : nullptr,
                 .saves = state.options.saves() && state.device->is_host()},
                request, std::move(stop));
          }};
  engine::Callbacks callbacks{
      .step_done = [&state](const engine::StepRecord& record) { on_step(state, record); },
      .validated =
          [&state](int replica, std::int64_t step, double loss) {
            log_info(kComponent, "validated",
                     {{"step", step}, {"replica", replica}, {"loss", loss}});
            if (replica == 0) state.validated = protocol::Validation{.step = step, .loss = loss};
          },
      .send = [&state](const protocol::Message& message) { send(state, message); },
      .in_touch = [&state] { return in_touch(state); }};
  add_checkpoints(state, parts);
  add_snapshots(state, parts);
  state.engine = std::make_unique<engine::Engine>(engine_options(state), std::move(parts),
                                                  std::move(callbacks));
  if (!state.options.hosted && state.options.flight_events > 0) {
    state.fatal_signals = std::make_unique<FatalSignals>(state.engine->flight());
  }
  if (state.snapshots) state.engine->tell_inventory();  // for HELLO
  const Options& o = state.options;
  const WorkerLabels labels{.job_namespace = o.job_namespace,
                            .job_name = o.job_name,
                            .worker = o.pod,
                            .worker_group = o.worker_group,
                            .node = o.node,
                            .device = state.device->name(),
                            .transport = state.nccl ? "nccl" : "tcp",
                            .version = WEIR_VERSION,
                            .emulated = o.emulated(),
                            .threads = state.device->threads()};
  state.endpoint->collect([labels, engine = state.engine.get(), device = state.device.get(),
                           snapshots = state.snapshots.get(), dropped = &state.log_dropped] {
    engine::Statistics statistics = engine->statistics();
    if (snapshots != nullptr) {
      statistics.copied_bytes = snapshots->copied_bytes();
      statistics.copy_step = snapshots->copy_step();
      statistics.snapshot_bytes = snapshots->host_bytes();
      statistics.snapshot_wait_seconds = snapshots->waited_seconds();
    }
    return worker_families(labels, statistics, engine->links(), device->memory_free_bytes(),
                           dropped->load());
  });
  return std::nullopt;
}

Outcome ordered_end(const State& state) {
  const auto order = state.end.given();
  if (!order) return std::nullopt;
  return Failure{static_cast<Exit>(order->exit), order->reason};
}

// The last checkpoint has been committed: the coordinator has finished.
Outcome export_last(const State& state) {
  const Options& o = state.options;
  const std::string to = o.export_folder();
  if (to.empty() || !state.coordinator.runs()) return std::nullopt;
  const auto exported = huggingface::export_checkpoint(
      {.checkpoint = o.checkpoint_dir, .to = to, .dtype = o.export_type});
  if (!exported) return Failure{Exit::kCheckpoint, exported.error().with("--export").message};
  log_info(kComponent, "exported",
           {{"folder", to}, {"bytes", exported->bytes}, {"step", exported->step}});
  state.coordinator.with([&](coordinator::Coordinator& coordinator) {
    coordinator.exported({.folder = to, .step = exported->step, .bytes = exported->bytes},
                         state.clock.now() + kLastReport);
  });
  return std::nullopt;
}

engine::Ending run_engine(State& state) {
  std::optional<HangWatch> watch;
  if (state.options.needs_peers()) {
    watch.emplace(state.engine->mailbox(), state.options.progress_deadline, state.clock, end_hung);
  }
  return state.engine->run({});
}

Outcome train(State& state) {
  state.shutdown.on_request([&state] {
    const std::chrono::nanoseconds grace = state.options.grace;
    if (state.end_at_once) {
      state.engine->leave(grace);
    } else {
      state.engine->leave_saved(grace - std::min<std::chrono::nanoseconds>(kExit, grace / 10));
    }
    if (state.agent) state.agent->send(protocol::Leave{"SIGTERM"});
  });
  if (!state.options.needs_peers()) start_own_plan(state);
  engine::Ending ending = run_engine(state);
  if (state.trace_file) state.trace_file->write(*state.engine, state.clock);
  const bool alone = ending.exit == Exit::kCrash || ending.exit == Exit::kPeerLost;
  if (const std::string why = state.agent ? state.agent->trouble() : ""; alone && !why.empty()) {
    ending.message += "; " + why;
  }
  state.shutdown.on_request({});
  log_info(kComponent, "training ended",
           {{"reason", ending.message}, {"memory_peak_bytes", state.device->bytes_peak()}});
  const Exit exit = ending.exit;
  if (exit == Exit::kFinished) {
    say_finished(state);
    return export_last(state);
  }
  // So that the last report does not wait for this worker.
  if (exit == Exit::kDiverged) disconnect(state);
  if (state.options.saves() || exit == Exit::kDiverged) {
    state.coordinator.with([&](coordinator::Coordinator& coordinator) {
      coordinator.finish(state.clock.now() + kLastReport);
    });
  }
  if (const auto order = ordered_end(state)) return order;
  if (!state.refusal.empty()) return Failure{Exit::kConfiguration, state.refusal};
  return Failure{exit, ending.message};
}

}  // namespace

Result<std::string> description(State& state) {
  for (const auto step : {open_device, load_model}) {
    if (const Outcome failed = step(state)) return invalid(failed->message);
  }
  return description_of(*state.model);
}

const std::vector<Step>& steps() {
  static const std::vector<Step> kSteps = {
      {"open device", open_device, nullptr},
      {"load model", load_model, nullptr},
      {"open data", open_data, nullptr},
      {"metrics endpoint", open_metrics, nullptr},
      {"join", join_job, nullptr},
      {"data port", open_transport, nullptr},
      {"engine", make_engine, nullptr},
      {"coordinator", run_coordinator, stop_coordinator},
      {"connect to the coordinator", connect_to_coordinator, disconnect},
      {"train", train, nullptr},
  };
  return kSteps;
}

int run_steps(State& state) {
  const std::vector<Step>& list = steps();
  std::size_t done = 0;
  for (; done < list.size(); ++done) {
    std::optional<Failure> failure = list[done].run(state);
    if (!failure && state.shutdown.requested() && done + 1 < list.size()) {
      failure = ordered_end(state);
      if (!failure) failure = Failure{Exit::kTerminated, "asked to end"};
    }
    if (!failure) continue;
    state.exit_code = static_cast<int>(failure->exit);
    const auto level = failure->exit == Exit::kTerminated ? LogLevel::kInfo : LogLevel::kError;
    log(level, kComponent, failure->message,
        {{"while", list[done].name}, {"exit_code", state.exit_code}});
    if (level == LogLevel::kError) write_termination_message(failure->message);
    ++done;
    break;
  }
  while (done-- > 0) {
    if (list[done].undo != nullptr) list[done].undo(state);
  }
  return state.exit_code;
}

}  // namespace weir::app
