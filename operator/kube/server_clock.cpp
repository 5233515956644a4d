// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/server_clock.h"

#include <algorithm>
#include <ctime>

#include "worker/base/log.h"

namespace weir::kube {
namespace {

using std::chrono::seconds;

constexpr seconds kJump{5};     // a difference of this size is more than drift
constexpr int kMustAgree = 16;  // answers in a row that must show a jump before it is accepted

// date: such as "Sun, 22 Nov 2026 02:40:23 GMT".
std::optional<seconds> since_epoch(const std::string& date) {
  std::tm parts{};
  const char* end = strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return seconds(timegm(&parts));
}

}  // namespace

SystemTime ServerClock::system_now() const {
  const std::lock_guard lock(mutex_);
  if (!ahead_) return machine_.system_now();
  return SystemTime(std::chrono::duration_cast<SystemTime::duration>(
      machine_.now().time_since_epoch() + *ahead_));
}

// When the server wrote the Date, its clock was in [date, date + 1 s) and ours in [sent, received],
// so each answer bounds the difference of both. The known difference changes only as far as the
// bounds demand, so a slow answer does not change it. Several API servers may have different
// clocks; this clock follows the same one as long as that one is among those that answer.
void ServerClock::saw(const std::string& date, SteadyTime sent, SteadyTime received) {
  const auto server = since_epoch(date);
  if (!server) return;
  const SteadyTime::duration least = *server - received.time_since_epoch();
  const SteadyTime::duration most = *server + seconds(1) - sent.time_since_epoch();
  const std::lock_guard lock(mutex_);
  const SteadyTime::duration before =
      ahead_.value_or(machine_.system_now().time_since_epoch() - machine_.now().time_since_epoch());
  const SteadyTime::duration after = std::clamp(before, least, std::max(least, most));
  const auto moved = std::chrono::duration_cast<seconds>(after - before);
  const bool jump = moved >= kJump || moved <= -kJump;
  contradictions_ = jump ? contradictions_ + 1 : 0;
  if (jump && ahead_ && contradictions_ < kMustAgree) return;
  ahead_ = after;
  if (!jump) return;
  contradictions_ = 0;
  log_warn("kube", "the wall clock differs from the API server's, which is used",
           {{"seconds", moved.count()}});
}

}  // namespace weir::kube
