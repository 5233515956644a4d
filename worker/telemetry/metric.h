// SPDX-License-Identifier: Apache-2.0
// Metrics without the library's headers. Two kinds: counters that live as long as the process, and
// families that a Collector builds from a snapshot at each scrape, so that series end with their
// object. All names: worker/telemetry/README.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/result.h"

namespace weir::telemetry {

using Labels = std::vector<std::pair<std::string, std::string>>;

inline Labels with(Labels labels, const std::string& name, const std::string& value) {
  labels.emplace_back(name, value);
  return labels;
}

enum class Type : unsigned char { kCounter, kGauge, kHistogram };

struct Histogram {
  std::vector<double> bounds;         // rising upper bounds, without +Inf
  std::vector<std::uint64_t> counts;  // per bucket, not cumulative; one more than bounds
  double sum = 0;
};

struct Sample {
  Labels labels;
  double value = 0;     // for counters and gauges
  Histogram histogram;  // for histograms
};

struct Family {
  std::string name, help;
  Type type = Type::kGauge;
  std::vector<Sample> samples;
};

using Collector =
    std::function<std::vector<Family>()>;  // called on the server's threads; must not block

// A counter or gauge that is updated where the event happens. Thread-safe.
class Counter {
 public:
  virtual ~Counter() = default;
  virtual void add(double amount = 1) = 0;
};
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void observe(double value) = 0;
};

// Owns the metrics of the process and the /metrics endpoint. Returned references live as long as
// the Endpoint.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual int port() const = 0;
  virtual Counter& counter(const std::string& name, const std::string& help,
                           const Labels& labels) = 0;
  virtual Observer& histogram(const std::string& name, const std::string& help,
                              const Labels& labels, const std::vector<double>& bounds) = 0;
  // Must stay callable until the Endpoint is destroyed.
  virtual void collect(Collector collector) = 0;
};

// Serves GET and HEAD of /metrics, which always contains process_* of this process. address "" =
// all addresses, port 0 = any free port. The error is kUnavailable, e.g. "metrics port 9400:
// address already in use".
Result<std::unique_ptr<Endpoint>> make_endpoint(int port, const std::string& address = "");

}  // namespace weir::telemetry
