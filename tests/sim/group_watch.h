// SPDX-License-Identifier: Apache-2.0
// Checks G1 to G7 of worker/groups/README.md "Invariants" from outside: it sees what replicas say
// and what they are granted, and keeps its own books. Nothing of worker/groups is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::sim {

class GroupWatch {
 public:
  struct Granted {
    std::int64_t round = 0;
    std::vector<int> members;
    std::vector<double> weights;
    bool all = false;  // a meeting
  };

  // All replicas of a new generation, none connected.
  void begin(const schedule::Plan& plan);
  void follow(const schedule::Plan& plan);  // of the same generation
  void ready(int replica);                  // SYNC_READY: one more step of its own
  void granted(const Granted& grant);
  void averaged(int replica);  // it goes on
  void failed();               // a round: who has averaged is not known
  void lost(int replica);

  double progress(int replica) const { return at(replica).progress; }
  std::vector<std::string> take_wrong() { return std::exchange(wrong_, {}); }

 private:
  enum class State : unsigned char { kRuns, kReady, kAverages, kLost };
  struct Replica {
    State state = State::kRuns;
    std::int64_t steps = 0, averaged_at = 0;  // of its own; at its last average with others
    double progress = 0;
    int component = 0;  // replicas with the same one have had something to do with each other
  };

  bool connected() const;
  void disconnect();
  std::int64_t most_steps() const;
  double mean_share() const;
  void check_members(const Granted& grant);
  void check_weights(const Granted& grant);
  void check_connection(const Granted& grant);
  void check_progress(const char* when);
  void fail(const std::string& what);
  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }
  const Replica& at(int replica) const { return replicas_[static_cast<std::size_t>(replica)]; }
  int count() const { return static_cast<int>(replicas_.size()); }

  std::vector<Replica> replicas_;
  std::vector<int> shares_;
  schedule::SyncPolicy sync_;
  std::int64_t round_ = 0;         // the last one
  std::int64_t connected_at_ = 0;  // most own steps when all were connected last
  std::vector<std::string> wrong_;
};

}  // namespace weir::sim
