// SPDX-License-Identifier: Apache-2.0
// A PlanTarget that writes down what it is asked and answers at once or when the test says so.
// Thread-safe: the control thread calls, the test looks.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/control/plan_target.h"

namespace weir::test {

// Waits for what other threads do; false after 30 s.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

class RecordingTarget final : public control::PlanTarget {
 public:
  void prepare(const schedule::Plan& plan, int incarnation, control::Answer answer) override {
    ask("prepare " + std::to_string(plan.revision) + " incarnation " + std::to_string(incarnation),
        std::move(answer), prepare_answer);
  }
  void commit(std::uint32_t revision, std::int64_t at_step, control::Answer answer) override {
    ask("commit " + std::to_string(revision) + " at " + std::to_string(at_step), std::move(answer),
        commit_answer);
  }
  void go(std::uint32_t revision) override { note("go " + std::to_string(revision)); }
  void abort(std::uint32_t revision) override { note("abort " + std::to_string(revision)); }
  void peer_lost(int, int stage, const std::string&) override {
    note("lost stage " + std::to_string(stage));
  }
  void save(const protocol::Save& save) override { note("save " + std::to_string(save.step)); }
  void saved(std::int64_t step, const std::string&, bool leave) override {
    note("saved " + std::to_string(step) + (leave ? " leave" : ""));
  }

  std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  bool called(const std::string& call) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(calls_, call) != calls_.end();
  }
  // When answers are held: gives the oldest one.
  void answer(const std::string& reason = "") {
    control::Answer held;
    {
      const std::lock_guard lock(mutex_);
      held = std::move(held_.at(0));
      held_.erase(held_.begin());
    }
    held(reason);
  }

  // Set before use.
  std::string prepare_answer, commit_answer;
  bool hold = false;

 private:
  void ask(const std::string& call, control::Answer answer, const std::string& reason) {
    if (hold) {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(answer));
      calls_.push_back(call);
      return;
    }
    note(call);
    answer(reason);
  }
  void note(const std::string& call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
  }

  mutable std::mutex mutex_;  // guards the two below
  std::vector<std::string> calls_;
  std::vector<control::Answer> held_;
};

}  // namespace weir::test
