// SPDX-License-Identifier: Apache-2.0
// Makes the body of POST /report from the members' STATUS. No clock: rates come from the durations
// of steps. Used only on the coordinator's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "worker/coordinator/members.h"
#include "worker/coordinator/segment.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

class Reporter {
 public:
  // first_sequence must be above the sequences of an earlier coordinator of this job, e.g.
  // milliseconds of the wall clock: the operator rejects lower ones with 409.
  Reporter(std::string job_uid, std::int64_t total_steps, std::int64_t first_sequence)
      : job_uid_(std::move(job_uid)), total_steps_(total_steps), sequence_(first_sequence) {}

  void on_status(int index, const protocol::StageStatus& status);
  void forget_rates() { recent_.clear(); }  // for a new plan, which earlier steps do not describe
  // The plan that the ranks train with, for segments.
  void follow(const schedule::Plan* plan, int incarnation) { segments_.follow(plan, incarnation); }

  // plan: the one that trains; null before the first. lost: replicas that do not train.
  protocol::Report make(const schedule::Plan* plan, int incarnation, const Members& members,
                        const std::optional<protocol::LastSwitch>& last_switch, SteadyTime now,
                        const std::set<int>& lost = {});

 private:
  struct Sample {
    double seconds = 0;
    std::int64_t samples = 0;
  };

  const std::string job_uid_;
  const std::int64_t total_steps_;
  std::int64_t sequence_;
  std::map<int, std::deque<Sample>> recent_;  // of stage 0 of each replica, by worker
  Segments segments_;
};

}  // namespace weir::coordinator
