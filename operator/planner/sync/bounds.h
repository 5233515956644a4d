// SPDX-License-Identifier: Apache-2.0
// Lower bounds of what is still to plan. The relaxation forgets that stages are differences of
// nested ideals and keeps their weights: ideals become buckets of like work, each with the cheapest
// boundary in it, and a dynamic program over buckets is short. Inside the room only.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/planner/sync/model.h"
#include "operator/planner/sync/space.h"

namespace weir::planner {

// Buckets of ideals by work on column 0. Bucket 0 holds the empty one only, the last all nodes.
struct Buckets {
  std::vector<std::int32_t> of;         // by ideal
  std::vector<std::int64_t> low, high;  // by bucket: least and most work in it
  std::size_t count() const { return low.size(); }
};
Buckets buckets_of(const Ideals& ideals, std::size_t most);

// With every stage and every boundary at most `longest`: the least sum of stages and boundaries of
// the part before, and the least value of the part behind: the sum, too, or U of BoundRule, the
// max over its stages of M t + all before. Over any devices that are left.
class Relaxation {
 public:
  enum class Behind : unsigned char { kSum, kBound };
  Relaxation(const SyncModel& model, const SyncSpace& space, const Buckets& buckets, double longest,
             Behind behind);

  // Bound of the part before an ideal, without its own boundary, if `key` is used behind it.
  double before(std::size_t ideal, int key) const { return before_[at(ideal, key)]; }
  // Bound of the part behind an ideal that uses `key`.
  double behind(std::size_t ideal, int key) const { return behind_[at(ideal, key)]; }
  double all() const;          // of the whole model
  double least_value() const;  // of U over all plans; Behind::kBound
  // Whether a plan with a value below `below` can have a boundary at this ideal.
  bool useful(const SyncModel& model, std::size_t ideal, double below) const;
  double longest() const { return longest_; }
  const std::vector<double>& table() const { return before_; }  // [bucket][key]

 private:
  std::size_t at(std::size_t ideal, int key) const {
    return static_cast<std::size_t>(buckets_->of[ideal]) * keys_ + static_cast<std::size_t>(key);
  }
  void find_cheapest(const SyncModel& model);
  void fill_before(const SyncModel& model, const SyncSpace& space);
  void fill_behind(const SyncModel& model, const SyncSpace& space, double times);
  double seconds(std::size_t from, std::size_t to, const SyncOption& option) const {
    const std::int64_t work = buckets_->low[to] - buckets_->high[from];
    return work <= 0 ? overhead_ : static_cast<double>(work) * option.least_ratio + overhead_;
  }

  const Buckets* buckets_;
  double longest_;
  std::size_t keys_;
  double overhead_ = 0, fastest_ = 0;  // fastest: seconds of a nanosecond, at least
  std::vector<double> cheapest_;       // boundary of each bucket; huge: none is short enough
  std::vector<double> before_, behind_;
};

// No period is shorter: fair share over all devices.
double least_period(const SyncModel& model);
// No V is less, from rates alone: M t_s + the sum of all t before <= V for every stage lets the
// i-th fastest stage run for at most V/M (1 - 1/M)^i, so W <= V/M x sum of rate_i (1 - 1/M)^i.
double least_step(const SyncModel& model);

}  // namespace weir::planner
