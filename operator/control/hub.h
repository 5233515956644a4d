// SPDX-License-Identifier: Apache-2.0
// What the control API knows of each job: members, last report, newest plan, and the long polls
// that wait for a newer one. In memory only: a new leader asks with 428 for a new /register.
// Thread-safe; answers and callbacks happen without a lock held, on the caller's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/cache/snapshot.h"
#include "worker/base/clock.h"
#include "worker/http/server.h"
#include "worker/protocol/messages.h"

namespace weir::control_server {

// One coordinator keeps one poll open; a retry may overlap the old one. More: the oldest gets 304.
constexpr std::size_t kMaxPollsPerJob = 4;
// How long a deleted job is answered with 410, so that its coordinator ends.
constexpr std::chrono::minutes kTombstone{10};

struct ReceivedRegister {
  protocol::Register body;
  SystemTime received{};
};
struct ReceivedReport {
  protocol::Report body;
  SystemTime received{};
};

class Hub {
 public:
  explicit Hub(Clock& clock) : clock_(clock) {}

  // ---- for the operator ----
  // The newest plan wins, whatever the order of calls; polls that have less are answered. Another
  // uid under the same key replaces everything known of the old one.
  void publish_plan(const std::string& key, const std::string& job_uid, std::uint32_t revision,
                    const std::string& plan_json);
  // The job is deleted or gone: polls are answered 410, and so are later calls of that job.
  void forget(const std::string& key);
  // Nothing when unknown here, or of another uid.
  std::optional<ReceivedRegister> members(const std::string& key, const std::string& job_uid) const;
  std::optional<ReceivedReport> report(const std::string& key, const std::string& job_uid) const;
  // Called with the key after each accepted register and after reports that change more than
  // counters (the first, a switch, readiness, the end); must not block.
  void on_change(std::function<void(const std::string& key)> listener);
  std::size_t open_polls() const;

  // ---- for the routes; statuses: worker/protocol/README.md "Control API" ----
  int take_register(const std::string& key, protocol::Register body);  // 202
  // 202; 409 sequence older than seen; 428 no members known here.
  int take_report(const std::string& key, protocol::Report body);
  // Answers 200 at once if a plan above `have` is known, else then, 304 after `wait`, or 410.
  void wait_plan(const std::string& key, const std::string& job_uid, std::uint32_t have,
                 std::chrono::seconds wait, http::Responder respond);
  // Answers the polls whose time is over; call a few times a second.
  void expire_polls();
  // All polls, 503: the server stops.
  void release_polls();
  // That very job was forgotten less than kTombstone ago.
  bool gone(const std::string& key, const std::string& job_uid) const;

 private:
  struct Poll {
    std::uint32_t have = 0;
    SteadyTime until{};
    http::Responder respond;
  };
  struct Job {
    std::string uid;
    std::uint32_t revision = 0;  // 0: no plan yet
    std::string plan_json;
    std::optional<ReceivedRegister> members;
    std::optional<ReceivedReport> report;
    std::int64_t sequence = -1;  // highest since the last register
    std::vector<Poll> polls;     // oldest first
  };
  using Answers = std::vector<std::pair<http::Responder, http::Response>>;

  Job& job_of(const std::string& key, const std::string& uid, Answers& answers);
  // Call the listener, answer; both without the lock.
  void tell(const std::string& key) const;
  static void send(Answers answers);

  Clock& clock_;
  mutable std::mutex hub_mutex_;  // guards all below
  std::map<std::string, Job> jobs_;
  std::map<std::string, std::pair<std::string, SteadyTime>> tombstones_;  // uid, when
  std::function<void(const std::string&)> listener_;
};

// The newest plan of this job that the cache holds and the status names, given to the hub; does
// nothing without one. A later one is the rest of a write whose answer was lost: the job goes
// another way, and workers that followed it would never be at the plan that counts.
// Call when the cache tells of a change of the job, on every replica.
void publish_newest_plan(Hub& hub, const std::string& key, const cache::JobView& view);

}  // namespace weir::control_server
