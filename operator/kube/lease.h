// SPDX-License-Identifier: Apache-2.0
// Leader election by a Lease object, after client-go tools/leaderelection. A lease expires if its
// record has not changed for the lease's duration on this process' steady clock; clocks of two
// machines are never compared.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/random.h"

namespace weir::kube {

struct LeaseOptions {
  std::string namespace_name, name = "weir-operator";
  std::string identity;  // "<pod>_<ip>_<uuid>"
  std::chrono::seconds duration{15}, renew_deadline{10}, retry{2};
};

// The fields of a Lease that the election uses.
struct LeaseRecord {
  std::string holder, resource_version, json;
  int duration_seconds = 0, transitions = 0;
};

class Elector {
 public:
  // client: has its own transport with a limit of 5 s per request, so that other requests cannot
  // delay a renewal.
  Elector(Client& client, Clock& clock, LeaseOptions options, std::uint64_t seed);

  // Runs until stop. on_leading is called once, when this replica gets the lease. on_lost is called
  // once, when the lease could not be renewed in time; then the caller must end the process.
  void run(std::stop_token stop, const std::function<void()>& on_leading,
           const std::function<void()>& on_lost);
  // Releases the lease, so that a follower need not wait. Call it after run() has returned.
  void release();

  // The next four are thread-safe.
  bool leading() const;
  std::string holder() const;  // identity; "" = unknown
  // Whether the lease was renewed within renew_deadline. Check it before pods are created or
  // deleted.
  bool may_write() const;
  std::optional<SystemTime> leading_since() const;
  // Tries once to get or keep the lease; true = this replica has it. Public for tests.
  bool try_once();
  // Time of the next attempt. A follower also tries at the moment the lease expires, so that a
  // killed leader costs the lease's duration and one retry period, not two.
  SteadyTime next_try();

 private:
  ApiResult<LeaseRecord> read();
  ApiResult<LeaseRecord> create();
  ApiResult<LeaseRecord> write(const LeaseRecord& old, const std::string& holder);
  void note(const LeaseRecord& record);

  Client& client_;
  Clock& clock_;
  const LeaseOptions options_;
  Random random_;
  std::optional<LeaseRecord> record_;  // as last read; only the lease thread uses it
  SteadyTime changed_at_{};            // when a changed record was last read

  mutable std::mutex mutex_;  // guards all below
  std::string holder_;
  std::optional<SteadyTime> renewed_;  // set while this replica leads
  std::optional<SystemTime> since_;
};

}  // namespace weir::kube
