// SPDX-License-Identifier: Apache-2.0
// A job of three ranks in virtual time: the real PlanSwitch and Mailboxes, messages with delays,
// and ranks that follow worker/coordinator/README.md "Plan switch" but compute nothing. The process
// of index 0 holds the coordinator too. No clock, no socket; all chance comes from the seed.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/coordinator/switch_world.h"
#include "worker/engine/mailbox.h"

namespace weir::coordinator::test {

constexpr int kRanks = 3;

class Job;

// What an engine does about plans (worker/engine/commands.cpp, generation.cpp).
class SimulatedRank {
 public:
  using Id = std::pair<std::uint32_t, int>;  // revision and incarnation a generation began with
  struct Generation {
    Id id;
    schedule::Plan plan;  // in force
    int incarnation = 0;
    bool running = false, broken = false;
    std::int64_t history = 0;
  };
  struct Header {
    Id id;
    std::int64_t step = 0;
    std::uint32_t epoch = 0;
  };

  SimulatedRank(Job& job, int index) : job_(job), index_(index) {}

  void take_letters();
  void begin_process();  // fresh, without state
  void end_process();
  void header_came(const Header& header);
  void gradient_came(const Id& id, std::int64_t step);
  // The links of that generation ended without a goodbye.
  void links_ended(const Id& id) {
    if (generation_ && generation_->id == id) drop_step("a link ended");
  }

  // It connects, or has connected, the links of that generation.
  bool opens(const Id& id) const {
    return life != 0 && (connecting_ == id || (generation_ && generation_->id == id));
  }
  void peer_left(const Id& id);

  bool trains() const { return generation_ && generation_->running && !generation_->broken; }
  std::uint32_t revision() const { return generation_ ? generation_->plan.revision : 0; }
  std::int64_t step() const { return step_; }

  // Wiring, Job's business.
  std::unique_ptr<engine::Mailbox> mailbox;
  control::SessionId session_id = 0;  // 0 = none
  std::uint64_t life = 0;             // of the process; 0 = not running
  std::string uid;

 private:
  struct Prepared {
    schedule::Plan plan;
    int incarnation = 0;
  };
  struct Pending {
    engine::Letter letter;
    std::uint32_t revision = 0;
    std::int64_t at_step = 0;
    std::int64_t history = 0;
    bool in_band = false;
  };
  void on(const engine::Letter& letter);
  void on_prepare(const engine::Letter& letter, const protocol::Prepare& prepare);
  void on_commit(const engine::Letter& letter, const protocol::Commit& commit);
  void on_go(std::uint32_t revision);
  void on_abort(std::uint32_t revision);
  void end_pending(const std::string& reason);
  const Prepared* prepared(std::uint32_t revision) const;
  void move_on();  // at a boundary: switch, or begin the next step
  void enter_generation();
  void await_peers(Generation generation, const engine::Letter& letter, SteadyTime deadline);
  void adopt(const Prepared& next);
  void run_step();
  void tell_inventory();
  void drop_step(const std::string& reason);  // "" = the coordinator has said it
  void later(std::chrono::nanoseconds time, std::function<void()> work);

  Job& job_;
  const int index_;
  std::vector<Prepared> prepared_;
  std::optional<Pending> pending_;
  std::optional<Generation> generation_;
  std::optional<Id> connecting_;
  std::deque<Header> headers_;
  std::int64_t step_ = 0, history_ = 0;
  bool in_step_ = false, entering_ = false, holds_ = false;
};

class Job {
 public:
  explicit Job(std::uint64_t seed);

  void run_for(std::chrono::nanoseconds time);
  // The operator makes a plan; it reaches the coordinator when the line is up.
  void publish(const schedule::Plan& plan);
  // Calls `fault` when that many control messages have arrived from now on.
  void at_message(int count, std::function<void()> fault);

  // ---- faults ----
  void kill(int index);         // the process; the pod is made again, and a Restart plan follows
  void cut_session(int index);  // 7070 only; it connects again
  void cut_operator(std::chrono::nanoseconds time);

  // ---- what is ----
  bool all_train(std::uint32_t revision) const;
  std::int64_t steps() const { return ranks_[0]->step(); }
  std::uint32_t newest() const { return newest_.revision; }
  const std::vector<std::string>& wrong() const { return wrong_; }  // broken invariants
  std::string text() const;
  const std::vector<protocol::LastSwitch>& switches() const { return switches_; }
  SimulatedRank& rank(int index) { return *ranks_[static_cast<std::size_t>(index)]; }

  // ---- for ranks ----
  SteadyTime now() const { return now_; }
  void after(std::chrono::nanoseconds time, std::function<void()> work) {
    events_.emplace(now_ + time, std::move(work));
  }
  std::chrono::nanoseconds delay(int most_ms = 3) {
    return std::chrono::microseconds(
        std::uniform_int_distribution<int>(200, most_ms * 1000)(random_));
  }
  void tell(int index, const protocol::Message& message);  // to the coordinator
  void did(int index, const SimulatedRank::Id& id, std::int64_t step, std::uint32_t epoch);
  void end_links(int index, const SimulatedRank::Id& id);
  void say_goodbye(int index, const SimulatedRank::Id& id);
  bool waits_for_links(const SimulatedRank::Id& id) const;

 private:
  // The coordinator's process, as JobCoordinator does it.
  struct Coordinator {
    Members members;
    PlanSwitch plan_switch{"job", -1};
  };
  void connect(int index);
  void disconnect(int index);
  void act(const Effects& effects);
  void tick();
  void fetch_plan();
  void count_message();
  std::chrono::nanoseconds in_order(std::string wire);  // a delay that keeps the order of a wire

  std::mt19937_64 random_;
  SteadyTime now_ = SteadyTime(1h);
  std::multimap<SteadyTime, std::function<void()>> events_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::optional<Coordinator> coordinator_;
  control::SessionId last_session_ = 0;
  std::uint64_t lives_ = 0;
  std::map<std::string, SteadyTime> last_on_wire_;
  schedule::Plan newest_;
  SteadyTime operator_back_{};
  int messages_ = 0, fault_at_ = -1;
  std::function<void()> fault_;
  std::map<std::pair<SimulatedRank::Id, std::int64_t>, std::set<std::uint32_t>> epochs_;
  std::vector<std::string> wrong_;
  std::vector<protocol::LastSwitch> switches_;
};

}  // namespace weir::coordinator::test
