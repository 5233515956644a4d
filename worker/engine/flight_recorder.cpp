// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/flight_recorder.h"

#include <algorithm>
#include <type_traits>

namespace weir::engine {

using timeline::Event;

FlightRecorder::FlightRecorder(std::size_t events)
    : mask_(std::bit_ceil(events) - 1), ring_(std::make_unique<Words[]>(mask_ + 1)) {}

// A seqlock for each slot, with one counter for all: a reader that sees a word of an event also
// sees, afterwards, that it was begun. Fences would do the same, but ThreadSanitizer knows none.
void FlightRecorder::add(const Event& event) {
  static_assert(sizeof(Event) == kWords * sizeof(std::uint64_t));
  static_assert(std::is_trivially_copyable_v<Event>);
  const std::uint64_t index = whole_.load(std::memory_order_relaxed);
  begun_.store(index + 1, std::memory_order_relaxed);
  const auto words = std::bit_cast<std::array<std::uint64_t, kWords>>(event);
  Words& slot = ring_[index & mask_];
  for (std::size_t i = 0; i < kWords; ++i) slot[i].store(words[i], std::memory_order_release);
  whole_.store(index + 1, std::memory_order_release);
}

UnderWay FlightRecorder::under_way() const {
  const std::uint64_t what = what_.load(std::memory_order_relaxed);
  return {.part = static_cast<protocol::StepPart>(what & 0xFFU),
          .micro_batch = static_cast<std::uint16_t>(what >> 16U),
          .step = static_cast<std::uint32_t>(what >> 32U),
          .since = since_.load(std::memory_order_relaxed),
          .replica = replica_,
          .stage = stage_,
          .stages = stages_};
}

std::vector<Event> FlightRecorder::read(std::uint32_t from, std::uint32_t to) const {
  const std::uint64_t slots = mask_ + 1;
  const std::uint64_t end = whole_.load(std::memory_order_acquire);
  const std::uint64_t oldest = end > slots ? end - slots : 0;
  const std::uint64_t start = std::min(end, std::max(oldest, first_.load()));
  std::vector<std::array<std::uint64_t, kWords>> copies(end - start);
  for (std::uint64_t index = start; index < end; ++index) {
    const Words& slot = ring_[index & mask_];
    for (std::size_t i = 0; i < kWords; ++i) {
      copies[index - start][i] = slot[i].load(std::memory_order_acquire);
    }
  }
  const std::uint64_t begun = begun_.load(std::memory_order_relaxed);
  const std::uint64_t safe = begun > slots ? begun - slots : 0;
  std::vector<Event> events;
  for (std::uint64_t index = std::max(start, safe); index < end; ++index) {
    const Event event = std::bit_cast<Event>(copies[index - start]);
    if (event.step >= from && event.step <= to) events.push_back(event);
  }
  return events;
}

}  // namespace weir::engine
