// SPDX-License-Identifier: Apache-2.0
// A PlanSource whose plans the test hands out and whose register and report bodies it reads.
// Thread-safe; outlives the coordinator that owns its front.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "worker/coordinator/coordinator.h"

namespace weir::coordinator::test {

class MemorySource {
 public:
  std::unique_ptr<PlanSource> front() { return std::make_unique<Front>(*this); }

  void offer(const schedule::Plan& plan) { callbacks().on_plan(plan); }
  void ask_for_register() { callbacks().on_register_wanted(); }
  void refuse(std::uint32_t revision, const std::string& reason) {
    callbacks().on_bad_plan(revision, reason);
  }
  std::vector<protocol::Register> registers() const {
    const std::lock_guard lock(mutex_);
    return registers_;
  }
  std::vector<protocol::Report> reports() const {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  // The last switch of that revision that was reported with that outcome.
  std::optional<protocol::LastSwitch> outcome(std::uint32_t revision,
                                              protocol::Outcome outcome) const {
    std::optional<protocol::LastSwitch> result;
    for (const auto& report : reports()) {
      const auto& last = report.last_switch;
      if (last && last->revision == revision && last->outcome == outcome) result = last;
    }
    return result;
  }
  void want_trace(const protocol::TraceWanted& wanted) { callbacks().on_trace_wanted(wanted); }
  std::vector<std::pair<std::string, std::string>> traces() const {  // ids and octets
    const std::lock_guard lock(mutex_);
    return traces_;
  }
  std::vector<protocol::FlightDump> flights() const {
    const std::lock_guard lock(mutex_);
    return flights_;
  }
  std::uint32_t known() const {
    const std::lock_guard lock(mutex_);
    return have_;
  }

 private:
  class Front final : public PlanSource {
   public:
    explicit Front(MemorySource& back) : back_(back) {}
    void start(Callbacks callbacks) override {
      const std::lock_guard lock(back_.mutex_);
      back_.callbacks_ = std::move(callbacks);
    }
    void register_members(protocol::Register body) override {
      const std::lock_guard lock(back_.mutex_);
      back_.registers_.push_back(std::move(body));
    }
    void report(protocol::Report body) override {
      const std::lock_guard lock(back_.mutex_);
      back_.reports_.push_back(std::move(body));
    }
    void post_trace(std::string id, std::string octets) override {
      const std::lock_guard lock(back_.mutex_);
      back_.traces_.emplace_back(std::move(id), std::move(octets));
    }
    void post_flight(const protocol::FlightDump& dump) override {
      const std::lock_guard lock(back_.mutex_);
      back_.flights_.push_back(dump);
    }
    void have(std::uint32_t revision) override {
      const std::lock_guard lock(back_.mutex_);
      back_.have_ = std::max(back_.have_, revision);
    }

   private:
    MemorySource& back_;
  };

  PlanSource::Callbacks callbacks() const {
    const std::lock_guard lock(mutex_);
    return callbacks_;
  }

  mutable std::mutex mutex_;  // guards all below
  PlanSource::Callbacks callbacks_;
  std::vector<protocol::Register> registers_;
  std::vector<protocol::Report> reports_;
  std::vector<std::pair<std::string, std::string>> traces_;
  std::vector<protocol::FlightDump> flights_;
  std::uint32_t have_ = 0;
};

}  // namespace weir::coordinator::test
