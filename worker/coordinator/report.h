// SPDX-License-Identifier: Apache-2.0
// The body of POST /report out of what members have told. No clock: rates come from the steps' own
// times. The coordinator's thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "worker/coordinator/members.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

class Reporter {
 public:
  // first_sequence: above everything that an earlier coordinator of this job has sent (the
  // operator drops older ones with 409), for example milliseconds of the wall clock.
  Reporter(std::string job_uid, std::int64_t total_steps, std::int64_t first_sequence)
      : job_uid_(std::move(job_uid)), total_steps_(total_steps), sequence_(first_sequence) {}

  void on_status(int index, const protocol::StageStatus& status);
  void forget_rates() { recent_.clear(); }  // a new plan: older steps tell nothing about it

  // plan: the one that trains, null before the first. lost: its replicas that do not.
  protocol::Report make(const schedule::Plan* plan, int incarnation, const Members& members,
                        const std::optional<protocol::LastSwitch>& last_switch,
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
};

}  // namespace weir::coordinator
