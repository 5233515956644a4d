// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/flight_files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <pthread.h>
#include <utility>
#include <vector>

#include "worker/base/file_error.h"
#include "worker/base/log.h"

namespace weir::eventlog {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWaiting = 2;  // of some MB each
constexpr std::chrono::seconds kLook{1};
constexpr char kPrefix[] = "flight-", kSuffix[] = ".weir";

void keep_newest(const std::string& folder) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const auto written = entry.last_write_time(error);
    if (!error) files.emplace_back(written, entry.path());
  }
  std::ranges::sort(files);
  for (std::size_t i = 0; i + kFlightFiles < files.size(); ++i) fs::remove(files[i].second, error);
}

}  // namespace

std::string flight_file(std::int64_t step) {
  return kPrefix + std::to_string(step) + kSuffix;
}

Status write_flight_file(const std::string& folder, std::int64_t step, const std::string& octets) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Error{Code::kUnavailable, folder + ": " + error.message()};
  const std::string path = folder + "/" + flight_file(step), fresh = path + ".new";
  errno = 0;
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  file << octets;
  if (!file.flush()) return unwritable(fresh);
  file.close();
  fs::rename(fresh, path, error);
  if (error) return Error{Code::kUnavailable, path + ": " + error.message()};
  keep_newest(folder);
  return Unit{};
}

FlightFiles::FlightFiles(std::string folder) : folder_(std::move(folder)), queue_(kWaiting) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "weir-flight");
    run(stop);
    ended_.set_value();
  });
}

FlightFiles::~FlightFiles() {
  queue_.close();
  thread_.request_stop();
}

bool FlightFiles::put(std::int64_t step, std::string octets) {
  return queue_.try_push({step, std::move(octets)});
}

bool FlightFiles::finish(std::chrono::milliseconds limit) {
  queue_.close();
  thread_.request_stop();
  return ended_.get_future().wait_for(limit) == std::future_status::ready;
}

void FlightFiles::run(const std::stop_token& stop) {
  while (true) {
    auto dump = stop.stop_requested() ? queue_.try_pop()
                                      : queue_.pop(std::chrono::steady_clock::now() + kLook, stop);
    if (!dump) {
      if (stop.stop_requested()) return;
      continue;
    }
    const Status written = write_flight_file(folder_, dump->step, dump->octets);
    if (!written) {
      log_warn("eventlog", "no dump of the flight recorders",
               {{"reason", written.error().message}, {"folder", folder_}});
    }
  }
}

}  // namespace weir::eventlog
