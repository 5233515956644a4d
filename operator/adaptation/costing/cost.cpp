// SPDX-License-Identifier: Apache-2.0
// A step is never costed at the mean rate, because its time is convex in 1/rate
// (operator/adaptation/costing/README.md "Cost").
#include "operator/adaptation/costing/cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "worker/base/units.h"
#include "worker/schedule/search_split.h"

namespace weir::costing {
namespace {

constexpr std::size_t kLeastScrapes = 4;  // as in a window of rates (validate.cpp)
constexpr double kBinWidth = 1.2;         // link times that differ by less share a bin
constexpr double kNever = 1e18;
constexpr std::int64_t kMostOps = 150'000;  // simulated in one costing; an op takes about 60 ns
constexpr std::int64_t kManySteps = 128;    // steps that a costing without limits simulates
constexpr std::int64_t kStepsPerBin = 16, kLeastPlans = 4;

// Rates of a link in the newest `count` scrapes. A gap takes the last rate before it.
std::vector<double> filled_rates(const std::vector<double>& all, std::size_t count) {
  std::vector<double> rates;
  double known = 0;
  for (const double rate : all) {
    if (known == 0 && rate > 0) known = rate;  // gaps before the first rate take that one
  }
  if (known == 0) return rates;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] > 0) known = all[i];
    if (i + count >= all.size()) rates.push_back(known);
  }
  return rates;
}

std::chrono::nanoseconds in_ratio(std::chrono::nanoseconds time, std::chrono::nanoseconds own,
                                  std::chrono::nanoseconds slowest) {
  if (own == slowest || slowest.count() <= 0) return time;
  return from_seconds(to_seconds(time) * to_seconds(own) / to_seconds(slowest));
}

// Micro-batches per step of a replica with this size.
int share_of(const Size& size, const LinkView& view, int replica) {
  if (view.pipelines.empty()) return size.micro_batches;
  const int now = view.pipelines[static_cast<std::size_t>(replica)].micro_batches;
  return std::max(1, now * view.micro_batch_size / size.micro_batch_size);
}

// Whether all times of pipeline a are at least as long as those of b. Then a ends last. (A list
// schedule may gain a little from a longer time, but less than the scatter of measured times.)
bool nowhere_faster(const schedule::PipelineModel& a, const schedule::PipelineModel& b) {
  for (std::size_t s = 0; s < a.stages.size(); ++s) {
    for (const auto time : kStageTimes) {
      if (a.stages[s].*time < b.stages[s].*time) return false;
    }
  }
  const auto slower = [](const schedule::LinkModel& x, const schedule::LinkModel& y) {
    return x.transfer >= y.transfer && x.latency >= y.latency;
  };
  for (std::size_t i = 0; i < a.forward.size(); ++i) {
    if (!slower(a.forward[i], b.forward[i]) || !slower(a.backward[i], b.backward[i])) return false;
  }
  return true;
}

// Split backwards add this to the exposed sync: their weight gradients, and with them the sums over
// replicas, end later than the backwards of the stages before, which hide the sums of whole ones.
double later_sums(const schedule::Timeline& timeline, const LinkView& view) {
  double split = 0, whole = 0, before = 0;
  const SumsLeft& sums = view.sums;
  for (std::size_t s = 0; s < sums.after_weights.size() && s < view.stages.size(); ++s) {
    split = std::max(
        split, to_seconds(schedule::end_of(timeline, s) - timeline.step + sums.after_weights[s]));
    whole = std::max(whole, to_seconds(sums.after_backward[s]) - before);
    before += to_seconds(view.stages[s].backward);
  }
  return std::max(0.0, split - whole);
}

int bin_of(double seconds, double width) {
  constexpr int kNothing = -1'000'000;
  if (!(seconds > 0)) return kNothing;
  return static_cast<int>(std::lround(std::log(seconds) / std::log(width)));
}

std::map<std::vector<int>, Bin> binned(const LinkView& view, double width) {
  std::map<std::vector<int>, Bin> bins;
  for (const std::vector<double>& vector : view.vectors) {
    std::vector<int> key;
    key.reserve(vector.size());
    for (const double seconds : vector) key.push_back(width > 0 ? bin_of(seconds, width) : 0);
    Bin& bin = bins[key];
    bin.seconds.resize(vector.size(), 0);
    bin.weight += 1;
    for (std::size_t i = 0; i < vector.size(); ++i) bin.seconds[i] += vector[i];
  }
  return bins;
}

// The exposed sync was measured under the plan in force, other plans add their own part.
void take_off_later_sums(const Input& input, LinkView& view) {
  const Size size = sizes_of(input).front();
  const std::vector<double> median = link_quantile(view, kMedian);
  double later = 0;
  for (int replica = 0; replica < view.replicas; ++replica) {
    const auto timeline = schedule::simulate(input.current, share_of(size, view, replica),
                                             model_of(size, view, median, replica));
    if (timeline) later = std::max(later, later_sums(*timeline, view));
  }
  view.sync_seconds = std::max(0.0, view.sync_seconds - later);
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
  const std::size_t scrapes =
      std::min(static_cast<std::size_t>(std::max(1, input.used_scrapes)), rates.times.size());
  if (rates.times.size() < kLeastScrapes) {
    view.unknown = "only " + std::to_string(rates.times.size()) + " of " +
                   std::to_string(kLeastScrapes) + " scrapes with link rates";
    return view;
  }
  view.pipelines = input.replicas;
  view.stages = input.stages;
  view.micro_batch_size = input.current.micro_batch_size;
  view.sync_seconds = input.sync_seconds;
  view.sums = input.sums;
  view.apart = input.apart;
  std::set<int> replicas{0};
  for (int r = 1; r < static_cast<int>(input.replicas.size()); ++r) replicas.insert(r);
  for (const auto& [link, values] : rates.rates) {
    if (input.replicas.empty()) replicas.insert(link.replica);
  }
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
  if (input.current.split && !view.sums.after_weights.empty()) take_off_later_sums(input, view);
  return view;
}

Effort effort_of(const LinkView& view, const Size& size) {
  std::int64_t ops = 0;  // of a step
  for (int r = 0; r < view.replicas; ++r) {
    ops += 2 * static_cast<std::int64_t>(size.stages.size()) * share_of(size, view, r);
  }
  const std::int64_t steps = kMostOps / std::max<std::int64_t>(ops, 1);
  if (steps >= kManySteps) return {};
  const std::int64_t bins = std::max<std::int64_t>(1, steps / kStepsPerBin);
  // A plan is simulated at the median, at slower links, and in every bin; the current plan and the
  // loss need further simulations.
  const std::int64_t plans = std::max(kLeastPlans, (steps - 3 - bins) / (2 + bins) - 1);
  return {false, static_cast<std::size_t>(bins), static_cast<std::size_t>(plans)};
}

std::vector<Bin> bins_of(const LinkView& view, std::size_t most) {
  constexpr double kWidest = 16;
  double width = kBinWidth;
  std::map<std::vector<int>, Bin> bins = binned(view, width);
  while (bins.size() > most) {
    width = most > 1 && width < kWidest ? width * width : 0;  // 0 = one bin for all
    bins = binned(view, width);
  }
  std::vector<Bin> result;
  for (auto& [key, bin] : bins) {
    for (double& seconds : bin.seconds) seconds /= bin.weight;
    bin.weight /= static_cast<double>(view.vectors.size());
    result.push_back(std::move(bin));
  }
  return result;
}

std::vector<Size> sizes_of(const Input& input) {
  std::vector<Size> sizes{{.micro_batch_size = input.current.micro_batch_size,
                           .micro_batches = input.micro_batches,
                           .stages = input.stages,
                           .boundary_bytes = input.boundary_bytes,
                           .cap_max = input.cap_max,
                           .rooms = input.rooms}};
  for (const Size& size : input.other_sizes) {
    const bool usable = size.micro_batch_size != input.current.micro_batch_size &&
                        size.micro_batches >= 1 && size.stages.size() == input.stages.size() &&
                        size.boundary_bytes.size() == input.boundary_bytes.size();
    if (usable) sizes.push_back(size);
  }
  return sizes;
}

schedule::PipelineModel model_of(const Size& size, const LinkView& view,
                                 const std::vector<double>& seconds, int replica) {
  const std::size_t boundaries = size.boundary_bytes.size();
  const std::size_t first = static_cast<std::size_t>(replica) * boundaries * 2;
  const auto link_at = [&](std::size_t i) {
    const double bytes = view.bytes[i];
    const auto wanted = static_cast<double>(size.boundary_bytes[(i - first) / 2]);
    const double scale = bytes > 0 ? wanted / bytes : 1;
    return schedule::LinkModel{from_seconds(seconds[i] * scale), from_seconds(view.latency[i]), {}};
  };
  schedule::PipelineModel model;
  model.stages = size.stages;
  if (!view.pipelines.empty()) {
    const auto& own = view.pipelines[static_cast<std::size_t>(replica)].stages;
    for (std::size_t s = 0; s < model.stages.size(); ++s) {
      for (const auto time : kStageTimes) {
        model.stages[s].*time = in_ratio(size.stages[s].*time, own[s].*time, view.stages[s].*time);
      }
    }
  }
  for (std::size_t b = 0; b < boundaries; ++b) {
    model.forward.push_back(link_at(first + 2 * b));
    model.backward.push_back(link_at(first + 2 * b + 1));
  }
  return model;
}

double Coster::step(const schedule::Schedule& schedule, const Size& size,
                    const std::vector<double>& seconds) {
  std::vector<schedule::PipelineModel> models;
  std::vector<int> shares;
  for (int replica = 0; replica < view_.replicas; ++replica) {
    models.push_back(model_of(size, view_, seconds, replica));
    shares.push_back(share_of(size, view_, replica));
  }
  double slowest = 0, all = 0, rate = 0;  // all: micro-batches; rate: micro-batches per second
  double later = 0;                       // sums that split backwards make later
  for (std::size_t r = 0; r < models.size(); ++r) {
    bool waits = false;  // for a replica that is nowhere faster; of two equal ones, for the first
    for (std::size_t other = 0; other < models.size() && !waits && !view_.apart; ++other) {
      waits = other != r && shares[other] >= shares[r] &&
              nowhere_faster(models[other], models[r]) &&
              (other < r || shares[other] > shares[r] || !nowhere_faster(models[r], models[other]));
    }
    if (waits) continue;
    const auto timeline = schedule::simulate(schedule, shares[r], models[r]);
    ++simulations_;
    const double own = timeline ? to_seconds(timeline->step) : kNever;
    if (timeline && schedule.split) later = std::max(later, later_sums(*timeline, view_));
    slowest = std::max(slowest, own);
    all += shares[r];
    rate += own > 0 ? shares[r] / own : 0;
  }
  const bool paced = view_.apart && slowest < kNever && rate > 0;
  return (paced ? all / rate : slowest) + view_.sync_seconds + later;
}

double Coster::mean_step(const schedule::Schedule& schedule, const Size& size) {
  double mean = 0;
  for (const Bin& bin : bins_) mean += bin.weight * step(schedule, size, bin.seconds);
  return mean;
}

double Coster::least_step(const Size& size, schedule::Backwards backwards) const {
  double mean = 0;
  for (const Bin& bin : bins_) {
    double slowest = 0;
    for (int replica = 0; replica < view_.replicas; ++replica) {
      slowest = std::max(
          slowest, to_seconds(schedule::least_step(model_of(size, view_, bin.seconds, replica),
                                                   share_of(size, view_, replica), backwards)));
    }
    mean += bin.weight * slowest;
  }
  return mean;
}

Bound bound_of(const Input& input, bool splits) {
  const std::size_t stages = input.stages.size();
  const bool agree = stages > 0 && input.current.caps.size() == stages &&
                     input.boundary_bytes.size() + 1 == stages;
  if (!agree || input.apart) return {};
  const LinkView view = view_links(input);
  if (!view.unknown.empty()) return {};
  const Size size = sizes_of(input).front();
  Coster coster(view, bins_of(view, effort_of(view, size).bins));
  const bool split = splits && schedule::has_weights(input.stages);
  return {.step_seconds = coster.mean_step(input.current, size),
          .least_seconds =
              view.sync_seconds + coster.least_step(size, split ? schedule::Backwards::kSplit
                                                                : schedule::Backwards::kWhole)};
}

std::vector<double> link_quantile(const LinkView& view, double q) {
  std::vector<double> result;
  result.reserve(view.links.size());
  for (std::size_t link = 0; link < view.links.size(); ++link) {
    std::vector<double> seconds;
    seconds.reserve(view.vectors.size());
    for (const std::vector<double>& vector : view.vectors) seconds.push_back(vector[link]);
    std::sort(seconds.begin(), seconds.end());
    result.push_back(
        seconds[static_cast<std::size_t>(q * static_cast<double>(seconds.size() - 1))]);
  }
  return result;
}

std::vector<std::chrono::nanoseconds> boundary_times(const LinkView& view, const Size& size,
                                                     const std::vector<double>& seconds) {
  std::vector<std::chrono::nanoseconds> times(size.boundary_bytes.size());
  for (int replica = 0; replica < view.replicas; ++replica) {
    const schedule::PipelineModel model = model_of(size, view, seconds, replica);
    for (std::size_t b = 0; b < times.size(); ++b) {
      const schedule::LinkModel &there = model.forward[b], &back = model.backward[b];
      times[b] =
          std::max(times[b], (there.transfer + there.latency + back.transfer + back.latency) / 2);
    }
  }
  return times;
}

std::vector<schedule::StageTime> slowest_stages(const std::vector<Replica>& replicas) {
  std::vector<schedule::StageTime> slowest;
  for (const Replica& replica : replicas) {
    if (slowest.empty()) slowest = replica.stages;
    for (std::size_t s = 0; s < slowest.size(); ++s) {
      for (const auto time : kStageTimes) {
        slowest[s].*time = std::max(slowest[s].*time, replica.stages[s].*time);
      }
    }
  }
  return slowest;
}

double correction_of(const State& state, int micro_batch_size, int current_size) {
  if (const auto own = state.correction.find(micro_batch_size); own != state.correction.end()) {
    return own->second;
  }
  const auto current = state.correction.find(current_size);
  return current == state.correction.end() ? 1 : current->second;
}

std::optional<double> predicted_step(const Input& input, const State& state) {
  const LinkView view = view_links(input);
  if (!view.unknown.empty()) return std::nullopt;
  Coster coster(view, bins_of(view, effort_of(view, sizes_of(input).front()).bins));
  const int size = input.current.micro_batch_size;
  return correction_of(state, size, size) *
         coster.mean_step(input.current, sizes_of(input).front());
}

std::string describe(const schedule::Schedule& schedule) {
  std::string result = "k=" + std::to_string(schedule::k_of_caps(schedule.caps)) + " caps ";
  for (std::size_t s = 0; s < schedule.caps.size(); ++s) {
    result += (s == 0 ? "" : ",") + std::to_string(schedule.caps[s]);
  }
  result += std::string(" ") + schedule::name(schedule.dispatch);
  if (schedule.micro_batch_size > 1) result += " mb=" + std::to_string(schedule.micro_batch_size);
  if (schedule.split) result += " split " + schedule::describe(*schedule.split);
  return result;
}

}  // namespace weir::costing
