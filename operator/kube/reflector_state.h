// SPDX-License-Identifier: Apache-2.0
// Decides when to list, when to watch and how long to wait (operator/kube/README.md "List and
// watch"). No I/O. Source: client-go tools/cache/reflector.go. For one thread.
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
    kList,       // list a state at least as new as version(); first: what the watch cache has
    kListPaged,  // list the newest state in pages
    kListWhole,  // list the newest state in one answer
    kWatch,      // watch from version()
    kVerify      // list the state of exactly version(), to compare it with the sink's content
  };
  enum class Take : unsigned char { kDeliver, kVersionOnly, kEndWatch };

  explicit ReflectorState(std::uint64_t seed, std::chrono::seconds verify_every = kVerifyEvery)
      : random_(seed), verify_every_(verify_every) {}

  Do next(SteadyTime now);
  std::chrono::milliseconds wait();  // time to wait before next(); the call resets it to 0
  const std::string& version() const { return version_; }
  int watch_seconds();  // timeoutSeconds of the next watch

  void forget();  // the sink's content was dropped
  void listed(const std::string& version, SteadyTime now);
  void list_failed(const ApiError& error, SteadyTime now);
  void verified(SteadyTime now);  // a comparison was tried
  Take event(const api::WatchEvent& event);
  // error: why the request failed; unset = the server ended the watch.
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
  bool expired_ = false;  // an ERROR event said that the version has expired
  bool failed_ = false;   // there was another ERROR event
  int events_ = 0;        // number of events of this watch
  int failures_ = 0;      // number of failures in a row, for the back-off
  SteadyTime last_failure_{};
  SteadyTime verify_at_{};
  std::chrono::milliseconds wait_{0};
};

}  // namespace weir::kube
