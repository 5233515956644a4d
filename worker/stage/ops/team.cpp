// SPDX-License-Identifier: Apache-2.0
// A round is one word, so that a thread that wakes late sees either the round in which it has a
// part or a later one in which it has none. Ops follow each other within microseconds: threads spin
// for a moment before they sleep.
#include "worker/stage/ops/team.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <system_error>

namespace weir::stage::ops {
namespace {

constexpr int kPartBits = 16;
constexpr std::uint64_t kParts = (1U << kPartBits) - 1;  // bits of the number of parts
constexpr std::uint64_t kEnd = kParts;                   // more parts than a team has threads
constexpr int kMostThreads = 4096;
constexpr std::chrono::microseconds kSpin{20};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns the value of `word` as soon as it is not `seen`.
template <class Word>
Word changed(const std::atomic<Word>& word, Word seen) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (const Word now = word.load(std::memory_order_acquire); now != seen) return now;
      pause();
    }
  } while (Clock::now() < end);
  word.wait(seen, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

Team::Team(int threads, Index largest_least) : largest_least_(largest_least) {
  const int others = std::min(threads, kMostThreads) - 1;
  for (Index part = 1; part <= others; ++part) {
    try {
      others_.emplace_back([this, part] { serve(part); });
    } catch (const std::system_error&) {  // the limit of threads
      break;
    }
  }
}

Team::~Team() {
  round_.store(kEnd, std::memory_order_release);
  round_.notify_all();
}

void Team::run_parts(Index parts, const void* of, Call call) {
  of_ = of;
  call_ = call;
  running_.store(static_cast<std::uint32_t>(parts) - 1, std::memory_order_relaxed);
  const std::uint64_t number = (round_.load(std::memory_order_relaxed) >> kPartBits) + 1;
  round_.store(number << kPartBits | static_cast<std::uint64_t>(parts), std::memory_order_release);
  round_.notify_all();
  call(of, 0);
  for (std::uint32_t left = running_.load(std::memory_order_acquire); left > 0;) {
    left = changed(running_, left);
  }
}

void Team::serve(Index part) {
  pthread_setname_np(pthread_self(), "weir-compute");
  for (std::uint64_t seen = 0;;) {
    seen = changed(round_, seen);
    if ((seen & kParts) == kEnd) return;
    if (static_cast<std::uint64_t>(part) >= (seen & kParts)) continue;
    call_(of_, part);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace weir::stage::ops
