// SPDX-License-Identifier: Apache-2.0
// The training log of a job: metrics.jsonl and event files of TensorBoard in one folder, written on
// a thread of their own. Training never waits for it: what the disk does not take is dropped and
// counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "worker/base/bounded_queue.h"
#include "worker/eventlog/entry.h"
#include "worker/eventlog/json_lines.h"
#include "worker/eventlog/tensorboard.h"

namespace weir::eventlog {

// Without --log-every a line is written at most ten times a second: the newest step.
constexpr std::chrono::milliseconds kLeastInterval{100};

// Chooses the steps that are written. The time is that of the entries. Pure.
class Choice {
 public:
  explicit Choice(int every) : every_(every) {}  // 0 = by time
  bool wants(const Entry& entry);

 private:
  const int every_;
  std::optional<std::chrono::system_clock::time_point> last_;
};

struct LogOptions {
  std::string folder;  // is made if it does not exist
  std::string pod;     // part of the names of event files
  int every = 0;       // steps between two lines; 0 = at most ten a second
};

class TrainingLog {
 public:
  // Starts the thread; opens nothing yet. dropped becomes the number of entries that the disk or
  // the queue did not take, and outlives this object.
  TrainingLog(LogOptions options, std::atomic<std::int64_t>& dropped);
  ~TrainingLog();  // waits for the thread
  TrainingLog(const TrainingLog&) = delete;
  TrainingLog& operator=(const TrainingLog&) = delete;

  // A completed step; steps rise but for a restart from a checkpoint: then lines from this step on
  // are cut, and TensorBoard forgets them. Never blocks. Any one thread.
  void put(const Entry& entry);
  // Writes what waits and ends the thread. False: it has not ended by then, since the disk hangs,
  // so this object must stay.
  bool finish(std::chrono::milliseconds limit);

 private:
  void run(const std::stop_token& stop);
  void take(const Entry& entry);
  void write(const Entry& entry);
  Status begin(SystemTime time);
  void drop(const std::string& why);

  const LogOptions options_;
  BoundedQueue<Entry> queue_;
  std::atomic<std::int64_t>& dropped_;
  // The fields below belong to the thread.
  Choice choice_;
  std::unique_ptr<JsonLines> lines_;
  std::unique_ptr<EventFile> events_;
  std::int64_t seen_ = -1;        // the newest step, written or not
  std::int64_t first_ = -1;       // lines from this step on are to be cut; -1: none
  std::optional<Entry> skipped_;  // the newest entry, if it was not chosen
  bool failing_ = false;          // the last write failed
  std::promise<void> ended_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace weir::eventlog
