// SPDX-License-Identifier: Apache-2.0
// Messages of one size over all ports of a rank, both ways, whatever the transport.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/worker/transport/tcp/rig.h"

namespace weir::transport::test {

// The same memory, said to lie where the transport takes its messages from.
using Place = std::function<device::Buffer(device::Buffer)>;
inline device::Buffer in_host_memory(device::Buffer buffer) {
  return buffer;
}

inline std::uint64_t seed_of(int from_stage, Channel channel, int i) {
  return static_cast<std::uint64_t>(from_stage * 1000 + static_cast<int>(channel) * 100 + i);
}

// One rank: sends kMessages over each of its sending ports and receives as many over each of its
// receiving ports, with kSlots receives posted at a time. Empty text = all as it should be.
class Exchange {
 public:
  Exchange(Communicator& rank, int stage, int stages, std::size_t bytes,
           const Place& place = in_host_memory)
      : rank_(rank), stage_(stage), bytes_(bytes), place_(place) {
    for (const int peer : {stage - 1, stage + 1}) {
      if (peer < 0 || peer >= stages) continue;
      const Channel out = peer > stage ? Channel::kForward : Channel::kBackward;
      const Channel in = peer > stage ? Channel::kBackward : Channel::kForward;
      for (int i = 0; i < kMessages; ++i) {
        rank_.send(to(peer, out), place_(pattern(bytes, seed_of(stage, out, i))), bytes);
      }
      for (int i = 0; i < kSlots; ++i) post(from(peer, in));
      due_ += 2 * kMessages;
    }
  }

  std::string run() {
    while (due_ > 0 && problem_.empty()) handle(next(rank_));
    return problem_;
  }

 private:
  static constexpr int kMessages = 6;
  static constexpr int kSlots = 2;

  struct Slot {
    LinkEnd end;
    std::int64_t count = 0, posted = 0;
    std::vector<device::Buffer> buffers;
  };

  Slot& slot(const LinkEnd& end) {
    for (Slot& one : slots_) {
      if (one.end == end) return one;
    }
    slots_.push_back({.end = end});
    return slots_.back();
  }

  void post(const LinkEnd& end) {
    Slot& in = slot(end);
    if (in.posted++ == kMessages) return;
    in.buffers.push_back(make_buffer(bytes_));
    rank_.receive(end, place_(in.buffers.back()), bytes_);
  }

  void handle(const Completion& completion) {
    if (completion.kind == Completion::Kind::kFailed) {
      problem_ = completion.reason;
      return;
    }
    --due_;
    Slot& in = slot(completion.end);
    if (completion.sequence != in.count) problem_ = "out of order";
    if (completion.kind == Completion::Kind::kReceived) {
      const auto index = static_cast<int>(in.count);
      const auto expected =
          pattern(bytes_, seed_of(completion.end.peer_stage, completion.end.channel, index));
      if (!equal(in.buffers[static_cast<std::size_t>(index)], expected)) problem_ = "other bytes";
      post(completion.end);
    }
    ++in.count;
  }

  Communicator& rank_;
  const int stage_;
  const std::size_t bytes_;
  const Place place_;
  std::vector<Slot> slots_;
  int due_ = 0;
  std::string problem_;
};

}  // namespace weir::transport::test
