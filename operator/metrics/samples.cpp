// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/samples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

#include "operator/metrics/promql.h"
#include "worker/base/median.h"

namespace weir::metrics {

using estimator::Direction;
using estimator::LinkKey;
using estimator::LinkSample;
using estimator::ReplicaCounter;
using estimator::ReplicaScrape;
using estimator::Scrape;
using std::chrono::seconds;

namespace {

constexpr double kLeastPackedPart = 0.125;  // a byte a double; less would be no gradients

// Reads label link of a sync link: "s1:r0-r2" of replica 2 is the link of stage 1 from replica 0.
std::optional<LinkKey> sync_link_of(int replica, const std::string& link) {
  const std::string to = "-r" + std::to_string(replica);
  const auto from = link.find(":r");
  if (!link.starts_with('s') || from == link.npos || !link.ends_with(to)) return std::nullopt;
  const auto sender_at = from + 2;
  if (link.size() < sender_at + to.size()) return std::nullopt;
  const auto stage = number(link.substr(1, from - 1));
  const auto sender = number(link.substr(sender_at, link.size() - to.size() - sender_at));
  if (!stage || !sender || *sender == replica) return std::nullopt;
  return LinkKey{replica, *stage, Direction::kSync, *sender};
}

bool between_replicas(const LinkKey& link) {
  return link.direction == Direction::kSync;
}

// The names of workers that were seen lately, sorted, then those of the others. So a worker that
// ended counts only if no other one has counters of its replica.
std::vector<std::string> by_trust(const LastSeen& last_seen) {
  constexpr seconds kOfLate{15};  // several scrapes
  SystemTime newest{};
  for (const auto& [worker, time] : last_seen) newest = std::max(newest, time);
  std::vector<std::string> workers;
  for (const auto& [worker, time] : last_seen) workers.push_back(worker);
  std::stable_partition(workers.begin(), workers.end(), [&](const std::string& worker) {
    return newest - last_seen.at(worker) <= kOfLate;
  });
  return workers;
}

}  // namespace

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<LinkKey> link_of(const Series& series) {
  const auto replica = number(series.label("replica"));
  const std::string& link = series.label("link");
  if (replica && series.label("dir") == "sync") return sync_link_of(*replica, link);
  const auto dash = link.find('-');
  if (!replica || dash == link.npos) return std::nullopt;
  const auto from = number(link.substr(0, dash));
  const auto to = number(link.substr(dash + 1));
  const std::string& direction = series.label("dir");
  if (!from || !to || *to != *from + 1 || (direction != "fwd" && direction != "bwd")) {
    return std::nullopt;
  }
  return LinkKey{*replica, *from, direction == "fwd" ? Direction::kForward : Direction::kBackward};
}

std::string key_of(const Series& series) {
  return series.label("pipeline_namespace") + "/" + series.label("pipeline_job");
}

Believed believed(const Matrix& matrix, const std::string& key, const std::set<std::string>& pods,
                  const std::string& namespace_label) {
  const std::string ns = key.substr(0, key.find('/'));
  Believed out;
  for (const auto& series : matrix.series) {
    if (key_of(series) != key) continue;
    if (!namespace_label.empty() && series.label(namespace_label) != ns) {
      ++out.other_namespace;
    } else if (!pods.contains(series.label("worker"))) {
      ++out.other_worker;
    } else {
      out.series.push_back(&series);
    }
  }
  return out;
}

LastSeen last_seen_of(const Believed& job) {
  LastSeen out;
  for (const Series* series : job.series) {
    if (series->label("series") != kStep || series->points.empty()) continue;
    const double unix_seconds = series->points.back().second;
    if (!(std::abs(unix_seconds) < 9e9)) continue;  // as in matrix.cpp
    out[series->label("worker")] =
        SystemTime(std::chrono::milliseconds(std::llround(unix_seconds * 1000)));
  }
  return out;
}

std::optional<std::int64_t> step_of(const Believed& job, const LastSeen& last_seen,
                                    SystemTime oldest) {
  std::optional<std::int64_t> out;
  for (const Series* series : job.series) {
    if (series->label("series") != kSteps || series->points.empty()) continue;
    const auto seen = last_seen.find(series->label("worker"));
    const double value = series->points.back().second;
    if (seen == last_seen.end() || seen->second < oldest || !(value >= 0 && value < 1e15)) continue;
    out = std::max(out.value_or(0), static_cast<std::int64_t>(value));
  }
  return out;
}

std::vector<Scrape> scrapes_of(const Believed& job, const LastSeen& last_seen, bool sync) {
  std::map<LinkKey, std::map<SystemTime, double>> rtt;
  std::vector<std::pair<LinkKey, const Series*>> goodput;
  for (const Series* series : job.series) {
    const auto link = link_of(*series);
    if (!link || between_replicas(*link) != sync || series->points.empty()) continue;
    if (series->label("series") == kGoodput) goodput.emplace_back(*link, series);
    if (series->label("series") != kRtt) continue;
    for (const auto& [time, value] : series->points) {
      if (value > 0) rtt[*link][time] = value;
    }
  }
  const auto rank = [&last_seen](const Series* series) {
    const auto seen = last_seen.find(series->label("worker"));
    return std::make_tuple(seen == last_seen.end() ? SystemTime{} : seen->second,
                           series->points.front().first);
  };
  std::ranges::stable_sort(
      goodput, [&rank](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); });

  std::map<SystemTime, std::map<LinkKey, LinkSample>> grid;
  for (const auto& [link, series] : goodput) {
    for (const auto& [time, value] : series->points) {
      if (value <= 0) continue;
      const auto& trips = rtt[link];
      const auto trip = trips.find(time);
      grid[time][link] = {link, series->label("from_node"), series->label("to_node"), value,
                          trip == trips.end() ? 0 : trip->second};
    }
  }
  std::vector<Scrape> out;
  for (const auto& [time, links] : grid) {
    Scrape scrape{.time = time, .links = {}};
    for (const auto& [link, sample] : links) scrape.links.push_back(sample);
    out.push_back(std::move(scrape));
  }
  return out;
}

std::vector<ReplicaScrape> replica_scrapes_of(const Believed& job, const LastSeen& last_seen) {
  struct Counted {
    std::map<SystemTime, double> steps;
    std::map<int, std::map<SystemTime, double>> seconds, rates;  // by replica
  };
  std::map<std::string, Counted> workers;
  for (const Series* series : job.series) {
    const std::string& part = series->label("series");
    const auto replica = number(series->label("replica"));
    Counted& worker = workers[series->label("worker")];
    for (const auto& [time, value] : series->points) {
      if (!std::isfinite(value) || value < 0) continue;
      if (part == kOwnSteps) worker.steps[time] = value;
      if (part == kReplicaSeconds && replica) worker.seconds[*replica][time] = value;
      if (part == kSyncRate && replica) worker.rates[*replica][time] = value;
    }
  }
  std::map<SystemTime, ReplicaScrape> grid;
  for (const std::string& name : by_trust(last_seen)) {
    Counted& worker = workers[name];
    for (const auto& [replica, points] : worker.seconds) {
      for (const auto& [time, spent] : points) {
        const auto steps = worker.steps.find(time);
        if (steps == worker.steps.end()) continue;
        ReplicaScrape& scrape = grid[time];
        scrape.time = time;
        const auto rate = worker.rates[replica].find(time);
        scrape.replicas.try_emplace(
            replica, ReplicaCounter{static_cast<std::int64_t>(steps->second), spent,
                                    rate == worker.rates[replica].end() ? 0 : rate->second});
      }
    }
  }
  std::vector<ReplicaScrape> out;
  for (auto& [time, scrape] : grid) out.push_back(std::move(scrape));
  return out;
}

std::optional<double> packed_part_of(const Believed& job) {
  std::vector<double> parts;
  for (const Series* series : job.series) {
    if (series->label("series") != kPackedSums || series->points.empty()) continue;
    const double part = series->points.back().second;
    if (part > 0) parts.push_back(part);
  }
  if (parts.empty()) return std::nullopt;
  return std::clamp(median(std::move(parts)), kLeastPackedPart, 1.0);
}

}  // namespace weir::metrics
