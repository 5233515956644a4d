// SPDX-License-Identifier: Apache-2.0
// The last words of a worker that a fatal signal ends: one line with its step, its part and the
// peer that it waits for. The signal then does what it would have done.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "worker/engine/flight_recorder.h"

namespace weir::app {

// Text without memory from the heap, for signal handlers. What does not fit is left out.
class SignalText {
 public:
  SignalText& operator<<(std::string_view text);
  SignalText& operator<<(std::int64_t number);
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 320> text_{};
  std::size_t size_ = 0;
};

// now: nanoseconds of the steady clock. One line without its end.
SignalText last_words(int signal, const engine::UnderWay& part, std::int64_t now);

// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, unless something else handles them already. One at a
// time in a process; the recorder outlives it.
class FatalSignals {
 public:
  explicit FatalSignals(const engine::FlightRecorder& recorder);
  ~FatalSignals();
  FatalSignals(const FatalSignals&) = delete;
  FatalSignals& operator=(const FatalSignals&) = delete;
};

}  // namespace weir::app
