// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL with its name and the deadline of its running operation, for the watchdog.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/transport/nccl/nccl_api.h"

namespace weir::transport::nccl {

// Time that a message or a sum may take once all ends have begun it.
struct Limits {
  std::chrono::nanoseconds transfer{std::chrono::seconds(60)};
  double least_bytes_per_second = 1e6;  // additional time for its bytes, enough for a slow WAN
  std::chrono::nanoseconds watch_interval{std::chrono::seconds(1)};
};

struct Watched {
  using Time = std::chrono::steady_clock::time_point;

  Watched(std::string its_name, std::unique_ptr<NcclComm> its_comm)
      : name(std::move(its_name)), comm(std::move(its_comm)) {}

  const std::string name;  // e.g. "stage 1 at 10.0.0.7:7071, link 0-1 forward"
  const std::unique_ptr<NcclComm> comm;

  // Deadline of the message under way; 0 = there is none. Written by the driver.
  std::atomic<Time::rep> due{0};

  void begin_message(Time now, std::uint64_t bytes, const Limits& limits) {
    const std::chrono::duration<double> moving(static_cast<double>(bytes) /
                                               limits.least_bytes_per_second);
    const Time end =
        now + limits.transfer + std::chrono::duration_cast<std::chrono::nanoseconds>(moving);
    due = end.time_since_epoch().count();
  }
  void end_message() { due = 0; }
  bool overdue(Time now) const {
    const Time::rep end = due;
    return end != 0 && now.time_since_epoch().count() > end;
  }
  void log_times() const;  // logs what NCCL reports about its transfers; called at the end
  Error broken(const Error& error) const { return error.with(name); }
};

}  // namespace weir::transport::nccl
