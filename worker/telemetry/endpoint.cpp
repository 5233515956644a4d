// SPDX-License-Identifier: Apache-2.0
// The only file that knows prometheus-cpp. The library's exposer keeps collectables by weak_ptr, so
// this class owns ours; it throws when the port is taken, and only says "null context" then.
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "worker/base/check.h"
#include "worker/telemetry/metric.h"
#include "worker/telemetry/process.h"

namespace weir::telemetry {
namespace {

constexpr std::size_t kThreads = 3;  // a kept-alive scraper holds one; libraries.md 5

prometheus::ClientMetric::Histogram library_form(const Histogram& histogram) {
  prometheus::ClientMetric::Histogram out;
  WEIR_CHECK(histogram.counts.size() == histogram.bounds.size() + 1, "one more bucket than bounds");
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    cumulative += histogram.counts[i];
    const double bound =
        i < histogram.bounds.size() ? histogram.bounds[i] : std::numeric_limits<double>::infinity();
    out.bucket.push_back({cumulative, bound});
  }
  out.sample_count = cumulative;
  out.sample_sum = histogram.sum;
  return out;
}

prometheus::MetricType library_form(Type type) {
  switch (type) {
    case Type::kCounter:
      return prometheus::MetricType::Counter;
    case Type::kGauge:
      return prometheus::MetricType::Gauge;
    case Type::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::MetricFamily library_form(const Family& family) {
  prometheus::MetricFamily out{family.name, family.help, library_form(family.type), {}};
  for (const auto& sample : family.samples) {
    auto& metric = out.metric.emplace_back();
    for (const auto& [name, value] : sample.labels) metric.label.push_back({name, value});
    switch (family.type) {
      case Type::kCounter:
        metric.counter.value = sample.value;
        break;
      case Type::kGauge:
        metric.gauge.value = sample.value;
        break;
      case Type::kHistogram:
        metric.histogram = library_form(sample.histogram);
        break;
    }
  }
  return out;
}

// Everything on the page: registry, process and collectors. Families of one name are joined, as
// the text format wants each name once.
class Page final : public prometheus::Collectable {
 public:
  explicit Page(const prometheus::Registry& registry) : registry_(registry) {}

  void add(Collector collector) {
    const std::lock_guard lock(collectors_mutex_);
    collectors_.push_back(std::move(collector));
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<Collector> collectors;
    {
      const std::lock_guard lock(collectors_mutex_);
      collectors = collectors_;
    }
    collectors.insert(collectors.begin(), process_families);
    std::vector<prometheus::MetricFamily> out = registry_.Collect();
    std::map<std::string, std::size_t> place;
    for (std::size_t i = 0; i < out.size(); ++i) place[out[i].name] = i;
    for (const auto& collector : collectors) {
      for (const auto& family : collector()) {
        auto form = library_form(family);
        const auto [known, is_new] = place.emplace(form.name, out.size());
        if (is_new) {
          out.push_back(std::move(form));
          continue;
        }
        auto& metrics = out[known->second].metric;
        metrics.insert(metrics.end(), form.metric.begin(), form.metric.end());
      }
    }
    return out;
  }

 private:
  const prometheus::Registry& registry_;
  mutable std::mutex collectors_mutex_;  // guards collectors_
  std::vector<Collector> collectors_;
};

class LibraryCounter final : public Counter {
 public:
  explicit LibraryCounter(prometheus::Counter& counter) : counter_(counter) {}
  void add(double amount) override { counter_.Increment(amount); }

 private:
  prometheus::Counter& counter_;
};

class LibraryHistogram final : public Observer {
 public:
  explicit LibraryHistogram(prometheus::Histogram& histogram) : histogram_(histogram) {}
  void observe(double value) override { histogram_.Observe(value); }

 private:
  prometheus::Histogram& histogram_;
};

class LibraryEndpoint final : public Endpoint {
 public:
  Status start(int port) {
    const std::string number = std::to_string(port);
    // "+": IPv6 and IPv4 on one socket; a kernel without IPv6 takes the plain form.
    for (const std::string& address : {"+" + number, number}) {
      try {
        exposer_ = std::make_unique<prometheus::Exposer>(address, kThreads);
        exposer_->RegisterCollectable(page_);
        const auto ports = exposer_->GetListeningPorts();
        WEIR_CHECK(!ports.empty(), "a started exposer listens");
        port_ = ports.front();
        return Unit{};
      } catch (const std::exception&) {
        exposer_.reset();
      }
    }
    return Error{Code::kUnavailable, "metrics port " + number + ": " + why_not(port)};
  }

  int port() const override { return port_; }

  Counter& counter(const std::string& name, const std::string& help,
                   const Labels& labels) override {
    const std::lock_guard lock(metrics_mutex_);
    auto& family = counter_families_[name];
    if (family == nullptr) {
      family = &prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
    }
    auto& metric = family->Add({labels.begin(), labels.end()});
    auto& slot = counters_[&metric];
    if (!slot) slot = std::make_unique<LibraryCounter>(metric);
    return *slot;
  }

  Observer& histogram(const std::string& name, const std::string& help, const Labels& labels,
                      const std::vector<double>& bounds) override {
    const std::lock_guard lock(metrics_mutex_);
    auto& family = histogram_families_[name];
    if (family == nullptr) {
      family = &prometheus::BuildHistogram().Name(name).Help(help).Register(registry_);
    }
    auto& metric = family->Add({labels.begin(), labels.end()}, bounds);
    auto& slot = histograms_[&metric];
    if (!slot) slot = std::make_unique<LibraryHistogram>(metric);
    return *slot;
  }

  void collect(Collector collector) override { page_->add(std::move(collector)); }

 private:
  // The library does not say why it could not listen: ask the kernel again.
  static std::string why_not(int port) {
    const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool bound =
        probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const int error = errno;
    if (probe >= 0) close(probe);
    if (bound) return "the server did not start";
    return error == EADDRINUSE ? "address already in use" : std::strerror(error);
  }

  prometheus::Registry registry_;
  std::mutex metrics_mutex_;  // guards the four maps
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counter_families_;
  std::map<std::string, prometheus::Family<prometheus::Histogram>*> histogram_families_;
  std::map<const void*, std::unique_ptr<LibraryCounter>> counters_;
  std::map<const void*, std::unique_ptr<LibraryHistogram>> histograms_;
  std::shared_ptr<Page> page_ = std::make_shared<Page>(registry_);
  std::unique_ptr<prometheus::Exposer> exposer_;  // last: stops before the page goes
  int port_ = 0;
};

}  // namespace

Result<std::unique_ptr<Endpoint>> make_endpoint(int port) {
  auto endpoint = std::make_unique<LibraryEndpoint>();
  WEIR_TRY(const Unit started, endpoint->start(port));
  static_cast<void>(started);
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace weir::telemetry
