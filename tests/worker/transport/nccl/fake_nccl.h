// SPDX-License-Identifier: Apache-2.0
// NCCL as the room sees it, within one process: ranks that share a FakeWorld find each other by
// unique id, and a send and a receive that both run copy the bytes. Misbehaves on request.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
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
  struct Move {
    nccl::Transfer transfer;
    bool done = false;
  };
  struct Operation {  // an exchange, or a sum when there are no moves
    std::vector<Move> moves;
    std::function<void()> sum;
    bool never = false;
    bool done = false;
  };
  struct Rank {
    bool open = false, gone = false;
    std::vector<Operation> operations;  // of its stream: each begins when those before are done
    std::size_t running = 0;
  };
  struct Comm {
    std::vector<Rank> ranks;

    bool complete() const { return std::ranges::all_of(ranks, &Rank::open); }
    Operation* head(std::size_t rank) {
      Rank& one = ranks[rank];
      const bool runs = one.running < one.operations.size() && !one.gone;
      return runs && !one.operations[one.running].never ? &one.operations[one.running] : nullptr;
    }
    // As NCCL: a send meets the receive of its bytes when both exchanges run; other bytes hang.
    bool carry(Move& send, std::size_t from) {
      Operation* const theirs = head(static_cast<std::size_t>(send.transfer.rank));
      if (theirs == nullptr) return false;
      for (Move& receive : theirs->moves) {
        if (receive.done || receive.transfer.to == nullptr) continue;
        if (receive.transfer.rank != static_cast<int>(from)) continue;
        if (receive.transfer.bytes != send.transfer.bytes) return false;
        std::memcpy(receive.transfer.to, send.transfer.from, send.transfer.bytes);
        return send.done = receive.done = true;
      }
      return false;
    }
    void run() {
      for (bool more = true; more;) {
        more = false;
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          Operation* const operation = head(r);
          if (operation == nullptr) continue;
          for (Move& move : operation->moves) {
            if (!move.done && move.transfer.from != nullptr) more |= carry(move, r);
          }
          if (!std::ranges::all_of(operation->moves, &Move::done)) continue;
          if (operation->sum) operation->sum();
          operation->done = more = true;
          ++ranks[r].running;
        }
      }
    }
  };
  std::mutex mutex;
  std::condition_variable changed;
  int ids = 0;
  std::map<int, Comm> comms;
};

// What one rank's NCCL does wrong; set before or while it runs.
struct Faults {
  std::atomic<bool> init_hangs = false;   // ready() stays false
  std::atomic<bool> init_fails = false;   // ready() is an error at once
  std::atomic<bool> async_error = false;  // ready() is an error from now on
  std::atomic<bool> silent = false;       // operations are enqueued and never run
  std::atomic<bool> blocks = false;       // exchange() returns when it is aborted
  std::atomic<bool> never_ends = false;   // what runs goes on after an abort
  std::atomic<bool> no_id = false;
  std::atomic<bool> stuck = false;  // told, not set by a test: a call has begun to block
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
  int aborted() const { return aborted_; }  // communicators, in all calls
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
  Result<std::unique_ptr<nccl::NcclComm>> open(const nccl::CommOrder& order) override {
    int number = 0;
    std::memcpy(&number, order.id.data(), sizeof number);
    const std::lock_guard lock(world_->mutex);
    FakeWorld::Comm& comm = world_->comms[number];
    comm.ranks.resize(static_cast<std::size_t>(order.ranks));
    FakeWorld::Rank& own = comm.ranks[static_cast<std::size_t>(order.rank)];
    if (own.open) return Error{Code::kInternal, "NCCL: a unique id was used twice"};
    own.open = true;
    ++opened_;
    return std::unique_ptr<nccl::NcclComm>(
        std::make_unique<FakeComm>(world_, comm, order.rank, faults_, rate_));
  }
  void abort(std::span<nccl::NcclComm* const> comms) noexcept override {
    ++abort_calls_;
    for (nccl::NcclComm* comm : comms) {
      if (static_cast<FakeComm*>(comm)->go()) ++aborted_;
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

  class FakeComm final : public nccl::NcclComm {
   public:
    FakeComm(std::shared_ptr<FakeWorld> world, FakeWorld::Comm& comm, int rank,
             std::shared_ptr<Faults> faults, double rate)
        : world_(std::move(world)),
          comm_(comm),
          own_(comm.ranks[static_cast<std::size_t>(rank)]),
          faults_(std::move(faults)),
          rate_(rate) {}

    Result<bool> ready() override {
      const std::lock_guard lock(world_->mutex);
      if (own_.gone) return Error{Code::kUnavailable, "NCCL: aborted"};
      if (faults_->init_fails) return Error{Code::kUnavailable, "NCCL: unhandled system error"};
      if (faults_->async_error) return Error{Code::kUnavailable, "NCCL: remote process exited"};
      return !faults_->init_hangs && comm_.complete();
    }
    Status exchange(std::span<const nccl::Transfer> transfers) override {
      FakeWorld::Operation operation;
      for (const nccl::Transfer& one : transfers) operation.moves.push_back({.transfer = one});
      return enqueue(std::move(operation));
    }
    Status sum(const nccl::SegmentSum& segment) override {
      FakeWorld::Operation operation;
      operation.sum = [inputs = std::vector(segment.inputs.begin(), segment.inputs.end()),
                       count = segment.count, out = segment.out] {
        for (std::size_t i = 0; i < count; ++i) {
          double total = inputs[0][i];
          for (std::size_t r = 1; r < inputs.size(); ++r) total += inputs[r][i];
          out[i] = static_cast<float>(total);
        }
      };
      return enqueue(std::move(operation));
    }
    Status mean(const nccl::SegmentMean& segment) override {
      FakeWorld::Operation operation;
      operation.sum = [inputs = std::vector(segment.inputs.begin(), segment.inputs.end()),
                       weights = std::vector(segment.weights.begin(), segment.weights.end()),
                       count = segment.count, out = segment.out] {
        for (std::size_t i = 0; i < count; ++i) {
          double mean = 0;
          for (std::size_t r = 0; r < inputs.size(); ++r) mean += weights[r] * inputs[r][i];
          out[i] = static_cast<float>(mean);
        }
      };
      return enqueue(std::move(operation));
    }
    bool drained() override { return !faults_->never_ends; }
    Result<std::optional<nccl::Timing>> take_finished() override {
      const std::lock_guard lock(world_->mutex);
      if (own_.gone) return Error{Code::kUnavailable, "NCCL: aborted"};
      if (taken_ >= own_.running) return std::optional<nccl::Timing>();
      double bytes = 0;
      for (const auto& move : own_.operations[taken_++].moves) {
        bytes += static_cast<double>(move.transfer.bytes);
      }
      return std::optional(nccl::Timing{
          .gap = std::chrono::seconds(1),
          .duration = std::chrono::nanoseconds(static_cast<std::int64_t>(bytes / rate_ * 1e9))});
    }
    std::optional<nccl::CommTimes> times() const override {
      const std::lock_guard lock(world_->mutex);
      nccl::CommTimes times;
      for (std::size_t i = 0; i < own_.running; ++i) {
        for (const auto& move : own_.operations[i].moves) {
          if (move.transfer.from == nullptr) continue;
          times.sent.bytes += static_cast<std::int64_t>(move.transfer.bytes);
          times.sent.network += std::chrono::milliseconds(1);
        }
      }
      return times;
    }
    bool go() {
      const std::lock_guard lock(world_->mutex);
      world_->changed.notify_all();
      return !std::exchange(own_.gone, true);
    }

   private:
    Status enqueue(FakeWorld::Operation operation) {
      std::unique_lock lock(world_->mutex);
      if (faults_->blocks) {
        faults_->stuck = true;
        world_->changed.wait(lock, [this] { return own_.gone; });
      }
      if (own_.gone) return Error{Code::kUnavailable, "NCCL: aborted"};
      operation.never = faults_->silent;
      own_.operations.push_back(std::move(operation));
      comm_.run();
      return Unit{};
    }

    std::shared_ptr<FakeWorld> world_;
    FakeWorld::Comm& comm_;
    FakeWorld::Rank& own_;
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
