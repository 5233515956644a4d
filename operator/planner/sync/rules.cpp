// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/rules.h"

#include <cmath>

namespace weir::planner {
namespace {

constexpr int kMostCells = 12;

}  // namespace

PeriodGrid::PeriodGrid(const SyncModel& model, const SyncSpace& space, const Buckets& buckets,
                       double below)
    : more_(model.request().micro_batches - 1),
      keys_(static_cast<std::size_t>(space.keys)),
      buckets_(&buckets) {
  const double high = below / model.request().micro_batches;
  const double low = std::min(least_period(model) * (1 - 1e-12), high);
  const double ratio = low > 0 ? std::pow(high / low, 1.0 / kMostCells) : 0;
  low_.push_back(low);
  if (low > 0 && ratio > 1 + 1e-9) {
    for (int cell = 1; cell < kMostCells; ++cell) low_.push_back(low_.back() * ratio);
  }
  cells_.reserve(low_.size());
  for (std::size_t cell = 0; cell < low_.size(); ++cell) {
    const double end = cell + 1 < low_.size() ? low_[cell + 1] : high;
    cells_.emplace_back(model, space, buckets, end * (1 + 1e-9), Relaxation::Behind::kSum);
  }
  later_.resize(low_.size());
  for (std::size_t cell = low_.size(); cell-- > 0;) {
    const std::vector<double>& table = cells_[cell].table();
    later_[cell].resize(table.size());
    for (std::size_t at = 0; at < table.size(); ++at) {
      double least = table[at] + more_ * low_[cell];
      if (cell + 1 < low_.size()) least = std::min(least, later_[cell + 1][at]);
      later_[cell][at] = least;
    }
  }
}

double PeriodGrid::rest(std::size_t ideal, int key, double slowest) const {
  const auto above = std::ranges::upper_bound(low_, slowest);
  const std::size_t at =
      static_cast<std::size_t>(buckets_->of[ideal]) * keys_ + static_cast<std::size_t>(key);
  if (above == low_.begin()) return later_.front()[at];
  const auto cell = static_cast<std::size_t>(above - low_.begin()) - 1;
  const double here = cells_[cell].table()[at] + more_ * slowest;
  return cell + 1 < low_.size() ? std::min(here, later_[cell + 1][at]) : here;
}

double PeriodGrid::all() const {
  return later_.front()[(buckets_->count() - 1) * keys_];
}

bool PeriodGrid::useful(const SyncModel& model, std::size_t ideal, double below) const {
  const double send = model.least_send(ideal);
  for (std::size_t cell = 0; cell < low_.size(); ++cell) {
    const double end = cells_[cell].longest();
    if (send > end) continue;
    const double rest = send + more_ * std::max(low_[cell], send);
    if (rest >= below) return false;
    for (std::size_t key = 0; key < keys_; ++key) {
      const int used = static_cast<int>(key);
      if (cells_[cell].before(ideal, used) + cells_[cell].behind(ideal, used) + rest < below) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace weir::planner
