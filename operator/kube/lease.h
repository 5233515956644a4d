// SPDX-License-Identifier: Apache-2.0
// Leader election by a Lease object, after client-go tools/leaderelection: expiry is judged by our
// own steady clock since the record last changed, never by comparing clocks of two machines.
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

// The part of a Lease that matters.
struct LeaseRecord {
  std::string holder, resource_version, json;
  int duration_seconds = 0, transitions = 0;
};

class Elector {
 public:
  // client: its own transport with a limit of 5 s a request, so that a busy one cannot cost the
  // lease.
  Elector(Client& client, Clock& clock, LeaseOptions options, std::uint64_t seed);

  // Until stop. on_leading: once, when the lease is ours. on_lost: once, when it could not be
  // renewed in time; the caller must end the process.
  void run(std::stop_token stop, const std::function<void()>& on_leading,
           const std::function<void()>& on_lost);
  // Gives the lease back, so that a follower need not wait. After run() has returned.
  void release();

  // From any thread.
  bool leading() const;
  std::string holder() const;  // identity; "" = unknown
  // Renewed within the deadline: asked before pods are created or deleted.
  bool may_write() const;
  std::optional<SystemTime> leading_since() const;
  // One attempt to get or keep the lease; public for tests. True = it is ours.
  bool try_once();
  // When the next attempt is due: a follower wakes up at the moment the lease runs out, so that a
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
  std::optional<LeaseRecord> record_;  // as last seen; only the lease thread
  SteadyTime changed_at_{};            // when the record was last seen to change

  mutable std::mutex mutex_;  // guards all below
  std::string holder_;
  std::optional<SteadyTime> renewed_;  // set while we lead
  std::optional<SystemTime> since_;
};

}  // namespace weir::kube
