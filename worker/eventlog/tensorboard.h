// SPDX-License-Identifier: Apache-2.0
// Event files of TensorBoard: records of TFRecord with messages Event of TensorFlow's protobuf.
// https://www.tensorflow.org/tutorials/load_data/tfrecord (record),
// tensorflow/core/util/event.proto and summary.proto (messages). Pure but for EventFile.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "worker/base/result.h"
#include "worker/eventlog/append_file.h"
#include "worker/eventlog/entry.h"

namespace weir::eventlog {

using SystemTime = std::chrono::system_clock::time_point;

// length (8 bytes), masked CRC-32C of it, data, masked CRC-32C of them; little-endian.
std::string tf_record(std::string_view data);

std::string version_event(SystemTime time);  // the first record of each file
// TensorBoard forgets what earlier files hold from this step on.
std::string start_event(SystemTime time, std::int64_t step);
// Scalars of a step: train/loss, train/learning_rate, time/step, time/samples_per_second, plan/k;
// of a validation: validation/loss. Values that are not finite are left out.
std::string scalars_event(const Entry& entry);

class EventFile {
 public:
  // Makes events.out.tfevents.<seconds>.<pod> in the folder, which begins with the version and a
  // start at `step`. Where there is one of this name, a number follows.
  static Result<std::unique_ptr<EventFile>> begin(const std::string& folder, const std::string& pod,
                                                  SystemTime time, std::int64_t step);
  Status append(const Entry& entry);

 private:
  explicit EventFile(std::unique_ptr<AppendFile> file) : file_(std::move(file)) {}

  std::unique_ptr<AppendFile> file_;
};

}  // namespace weir::eventlog
