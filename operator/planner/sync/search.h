// SPDX-License-Identifier: Apache-2.0
// The suffix dynamic program of the synchronous engine: from all nodes down to none, each state an
// ideal still to plan and the devices used behind it, each label a Pareto point of the rule's
// values. Inside the room only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "operator/planner/sync/bounds.h"
#include "operator/planner/sync/model.h"
#include "operator/planner/sync/space.h"

namespace weir::planner {

struct Values {  // what they mean is the rule's; smaller is better in each
  double a = 0, b = 0, c = 0;
};

struct StagePrice {
  double forward = 0, backward = 0, update = 0;
  double arrives = 0;  // how long each input holds the link in front of the stage
  double busy() const { return forward + backward; }
};

// Limits of one search that do not depend on the rule.
struct SearchShape {
  std::vector<int> caps;  // by stages behind
  int k = 1;              // of the buffers
  int least_stages = 1, most_stages = 1;
  int stages = 0;  // > 0: exactly so many, and ranges of classes hold
  std::int64_t most_pairs = 0;
  std::int64_t most_steps = std::numeric_limits<std::int64_t>::max();
  std::size_t most_plans = 4;  // kept, best first
  const std::function<bool()>* stop = nullptr;
};

struct FoundPlan {
  double value = 0;
  std::vector<std::size_t> ideals;  // S+1, of the model's family
  std::vector<int> options;         // S
};

// Rule: bool join(old, stage, const SyncSend* (null: nothing behind), Values& out), false when the
// rule forbids it; double final(values, front stage); double least(values, ideal, key): no plan of
// these is better; double longest_stage(values, best): no longer stage can help.
constexpr std::size_t kMostLabels = 4'000'000;        // 224 MB
constexpr std::size_t kMostLists = 100'000'000;       // 400 MB
constexpr std::int64_t kStepsBetweenStops = 200'000;  // labels joined and pairs, about 4 ms

template <class Rule>
class SyncSearch {
 public:
  SyncSearch(const SyncModel& model, const SyncSpace& space, const SearchShape& shape, Rule rule,
             double below)
      : model_(model),
        ideals_(model.ideals()),
        space_(space),
        shape_(shape),
        rule_(rule),
        best_(below),
        types_(static_cast<std::size_t>(model.types())),
        lists_(static_cast<std::size_t>(space.keys) * types_) {
    exact_depth_ = shape.stages > 0 || shape.least_stages > 1;
  }

  // Plans better than `below`, best first. Nothing may be left out unless exhausted() is true.
  std::vector<FoundPlan> run() {
    exhausted_ = ideals_.count() * lists_ > kMostLists;
    if (exhausted_) return {};
    heads_.assign(ideals_.count() * lists_, -1);
    arena_.push_back(Label{});
    active_.assign(1, {arena_.front(), 0, 0});
    expand(ideals_.last());
    for (std::size_t j = ideals_.last() - 1; j > 0 && !exhausted_; --j) {
      gather(j);
      if (!active_.empty()) expand(j);
    }
    std::vector<FoundPlan> plans;
    for (const Final& final : finals_) plans.push_back(trace(final));
    return plans;
  }

  bool exhausted() const { return exhausted_; }
  std::int64_t pairs() const { return pairs_; }
  std::int64_t steps() const { return steps_; }
  double best() const { return best_; }

 private:
  struct Label {
    Values values;
    std::int32_t parent = -1, next = -1;  // of the suffix behind; in the list
    std::int32_t ideal = 0;               // what is left to plan
    std::int16_t option = 0, depth = 0;   // of the front stage; stages in the suffix
    std::int32_t key = 0;
  };
  struct Active {
    Label label;
    std::int32_t index;
    int type;
  };
  struct Final {
    double value;
    std::int32_t parent;
    int option;
  };

  void gather(std::size_t j) {
    active_.clear();
    for (std::size_t list = 0; list < lists_; ++list) {
      for (std::int32_t at = heads_[j * lists_ + list]; at >= 0;) {
        const Label& label = arena_[static_cast<std::size_t>(at)];
        if (rule_.least(label.values, j, label.key) < best_) {
          active_.push_back({label, at, static_cast<int>(list % types_)});
        }
        at = label.next;
      }
    }
  }

  void expand(std::size_t j) {
    const double longest = longest_stage();
    const std::vector<SyncOption>& options = model_.options();
    // By option, the most work of column 0 that is not too long for sure.
    double most = 0;
    for (const SyncOption& option : options) {
      most = std::max(most, option.least_ratio > 0 ? longest / option.least_ratio
                                                   : std::numeric_limits<double>::infinity());
    }
    const std::int64_t work = ideals_.work(0, j);
    for (std::size_t i = 0; i < j; ++i) {
      if (static_cast<double>(work - ideals_.work(0, i)) > most) continue;
      if (i > 0 && !ideals_.subset(i, j)) continue;
      ++pairs_;
      if (stopped()) return;
      for (std::size_t o = 0; o < options.size(); ++o) {
        if (model_.busy(options[o], i, j) <= longest) add_stages(i, j, o);
      }
    }
    exhausted_ =
        pairs_ > shape_.most_pairs || steps_ > shape_.most_steps || arena_.size() > kMostLabels;
  }

  // Nothing found so far is lost, but better plans may be.
  bool stopped() {
    if (shape_.stop == nullptr || pairs_ + steps_ < next_stop_) return false;
    next_stop_ = pairs_ + steps_ + kStepsBetweenStops;
    exhausted_ = (*shape_.stop)();
    return exhausted_;
  }

  double longest_stage() const {
    double longest = 0;
    for (const Active& active : active_) {
      longest = std::max(longest, rule_.longest_stage(active.label.values, best_));
    }
    return longest * (1 + 1e-12);
  }

  bool may_run(const SyncOption& option, int depth) const {
    if (shape_.stages == 0) return true;
    const SyncClass& device =
        model_.request().classes[static_cast<std::size_t>(option.device_class)];
    const int stage = shape_.stages - 1 - depth;
    return stage >= device.first_stage && stage <= device.last_stage;
  }

  // Stage outer \ inner in front of every suffix at outer.
  void add_stages(std::size_t i, std::size_t j, std::size_t o) {
    const SyncOption& option = model_.options()[o];
    bool priced = false;
    StagePrice price;
    steps_ += static_cast<std::int64_t>(active_.size());
    int fits_depth = -1, too_deep = std::numeric_limits<int>::max();
    for (const Active& active : active_) {
      const Label& suffix = active.label;
      const int depth = suffix.depth;
      const int key = space_.after(suffix.key, static_cast<int>(o));
      if (key < 0 || depth >= shape_.most_stages || depth >= too_deep) continue;
      if (i == 0 && !complete(key, depth + 1)) continue;
      if (!may_run(option, depth)) continue;
      if (!priced) {
        priced = true;
        price = {model_.forward(option, i, j) + model_.request().overhead,
                 model_.backward(option, i, j), model_.update(option, i, j),
                 i == 0 ? 0 : model_.send(i, option.type, option.type).hold_forward};
      }
      Values values;
      const bool last = j == ideals_.last();
      const SyncSend* over = last ? nullptr : &model_.send(j, option.type, active.type);
      if (!rule_.join(suffix.values, price, over, values)) continue;
      if (rule_.least(values, i, key) >= best_) continue;
      if (depth > fits_depth) {  // caps rise with the depth
        if (!model_.fits(option, i, j, shape_.caps[static_cast<std::size_t>(depth)], shape_.k)) {
          too_deep = depth;
          continue;
        }
        fits_depth = depth;
      }
      if (i == 0) {
        finish(rule_.final(values, price), active.index, static_cast<int>(o));
      } else {
        insert(i, {.values = values,
                   .parent = active.index,
                   .ideal = static_cast<std::int32_t>(i),
                   .option = static_cast<std::int16_t>(o),
                   .depth = static_cast<std::int16_t>(depth + 1),
                   .key = key});
      }
    }
  }

  bool complete(int key, int stages) const {
    if (shape_.stages > 0 && stages != shape_.stages) return false;
    if (stages < shape_.least_stages) return false;
    return !model_.request().use_all_devices || space_.full[static_cast<std::size_t>(key)] != 0;
  }

  bool covers(const Label& a, const Label& b) const {
    if (exact_depth_ ? a.depth != b.depth : a.depth > b.depth) return false;
    return a.values.a <= b.values.a && a.values.b <= b.values.b && a.values.c <= b.values.c;
  }

  void insert(std::size_t i, const Label& fresh) {
    const auto type =
        static_cast<std::size_t>(model_.options()[static_cast<std::size_t>(fresh.option)].type);
    std::int32_t* link = &heads_[i * lists_ + static_cast<std::size_t>(fresh.key) * types_ + type];
    std::int32_t* const head = link;
    while (*link >= 0) {
      Label& other = arena_[static_cast<std::size_t>(*link)];
      if (covers(other, fresh)) return;
      if (covers(fresh, other)) {
        *link = other.next;  // nothing refers to it yet
      } else {
        link = &other.next;
      }
    }
    arena_.push_back(fresh);
    arena_.back().next = *head;
    *head = static_cast<std::int32_t>(arena_.size()) - 1;
  }

  void finish(double value, std::int32_t parent, int option) {
    if (value >= best_) return;
    const auto place = std::ranges::lower_bound(finals_, value, {}, &Final::value);
    finals_.insert(place, {value, parent, option});
    if (finals_.size() > shape_.most_plans) finals_.pop_back();
    if (finals_.size() == shape_.most_plans) best_ = finals_.back().value;
  }

  FoundPlan trace(const Final& final) const {
    FoundPlan plan{.value = final.value, .ideals = {0}, .options = {final.option}};
    for (std::int32_t at = final.parent; at > 0;) {
      const Label& label = arena_[static_cast<std::size_t>(at)];
      plan.ideals.push_back(static_cast<std::size_t>(label.ideal));
      plan.options.push_back(label.option);
      at = label.parent;
    }
    plan.ideals.push_back(ideals_.last());
    return plan;
  }

  const SyncModel& model_;
  const Ideals& ideals_;
  const SyncSpace& space_;
  const SearchShape& shape_;
  Rule rule_;
  double best_;
  std::size_t types_, lists_;
  bool exact_depth_ = false, exhausted_ = false;
  std::int64_t pairs_ = 0, steps_ = 0, next_stop_ = kStepsBetweenStops;
  std::vector<std::int32_t> heads_;  // [ideal][key][type] -> label
  std::vector<Label> arena_;
  std::vector<Active> active_;
  std::vector<Final> finals_;
};

}  // namespace weir::planner
