// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/reflector_state.h"

#include <algorithm>
#include <cmath>

namespace weir::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// operator/kube/README.md "Back-off" and "List and watch".
constexpr milliseconds kBackOff{800}, kBackOffCap{30'000};
constexpr minutes kBackOffReset{2};
constexpr seconds kShortWatch{1};  // a shorter watch without events counts as an error
constexpr int kWatchMin = 300, kWatchMax = 600;

bool is_expired(const ApiError& error) {
  return error.http_status == 410 || error.reason == "Expired" || error.reason == "Gone";
}
// The server's watch cache has not reached our version, or etcd was restored from a backup.
bool is_too_large(const ApiError& error) {
  return error.http_status == 504 &&
         std::ranges::any_of(error.causes, [](const std::string& cause) {
           return cause.find("ResourceVersionTooLarge") != std::string::npos ||
                  cause.find("Too large resource version") != std::string::npos;
         });
}

}  // namespace

ReflectorState::Do ReflectorState::next(SteadyTime now) {
  if (!watching_) return list_by_;
  return now >= verify_at_ ? Do::kVerify : Do::kWatch;
}

milliseconds ReflectorState::wait() {
  return std::exchange(wait_, milliseconds(0));
}

int ReflectorState::watch_seconds() {
  return kWatchMin + static_cast<int>(random_.below(kWatchMax - kWatchMin + 1));
}

void ReflectorState::back_off(SteadyTime now) {
  if (failures_ > 0 && now - last_failure_ > kBackOffReset) failures_ = 0;
  last_failure_ = now;
  const double base = std::min(static_cast<double>(kBackOff.count()) * std::exp2(failures_),
                               static_cast<double>(kBackOffCap.count()));
  failures_ = std::min(failures_ + 1, 16);
  wait_ = milliseconds(static_cast<std::int64_t>(base * (1 + random_.uniform())));
}

void ReflectorState::plan_verify(SteadyTime now) {
  verify_at_ = now + std::chrono::duration_cast<SteadyTime::duration>(
                         verify_every_ * (0.8 + 0.4 * random_.uniform()));
}

void ReflectorState::forget() {
  version_.clear();
  watching_ = false;
  list_by_ = Do::kList;
  wait_ = milliseconds(0);
}

void ReflectorState::listed(const std::string& version, SteadyTime now) {
  version_ = version;
  watching_ = true;
  list_by_ = Do::kList;
  plan_verify(now);
}

void ReflectorState::list_failed(const ApiError& error, SteadyTime now) {
  if (is_expired(error) || is_too_large(error)) {
    if (list_by_ == Do::kListWhole) back_off(now);
    list_by_ = list_by_ == Do::kList ? Do::kListPaged : Do::kListWhole;
    return;
  }
  back_off(now);
}

void ReflectorState::verified(SteadyTime now) {
  plan_verify(now);
}

ReflectorState::Take ReflectorState::event(const api::WatchEvent& event) {
  if (event.type == "ERROR") {
    (event.error_code == 410 || event.error_reason == "Expired" ? expired_ : failed_) = true;
    return Take::kEndWatch;
  }
  ++events_;
  if (!event.resource_version.empty()) version_ = event.resource_version;
  return event.type == "BOOKMARK" ? Take::kVersionOnly : Take::kDeliver;
}

void ReflectorState::watch_ended(const std::optional<ApiError>& error,
                                 std::chrono::nanoseconds lasted, SteadyTime now) {
  const bool quiet = std::exchange(events_, 0) == 0;
  const bool expired = std::exchange(expired_, false) || (error && is_expired(*error));
  const bool failed = std::exchange(failed_, false);
  if (expired) {
    watching_ = false;
    if (quiet && lasted < kShortWatch) back_off(now);  // the server may expire every version
    return;
  }
  // A stream that worked and then broke off counts as one that ended, because the server works.
  const bool broke_off = error && error->http_status == 0 && lasted >= kShortWatch;
  if (broke_off && error->code == Code::kUnavailable) return;
  if (error || failed) {
    back_off(now);
    if (error && error->retry_after) {
      wait_ = std::max<milliseconds>(wait_, *error->retry_after);
    }
    // The server cannot answer this request (the CRD is deleted, a line is too long): list anew.
    if (error && (error->code == Code::kInvalid || error->code == Code::kNotFound)) {
      watching_ = false;
    }
    return;
  }
  if (quiet && lasted < kShortWatch) back_off(now);
}

}  // namespace weir::kube
