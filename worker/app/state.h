// SPDX-License-Identifier: Apache-2.0
// Everything that a running weir-worker owns, filled step by step (steps.cpp). Made and destroyed
// on the engine's thread. Other threads use only `shutdown`.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "worker/app/fatal_signals.h"
#include "worker/app/options.h"
#include "worker/app/report.h"
#include "worker/app/trace_file.h"
#include "worker/base/clock.h"
#include "worker/base/cpu_shortage.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/control/agent.h"
#include "worker/coordinator/coordinator.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/emulate/emulate.h"
#include "worker/engine/engine.h"
#include "worker/eventlog/flight_files.h"
#include "worker/eventlog/training_log.h"
#include "worker/stage/foreign/weir_layers.h"
#include "worker/stage/stage.h"
#include "worker/telemetry/metric.h"
#include "worker/transport/nccl/nccl_transport.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::app {

inline constexpr char kComponent[] = "app";  // in the log

class Checkpoints;
class Snapshots;

// Ends the worker after SIGTERM or if the job is gone: ends waits before the engine runs, and tells
// the engine once there is one.
class Shutdown {
 public:
  void request();          // any thread; further calls do nothing
  bool requested() const;  // any thread
  std::stop_token token() const { return stop_.get_token(); }  // for waits before the engine runs
  // Sets the action of request(); it is called at once if request() was called before. Empty: no
  // action.
  void on_request(std::function<void()> action);

 private:
  mutable std::mutex mutex_;  // guards requested_ and action_
  bool requested_ = false;
  std::function<void()> action_;
  std::stop_source stop_;
};

// An end ordered by another thread. The first order counts.
class EndOrder {
 public:
  struct Order {
    int exit = 0;
    std::string reason;  // one line
  };
  void give(int exit, std::string reason) {
    const std::lock_guard lock(mutex_);
    if (!order_) order_ = Order{.exit = exit, .reason = std::move(reason)};
  }
  std::optional<Order> given() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  mutable std::mutex mutex_;  // guards order_
  std::optional<Order> order_;
};

// The coordinator, while this worker runs it. Thread-safe.
class RunningCoordinator {
 public:
  // Calls `use` with it, if it runs, and keeps it running meanwhile.
  template <class Use>
  void with(Use use) const {
    const std::lock_guard lock(mutex_);
    if (coordinator_) use(*coordinator_);
  }
  bool runs() const {
    const std::lock_guard lock(mutex_);
    return coordinator_ != nullptr;
  }
  void set(std::unique_ptr<coordinator::Coordinator> coordinator) {
    const std::lock_guard lock(mutex_);
    coordinator_ = std::move(coordinator);
  }
  void end() {
    std::unique_ptr<coordinator::Coordinator> ending;
    const std::lock_guard lock(mutex_);
    ending.swap(coordinator_);
  }

 private:
  mutable std::mutex mutex_;  // guards coordinator_
  std::unique_ptr<coordinator::Coordinator> coordinator_;
};

struct State {
  Options options;
  // Functions of layers that are not built in: a plugin's or the host program's; null = built in.
  const weir_layers* layers = nullptr;
  Shutdown shutdown;
  SystemClock clock;
  int exit_code = 0;
  std::string refusal;  // why the plan of a single worker was refused
  // Set by another thread before shutdown.request(): the exit code and reason of the end, and
  // whether to end without saving.
  EndOrder end;
  std::atomic<bool> end_at_once{false};
  std::atomic<std::int64_t> log_dropped{-1};  // of the training log; -1: none is written

  std::unique_ptr<device::Device> device;
  std::optional<stage::Model> model;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Dataset> validation;  // null without an interval
  std::optional<emulate::Emulation> emulation;
  std::unique_ptr<LossLog> loss_log;
  std::unique_ptr<TraceFile> trace_file;  // null: none is wanted
  SentSince sent;                         // for STATUS
  CpuShortageMeter cpu_shortage;
  // The newest validation that the coordinator does not know. Engine thread only.
  std::optional<protocol::Validation> validated;
  std::unique_ptr<transport::TcpTransport> transport;
  std::unique_ptr<transport::NcclTransport> nccl;          // null: tensors are sent by TCP
  std::optional<protocol::TransportFallback> fallback;     // nothing: sockets are as wanted
  std::string job_key;                                     // raw bytes
  std::vector<coordinator::Checkpoint> found_checkpoints;  // when it began to coordinate
  std::shared_ptr<Checkpoints> checkpoints;                // null without a folder
  std::shared_ptr<Snapshots> snapshots;                    // null without --recovery-dir
  std::shared_ptr<checkpoint::FolderLock> folder_lock;  // set while it coordinates, with a folder
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<FatalSignals> fatal_signals;          // null where the program is somebody else's
  std::unique_ptr<eventlog::TrainingLog> training_log;  // of the coordinator; null: none
  std::unique_ptr<eventlog::FlightFiles> flight_files;  // likewise
  // By /join at the start; nothing: as coordinates_first() says.
  std::optional<protocol::CoordinatorPlace> named;
  std::atomic<std::int64_t> term{protocol::kFirstTerm};  // that this worker follows
  std::atomic<bool> doubts{false};  // the operator has told of another coordinator
  RunningCoordinator coordinator;
  std::unique_ptr<control::Agent> agent;
  // The agent while it runs. Any thread that the agent's destructor waits for may use it, too.
  std::atomic<control::Agent*> line{nullptr};
  // The last member, so that it ends first: it reads what engine and snapshots count.
  std::unique_ptr<telemetry::Endpoint> endpoint;
};

}  // namespace weir::app
