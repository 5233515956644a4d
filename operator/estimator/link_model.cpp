// SPDX-License-Identifier: Apache-2.0
#include "operator/estimator/link_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "worker/base/median.h"

namespace weir::estimator {
namespace {

// Scrapes for LinkEstimate::now. A median of three follows a change fast and drops an outlier.
constexpr std::size_t kNowScrapes = 3;

// Harmonic mean: the rate of equally many bytes sent at each of these rates in turn.
double mean_rate(const std::vector<double>& rates) {
  double seconds = 0;
  for (const double rate : rates) seconds += 1 / rate;
  return seconds > 0 ? static_cast<double>(rates.size()) / seconds : 0;
}

const LinkSample* sample_of(const Scrape& scrape, const LinkKey& link) {
  for (const LinkSample& sample : scrape.links) {
    if (sample.link == link) return &sample;
  }
  return nullptr;
}

// The rates of a link in the newest `scrapes` scrapes, as far as they have one.
std::vector<double> newest_rates(const LinkModelState& state, const LinkKey& link,
                                 std::size_t scrapes) {
  std::vector<double> rates;
  const std::size_t first = state.scrapes.size() - std::min(scrapes, state.scrapes.size());
  for (std::size_t i = first; i < state.scrapes.size(); ++i) {
    if (const LinkSample* sample = sample_of(state.scrapes[i], link)) {
      rates.push_back(sample->bytes_per_second);
    }
  }
  return rates;
}

// The newest sample of every link seen in the kept scrapes.
std::map<LinkKey, const LinkSample*> newest_samples(const LinkModelState& state) {
  std::map<LinkKey, const LinkSample*> newest;
  for (const Scrape& scrape : state.scrapes) {
    for (const LinkSample& sample : scrape.links) newest[sample.link] = &sample;
  }
  return newest;
}

RateVectors rates_of(const LinkModelState& state) {
  RateVectors vectors;
  for (std::size_t i = 0; i < state.scrapes.size(); ++i) {
    const Scrape& scrape = state.scrapes[i];
    vectors.times.push_back(scrape.time);
    for (const LinkSample& sample : scrape.links) {
      std::vector<double>& rates = vectors.rates[sample.link];
      rates.resize(state.scrapes.size(), std::numeric_limits<double>::quiet_NaN());
      rates[i] = sample.bytes_per_second;
      if (sample.rtt_seconds > 0) vectors.rtt_seconds[sample.link] = sample.rtt_seconds;
    }
  }
  return vectors;
}

// With another rank map the same key is a link between other nodes: its rates from before are those
// of another link. Until the switch, scrapes of the old one still come.
void forget_other_nodes(std::vector<Scrape>& scrapes, const Scrape& newest) {
  std::map<LinkKey, const LinkSample*> links;
  for (const LinkSample& sample : newest.links) links[sample.link] = &sample;
  for (Scrape& scrape : scrapes) {
    std::erase_if(scrape.links, [&](const LinkSample& old) {
      const auto now = links.find(old.link);
      return now != links.end() &&
             (old.from_node != now->second->from_node || old.to_node != now->second->to_node);
    });
  }
  std::erase_if(scrapes, [](const Scrape& scrape) { return scrape.links.empty(); });
}

bool usable(const LinkSample& sample) {
  return std::isfinite(sample.bytes_per_second) && sample.bytes_per_second > 0;
}

}  // namespace

const char* name(Freshness freshness) {
  switch (freshness) {
    case Freshness::kFresh:
      return "Fresh";
    case Freshness::kNotConfigured:
      return "NotConfigured";
    case Freshness::kNoSeries:
      return "NoSeries";
    case Freshness::kStale:
      return "Stale";
    case Freshness::kQueryFailed:
      return "QueryFailed";
  }
  return "?";
}

void add_scrapes(LinkModelState& state, const std::vector<Scrape>& scrapes) {
  std::vector<const Scrape*> fresh;
  for (const Scrape& scrape : scrapes) {
    if (state.scrapes.empty() || scrape.time > state.scrapes.back().time) fresh.push_back(&scrape);
  }
  std::ranges::stable_sort(fresh,
                           [](const Scrape* a, const Scrape* b) { return a->time < b->time; });
  for (const Scrape* scrape : fresh) {
    if (!state.scrapes.empty() && scrape->time == state.scrapes.back().time) continue;
    Scrape kept{.time = scrape->time, .links = {}};
    std::ranges::copy_if(scrape->links, std::back_inserter(kept.links), usable);
    // A scrape without traffic says nothing about any link, so it is dropped.
    if (kept.links.empty()) continue;
    forget_other_nodes(state.scrapes, kept);
    state.scrapes.push_back(std::move(kept));
  }
  if (state.scrapes.size() > kKeptScrapes) {
    const auto surplus = static_cast<std::ptrdiff_t>(state.scrapes.size() - kKeptScrapes);
    state.scrapes.erase(state.scrapes.begin(), state.scrapes.begin() + surplus);
  }
}

Estimates estimates_of(const LinkModelState& state, Freshness source, SystemTime now,
                       std::chrono::seconds stale_after) {
  Estimates estimates;
  estimates.freshness = source;
  if (!state.scrapes.empty()) {
    const SystemTime newest = state.scrapes.back().time;
    estimates.last_sample = newest;
    if (source == Freshness::kFresh && now - newest > stale_after) {
      const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - newest);
      estimates.freshness = Freshness::kStale;
      estimates.detail = "the newest sample is " + std::to_string(age.count()) +
                         " s old, the limit " + std::to_string(stale_after.count()) + " s";
    }
  } else if (source == Freshness::kFresh) {
    estimates.freshness = Freshness::kNoSeries;
    estimates.detail = "no link has had traffic yet";
  }
  estimates.rates = rates_of(state);
  for (const auto& [link, sample] : newest_samples(state)) {
    LinkEstimate estimate{.link = link, .from_node = sample->from_node, .to_node = sample->to_node};
    std::vector<double> rates = newest_rates(state, link, kNowScrapes);
    estimate.now = rates.empty() ? sample->bytes_per_second : median(std::move(rates));
    estimate.mean = mean_rate(newest_rates(state, link, kUsedScrapes));
    if (const auto it = state.baseline.find(link); it != state.baseline.end()) {
      estimate.baseline = it->second;
    }
    estimates.links.push_back(std::move(estimate));
  }
  estimates.stage_seconds = state.stage_seconds;
  return estimates;
}

void add_sync_links(Estimates& estimates, const LinkModelState& sync, Freshness source,
                    SystemTime now, std::chrono::seconds stale_after) {
  Estimates other = estimates_of(sync, source, now, stale_after);
  estimates.sync_links = std::move(other.links);
  if (other.rates.times.empty()) return;
  RateVectors& rates = estimates.rates;
  std::vector<SystemTime> all;
  std::ranges::set_union(rates.times, other.rates.times, std::back_inserter(all));
  if (all.size() > kKeptScrapes) {
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(kKeptScrapes));
  }
  for (auto& [link, known] : rates.rates) {
    std::vector<double> vector(all.size(), std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; i < known.size(); ++i) {
      const auto at = std::ranges::lower_bound(all, rates.times[i]);
      if (at != all.end() && *at == rates.times[i]) {
        vector[static_cast<std::size_t>(at - all.begin())] = known[i];
      }
    }
    known = std::move(vector);
  }
  rates.times = std::move(all);
  estimates.last_sample = rates.times.back();
  const bool outdated =
      estimates.freshness == Freshness::kStale || estimates.freshness == Freshness::kNoSeries;
  if (!outdated || other.freshness != Freshness::kFresh) return;
  estimates.freshness = Freshness::kFresh;
  estimates.detail.clear();
}

}  // namespace weir::estimator
