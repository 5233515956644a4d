// SPDX-License-Identifier: Apache-2.0
// NCCL as the room sees it, within one process: ranks that share a FakeWorld find each other by
// unique id, and a send and a receive that are both enqueued copy the bytes. Misbehaves on request.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/transport/nccl/nccl_api.h"

namespace weir::transport::test {

struct FakeWorld {
  struct Operation {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t bytes = 0;
    bool never = false;
    bool done = false;
  };
  struct Pair {  // both ends of one communicator
    std::array<bool, 2> open{};
    std::array<std::vector<Operation>, 2> operations;  // [0] sends, [1] receives
    std::array<bool, 2> gone{};
  };
  std::mutex mutex;
  std::condition_variable changed;
  int ids = 0;
  std::map<int, Pair> pairs;
};

// What one rank's NCCL does wrong; set before or while it runs.
struct Faults {
  std::atomic<bool> init_hangs = false;   // ready() stays false
  std::atomic<bool> init_fails = false;   // ready() is an error at once
  std::atomic<bool> async_error = false;  // ready() is an error from now on
  std::atomic<bool> silent = false;       // operations are enqueued and never run
  std::atomic<bool> blocks = false;       // send() and receive() return when they are aborted
  std::atomic<bool> no_id = false;
};

class FakeNccl final : public nccl::NcclApi {
 public:
  FakeNccl(std::shared_ptr<FakeWorld> world, std::string gpu)
      : world_(std::move(world)),
        facts_{.nccl = 22809,
               .driver = 13000,
               .runtime = 13000,
               .capability = 90,
               .gpu_name = "Fake H200",
               .gpu = std::move(gpu)} {}

  nccl::Facts facts() override { return facts_; }
  void set_facts(const nccl::Facts& facts) { facts_ = facts; }
  Faults& faults() { return *faults_; }
  int opened() const { return opened_; }
  int aborted() const { return aborted_; }  // links, in all calls
  int abort_calls() const { return abort_calls_; }
  std::atomic<bool>& computing() { return *computing_; }  // marks are not done while it is true
  void set_rate(double bytes_per_second) { rate_ = bytes_per_second; }

  std::unique_ptr<nccl::Mark> mark() override { return std::make_unique<FakeMark>(computing_); }
  Result<nccl::UniqueId> make_id() override {
    if (faults_->no_id) return Error{Code::kUnavailable, "NCCL: no network"};
    const std::lock_guard lock(world_->mutex);
    nccl::UniqueId id{};
    const int number = ++world_->ids;
    std::memcpy(id.data(), &number, sizeof number);
    return id;
  }
  Result<std::unique_ptr<nccl::NcclLink>> open(const nccl::UniqueId& id, int rank,
                                               const std::string&) override {
    int number = 0;
    std::memcpy(&number, id.data(), sizeof number);
    const std::lock_guard lock(world_->mutex);
    FakeWorld::Pair& pair = world_->pairs[number];
    if (pair.open[static_cast<std::size_t>(rank)]) {
      return Error{Code::kInternal, "NCCL: a unique id was used twice"};
    }
    pair.open[static_cast<std::size_t>(rank)] = true;
    ++opened_;
    return std::unique_ptr<nccl::NcclLink>(
        std::make_unique<FakeLink>(world_, pair, rank, faults_, rate_));
  }
  void abort(std::span<nccl::NcclLink* const> links) noexcept override {
    ++abort_calls_;
    for (nccl::NcclLink* link : links) {
      if (static_cast<FakeLink*>(link)->go()) ++aborted_;
    }
  }

 private:
  class FakeMark final : public nccl::Mark {
   public:
    explicit FakeMark(std::shared_ptr<std::atomic<bool>> computing)
        : computing_(std::move(computing)) {}
    Result<bool> done() override { return !*computing_; }

   private:
    std::shared_ptr<std::atomic<bool>> computing_;
  };

  class FakeLink final : public nccl::NcclLink {
   public:
    FakeLink(std::shared_ptr<FakeWorld> world, FakeWorld::Pair& pair, int rank,
             std::shared_ptr<Faults> faults, double rate)
        : world_(std::move(world)),
          pair_(pair),
          rank_(static_cast<std::size_t>(rank)),
          faults_(std::move(faults)),
          rate_(rate) {}

    Result<bool> ready() override {
      const std::lock_guard lock(world_->mutex);
      if (pair_.gone[rank_]) return Error{Code::kUnavailable, "NCCL: aborted"};
      if (faults_->init_fails) return Error{Code::kUnavailable, "NCCL: unhandled system error"};
      if (faults_->async_error) return Error{Code::kUnavailable, "NCCL: remote process exited"};
      return !faults_->init_hangs && pair_.open[0] && pair_.open[1];
    }
    Status send(const std::byte* data, std::size_t bytes) override {
      return enqueue({.from = data, .bytes = bytes});
    }
    Status receive(std::byte* data, std::size_t bytes) override {
      return enqueue({.to = data, .bytes = bytes});
    }
    Result<std::optional<nccl::Timing>> take_finished() override {
      const std::lock_guard lock(world_->mutex);
      if (pair_.gone[rank_]) return Error{Code::kUnavailable, "NCCL: aborted"};
      const auto& own = pair_.operations[rank_];
      if (taken_ >= own.size() || !own[taken_].done) return std::optional<nccl::Timing>();
      const auto bytes = static_cast<double>(own[taken_++].bytes);
      return std::optional(nccl::Timing{
          .gap = std::chrono::seconds(1),
          .duration = std::chrono::nanoseconds(static_cast<std::int64_t>(bytes / rate_ * 1e9))});
    }
    bool go() {
      const std::lock_guard lock(world_->mutex);
      world_->changed.notify_all();
      return !std::exchange(pair_.gone[rank_], true);
    }

   private:
    Status enqueue(FakeWorld::Operation operation) {
      std::unique_lock lock(world_->mutex);
      if (faults_->blocks) {
        world_->changed.wait(lock, [this] { return pair_.gone[rank_]; });
      }
      if (pair_.gone[rank_]) return Error{Code::kUnavailable, "NCCL: aborted"};
      operation.never = faults_->silent;
      pair_.operations[rank_].push_back(operation);
      const std::size_t next = pair_.operations[rank_].size() - 1;
      if (pair_.operations[1 - rank_].size() <= next || pair_.gone[1 - rank_]) return Unit{};
      FakeWorld::Operation& send = pair_.operations[0][next];
      FakeWorld::Operation& receive = pair_.operations[1][next];
      if (send.never || receive.never) return Unit{};
      if (send.bytes != receive.bytes) return Unit{};  // NCCL would hang as well
      std::memcpy(receive.to, send.from, send.bytes);
      send.done = receive.done = true;
      return Unit{};
    }

    std::shared_ptr<FakeWorld> world_;
    FakeWorld::Pair& pair_;
    const std::size_t rank_;
    std::shared_ptr<Faults> faults_;
    const double rate_;
    std::size_t taken_ = 0;
  };

  std::shared_ptr<FakeWorld> world_;
  nccl::Facts facts_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::shared_ptr<std::atomic<bool>> computing_ = std::make_shared<std::atomic<bool>>(false);
  double rate_ = 1e9;
  std::atomic<int> opened_ = 0, aborted_ = 0, abort_calls_ = 0;
};

}  // namespace weir::transport::test
