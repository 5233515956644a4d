// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/bounds.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "worker/base/units.h"

namespace weir::planner {
namespace {

// Nanoseconds of column 0 a second, of stages as large as they may be; infinite if the times do not
// tell.
std::vector<double> rates_of(const SyncModel& model) {
  const std::vector<SyncClass>& classes = model.request().classes;
  std::vector<double> rates;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    double best = 0;  // of one device
    int most = 1;
    for (const SyncOption& option : model.options()) {
      if (option.device_class != static_cast<int>(c)) continue;
      best = std::max(best,
                      option.least_ratio > 0 ? 1 / option.least_ratio / option.ranks : kInfinity);
      most = std::max(most, option.ranks);
    }
    for (int left = classes[c].count; left > 0; left -= most) {
      rates.push_back(best * std::min(left, most));
    }
  }
  return rates;
}

}  // namespace

Buckets buckets_of(const Ideals& ideals, std::size_t most) {
  const std::size_t count = ideals.count(), last = ideals.last();
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto work = [&](std::int32_t i) { return ideals.work(0, static_cast<std::size_t>(i)); };
  std::sort(order.begin() + 1, order.end() - 1, [&](std::int32_t a, std::int32_t b) {
    return work(a) != work(b) ? work(a) < work(b) : a < b;
  });
  Buckets buckets;
  buckets.of.assign(count, 0);
  // Buckets have equal width in work. If there are few values, each has a bucket of its own.
  const double width = static_cast<double>(ideals.work(0, last)) /
                       static_cast<double>(std::max<std::size_t>(most, 1));
  const bool few = count <= most;
  std::int64_t slice = -1;
  buckets.low.push_back(0);
  buckets.high.push_back(0);
  for (std::size_t p = 1; p + 1 < count; ++p) {
    const std::int64_t w = work(order[p]);
    const std::int64_t here =
        few || width <= 0 ? w : static_cast<std::int64_t>(static_cast<double>(w) / width);
    if (p == 1 || here != slice) {
      slice = here;
      buckets.low.push_back(w);
      buckets.high.push_back(w);
    }
    buckets.high.back() = w;
    buckets.of[static_cast<std::size_t>(order[p])] = static_cast<std::int32_t>(buckets.count()) - 1;
  }
  buckets.low.push_back(ideals.work(0, last));
  buckets.high.push_back(ideals.work(0, last));
  buckets.of[last] = static_cast<std::int32_t>(buckets.count()) - 1;
  return buckets;
}

Relaxation::Relaxation(const SyncModel& model, const SyncSpace& space, const Buckets& buckets,
                       double longest, Behind behind)
    : buckets_(&buckets),
      longest_(longest),
      keys_(static_cast<std::size_t>(space.keys)),
      overhead_(model.request().overhead) {
  fastest_ = kInfinity;
  for (const SyncOption& option : model.options()) {
    fastest_ = std::min(fastest_, option.least_ratio);
  }
  find_cheapest(model);
  fill_before(model, space);
  fill_behind(model, space, behind == Behind::kSum ? 1 : model.request().micro_batches);
}

void Relaxation::find_cheapest(const SyncModel& model) {
  cheapest_.assign(buckets_->count(), kInfinity);
  for (std::size_t i = 1; i + 1 < buckets_->of.size(); ++i) {
    // sync0 counts both directions as one part of the pipeline.
    const double part = model.plain() ? model.least_send(i) : model.least_hold(i);
    if (part > longest_) continue;
    double& least = cheapest_[static_cast<std::size_t>(buckets_->of[i])];
    least = std::min(least, model.least_send(i));
  }
  cheapest_.front() = cheapest_.back() = 0;
}

void Relaxation::fill_before(const SyncModel& model, const SyncSpace& space) {
  const std::size_t count = buckets_->count();
  before_.assign(count * keys_, kInfinity);
  std::fill_n(before_.begin(), keys_, 0.0);
  for (std::size_t to = 1; to < count; ++to) {
    double* here = &before_[to * keys_];
    for (std::size_t from = to; from-- > 0;) {
      if (static_cast<double>(buckets_->low[to] - buckets_->high[from]) * fastest_ > longest_)
        break;
      if (cheapest_[from] == kInfinity) continue;
      const double* there = &before_[from * keys_];
      for (std::size_t o = 0; o < model.options().size(); ++o) {
        const double t = seconds(from, to, model.options()[o]);
        if (t > longest_) continue;
        const double cost = t + cheapest_[from];
        for (const auto& [key, next] : space.moves[o]) {
          here[key] = std::min(here[key], there[next] + cost);
        }
      }
    }
  }
}

// times: 1 for sums, M for U.
void Relaxation::fill_behind(const SyncModel& model, const SyncSpace& space, double times) {
  const std::size_t count = buckets_->count();
  behind_.assign(count * keys_, kInfinity);
  // At most the devices of a key are used, so every key starts at 0.
  std::fill_n(behind_.end() - static_cast<std::ptrdiff_t>(keys_), keys_, 0.0);
  for (std::size_t from = count - 1; from-- > 0;) {
    double* here = &behind_[from * keys_];
    for (std::size_t to = from + 1; to < count; ++to) {
      if (static_cast<double>(buckets_->low[to] - buckets_->high[from]) * fastest_ > longest_)
        break;
      if (cheapest_[to] == kInfinity) continue;
      const double* there = &behind_[to * keys_];
      for (std::size_t o = 0; o < model.options().size(); ++o) {
        const double t = seconds(from, to, model.options()[o]);
        if (t > longest_) continue;
        const double cost = t + cheapest_[to], alone = times * t;
        for (const auto& [key, next] : space.moves[o]) {
          here[next] = std::min(here[next], std::max(alone, there[key] + cost));
        }
      }
    }
  }
}

double Relaxation::all() const {
  return before_[(buckets_->count() - 1) * keys_];
}

double Relaxation::least_value() const {
  return *std::min_element(behind_.begin(), behind_.begin() + static_cast<std::ptrdiff_t>(keys_));
}

bool Relaxation::useful(const SyncModel& model, std::size_t ideal, double below) const {
  const double part = model.plain() ? model.least_send(ideal) : model.least_hold(ideal);
  if (part > longest_) return false;
  const double send = model.least_send(ideal);
  for (std::size_t key = 0; key < keys_; ++key) {
    const int used = static_cast<int>(key);
    if (before(ideal, used) + send + behind(ideal, used) < below) return true;
  }
  return false;
}

double least_period(const SyncModel& model) {
  double rate = 0;
  for (const double of_stage : rates_of(model)) rate += of_stage;
  const auto work = static_cast<double>(model.ideals().work(0, model.ideals().last()));
  return work > 0 ? work / rate : 0;
}

double least_step(const SyncModel& model) {
  const SyncRequest& request = model.request();
  std::vector<double> rates = rates_of(model);
  std::ranges::sort(rates, std::greater<>());
  const double micro_batches = request.micro_batches;
  double sum = 0, part = 1;
  for (std::size_t i = 0; i < rates.size() && static_cast<int>(i) < request.most_stages; ++i) {
    if (part <= 0) break;  // M = 1: one micro-batch is on one stage at a time
    sum += rates[i] * part;
    part *= 1 - 1 / micro_batches;
  }
  const auto work = static_cast<double>(model.ideals().work(0, model.ideals().last()));
  return work > 0 ? micro_batches * work / sum : 0;
}

}  // namespace weir::planner
