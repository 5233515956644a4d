// SPDX-License-Identifier: Apache-2.0
// Data-parallel replicas in virtual time under one way of keeping their models together: ours, and
// its baselines (worker/groups/README.md "Where it comes from"). A step is M
// micro-batches, local update, then the average of the models inside a group.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <vector>

#include "tests/sim/small_task.h"
#include "tests/sim/uneven_replicas.h"
#include "worker/groups/contraction.h"
#include "worker/groups/group_scheduler.h"

namespace weir::sim {

enum class Sync {
  kAllReduce,   // exact: everybody waits for the slowest
  kSdpipe,      // SDPipe's own algorithm, one scheduler per stage (its preduce_handler.cc)
  kFirstPairs,  // partial reduce with the first two that are ready, per stage
  kGroups       // worker/groups
};

struct GroupRun {
  double throughput = 0;                 // local steps / time / replica
  double loss = 0, consensus_error = 0;  // means over the last tenth; only with a task
  double group_size = 0;                 // mean
  double contraction = 0;                // of disagreement over B = 10 steps of the fastest, mean
};

struct GroupSimOptions {
  Sync sync = Sync::kGroups;
  double horizon = 200;
  bool task = false;  // train the small network too
};

class GroupSim {
 public:
  GroupSim(const UnevenOptions& uneven, const GroupSimOptions& options, std::uint64_t seed);
  GroupRun run();

 private:
  // SDPipe's scheduler of one stage; first pairs share it.
  struct StageScheduler {
    std::vector<int> ready;
    groups::SyncGraph graph;
    bool connection_due = false, connecting = false;
    std::int64_t accumulated = 0;
    std::uint64_t generation = 0;
    std::vector<double> patience;  // seconds that an arrival waits, by replica
  };

  void at(double time, std::function<void()> what);
  void run_all_reduce();
  void begin(int p);
  void ready(int p, int stage);
  void ready_sdpipe(int p, int stage);
  void close(int stage);
  void ready_groups(int p);
  void take(const std::vector<groups::FormedGroup>& grants);
  void mix(const std::vector<int>& group, int stage, const std::vector<double>& weights,
           bool beside_step = false);
  void finish_stage(int p, int stage);
  void sample();
  int replicas() const { return options_of_.replicas; }
  int stages() const { return options_of_.stages; }

  struct Replica {
    std::int64_t steps = 0;
    double progress = 0, seconds = 0, ready_at = 0;
    std::vector<groups::ReceivedRate> received;  // in its last average
    double average_seconds = 0, mean_at = 0;     // of that
    int pending = 0;
    bool applied = false;
    std::vector<double> done;  // by stage
  };
  struct Event {
    double time;
    std::uint64_t sequence;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  UnevenOptions options_of_;
  GroupSimOptions options_;
  UnevenReplicas world_;
  std::unique_ptr<SmallTask> task_;
  groups::GroupScheduler scheduler_;
  groups::Contraction estimate_;
  std::vector<StageScheduler> per_stage_;
  int locked_stage_ = -1;
  std::vector<Replica> replicas_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
  double time_ = 0, next_sample_ = 0;
  std::int64_t window_begin_ = 0;
  double groups_ = 0, members_ = 0, logs_ = 0, windows_ = 0;
  double losses_ = 0, errors_ = 0, samples_ = 0;
};

}  // namespace weir::sim
