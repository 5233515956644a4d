// SPDX-License-Identifier: Apache-2.0
// Dumps of flight recorders as files flight-<step>.weir in one folder, written on a thread of their
// own. The newest few stay. Training never waits for it: what the disk does not take in time is
// dropped.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <thread>

#include "worker/base/bounded_queue.h"
#include "worker/base/result.h"

namespace weir::eventlog {

inline constexpr std::size_t kFlightFiles = 8;  // that stay

std::string flight_file(std::int64_t step);

// Writes one file, which is whole or absent, and deletes the oldest beyond kFlightFiles. Blocks.
Status write_flight_file(const std::string& folder, std::int64_t step, const std::string& octets);

class FlightFiles {
 public:
  // folder: is made if it does not exist. Starts the thread; opens nothing yet.
  explicit FlightFiles(std::string folder);
  ~FlightFiles();  // waits for the thread
  FlightFiles(const FlightFiles&) = delete;
  FlightFiles& operator=(const FlightFiles&) = delete;

  // octets: records (worker/timeline/codec.h). Never blocks. False: dropped. Any one thread.
  bool put(std::int64_t step, std::string octets);
  // As TrainingLog::finish.
  bool finish(std::chrono::milliseconds limit);

 private:
  struct Dump {
    std::int64_t step = 0;
    std::string octets;
  };
  void run(const std::stop_token& stop);

  const std::string folder_;
  BoundedQueue<Dump> queue_;
  std::promise<void> ended_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace weir::eventlog
