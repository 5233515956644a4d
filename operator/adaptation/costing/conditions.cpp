// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/costing/conditions.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "operator/adaptation/costing/codec_seconds.h"
#include "operator/adaptation/costing/exposed_sync.h"
#include "operator/adaptation/costing/input.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/node_bandwidth.h"
#include "operator/facts/planning.h"
#include "operator/planner/model/stage_costs.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::costing {
namespace {

using Place = std::pair<int, int>;  // replica and stage

constexpr int kMostSteps = 64;          // of a segment
constexpr double kMostSeconds = 1e6;    // of anything that a segment tells
constexpr double kMostRate = 1e13;      // bytes per second
constexpr double kAssumedError = 0.01;  // of a mean without a known scatter

bool plausible(double seconds) {
  return std::isfinite(seconds) && seconds >= 0 && seconds <= kMostSeconds;
}

std::map<Place, const schedule::RankPlace*> places_of(const schedule::Plan& plan) {
  std::map<Place, const schedule::RankPlace*> places;
  for (const auto& rank : plan.ranks) places[{rank.replica, rank.stage}] = &rank;
  return places;
}

// Times of the ops as the plan runs them: split backwards take both parts.
std::pair<double, double> profiled(const schedule::StageTime& stage, const schedule::Plan& plan) {
  const auto backward =
      plan.schedule.split ? stage.backward_input + stage.backward_weights : stage.backward;
  return {to_seconds(stage.forward), to_seconds(backward)};
}

// Usual rate of a link between two nodes, as far as it is known.
double usual_between(const facts::Facts& facts, const planner::Cluster& cluster,
                     const std::string& from, const std::string& to) {
  for (const auto& link : facts.estimates.links) {
    if (link.from_node == from && link.to_node == to) return usual_rate(facts, link);
  }
  return planner::link_between(cluster, from, to).bytes_per_second;
}

// visit(link, from, to, bytes) for each link that the plan has and whose numbers can be.
template <class Visit>
void each_link(const protocol::Segment& segment, const schedule::Plan& plan,
               const planner::Model& model, const planner::PipelineCosts& costs, Visit visit) {
  const auto places = places_of(plan);
  for (const protocol::SegmentLink& link : segment.links) {
    const auto before = places.find({link.replica, link.boundary});
    const auto behind = places.find({link.replica, link.boundary + 1});
    const auto boundary = static_cast<std::size_t>(link.boundary);
    const bool known = link.boundary >= 0 && before != places.end() && behind != places.end() &&
                       boundary < costs.boundary_bytes.size() && plausible(link.seconds) &&
                       plausible(link.latency_seconds);
    if (!known || link.timed < 0 || link.transfers < link.timed || link.transfers == 0) continue;
    visit(link, (link.forward ? before : behind)->second->node,
          (link.forward ? behind : before)->second->node,
          static_cast<double>(planner::wire_bytes(model, plan, link.boundary, link.forward,
                                                  costs.boundary_bytes[boundary])));
  }
}

void take_links(const facts::Facts& facts, const protocol::Segment& segment,
                const schedule::Plan& plan, const planner::Model& model,
                const planner::Cluster& cluster, const planner::PipelineCosts& costs,
                Conditions& conditions) {
  each_link(segment, plan, model, costs,
            [&](const protocol::SegmentLink& link, const std::string& from, const std::string& to,
                double bytes) {
              const bool timed = 2 * link.timed >= link.transfers && link.seconds > 0;
              const double rate =
                  timed ? bytes / link.seconds : usual_between(facts, cluster, from, to);
              if (rate <= 0) return;
              conditions.links[{from, to}] = {.bytes_per_second = std::min(rate, kMostRate),
                                              .latency_seconds = link.latency_seconds};
            });
}

void take_ranks(const protocol::Segment& segment, const schedule::Plan& plan,
                const planner::Model& model, const planner::Cluster& cluster,
                Conditions& conditions) {
  const auto places = places_of(plan);
  std::map<int, planner::PipelineCosts> costs;  // replicas may be of other devices
  for (const protocol::SegmentRank& rank : segment.ranks) {
    const auto place = places.find({rank.replica, rank.stage});
    const bool known = place != places.end() && rank.stage >= 0 &&
                       plausible(rank.forward_seconds) && plausible(rank.backward_seconds);
    if (!known) continue;
    const auto [own, fresh] = costs.try_emplace(rank.replica);
    if (fresh) {
      own->second = planner::costs_of(model, cluster, facts::of_replica(plan, rank.replica));
    }
    const auto s = static_cast<std::size_t>(rank.stage);
    if (s >= own->second.stages.size()) continue;
    const auto [forward, backward] = profiled(own->second.stages[s], plan);
    if (forward <= 0 || backward <= 0) continue;
    if (rank.forward_seconds <= 0 || rank.backward_seconds <= 0) continue;
    conditions.slowness[place->second->pod] = {rank.forward_seconds / forward,
                                               rank.backward_seconds / backward};
  }
}

// Takes the links of the plan in force; the estimates may still have those of the plan before.
void take_sum_links(const facts::Facts& facts, Conditions& conditions) {
  const auto places = places_of(*facts.plan);
  for (const auto& link : facts.estimates.sync_links) {
    const auto from = places.find({link.link.sender, link.link.boundary});
    const auto to = places.find({link.link.replica, link.link.boundary});
    const bool in_force = from != places.end() && to != places.end() &&
                          from->second->node == link.from_node && to->second->node == link.to_node;
    if (!in_force || link.mean <= 0) continue;
    conditions.sum_links[{link.from_node, link.to_node}] = std::min(link.mean, kMostRate);
  }
}

// The segment of that plan; null if there is none with a number of steps that can be.
const protocol::Segment* segment_of(const facts::Facts& facts, std::uint32_t revision) {
  if (facts.report == nullptr) return nullptr;
  for (const auto* segment : {&facts.report->segment, &facts.report->previous_segment}) {
    if (!*segment || (*segment)->revision != revision) continue;
    const int steps = (*segment)->steps;
    return steps < 2 || steps > kMostSteps ? nullptr : &**segment;
  }
  return nullptr;
}

// The lower median, since few devices are slow.
std::pair<double, double> usual_slowness(const Conditions& conditions) {
  if (conditions.slowness.empty()) return {1, 1};
  std::vector<std::pair<double, double>> all;
  for (const auto& [pod, factors] : conditions.slowness) all.push_back(factors);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

std::vector<schedule::StageTime> slowed(std::vector<schedule::StageTime> stages,
                                        const schedule::Plan& one, const Conditions& conditions) {
  const auto usual = usual_slowness(conditions);
  for (const auto& rank : one.ranks) {
    const auto own = conditions.slowness.find(rank.pod);
    const auto [forward, backward] = own != conditions.slowness.end() ? own->second : usual;
    auto& stage = stages[static_cast<std::size_t>(rank.stage)];
    for (const auto time : kStageTimes) {
      const double factor = time == &schedule::StageTime::forward ? forward : backward;
      stage.*time = from_seconds(to_seconds(stage.*time) * factor);
    }
  }
  return stages;
}

}  // namespace

Evidence evidence_of(const facts::Facts& facts, const planner::Model* model,
                     const schedule::Plan& plan) {
  const protocol::Segment* segment = segment_of(facts, plan.revision);
  if (segment == nullptr) return {};
  if (!plausible(segment->step_seconds) || !plausible(segment->step_error)) return {};
  if (segment->step_seconds <= 0) return {};
  Evidence evidence{.steps = segment->steps,
                    .step_seconds = segment->step_seconds,
                    .step_error = segment->step_error,
                    .conditions = {}};
  if (plan.revision == facts.plan->revision) take_sum_links(facts, evidence.conditions);
  if (model == nullptr) return evidence;
  const planner::Cluster cluster = cluster_of(facts);
  const auto costs = planner::costs_of(*model, cluster, plan);
  if (costs.stages.size() != plan.stages.size()) return evidence;
  take_links(facts, *segment, plan, *model, cluster, costs, evidence.conditions);
  take_ranks(*segment, plan, *model, cluster, evidence.conditions);
  return evidence;
}

Evidence estimated(const facts::Facts& facts, const planner::Model* model, double seconds,
                   bool newest) {
  if (seconds <= 0) return {};
  Evidence evidence{.steps = facts::kOutcomeSteps,
                    .step_seconds = seconds,
                    .step_error = kAssumedError * seconds,
                    .conditions = {}};
  for (const auto& link : facts.estimates.links) {
    const double rate = newest || link.mean <= 0 ? link.now : link.mean;
    if (rate <= 0) continue;
    evidence.conditions.links[{link.from_node, link.to_node}] = {.bytes_per_second = rate};
  }
  take_sum_links(facts, evidence.conditions);
  if (model == nullptr) return evidence;
  const planner::Cluster cluster = cluster_of(facts);
  for (int r = 0; r < facts.plan->replica_count(); ++r) {
    const auto one = facts::of_replica(*facts.plan, r);
    const auto costs = planner::costs_of(*model, cluster, one);
    const auto measured = stage_times(facts, one, costs);
    for (const auto& rank : one.ranks) {
      const auto s = static_cast<std::size_t>(rank.stage);
      if (s >= costs.stages.size()) return evidence;
      const auto [forward, backward] = profiled(costs.stages[s], one);
      const auto [taken_forward, taken_backward] = profiled(measured[s], one);
      if (forward <= 0 || backward <= 0) continue;
      evidence.conditions.slowness[rank.pod] = {taken_forward / forward, taken_backward / backward};
    }
  }
  return evidence;
}

estimator::SegmentRates segment_rates(const facts::Facts& facts, const planner::Model& model) {
  const protocol::Segment* segment = segment_of(facts, facts.plan->revision);
  if (segment == nullptr) return {};
  estimator::SegmentRates rates{.revision = segment->revision,
                                .first_step = segment->first_step,
                                .steps = segment->steps,
                                .links = {}};
  const auto costs = planner::costs_of(model, cluster_of(facts), *facts.plan);
  each_link(*segment, *facts.plan, model, costs,
            [&](const protocol::SegmentLink& link, const std::string& from, const std::string& to,
                double bytes) {
              estimator::SegmentRate rate{.timed = link.timed, .transfers = link.transfers};
              if (link.seconds > 0 && plausible(link.error)) {
                rate.rate = std::min(bytes / link.seconds, kMostRate);
                rate.error = link.error / link.seconds;
              }
              // The slower one of two links between the same nodes counts.
              const auto [place, fresh] = rates.links.try_emplace({from, to}, rate);
              if (!fresh && rate.rate > 0 && rate.rate < place->second.rate) place->second = rate;
            });
  return rates;
}

estimator::UsualRates usual_rates(const facts::Facts& facts,
                                  const estimator::ContentionState& state,
                                  const estimator::SegmentRates& segment) {
  planner::Cluster at_start;
  if (facts.members != nullptr) facts::add_probed_links(facts.members->links, at_start);
  const auto probed = [&](const estimator::NodePair& nodes) {
    return facts.members != nullptr &&
           std::ranges::any_of(facts.members->links, [&](const protocol::ProbedLink& link) {
             return (link.from_node == nodes.first && link.to_node == nodes.second) ||
                    (link.from_node == nodes.second && link.to_node == nodes.first);
           });
  };
  estimator::UsualRates usual;
  for (const auto& [nodes, link] : segment.links) {
    const double start =
        planner::link_between(at_start, nodes.first, nodes.second).bytes_per_second;
    if (const auto known = estimator::usual_rate(state, nodes, start)) {
      usual[nodes] = *known;
    } else if (probed(nodes)) {
      usual[nodes] = {.rate = start};
    }
  }
  return usual;
}

void complete(Conditions& own, const Conditions& other) {
  const auto measured = own.links;
  for (const auto& [nodes, link] : other.links) {
    const auto [entry, fresh] = own.links.try_emplace(nodes, link);
    const auto sums = own.sum_links.find(nodes);
    if (fresh && sums != own.sum_links.end()) entry->second.bytes_per_second = sums->second;
  }
  for (const auto& [nodes, rate] : other.sum_links) {
    if (!measured.contains(nodes)) own.sum_links.try_emplace(nodes, rate);
  }
  for (const auto& [pod, factors] : other.slowness) own.slowness.try_emplace(pod, factors);
}

bool covers(const Conditions& conditions, const schedule::Plan& plan) {
  constexpr std::size_t kMostTold = 256;  // links of a segment; the others are quick
  if (conditions.links.size() >= kMostTold) return true;
  const auto known = [&](const std::pair<std::string, std::string>& nodes) {
    return conditions.links.contains(nodes) || conditions.sum_links.contains(nodes);
  };
  const auto places = places_of(plan);
  return std::ranges::all_of(places, [&](const auto& entry) {
    const auto next = places.find({entry.first.first, entry.first.second + 1});
    if (next == places.end()) return true;
    const std::string &here = entry.second->node, &there = next->second->node;
    return known({here, there}) && known({there, here});
  });
}

std::vector<Pipeline> pipelines_under(const Conditions& conditions, const facts::Facts& facts,
                                      const planner::Model& model, const schedule::Plan& plan) {
  const planner::Cluster cluster = cluster_of(facts);
  const auto link_of = [&](const std::string& from, const std::string& to,
                           std::int64_t bytes) -> schedule::LinkModel {
    const auto known = conditions.links.find({from, to});
    const auto of_sums = conditions.sum_links.find({from, to});
    const bool measured = known != conditions.links.end();
    const double rate = measured ? known->second.bytes_per_second
                        : of_sums != conditions.sum_links.end()
                            ? of_sums->second
                            : usual_between(facts, cluster, from, to);
    const double latency = measured && known->second.latency_seconds > 0
                               ? known->second.latency_seconds
                               : to_seconds(planner::link_between(cluster, from, to).latency);
    return {
        from_seconds(rate > 0 ? static_cast<double>(bytes) / rate : 0), from_seconds(latency), {}};
  };
  const double per_number = codec_seconds(facts, model).per_number;
  std::vector<Pipeline> pipelines;
  for (int r = 0; r < plan.replica_count(); ++r) {
    const auto one = facts::of_replica(plan, r);
    const auto costs = planner::costs_of(model, cluster, one);
    if (costs.stages.size() != plan.stages.size() || one.ranks.size() != plan.stages.size()) {
      return {};
    }
    std::vector<std::string> nodes(plan.stages.size());
    for (const auto& rank : one.ranks) nodes[static_cast<std::size_t>(rank.stage)] = rank.node;
    schedule::PipelineModel& pipeline =
        pipelines.emplace_back(plan.micro_batches[static_cast<std::size_t>(r)]).model;
    pipeline.stages = slowed(costs.stages, one, conditions);
    add_codec_seconds(codec_numbers(plan.codecs, costs.boundary_bytes, model.number_bytes),
                      per_number, pipeline.stages);
    for (std::size_t b = 0; b < costs.boundary_bytes.size(); ++b) {
      const int boundary = static_cast<int>(b);
      const auto bytes = [&](bool forward) {
        return planner::wire_bytes(model, plan, boundary, forward, costs.boundary_bytes[b]);
      };
      pipeline.forward.push_back(link_of(nodes[b], nodes[b + 1], bytes(true)));
      pipeline.backward.push_back(link_of(nodes[b + 1], nodes[b], bytes(false)));
    }
  }
  return pipelines;
}

double step_under(const Conditions& conditions, const facts::Facts& facts,
                  const planner::Model& model, const schedule::Plan& plan) {
  double slowest = 0, all = 0, paced = 0;  // paced: micro-batches per second
  std::vector<Replica> replicas;
  std::vector<double> ends;  // of the stages, in the replica that is last
  const auto pipelines = pipelines_under(conditions, facts, model, plan);
  if (pipelines.empty()) return 0;
  for (const auto& [share, pipeline] : pipelines) {
    const auto timeline = schedule::simulate(plan.schedule, share, pipeline);
    if (!timeline || timeline->step.count() <= 0) return 0;
    const double own = to_seconds(timeline->step);
    slowest = std::max(slowest, own);
    all += share;
    paced += share / own;
    replicas.push_back({share, pipeline.stages});
    ends.resize(pipeline.stages.size());
    for (std::size_t s = 0; s < ends.size(); ++s) {
      ends[s] = std::max(ends[s], to_seconds(schedule::end_of(*timeline, s)));
    }
  }
  if (schedule::averages(plan)) return all / paced;
  const planner::Cluster cluster = cluster_of(facts);
  SumLinks sums = sum_links(facts, cluster);
  for (const auto& [nodes, rate] : conditions.sum_links) {
    sums.cluster.links.push_back({nodes.first, nodes.second, rate, cluster.default_latency});
  }
  const SumsLeft left = modelled_sums(plan, model, sums, slowest_stages(replicas));
  const auto& behind = plan.schedule.split ? left.after_weights : left.after_backward;
  for (std::size_t s = 0; s < behind.size() && s < ends.size(); ++s) {
    slowest = std::max(slowest, ends[s] + to_seconds(behind[s]));
  }
  return slowest;
}

}  // namespace weir::costing
