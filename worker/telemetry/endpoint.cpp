// SPDX-License-Identifier: Apache-2.0
// The only file that knows prometheus-cpp: its registry and its text format. Our own server serves
// the page, because the library's exposer gives each connection one of few threads, so that silent
// connections would block scrapes and readiness probes.
#include <limits>
#include <map>
#include <mutex>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "worker/base/check.h"
#include "worker/http/gzip.h"
#include "worker/http/server.h"
#include "worker/telemetry/metric.h"
#include "worker/telemetry/process.h"

namespace weir::telemetry {
namespace {

// Format 0.0.4, which every scraper accepts; the library writes no other.
constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::size_t kMaxConnections = 64;  // scrapers and probes hold a few
constexpr std::size_t kMaxOfOneAddress = 16;
constexpr std::size_t kWorthPacking = 1024;

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

// The whole page: registry, process and collectors. Families with the same name are merged, because
// the text format allows each name once.
class Page {
 public:
  explicit Page(const prometheus::Registry& registry) : registry_(registry) {}

  void add(Collector collector) {
    const std::lock_guard lock(collectors_mutex_);
    collectors_.push_back(std::move(collector));
  }

  std::vector<prometheus::MetricFamily> families() const {
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

http::Response answer(const Page& page, const http::Request& request) {
  if (http::path_of(request.path) != "/metrics") return {404, {}, "only /metrics is here\n"};
  if (request.method != http::Method::kGet) {
    return {405, {{"Allow", "GET, HEAD"}}, "/metrics is only read\n"};
  }
  http::Response response{200,
                          {{"Content-Type", kTextFormat}, {"Vary", "Accept-Encoding"}},
                          prometheus::TextSerializer().Serialize(page.families())};
  if (response.body.size() >= kWorthPacking &&
      http::accepts_gzip(http::header_value(request.headers, "Accept-Encoding"))) {
    response.body = http::gzip(response.body);
    response.headers.emplace_back("Content-Encoding", "gzip");
  }
  return response;
}

class LibraryEndpoint final : public Endpoint {
 public:
  Status start(const std::string& address, int port) {
    auto made = http::make_server(
        {.address = address,
         .port = port,
         .tls = {},
         .max_connections = kMaxConnections,
         .max_strangers_of_one_address = kMaxOfOneAddress,
         .name = "metrics"},
        [page = page_](const http::IncomingRequest& incoming, const http::Responder& respond) {
          respond(answer(*page, incoming.request));
        });
    if (!made) return Error{made.error().code, "metrics " + made.error().message};
    server_ = *std::move(made);
    return Unit{};
  }

  int port() const override { return server_->port(); }

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
  prometheus::Registry registry_;
  std::mutex metrics_mutex_;  // guards the four maps
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counter_families_;
  std::map<std::string, prometheus::Family<prometheus::Histogram>*> histogram_families_;
  std::map<const void*, std::unique_ptr<LibraryCounter>> counters_;
  std::map<const void*, std::unique_ptr<LibraryHistogram>> histograms_;
  std::shared_ptr<Page> page_ = std::make_shared<Page>(registry_);
  std::unique_ptr<http::Server> server_;  // last member: stops before the page is destroyed
};

}  // namespace

Result<std::unique_ptr<Endpoint>> make_endpoint(int port, const std::string& address) {
  auto endpoint = std::make_unique<LibraryEndpoint>();
  WEIR_OK(endpoint->start(address, port));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace weir::telemetry
