// SPDX-License-Identifier: Apache-2.0
#include "worker/app/fatal_signals.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <unistd.h>

namespace weir::app {
namespace {

using engine::UnderWay;
using protocol::StepPart;

constexpr std::array kFatal{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// A handler has no other way to its data.
std::atomic<const engine::FlightRecorder*> watched{nullptr};

void say(int signal) {
  const engine::FlightRecorder* const recorder = watched.exchange(nullptr);
  if (recorder == nullptr) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  SignalText line = last_words(signal, recorder->under_way(), now.count());
  line << "\n";
  const std::string_view text = line.view();
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
}

// With SA_RESETHAND the action is the usual one again: the fault comes once more, or raise() ends
// the process.
extern "C" void on_fatal_signal(int signal) {
  say(signal);
  ::raise(signal);
}

// The stage that the rank waits for; -1: none, or more than one.
int awaited(const UnderWay& under_way) {
  const StepPart part = under_way.part;
  const bool before = part == StepPart::kForwardLate || part == StepPart::kVerdict;
  const bool behind = part == StepPart::kGradientLate || part == StepPart::kNote;
  if (before) return under_way.stage - 1;
  return behind && under_way.stage + 1 < under_way.stages ? under_way.stage + 1 : -1;
}

}  // namespace

SignalText& SignalText::operator<<(std::string_view text) {
  const std::size_t count = std::min(text.size(), text_.size() - size_);
  std::copy_n(text.begin(), count, text_.begin() + static_cast<std::ptrdiff_t>(size_));
  size_ += count;
  return *this;
}

SignalText& SignalText::operator<<(std::int64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return *this << std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
}

SignalText last_words(int signal, const UnderWay& part, std::int64_t now) {
  SignalText line;
  line << "weir-worker: ended by signal " << std::int64_t{signal};
  if (part.stage < 0) return line << " before its first step";
  line << " in step " << std::int64_t{part.step} + 1 << ", replica " << std::int64_t{part.replica}
       << ", stage " << std::int64_t{part.stage} << ", " << protocol::name(part.part);
  if (part.micro_batch != timeline::kNoMicroBatch) {
    line << " of micro-batch " << std::int64_t{part.micro_batch};
  }
  if (const int peer = awaited(part); peer >= 0) line << " from stage " << std::int64_t{peer};
  constexpr std::int64_t kMillisecond = 1'000'000;
  return line << " for " << std::max<std::int64_t>(0, now - part.since) / kMillisecond << " ms";
}

FatalSignals::FatalSignals(const engine::FlightRecorder& recorder) {
  watched = &recorder;
  for (const int signal : kFatal) {
    struct sigaction before{};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action{};
    action.sa_handler = on_fatal_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(signal, &action, nullptr);
  }
}

FatalSignals::~FatalSignals() {
  watched = nullptr;
}

}  // namespace weir::app
