// SPDX-License-Identifier: Apache-2.0
// Never at the mean rate: the step time is convex in 1/rate (scheduling.md 5.2).
#include "operator/tuner/cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "worker/base/units.h"

namespace weir::tuner {
namespace {

constexpr std::size_t kUsedScrapes = 16;  // scheduling.md 5.1
constexpr std::size_t kLeastScrapes = 4;  // one rate window (api.md: windowSeconds >= 4 scrapes)
constexpr double kBinWidth = 1.2;         // scheduling.md 5.2
constexpr double kNever = 1e18;

// Rate of the link in the newest `count` scrapes; gaps take the newest rate known by then.
std::vector<double> filled_rates(const std::vector<double>& all, std::size_t count) {
  std::vector<double> rates;
  double known = 0;
  for (const double rate : all) {
    if (known == 0 && rate > 0) known = rate;  // the first one stands for gaps before it
  }
  if (known == 0) return rates;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] > 0) known = all[i];
    if (i + count >= all.size()) rates.push_back(known);
  }
  return rates;
}

int bin_of(double seconds) {
  constexpr int kNothing = -1'000'000;
  if (!(seconds > 0)) return kNothing;
  return static_cast<int>(std::lround(std::log(seconds) / std::log(kBinWidth)));
}

}  // namespace

std::string link_name(const estimator::LinkKey& link) {
  const std::string replica =
      link.replica == 0 ? "" : " of replica " + std::to_string(link.replica);
  return std::to_string(link.boundary) + "-" + std::to_string(link.boundary + 1) +
         (link.direction == estimator::Direction::kForward ? " forward" : " backward") + replica;
}

LinkView view_links(const Input& input) {
  LinkView view;
  const estimator::RateVectors& rates = input.rates;
  const std::size_t scrapes = std::min(kUsedScrapes, rates.times.size());
  if (rates.times.size() < kLeastScrapes) {
    view.unknown = "only " + std::to_string(rates.times.size()) + " of " +
                   std::to_string(kLeastScrapes) + " scrapes with link rates";
    return view;
  }
  std::set<int> replicas{0};
  for (const auto& [link, values] : rates.rates) replicas.insert(link.replica);
  view.replicas = static_cast<int>(replicas.size());
  view.vectors.assign(scrapes, {});
  for (const int replica : replicas) {
    for (std::size_t b = 0; b < input.boundary_bytes.size(); ++b) {
      for (const auto direction :
           {estimator::Direction::kForward, estimator::Direction::kBackward}) {
        const estimator::LinkKey link{replica, static_cast<int>(b), direction};
        const auto found = rates.rates.find(link);
        const std::vector<double> known = found == rates.rates.end()
                                              ? std::vector<double>{}
                                              : filled_rates(found->second, scrapes);
        if (known.size() != scrapes) {
          view.unknown = "no rate known of link " + link_name(link);
          return view;
        }
        const auto bytes = static_cast<double>(input.boundary_bytes[b]);
        double sum = 0;
        for (std::size_t v = 0; v < scrapes; ++v) {
          sum += known[v];
          view.vectors[v].push_back(bytes / known[v]);
        }
        const auto rtt = rates.rtt_seconds.find(link);
        view.links.push_back(link);
        view.bytes.push_back(bytes);
        view.mean_rate.push_back(sum / static_cast<double>(scrapes));
        view.latency.push_back(rtt == rates.rtt_seconds.end() ? 0 : rtt->second / 2);
      }
    }
  }
  return view;
}

std::vector<Bin> bins_of(const LinkView& view) {
  std::map<std::vector<int>, Bin> bins;
  for (const std::vector<double>& vector : view.vectors) {
    std::vector<int> key;
    key.reserve(vector.size());
    for (const double seconds : vector) key.push_back(bin_of(seconds));
    Bin& bin = bins[key];
    bin.seconds.resize(vector.size(), 0);
    bin.weight += 1;
    for (std::size_t i = 0; i < vector.size(); ++i) bin.seconds[i] += vector[i];
  }
  std::vector<Bin> result;
  for (auto& [key, bin] : bins) {
    for (double& seconds : bin.seconds) seconds /= bin.weight;
    bin.weight /= static_cast<double>(view.vectors.size());
    result.push_back(std::move(bin));
  }
  return result;
}

double mean_step(const schedule::Schedule& schedule, const Input& input, const LinkView& view,
                 const std::vector<Bin>& bins) {
  const std::size_t boundaries = input.boundary_bytes.size();
  schedule::PipelineModel model;
  model.stages = input.stages;
  model.forward.resize(boundaries);
  model.backward.resize(boundaries);
  double mean = 0;
  for (const Bin& bin : bins) {
    double slowest = 0;
    for (int replica = 0; replica < view.replicas; ++replica) {
      const std::size_t first = static_cast<std::size_t>(replica) * boundaries * 2;
      for (std::size_t b = 0; b < boundaries; ++b) {
        const std::size_t forward = first + 2 * b, backward = forward + 1;
        model.forward[b] = {from_seconds(bin.seconds[forward]),
                            from_seconds(view.latency[forward])};
        model.backward[b] = {from_seconds(bin.seconds[backward]),
                             from_seconds(view.latency[backward])};
      }
      const auto timeline = schedule::simulate(schedule, input.micro_batches, model);
      slowest = std::max(slowest, timeline ? to_seconds(timeline->step) : kNever);
    }
    mean += bin.weight * slowest;
  }
  return mean;
}

std::vector<std::chrono::nanoseconds> transfer_quantile(const LinkView& view, int boundaries,
                                                        double q) {
  std::vector<double> result(static_cast<std::size_t>(boundaries), 0);
  for (std::size_t i = 0; i + 1 < view.links.size(); i += 2) {  // forward, backward
    double both = 0;
    for (const std::size_t link : {i, i + 1}) {
      std::vector<double> seconds;
      seconds.reserve(view.vectors.size());
      for (const std::vector<double>& vector : view.vectors) seconds.push_back(vector[link]);
      std::sort(seconds.begin(), seconds.end());
      const auto index = static_cast<std::size_t>(q * static_cast<double>(seconds.size() - 1));
      both += seconds[index] + view.latency[link];
    }
    double& boundary = result[static_cast<std::size_t>(view.links[i].boundary)];
    boundary = std::max(boundary, both / 2);
  }
  std::vector<std::chrono::nanoseconds> times;
  times.reserve(result.size());
  for (const double seconds : result) times.push_back(from_seconds(seconds));
  return times;
}

}  // namespace weir::tuner
