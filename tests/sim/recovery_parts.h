// SPDX-License-Identifier: Apache-2.0
// The parts of RecoveryWorld.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/sim/recovery_world.h"

namespace weir::sim {

extern const std::string kProfile;  // that ranks measure
constexpr double kGrace = 30;       // s, of a pod that is told to end

class RecoveryWorld::AgendaClock final : public Clock {
 public:
  explicit AgendaClock(const Agenda& agenda) : agenda_(agenda) {}
  SteadyTime now() const override { return SteadyTime(std::chrono::hours(1)) + passed(); }
  SystemTime system_now() const override {
    return SystemTime(std::chrono::hours(24 * 365 * 56)) +
           std::chrono::duration_cast<SystemTime::duration>(passed());
  }
  bool sleep_until(SteadyTime, std::stop_token) override { return false; }
  double seconds(SteadyTime time) const {
    return std::chrono::duration<double>(time - SteadyTime(std::chrono::hours(1))).count();
  }

 private:
  std::chrono::nanoseconds passed() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * agenda_.now()));
  }
  const Agenda& agenda_;
};

struct RecoveryWorld::Session {
  struct Parcel {
    double due = 0;
    protocol::Message message;
  };
  std::uint64_t id = 0;
  std::string server, rank;  // pod uids
  std::deque<Parcel> to_server, to_rank;
  double heard = 0;  // by the server
  bool rank_gone = false, server_gone = false;
};

struct RecoveryWorld::Worker {
  std::string uid, pod, node, ip;
  int index = 0;
  // What a process does not share with the one before it.
  int life = 0;
  std::unique_ptr<PlayedRank> rank;  // null: there is no process
  bool stopped = false, cut = false, cut_from_operator = false;
  bool told_to_end = false;
  double grace_ends = 0;
  std::optional<double> leaves_since;
  // The agent.
  bool joined = false, doubts = false;
  std::optional<protocol::CoordinatorPlace> place;
  std::int64_t term = protocol::kFirstTerm;
  std::uint64_t session = 0;  // 0: not connected
  bool connecting = false;
  double heard = 0, unconnected_since = 0, ask_at = 0, asks_since = 0;
  // The coordinator, if it has that role.
  Server* server = nullptr;
  Source* source = nullptr;
  std::unique_ptr<coordinator::Coordinator> coordinator;
  // Of its pod.
  Shelf shelf;
  int restarts = 0;
  double restarted = 0, backoff = 0;
};

// Port 7070 of a worker that coordinates.
class RecoveryWorld::Server final : public control::RankServer {
 public:
  Server(RecoveryWorld& world, Worker& owner, const control::RankServerOptions& options,
         control::RankServerEvents events)
      : world_(world), owner_(owner), options_(options), events_(std::move(events)) {
    owner_.server = this;
  }
  ~Server() override;
  int port() const override { return protocol::kControlPort; }
  void start() override {}
  void post(std::function<void()> work) override { work(); }
  void send(control::SessionId session, const protocol::Message& message) override;
  void close(control::SessionId session, const std::string& reason) override;
  void wake_at(std::chrono::steady_clock::time_point time) override;

  void tick() { events_.on_tick(); }
  void on_message(std::uint64_t session, const Worker& from, const protocol::Message& message) {
    events_.on_message(session, {.worker_index = from.index, .pod_uid = from.uid}, message);
  }
  void on_closed(std::uint64_t session, const std::string& why, double unheard) {
    events_.on_closed(session, why,
                      std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * unheard)));
  }
  double dead_after() const { return std::chrono::duration<double>(options_.dead_after).count(); }

 private:
  RecoveryWorld& world_;
  Worker& owner_;
  const control::RankServerOptions options_;
  const control::RankServerEvents events_;
};

// Its way to the operator (coordinator/operator_line.cpp).
class RecoveryWorld::Source final : public coordinator::PlanSource {
 public:
  Source(RecoveryWorld& world, Worker& owner) : world_(world), owner_(owner) {
    owner_.source = this;
  }
  ~Source() override { owner_.source = nullptr; }
  void start(Callbacks callbacks) override { callbacks_ = std::move(callbacks); }
  void register_members(protocol::Register body) override {
    register_ = std::move(body);
    ++registers_;
    register_at_ = 0;
  }
  void report(protocol::Report body) override { report_ = std::move(body); }
  void have(std::uint32_t revision) override { have_ = revision; }
  void tick();

 private:
  bool served(Worker& worker) const;  // false: another worker coordinates, which it now knows
  RecoveryWorld& world_;
  Worker& owner_;
  Callbacks callbacks_;
  std::optional<protocol::Register> register_;
  std::optional<protocol::Report> report_;
  double register_at_ = 0, report_at_ = 0, poll_at_ = 0;
  std::uint32_t have_ = 0;
  int registers_ = 0;
};

}  // namespace weir::sim
