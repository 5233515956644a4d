// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/training_log.h"

#include <algorithm>
#include <filesystem>
#include <pthread.h>
#include <utility>

#include "worker/base/log.h"

namespace weir::eventlog {
namespace {

constexpr std::size_t kQueue = 1024;  // steps; 10 s of steps of 10 ms
constexpr std::chrono::seconds kPoll{1};
constexpr std::chrono::seconds kLastWrites{3};

}  // namespace

bool Choice::wants(const Entry& entry) {
  if (every_ > 0) return entry.step % every_ == 0;
  // The clock may be set back.
  const bool soon = last_ && entry.time >= *last_ && entry.time - *last_ < kLeastInterval;
  if (!soon) last_ = entry.time;
  return !soon;
}

TrainingLog::TrainingLog(LogOptions options, std::atomic<std::int64_t>& dropped)
    : options_(std::move(options)), queue_(kQueue), dropped_(dropped), choice_(options_.every) {
  dropped_ = 0;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "weir-log");
    run(stop);
    ended_.set_value();
  });
}

TrainingLog::~TrainingLog() {
  queue_.close();
  thread_.request_stop();
}

bool TrainingLog::finish(std::chrono::milliseconds limit) {
  queue_.close();
  thread_.request_stop();
  return ended_.get_future().wait_for(limit) == std::future_status::ready;
}

void TrainingLog::put(const Entry& entry) {
  if (!queue_.try_push(entry)) dropped_.fetch_add(1, std::memory_order_relaxed);
}

void TrainingLog::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (const auto entry = queue_.pop(std::chrono::steady_clock::now() + kPoll, stop)) take(*entry);
  }
  const auto until = std::chrono::steady_clock::now() + kLastWrites;
  while (std::chrono::steady_clock::now() < until) {
    const auto entry = queue_.try_pop();
    if (!entry) break;
    take(*entry);
  }
  const auto last = std::exchange(skipped_, std::nullopt);
  if (last) write(*last);  // the last step is always told
}

void TrainingLog::take(const Entry& entry) {
  if (entry.validation_loss) return write(entry);
  if (seen_ < 0 || entry.step <= seen_) {
    events_.reset();
    first_ = first_ < 0 ? entry.step : std::min(first_, entry.step);
  }
  seen_ = entry.step;
  skipped_ = entry;
  if (!choice_.wants(entry)) return;
  skipped_.reset();
  write(entry);
}

// Opens the files and cuts what they hold from first_ on.
Status TrainingLog::begin(SystemTime time) {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return Error{Code::kUnavailable, options_.folder + ": " + error.message()};
  if (!lines_) {
    WEIR_TRY(lines_, JsonLines::open(options_.folder));
  }
  WEIR_OK(lines_->cut_behind(first_ - 1));
  WEIR_TRY(events_, EventFile::begin(options_.folder, options_.pod, time, first_));
  first_ = -1;
  return Unit{};
}

void TrainingLog::write(const Entry& entry) {
  if (first_ < 0 && !events_) return;  // a validation before any step
  if (!events_) {
    if (const Status begun = begin(entry.time); !begun) return drop(begun.error().message);
  }
  const Status line = lines_->append(entry);
  const Status event = events_->append(entry);
  if (!line || !event) return drop((line ? event : line).error().message);
  if (std::exchange(failing_, false)) log_info("eventlog", "the training log is written again");
}

void TrainingLog::drop(const std::string& why) {
  dropped_.fetch_add(1, std::memory_order_relaxed);
  if (std::exchange(failing_, true)) return;
  log_warn("eventlog", "the training log cannot be written; training goes on",
           {{"reason", why}, {"folder", options_.folder}});
}

}  // namespace weir::eventlog
