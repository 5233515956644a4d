// SPDX-License-Identifier: Apache-2.0
// When to list, when to watch, how long to wait (operator/kube/README.md "List and watch"). No I/O.
// Source: client-go tools/cache/reflector.go. One thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "operator/api/decode.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/random.h"

namespace weir::kube {

constexpr std::chrono::minutes kVerifyEvery{30};  // +-20 % (operator/kube/README.md "Verify")

class ReflectorState {
 public:
  enum class Do : unsigned char {
    kList,       // at least as new as version(); first time: whatever the watch cache has
    kListPaged,  // the newest, in pages
    kListWhole,  // the newest, in one answer
    kWatch,      // from version()
    kVerify      // exactly version(), to compare with what we hold
  };
  enum class Take : unsigned char { kDeliver, kVersionOnly, kEndWatch };

  explicit ReflectorState(std::uint64_t seed, std::chrono::seconds verify_every = kVerifyEvery)
      : random_(seed), verify_every_(verify_every) {}

  Do next(SteadyTime now);
  std::chrono::milliseconds wait();  // before next(); 0 mostly. Asking resets it
  const std::string& version() const { return version_; }
  int watch_seconds();  // timeoutSeconds of the next watch

  void forget();  // what was listed is no longer held
  void listed(const std::string& version, SteadyTime now);
  void list_failed(const ApiError& error, SteadyTime now);
  void verified(SteadyTime now);  // compared, or could not be
  Take event(const api::WatchEvent& event);
  // error: of the request; unset: the server ended it.
  void watch_ended(const std::optional<ApiError>& error, std::chrono::nanoseconds lasted,
                   SteadyTime now);

 private:
  void back_off(SteadyTime now);
  void plan_verify(SteadyTime now);

  Random random_;
  std::chrono::seconds verify_every_;
  std::string version_;  // "" = nothing listed yet
  Do list_by_ = Do::kList;
  bool watching_ = false;
  bool expired_ = false;  // an ERROR event said so
  bool failed_ = false;   // another ERROR event
  int events_ = 0;        // of this watch
  int failures_ = 0;      // in a row, for the back-off
  SteadyTime last_failure_{};
  SteadyTime verify_at_{};
  std::chrono::milliseconds wait_{0};
};

}  // namespace weir::kube
