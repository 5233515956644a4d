// SPDX-License-Identifier: Apache-2.0
// State of the control API per job: members, last report, claims, newest plan, and the long polls
// that wait for a newer plan. It is in memory only: a new leader answers 428, so that coordinators
// register again. Thread-safe. Answers and callbacks run on the caller's thread, with no lock held.
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

// A coordinator keeps one poll open, and a retry may overlap the old one. If a job has more polls,
// the oldest is answered 304.
constexpr std::size_t kMaxPollsPerJob = 4;
// How long a deleted job is answered with 410, so that its coordinator ends.
constexpr std::chrono::minutes kTombstone{10};
// Workers repeat a claim each second; the listener hears of it that often.
constexpr std::chrono::seconds kClaimRepeat{5};
constexpr std::chrono::minutes kClaimKept{1};

struct ReceivedRegister {
  protocol::Register body;
  SystemTime received{};
};
struct ReceivedReport {
  protocol::Report body;
  SystemTime received{};
};
// The newest claim of a pod (protocol::Join::lost_term).
struct ReceivedClaim {
  std::string pod_uid;
  std::int64_t term = 0;
  SystemTime received{};
};

class Hub {
 public:
  explicit Hub(Clock& clock) : clock_(clock) {}

  // ---- for the operator ----
  // Keeps the plan with the highest revision, in whatever order plans come, and answers the polls
  // that have a lower one. Another uid under the same key drops everything about the old job.
  void publish_plan(const std::string& key, const std::string& job_uid, std::uint32_t revision,
                    const std::string& plan_json);
  // In this term the pod coordinates: polls of others are answered so, and they stop sending. A
  // term lower than one told before is from a cache that was behind.
  void name_coordinator(const std::string& key, const std::string& job_uid,
                        const std::string& pod_uid, std::int64_t term,
                        const http::Response& refusal);
  // The job is deleted or does not exist: its polls and later calls are answered 410.
  void forget(const std::string& key);
  // Nothing if the job is unknown here or has another uid.
  std::optional<ReceivedRegister> members(const std::string& key, const std::string& job_uid) const;
  std::optional<ReceivedReport> report(const std::string& key, const std::string& job_uid) const;
  // One of each pod, sorted by uid. Empty if the job is unknown here or has another uid.
  std::vector<ReceivedClaim> claims(const std::string& key, const std::string& job_uid) const;
  // listener: called with the key after each accepted register, after reports that change more than
  // counters (the first report, a switch, readiness, the end), and after claims, of each pod and
  // term once in kClaimRepeat at most. It must not block.
  void on_change(std::function<void(const std::string& key)> listener);
  std::size_t open_polls() const;

  // ---- for the routes; they return the HTTP status (worker/protocol/README.md "Control API") ----
  // 202. Profile and links of the register before stay where a new one of the same model has none.
  int take_register(const std::string& key, protocol::Register body);
  // 202; 409: the sequence number is older than one seen; 428: members are unknown here.
  int take_report(const std::string& key, protocol::Report body);
  void take_claim(const std::string& key, const std::string& job_uid, const std::string& pod_uid,
                  std::int64_t term);
  // Answers 200 as soon as a plan with a revision above `have` is known, 304 after `wait`, or 410
  // if the job is deleted. pod_uid: of the caller, which name_coordinator() may name.
  void wait_plan(const std::string& key, const std::string& job_uid, const std::string& pod_uid,
                 std::uint32_t have, std::chrono::seconds wait, http::Responder respond);
  // Answers the polls whose time is over. Call it a few times a second.
  void expire_polls();
  // Answers all polls 503, because the server stops.
  void release_polls();
  // Whether this job, of this uid, was forgotten less than kTombstone ago.
  bool gone(const std::string& key, const std::string& job_uid) const;

 private:
  struct Poll {
    std::string pod_uid;
    std::uint32_t have = 0;
    SteadyTime until{};
    http::Responder respond;
  };
  struct Claim {
    std::int64_t term = 0;
    SystemTime received{};
    SteadyTime told{};  // when the listener heard of it
  };
  struct Named {  // the coordinator
    std::string pod_uid;
    std::int64_t term = 0;
    http::Response refusal;  // for others
  };
  struct Job {
    std::string uid;
    std::uint32_t revision = 0;  // 0 = no plan yet
    std::string plan_json;
    std::optional<ReceivedRegister> members;
    std::optional<ReceivedReport> report;
    std::int64_t sequence = -1;           // highest after the last register
    std::vector<Poll> polls;              // oldest first
    std::map<std::string, Claim> claims;  // by pod uid
    std::optional<Named> named;           // nothing: the pods of index 0 coordinate
  };
  using Answers = std::vector<std::pair<http::Responder, http::Response>>;

  Job& job_of(const std::string& key, const std::string& uid, Answers& answers);
  // Both are called without the lock. notify_listener calls the listener.
  void notify_listener(const std::string& key) const;
  static void send(Answers answers);

  Clock& clock_;
  mutable std::mutex hub_mutex_;  // guards all below
  std::map<std::string, Job> jobs_;
  // By job key: uid of the job, and when it was forgotten.
  std::map<std::string, std::pair<std::string, SteadyTime>> tombstones_;
  std::function<void(const std::string&)> listener_;
};

// Publishes what the cache says of a job: who is named to coordinate, and the newest plan whose
// revision is not above that of the job's status, if there is one. A ConfigMap with a higher
// revision is left from a write whose answer was lost. The job's next plan may differ from it, so
// workers must not follow it. Call this on every replica when the job changes in the cache.
void publish_view(Hub& hub, const std::string& key, const cache::JobView& view);

}  // namespace weir::control_server
