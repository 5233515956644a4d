// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/retune/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "worker/base/units.h"
#include "worker/schedule/search_caps.h"
#include "worker/schedule/search_split.h"

namespace weir::retune {
namespace {

constexpr int kGroups[] = {2, 3, 4, 6, 8};
constexpr int kMostSlack = 8;
constexpr std::array<double, 3> kQuantiles = {0.1, costing::kMedian, 0.9};
constexpr double kStress = 2;          // factor on the median transfer times for the reserve
constexpr double kSameTransfer = 1.2;  // quantiles that differ by less count as equal

class Collector {
 public:
  Collector(const Input& input, const State& state, const std::vector<Size>& sizes)
      : input_(input), state_(state), sizes_(sizes), result_{{.schedule = input.current}} {}

  void use(std::size_t size) {
    size_ = size;
    limits_ = limits(sizes_[size]);
  }
  // Largest caps that memory allows, by stage, not increasing; 0 = there is no room at all.
  const std::vector<int>& limits() const { return limits_; }

  void add(std::vector<int> caps) {
    const bool fits = within_memory(caps);
    const int k = schedule::k_of_caps(caps);
    if (!fits || !within_k(caps, k)) return;
    schedule::Schedule schedule = input_.current;
    schedule.split.reset();
    schedule.family = input_.settings.family;
    schedule.dispatch = schedule::dispatch_in_force(caps, input_.settings.dispatch);
    schedule.k = k;
    schedule.micro_batch_size = sizes_[size_].micro_batch_size;
    schedule.caps = std::move(caps);
    const bool known = std::any_of(result_.begin(), result_.end(), [&](const Candidate& other) {
      return other.size == size_ && same_order(other.schedule, schedule);
    });
    if (!known) result_.push_back({.schedule = std::move(schedule), .size = size_});
  }

  std::vector<Candidate> take() { return std::move(result_); }

 private:
  std::vector<int> limits(const Size& size) const {
    std::vector<int> caps(size.stages.size(), size.micro_batches);
    for (std::size_t s = 0; s < caps.size(); ++s) {
      if (size.cap_max.size() == caps.size()) caps[s] = std::min(caps[s], size.cap_max[s]);
      if (state_.guarded_samples.size() == caps.size()) {
        caps[s] = std::min(caps[s], state_.guarded_samples[s] / size.micro_batch_size);
      }
      if (s > 0) caps[s] = std::min(caps[s], caps[s - 1]);
    }
    return caps;
  }

  // Hint can run any caps, so they are lowered to what memory allows. Strict needs the caps of
  // kFkB.
  bool within_memory(std::vector<int>& caps) const {
    for (std::size_t s = 0; s < caps.size(); ++s) {
      if (limits_[s] < 1) return false;
      if (caps[s] <= limits_[s]) continue;
      if (input_.settings.dispatch == schedule::Dispatch::kStrict) return false;
      caps[s] = limits_[s];
    }
    return true;
  }

  bool within_k(const std::vector<int>& caps, int k) const {
    const Settings& settings = input_.settings;
    const int micro_batches = sizes_[size_].micro_batches;
    if (!settings.k_fixed) {
      const int least = std::min(settings.k_min, micro_batches);
      return k >= least && k <= std::max(least, std::min(settings.k_max, micro_batches));
    }
    const int wanted = std::min(input_.current.k, micro_batches);
    const std::vector<int> most =
        schedule::kfkb_caps(static_cast<int>(caps.size()), micro_batches, wanted);
    if (k != wanted) return false;
    for (std::size_t s = 0; s < caps.size(); ++s) {
      if (caps[s] > most[s]) return false;
    }
    return true;
  }

  const Input& input_;
  const State& state_;
  const std::vector<Size>& sizes_;
  std::size_t size_ = 0;
  std::vector<int> limits_;
  std::vector<Candidate> result_;
};

bool alike(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > kSameTransfer * b[i] || b[i] > kSameTransfer * a[i]) return false;
  }
  return true;
}

// Link times at the quantiles, without those that are nearly equal to others.
std::vector<std::vector<double>> link_cases(const costing::LinkView& view) {
  std::vector<std::vector<double>> cases{link_quantile(view, costing::kMedian)};
  for (const double q : kQuantiles) {
    std::vector<double> seconds = link_quantile(view, q);
    const bool known = std::any_of(cases.begin(), cases.end(),
                                   [&](const auto& other) { return alike(seconds, other); });
    if (!known) cases.push_back(std::move(seconds));
  }
  return cases;
}

// The model of the replica with the slowest link of each boundary, on the slowest stages.
schedule::PipelineModel slowest_model(const Size& size, const costing::LinkView& view,
                                      const std::vector<double>& seconds) {
  schedule::PipelineModel model;
  model.stages = size.stages;
  for (const std::chrono::nanoseconds time : boundary_times(view, size, seconds)) {
    model.forward.push_back({.transfer = time, .latency = {}, .trace = {}});
  }
  model.backward = model.forward;
  return model;
}

void add_generated(Collector& collector, const Size& size, const costing::LinkView& view,
                   const std::vector<double>& seconds, bool search) {
  const schedule::PipelineModel model = slowest_model(size, view, seconds);
  collector.add(schedule::lean_caps(model, size.micro_batches));
  if (!search || collector.limits().back() < 1) return;
  collector.add(schedule::opt_caps(model, size.micro_batches, collector.limits()));
}

// Closed form of a step: the time of the first micro-batch, then the pace of the slowest part or
// loop. A loop is the way from a stage to the last one and back, on which the stage has at most its
// cap of micro-batches. Links count for both directions.
double estimated_step(const schedule::Schedule& schedule, const Size& size,
                      const std::vector<std::chrono::nanoseconds>& links) {
  double way = 0, pace = 0;
  for (std::size_t s = size.stages.size(); s-- > 0;) {
    const double busy = to_seconds(size.stages[s].forward + size.stages[s].backward);
    const double link = s < links.size() ? to_seconds(links[s]) : 0;
    way += busy + 2 * link;
    pace = std::max({pace, busy, link, way / schedule.caps[s]});
  }
  return way + (size.micro_batches - 1) * pace;
}

// Link times for the reserve, which decides between plans that are equal now. Counters average over
// seconds, so shorter bursts do not show, and a plan needs slack for them. The times are twice the
// median, but a link must not become the bottleneck by that.
std::vector<double> stressed(const costing::LinkView& view, const Size& size) {
  std::chrono::nanoseconds slowest{0};
  for (const schedule::StageTime& stage : size.stages) {
    slowest = std::max(slowest, stage.forward + stage.backward);
  }
  std::vector<double> seconds = link_quantile(view, costing::kMedian);
  for (double& time : seconds) {
    time = std::max(time, std::min(kStress * time, costing::kBoundShare * to_seconds(slowest)));
  }
  return seconds;
}

// Stages may hold so much with split backwards and the caps of this plan.
std::vector<schedule::HeldLimit> held_limits(const schedule::Schedule& plan, const Size& size,
                                             const State& state) {
  std::vector<schedule::HeldLimit> limits(plan.caps.size(), {.most = size.micro_batches});
  for (std::size_t s = 0; s < limits.size(); ++s) {
    schedule::HeldLimit& limit = limits[s];
    if (state.guarded_samples.size() == limits.size()) {
      limit.most = std::min(limit.most, state.guarded_samples[s] / size.micro_batch_size);
    }
    if (size.rooms.size() != limits.size()) continue;
    const costing::Room& room = size.rooms[s];
    limit.most = std::min(limit.most, room.most);
    limit.known = room.limit_bytes > 0;
    if (!limit.known) continue;
    limit.most =
        schedule::most_held(room.memory, plan, static_cast<int>(s), room.limit_bytes, limit.most);
  }
  return limits;
}

// Seconds of every plan at the quantiles and with slower links, as far as they are not known.
void measure(std::vector<Candidate>& candidates, const costing::LinkView& view,
             const std::vector<Size>& sizes, const State& state, costing::Coster& coster) {
  std::vector<std::vector<double>> links;
  const bool all = effort_of(view, sizes.front()).all;
  for (const double q : kQuantiles)
    links.push_back(link_quantile(view, all ? q : costing::kMedian));
  links.push_back(stressed(view, sizes.front()));
  const int current_size = sizes.front().micro_batch_size;
  for (Candidate& candidate : candidates) {
    if (candidate.measured) continue;
    const schedule::Schedule& schedule = candidate.schedule;
    const double correction =
        costing::correction_of(state.cost, schedule.micro_batch_size, current_size);
    double last = 0;
    for (std::size_t q = 0; q < links.size(); ++q) {
      // Equal link times need no second simulation.
      if (q == 0 || links[q] != links[q - 1]) {
        last = correction * coster.step(schedule, sizes[candidate.size], links[q]);
      }
      (q < kQuantiles.size() ? candidate.seconds[q] : candidate.reserve) = last;
    }
    candidate.measured = true;
  }
}

}  // namespace

int in_flight(const schedule::Schedule& schedule) {
  const std::vector<int>& most = schedule.split ? schedule.split->held : schedule.caps;
  return schedule.micro_batch_size * std::accumulate(most.begin(), most.end(), 0);
}

bool same_order(const schedule::Schedule& a, const schedule::Schedule& b) {
  return a.caps == b.caps && a.dispatch == b.dispatch && a.micro_batch_size == b.micro_batch_size &&
         a.split == b.split;
}

std::vector<Candidate> candidates(const Input& input, const State& state,
                                  const costing::LinkView& view, const std::vector<Size>& sizes) {
  const int stages = static_cast<int>(input.stages.size());
  const bool all = effort_of(view, sizes.front()).all;
  std::vector<std::vector<double>> cases = link_cases(view);
  if (!all) cases.resize(1);
  Collector collector(input, state, sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Size& size = sizes[i];
    collector.use(i);
    collector.add(schedule::kfkb_caps(stages, size.micro_batches, 1));
    for (const int k : kGroups) collector.add(schedule::kfkb_caps(stages, size.micro_batches, k));
    if (input.settings.k_fixed) {
      collector.add(schedule::kfkb_caps(stages, size.micro_batches, input.current.k));
    }
    if (input.settings.dispatch == schedule::Dispatch::kStrict) continue;
    for (int slack = 2; slack <= kMostSlack; ++slack) {
      collector.add(schedule::slack_caps(stages, size.micro_batches, slack));
    }
    for (std::size_t c = 0; c < cases.size(); ++c) {
      // A search is expensive, so other sizes are searched at the median only.
      const bool search = all && (i == 0 || c == 0);
      add_generated(collector, size, view, cases[c], search);
    }
  }
  return collector.take();
}

void keep_promising(std::vector<Candidate>& candidates, const costing::LinkView& view,
                    const std::vector<Size>& sizes, std::size_t most) {
  if (candidates.size() <= most + 1) return;
  const std::vector<double> median = link_quantile(view, costing::kMedian);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const Size& size = sizes[candidates[i].size];
    order.emplace_back(
        estimated_step(candidates[i].schedule, size, boundary_times(view, size, median)), i);
  }
  std::sort(order.begin(), order.end());
  order.resize(most);
  std::vector<std::size_t> chosen{0};
  for (const auto& [seconds, i] : order) chosen.push_back(i);
  std::sort(chosen.begin(), chosen.end());
  std::vector<Candidate> kept;
  for (const std::size_t i : chosen) kept.push_back(std::move(candidates[i]));
  candidates = std::move(kept);
}

void add_splits(std::vector<Candidate>& candidates, const Input& input, const State& state,
                const costing::LinkView& view, const std::vector<Size>& sizes) {
  if (!input.settings.splits || !schedule::has_weights(input.stages)) return;
  const bool all = effort_of(view, sizes.front()).all;
  const std::vector<double> median = link_quantile(view, costing::kMedian);
  const std::size_t whole = candidates.size();
  for (std::size_t i = 0; i < whole; ++i) {
    const schedule::Schedule plan = candidates[i].schedule;
    const Size& size = sizes[candidates[i].size];
    if (plan.split) continue;
    const schedule::PipelineModel model = slowest_model(size, view, median);
    auto choices = schedule::held_choices(plan.caps, held_limits(plan, size, state));
    // A large step is simulated seldom: only with what the fullest device holds already.
    if (!all && choices.size() > 1) choices = {choices[1]};
    for (std::vector<int>& held : choices) {
      Candidate split{.size = candidates[i].size};
      split.schedule = schedule::with_split(plan, std::move(held), input.settings.dispatch,
                                            size.micro_batches, model, input.sums.after_weights);
      if (!same_order(split.schedule, input.current)) candidates.push_back(std::move(split));
    }
  }
}

void drop_dominated(std::vector<Candidate>& candidates, const costing::LinkView& view,
                    const std::vector<Size>& sizes, const State& state, costing::Coster& coster,
                    bool all) {
  measure(candidates, view, sizes, state, coster);
  // If two plans are equal in everything, the first one stays. Plans of different sizes are not
  // compared, because a change of size may have to gain more.
  const auto beats = [&](std::size_t a, std::size_t b) {
    const Candidate &one = candidates[a], &other = candidates[b];
    if (!all && one.schedule.split && !other.schedule.split) return false;
    const int memory = in_flight(one.schedule), others = in_flight(other.schedule);
    bool better = memory < others || a < b;
    const auto compare = [&](double mine, double its) {
      better |= mine < its;
      return mine <= its;
    };
    for (std::size_t q = 0; q < one.seconds.size(); ++q) {
      if (!compare(one.seconds[q], other.seconds[q])) return false;
    }
    return compare(one.reserve, other.reserve) && memory <= others && better;
  };
  std::vector<bool> beaten(candidates.size(), false);
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const Candidate& plan = candidates[i];
    const bool first = plan.size == 0 && !plan.schedule.split &&
                       schedule::k_of_caps(plan.schedule.caps) == 1;  // Strict 1F1B
    for (std::size_t j = 0; j < candidates.size() && !first && !beaten[i]; ++j) {
      beaten[i] = j != i && candidates[j].size == plan.size && beats(j, i);
    }
  }
  std::vector<Candidate> kept;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!beaten[i]) kept.push_back(std::move(candidates[i]));
  }
  candidates = std::move(kept);
}

}  // namespace weir::retune
