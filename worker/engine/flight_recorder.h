// SPDX-License-Identifier: Apache-2.0
// The newest events of this rank (worker/timeline/record.h), always on, and the part that is under
// way. The engine thread writes them to a ring and waits for nobody. Any thread may read at any
// time, also while the engine is stuck in an op: it gets what is whole and was not overwritten
// meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/protocol/step_part.h"
#include "worker/timeline/record.h"

namespace weir::engine {

struct UnderWay {
  protocol::StepPart part = protocol::StepPart::kOther;
  std::uint16_t micro_batch = timeline::kNoMicroBatch;
  std::uint32_t step = 0;                    // completed before it
  std::int64_t since = 0;                    // nanoseconds of the steady clock
  int replica = -1, stage = -1, stages = 0;  // -1: no place yet
};

class FlightRecorder {
 public:
  // 1 MiB; about 100 steps of 32 micro-batches.
  static constexpr std::size_t kEvents = 32'768;

  // events: of the ring, at least 1; rounded up to a power of 2.
  explicit FlightRecorder(std::size_t events = kEvents);

  // Engine thread. The step and the micro-batch of the events to come.
  void at_step(std::uint32_t step) { step_ = step; }
  std::uint32_t step() const { return step_; }
  void at_micro_batch(std::uint16_t micro_batch) { micro_batch_ = micro_batch; }
  // An interval of the engine's own time, of the step and micro-batch above.
  void add(timeline::EventKind kind, std::uint8_t detail, std::int64_t begin, std::int64_t end) {
    if (begin == end && kind == timeline::EventKind::kPart) return;
    add({.begin = begin,
         .end = end,
         .step = step_,
         .micro_batch = micro_batch_,
         .kind = kind,
         .detail = detail});
  }
  void add(const timeline::Event& event);
  // Events written before are of another place, and are not read any more.
  void begin_place(int replica, int stage, int stages) {
    first_.store(begun_.load(std::memory_order_relaxed));
    replica_ = replica;
    stage_ = stage;
    stages_ = stages;
  }
  // This part begins, for a micro-batch or for none.
  void begin_part(protocol::StepPart part, std::uint16_t micro_batch, std::int64_t since) {
    const std::uint64_t what = std::uint64_t{step_} << 32U | std::uint64_t{micro_batch} << 16U |
                               static_cast<std::uint64_t>(part);
    what_.store(what, std::memory_order_relaxed);
    since_.store(since, std::memory_order_relaxed);
  }

  // Any thread. The events of the steps from..to, the oldest first.
  std::vector<timeline::Event> read(std::uint32_t from, std::uint32_t to) const;
  // Any thread, and signal handlers. `since` may be that of the part before or behind.
  UnderWay under_way() const;

 private:
  static constexpr std::size_t kWords = sizeof(timeline::Event) / sizeof(std::uint64_t);
  using Words = std::array<std::atomic<std::uint64_t>, kWords>;

  std::size_t mask_;
  std::unique_ptr<Words[]> ring_;
  // Events that were begun, and that are whole.
  std::atomic<std::uint64_t> begun_{0}, whole_{0}, first_{0};
  std::atomic<std::uint64_t> what_{std::uint64_t{timeline::kNoMicroBatch} << 16U |
                                   static_cast<std::uint64_t>(protocol::StepPart::kOther)};
  std::atomic<std::int64_t> since_{0};
  std::atomic<int> replica_{-1}, stage_{-1}, stages_{0};
  std::uint32_t step_ = 0;                               // engine thread
  std::uint16_t micro_batch_ = timeline::kNoMicroBatch;  // engine thread
};

}  // namespace weir::engine
