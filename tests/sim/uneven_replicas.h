// SPDX-License-Identifier: Apache-2.0
// Replicas whose speeds and links differ (operator/adaptation/shares/README.md "Regimes"). The unit
// of time is a nominal step; M = 32 micro-batches.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/random.h"
#include "worker/groups/node_rates.h"

namespace weir::sim {

enum class Uneven {
  kNone,
  kOneSlow,     // replica 0 takes `slow` times as long
  kTail,        // 10 % of steps take Exp(slow - 1) longer
  kChanging,    // each is `slow` times as slow for 15 % of the time, spells of mean `dwell`
  kSlowSync,    // sync links have 20 % for 15 % of the time
  kOneSlowSync  // that of replica 0 always
};

struct UnevenOptions {
  Uneven kind = Uneven::kNone;
  double slow = 3, dwell = 20;
  int replicas = 8, stages = 4;
  double sync = 0.15;    // all-reduce over all replicas
  double jitter = 0.03;  // lognormal, of each step
};

class UnevenReplicas {
 public:
  static constexpr int kMicroBatches = 32;
  static constexpr double kSkew = 0.02;  // between the ends of two stages

  UnevenReplicas(UnevenOptions options, std::uint64_t seed);

  // Of a step that begins at t with this share of the nominal micro-batches.
  double step_seconds(int p, double t, double share = 1);
  double bandwidth(int p, double t) const;  // of its sync link, 1 = usual
  double sync_seconds(const std::vector<int>& group, double t) const;
  // What p measures in it: of each other member, the slower of the two nodes.
  std::vector<groups::ReceivedRate> received(int p, const std::vector<int>& group, double t) const;
  const UnevenOptions& options() const { return options_; }

 private:
  double slowness(int p, double t);
  bool disturbed(int p, double t) const;

  UnevenOptions options_;
  double volume_;
  std::vector<Random> random_;                                // by replica
  std::vector<std::vector<std::pair<double, bool>>> spells_;  // by replica: begin, disturbed
};

}  // namespace weir::sim
