// SPDX-License-Identifier: Apache-2.0
// The threads that run an op on the host. Results do not depend on their number: an op gives each
// number that it computes to one thread, which makes its sum in the order of one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

namespace weir::stage::ops {

class Team {
 public:
  using Index = std::ptrdiff_t;

  // threads: the caller's included, at least 1. If the system gives fewer, the team is smaller.
  // largest_least: an upper limit for `least` in run(); tests set it to split small ops.
  explicit Team(int threads, Index largest_least = std::numeric_limits<Index>::max());
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return static_cast<int>(others_.size()) + 1; }

  // Calls body(parts, part) for each part < parts, each on a thread of its own, and returns when
  // all calls have ended. A part does at least `least` of `work`, in any unit, so the caller's
  // thread does a small op alone. The body must neither throw nor call the team. One caller at a
  // time.
  template <class Body>
  void share(Index work, Index least, const Body& body) {
    const Index most = work / std::min(least, largest_least_);
    const Index parts = std::clamp<Index>(most, 1, threads());
    if (parts == 1) return body(Index{1}, Index{0});
    const auto call = [&](Index part) { body(parts, part); };
    run_parts(parts, &call,
              [](const void* of, Index part) { (*static_cast<const decltype(call)*>(of))(part); });
  }

  // Calls body(begin, end) for contiguous parts of 0 .. count-1, as share(). Parts begin at
  // multiples of `least`.
  template <class Body>
  void run(Index count, Index least, const Body& body) {
    share(count, least, [&](Index parts, Index part) {
      const Index unit = std::min(least, largest_least_), units = count / unit;
      const Index end = part + 1 == parts ? count : units * (part + 1) / parts * unit;
      const Index begin = units * part / parts * unit;
      if (begin < end) body(begin, end);
    });
  }

 private:
  using Call = void (*)(const void* of, Index part);
  void run_parts(Index parts, const void* of, Call call);
  void serve(Index part);

  const Index largest_least_;
  // The threads read these only in a round in which they have a part, so they do not change before
  // the part has ended.
  const void* of_ = nullptr;
  Call call_ = nullptr;
  std::atomic<std::uint64_t> round_{0};    // number of the round and its parts
  std::atomic<std::uint32_t> running_{0};  // parts of other threads that have not ended
  std::vector<std::jthread> others_;
};

// Elements of an array below which a part of an elementwise op is not worth a thread: 32 KiB take a
// few microseconds, as long as it takes to wake a thread that has just finished.
inline constexpr std::ptrdiff_t kLeastElements = 8192;

// The rows of `width` elements that are worth a thread.
inline std::ptrdiff_t least_rows(std::ptrdiff_t width) {
  return width < kLeastElements ? (kLeastElements + width - 1) / width : 1;
}

// The columns of a matrix with `rows` rows that are worth a thread: whole cache lines of floats.
inline std::ptrdiff_t least_columns(std::ptrdiff_t rows) {
  constexpr std::ptrdiff_t kLine = 16;
  return (least_rows(rows) + kLine - 1) / kLine * kLine;
}

}  // namespace weir::stage::ops
