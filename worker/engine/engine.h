// SPDX-License-Identifier: Apache-2.0
// The engine of one rank: waits for a plan, builds its stage, runs step after step, changes plans
// between steps (scheduling.md 6). One thread calls run(); everything else may be called from any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/engine/plan_rules.h"
#include "worker/engine/statistics.h"
#include "worker/engine/switch_point.h"
#include "worker/stage/stage.h"
#include "worker/transport/communicator.h"

namespace weir::engine {

struct Settings {
  std::string job_uid, job_key;  // of the handshake on 7071; the key is raw
  Identity identity;
  std::string node;
  std::int64_t total_steps = 0;
  std::chrono::nanoseconds startup_timeout{std::chrono::seconds(900)};  // until the first plan
  std::chrono::nanoseconds connect_timeout{std::chrono::seconds(60)};
  // Longest wait without any message of a peer: a hang, api.md 14.
  std::chrono::nanoseconds progress_deadline{std::chrono::seconds(1800)};
  std::chrono::nanoseconds rejoin_timeout{std::chrono::seconds(900)};  // after a lost peer
};

using Connect = std::function<Result<std::unique_ptr<transport::Communicator>>(
    const transport::Generation&, std::chrono::steady_clock::time_point deadline, std::stop_token)>;
using MakeStage =
    std::function<Result<std::unique_ptr<stage::Stage>>(int first_layer, int last_layer)>;

// What the engine works with; all of it outlives the engine.
struct Parts {
  const stage::Model& model;
  device::Device& device;
  const data::Dataset& dataset;
  const Clock& clock;
  Connect connect;
  MakeStage make_stage;
  std::shared_ptr<stage::Lateness> lateness;  // of emulated compute; null without
};

// Called from the engine thread; must not block.
struct Hooks {
  std::function<void(const StepRecord&)> step_done;
  // The plan `revision` is in force from step `step` on (APPLIED).
  std::function<void(std::uint32_t revision, std::int64_t step)> adopted;
  std::function<void(std::uint32_t revision, int replica, int stage, const std::string& reason)>
      peer_lost;
};

enum class Why : unsigned char {
  kFinished,     // all steps are done
  kLeft,         // leave() was called
  kStopped,      // the stop token of run()
  kPeerLost,     // and no new plan within rejoin_timeout
  kNoPlan,       // none within startup_timeout
  kOutOfMemory,  // the device has no memory left
};
struct Ending {
  Why why = Why::kFinished;
  std::string message;
};

class Engine {
 public:
  Engine(Settings settings, Parts parts, Hooks hooks);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Trains until the end, for whatever reason. Blocks; once.
  Ending run(std::stop_token stop);

  SwitchPoint& switch_point() { return switch_point_; }
  // Finish the running step if that takes no longer than `grace`, then end.
  void leave(std::chrono::nanoseconds grace);
  Statistics statistics() const { return recorder_.read(); }
  std::vector<transport::LinkReport> links() const;  // of the current generation; empty between

 private:
  struct Generation;
  struct Prepared {
    schedule::Plan plan;
    int incarnation = 0;
  };
  struct Pending {
    CommitCommand commit;
    bool in_band = false;  // the same generation: between two steps, on the same links
  };

  // engine.cpp: the loop
  std::optional<Ending> should_end(const std::stop_token& stop);
  void await_command(const std::stop_token& stop);
  std::optional<Ending> train_one_step(const std::stop_token& stop);
  Ending finish(const std::stop_token& stop);
  void drain(std::chrono::nanoseconds limit, const std::stop_token& stop);  // what was sent
  std::optional<Ending> failed(const Error& error, const std::stop_token& stop);
  bool leaving() const { return leave_at_.load() != 0; }
  bool leave_overdue() const;
  bool switch_due() const;

  // commands.cpp: plans
  void take_commands();
  void handle(Command command);
  void on_prepare(PrepareCommand command);
  void on_commit(CommitCommand command);
  void on_go(const GoCommand& command);
  void on_abort(const AbortCommand& command);
  void on_peer_lost(const PeerLostCommand& command);
  Status begin_with_header(const std::stop_token& stop);
  Status accept_header(std::span<const std::byte> bytes);
  void adopt(const Prepared& prepared);
  const Prepared* prepared(std::uint32_t revision) const;

  // generation.cpp: new links, maybe a new stage
  std::optional<Ending> enter_generation(const std::stop_token& stop);
  Status build(const Prepared& next, std::int64_t at_step, const std::stop_token& stop);
  Status connect(Generation& generation, const std::stop_token& stop);
  Status take_stage(Generation& generation, const Prepared& next, std::int64_t at_step);
  void abort_links(const std::string& reason);  // the peers shall know
  void drop_links();

  const Settings settings_;
  const Parts parts_;
  const Hooks hooks_;
  SwitchPoint switch_point_;
  Recorder recorder_;
  std::atomic<std::int64_t> leave_at_{0};  // steady clock, ns; 0: not leaving

  // Engine thread only from here.
  std::vector<Prepared> prepared_;
  std::optional<Pending> pending_;
  std::unique_ptr<Generation> generation_;
  std::int64_t step_ = 0;            // next step of this rank
  std::optional<std::string> lost_;  // the coordinator's PEER_LOST, until it is dealt with
  bool others_finished_ = false;     // matters to an idle rank only
  bool in_step_ = false;             // between its first op and its last
  bool ever_ran_ = false;            // a generation got its GO
  SteadyTime waiting_since_{};       // without a running generation

  mutable std::mutex links_mutex_;  // guards links_
  std::shared_ptr<transport::Communicator> links_;
};

}  // namespace weir::engine
