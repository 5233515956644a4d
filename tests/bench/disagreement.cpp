// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/disagreement.h"

#include <algorithm>
#include <fstream>

namespace weir::bench {
namespace {

// The newest parameters at that time; null: none.
const std::vector<float>* newest(const Recorded& records, double time) {
  const auto after = std::ranges::upper_bound(records.seconds, time);
  if (after == records.seconds.begin()) return nullptr;
  return &records.parameters[static_cast<std::size_t>(after - records.seconds.begin()) - 1];
}

}  // namespace

std::optional<Recorded> read_records(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  Recorded records;
  RecordHead head;
  while (in.read(reinterpret_cast<char*>(&head), sizeof head)) {
    std::vector<float> values(head.count);
    const auto bytes = static_cast<std::streamsize>(head.count * sizeof(float));
    if (!in.read(reinterpret_cast<char*>(values.data()), bytes)) break;
    records.seconds.push_back(head.seconds);
    records.parameters.push_back(std::move(values));
  }
  return records;
}

double consensus_error(const std::vector<std::vector<Recorded>>& workers, double from, double to,
                       int samples) {
  const auto replicas = static_cast<double>(workers.size());
  double errors = 0;
  for (int i = 0; i < samples; ++i) {
    const double time = from + (i + 0.5) * (to - from) / samples;
    double apart = 0, norm = 0;
    for (std::size_t stage = 0; stage < workers.front().size(); ++stage) {
      std::vector<const std::vector<float>*> models;
      for (const auto& replica : workers) models.push_back(newest(replica[stage], time));
      if (std::ranges::count(models, nullptr) > 0) return -1;
      for (std::size_t k = 0; k < models.front()->size(); ++k) {
        double mean = 0;
        for (const auto* model : models) mean += (*model)[k] / replicas;
        norm += mean * mean;
        for (const auto* model : models) {
          const double difference = (*model)[k] - mean;
          apart += difference * difference;
        }
      }
    }
    errors += apart / replicas / norm / samples;
  }
  return errors;
}

}  // namespace weir::bench
