// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "operator/planner/sync/simulated_time.h"
#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/schedule/caps.h"

namespace weir::planner {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr double kNever = 1e18;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool same_rate(const LinkRate& a, const LinkRate& b) {
  return a.bytes_per_second == b.bytes_per_second && a.latency == b.latency &&
         a.available_share == b.available_share && a.curve == b.curve;
}

}  // namespace

int cap_behind(CapRule rule, int micro_batches, int k, int stages_behind) {
  const int wanted = rule == CapRule::kKfkb ? k * (stages_behind + 1) : 1 + k * stages_behind;
  return std::min(micro_batches, wanted);
}

SyncModel::SyncModel(const Dag& dag, const Ideals& ideals, const SyncRequest& request,
                     Prices prices)
    : dag_(&dag), ideals_(&ideals), request_(&request) {
  WEIR_CHECK(!request.classes.empty() && request.links.size() == request.classes.size() &&
                 request.rings.size() == request.classes.size(),
             "every class has links");
  add_options();
  add_pairs();
  price_boundaries(prices == Prices::kAll);
  transients_ =
      !plain() && std::ranges::any_of(dag.transient, [](std::int64_t bytes) { return bytes > 0; });
}

void SyncModel::add_options() {
  const SyncRequest& request = *request_;
  bool by_class = false;  // links differ by class
  for (const auto& row : request.links) {
    for (const LinkRate& link : row) by_class |= !same_rate(link, request.links[0][0]);
  }
  for (std::size_t c = 0; c < request.classes.size(); ++c) {
    const SyncClass& device = request.classes[c];
    WEIR_CHECK(!device.columns.empty(), "a class has times");
    const int most =
        request.most_ranks == 0 ? device.count : std::min(request.most_ranks, device.count);
    for (int r = 1; r <= most; ++r) {
      const auto own = static_cast<std::size_t>(r - 1);
      const bool measured = own < device.columns.size();
      SyncOption option{.device_class = static_cast<int>(c),
                        .ranks = r,
                        .column = device.columns[measured ? own : 0]};
      option.seconds = kNanosecond / (measured ? 1 : r);
      option.least_ratio = ratio_of(option);
      const int type_class = by_class ? option.device_class : 0;
      const int type_ranks = plain() ? 1 : r;  // sync0 does not divide boundaries
      std::size_t type = 0;
      while (type < type_class_.size() &&
             (type_class_[type] != type_class || type_ranks_[type] != type_ranks)) {
        ++type;
      }
      if (type == type_class_.size()) {
        type_class_.push_back(type_class);
        type_ranks_.push_back(type_ranks);
      }
      option.type = static_cast<int>(type);
      options_.push_back(option);
    }
  }
  types_ = std::max(1, static_cast<int>(type_class_.size()));
}

double SyncModel::ratio_of(const SyncOption& option) const {
  const DagTimes& base = dag_->classes.front();
  const DagTimes& own = dag_->classes[static_cast<std::size_t>(option.column)];
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t v = 0; v < base.forward.size(); ++v) {
    const auto of = static_cast<double>(base.forward[v] + base.backward[v]);
    if (of <= 0) continue;
    least = std::min(least, static_cast<double>(own.forward[v] + own.backward[v]) / of);
  }
  return std::isinf(least) ? 0 : least * option.seconds;
}

void SyncModel::add_pairs() {
  for (int a = 0; a < types_; ++a) {
    for (int b = 0; b < types_; ++b) {
      const auto front = static_cast<std::size_t>(type_class_[static_cast<std::size_t>(a)]);
      const auto behind = static_cast<std::size_t>(type_class_[static_cast<std::size_t>(b)]);
      const Pair pair{.forward = &request_->links[front][behind],
                      .backward = &request_->links[behind][front],
                      .ranks = std::min(type_ranks_[static_cast<std::size_t>(a)],
                                        type_ranks_[static_cast<std::size_t>(b)])};
      std::size_t index = 0;
      while (index < kinds_.size() &&
             (kinds_[index].forward != pair.forward || kinds_[index].backward != pair.backward ||
              kinds_[index].ranks != pair.ranks)) {
        ++index;
      }
      if (index == kinds_.size()) kinds_.push_back(pair);
      pair_.push_back(static_cast<int>(index));
    }
  }
  pairs_ = kinds_.size();
}

void SyncModel::price_boundaries(bool all) {
  const std::size_t count = ideals_->count();
  if (all) sends_.assign(count * pairs_, {});
  least_send_.assign(count, 0);
  least_hold_.assign(count, 0);
  for (std::size_t i = 1; i + 1 < count; ++i) {
    least_send_[i] = least_hold_[i] = kNever;
    for (std::size_t p = 0; p < pairs_; ++p) {
      const Pair& pair = kinds_[p];
      const std::int64_t bytes = ceil_div(ideals_->cut[i], pair.ranks);
      SyncSend send{.forward = transfer_seconds(*pair.forward, bytes),
                    .backward = transfer_seconds(*pair.backward, bytes)};
      const auto held = [](double whole, const LinkRate& link) {
        return std::max(0.0, whole - to_seconds(link.latency));
      };
      send.hold_forward = held(send.forward, *pair.forward);
      send.hold_backward = held(send.backward, *pair.backward);
      least_send_[i] = std::min(least_send_[i], send.both());
      least_hold_[i] = std::min(least_hold_[i], send.hold());
      if (all) sends_[i * pairs_ + p] = send;
    }
  }
}

int SyncModel::option_of(int device_class, int ranks) const {
  for (std::size_t o = 0; o < options_.size(); ++o) {
    if (options_[o].device_class == device_class && options_[o].ranks == ranks) {
      return static_cast<int>(o);
    }
  }
  return -1;
}

double SyncModel::update(const SyncOption& option, std::size_t inner, std::size_t outer) const {
  const int n = option.ranks * request_->replicas;
  double result = 0;
  if (n > 1) {
    const LinkRate& ring = request_->rings[static_cast<std::size_t>(option.device_class)];
    const std::int64_t bytes = ideals_->parameters[outer] - ideals_->parameters[inner];
    // 2 (n-1) messages of 1/n each; the rate is that of such a message.
    const std::int64_t message = ceil_div(bytes, n);
    if (bytes > 0) {
      result = 2.0 * (n - 1) / n * static_cast<double>(bytes) / effective_rate(ring, message);
      if (!plain()) result += 2 * (n - 1) * to_seconds(ring.latency);
    }
  }
  if (plain()) return result;
  const auto& sums = ideals_->update[static_cast<std::size_t>(option.column)];
  return result + static_cast<double>(sums[outer] - sums[inner]) * kNanosecond;
}

std::int64_t SyncModel::transient(std::size_t inner, std::size_t outer) const {
  if (!transients_) return 0;
  std::int64_t largest = 0;
  for (const int node : ideals_->difference(inner, outer)) {
    largest = std::max(largest, dag_->transient[static_cast<std::size_t>(node)]);
  }
  return largest;
}

std::int64_t SyncModel::memory(const SyncOption& option, std::size_t inner, std::size_t outer,
                               int cap, int k) const {
  const std::int64_t parameters = ideals_->parameters[outer] - ideals_->parameters[inner];
  const std::int64_t stash = ideals_->stash[outer] - ideals_->stash[inner];
  const std::int64_t ranks = option.ranks;
  const std::int64_t frozen = ideals_->frozen[outer] - ideals_->frozen[inner];
  if (plain()) return 4 * parameters + frozen + ceil_div(cap * stash, ranks);
  const int n = std::max(2, k);  // k=1 has the buffers of k=2
  const std::int64_t state = state_bytes(dag_->state_factor, parameters, frozen);
  return state + cap * ceil_div(stash, ranks) + transient(inner, outer) +
         (2 * n + 3) * ceil_div(ideals_->cut[inner], ranks) +
         (n + 5) * ceil_div(ideals_->cut[outer], ranks);
}

Pipeline SyncModel::pipeline(const Candidate& candidate) const {
  Pipeline pipeline;
  int behind = -1;
  for (std::size_t s = 0; s < candidate.stages(); ++s) {
    const int index = option_of(candidate.classes[s], candidate.ranks[s]);
    WEIR_CHECK(index >= 0, "a candidate uses devices that exist");
    const SyncOption& option = options_[static_cast<std::size_t>(index)];
    const std::size_t inner = candidate.ideals[s], outer = candidate.ideals[s + 1];
    if (s > 0) {
      const SyncSend& over = send(inner, behind, option.type);
      pipeline.send_forward.push_back(over.forward);
      pipeline.send_backward.push_back(over.backward);
      pipeline.hold_forward.push_back(over.hold_forward);
      pipeline.hold_backward.push_back(over.hold_backward);
    }
    pipeline.stages.push_back({.forward = forward(option, inner, outer) + request_->overhead,
                               .backward = backward(option, inner, outer),
                               .update = update(option, inner, outer)});
    behind = option.type;
  }
  return pipeline;
}

schedule::PipelineModel SyncModel::simulated_model(const Candidate& candidate) const {
  const Pipeline costs = pipeline(candidate);
  schedule::PipelineModel model;
  for (const StageCost& stage : costs.stages) {
    model.stages.push_back({simulated_time(stage.forward), simulated_time(stage.backward)});
  }
  const auto link = [](double whole, double hold) {
    return schedule::LinkModel{
        .transfer = simulated_time(hold), .latency = simulated_time(whole - hold), .trace = {}};
  };
  for (std::size_t s = 0; s + 1 < costs.stages.size(); ++s) {
    model.forward.push_back(link(costs.send_forward[s], costs.hold_forward[s]));
    model.backward.push_back(link(costs.send_backward[s], costs.hold_backward[s]));
  }
  return model;
}

double SyncModel::value(const Candidate& candidate) const {
  const Pipeline costs = pipeline(candidate);
  const int more = request_->micro_batches - 1;
  if (plain()) {
    double sum = 0, slowest = 0;
    for (std::size_t s = 0; s < costs.stages.size(); ++s) {
      double part = costs.stages[s].forward + costs.stages[s].backward;
      slowest = std::max(slowest, part);
      sum += part;
      if (s + 1 == costs.stages.size()) break;
      part = costs.send_forward[s] + costs.send_backward[s];
      slowest = std::max(slowest, part);
      sum += part;
    }
    return sum + more * slowest + update_tail(costs);
  }
  schedule::Schedule schedule;
  schedule.dispatch = candidate.dispatch;
  schedule.k = candidate.k;
  schedule.caps = candidate.caps;
  const auto timeline =
      schedule::simulate(schedule, request_->micro_batches, simulated_model(candidate));
  return timeline ? to_seconds(timeline->step) + update_tail(costs) : kNever;
}

}  // namespace weir::planner
