// SPDX-License-Identifier: Apache-2.0
// The planner makes plans for the links as they are known now. Their steps are simulated over the
// sampled rates, and the cost of the change is the pause and the transfer of the bytes to move.
#include "operator/adaptation/repartition/repartition.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "operator/adaptation/costing/exposed_sync.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/node_bandwidth.h"
#include "operator/facts/planning.h"
#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::repartition {
namespace {

constexpr double kStateFactor = 3;   // parameters and two moments (worker/engine/state_move.h)
constexpr double kAssumedPause = 2;  // s, pause of a switch without its transfer, until measured
constexpr double kSlowDevice = 1.5;  // a device is slow if it takes this factor longer than usual
constexpr double kDefaultLatencyFactor = 2;  // round trip over latency in one direction

using Places = std::map<std::string, std::pair<int, int>>;  // replica and stage by pod uid

Places places_of(const schedule::Plan& plan) {
  Places places;
  for (const auto& rank : plan.ranks) places[rank.pod_uid] = {rank.replica, rank.stage};
  return places;
}

bool holds(const schedule::Plan& plan, const Places& places, const std::string& uid, int layer) {
  const auto place = places.find(uid);
  if (place == places.end()) return false;
  const auto& range = plan.stages[static_cast<std::size_t>(place->second.second)];
  return range.first <= layer && layer <= range.last;
}

struct Transfer {
  std::int64_t bytes = 0;
  double seconds = 0;
};

// The transfer as the workers do it: all ranks at the same time fetch the layers that they lack
// from ranks that have them. The transfers of a node share its bandwidth.
Transfer transfer_of(const schedule::Plan& from, const schedule::Plan& to,
                     const planner::Model& model, const planner::Cluster& cluster) {
  Transfer transfer;
  const Places before = places_of(from);
  std::map<std::string, double> sending, receiving;  // seconds by node
  for (const auto& rank : to.ranks) {
    const auto& range = to.stages[static_cast<std::size_t>(rank.stage)];
    for (int layer = range.first; layer <= range.last; ++layer) {
      if (holds(from, before, rank.pod_uid, layer)) continue;
      std::vector<const schedule::RankPlace*> holders;
      for (const auto& holder : from.ranks) {
        if (holds(from, before, holder.pod_uid, layer)) holders.push_back(&holder);
      }
      if (holders.empty()) continue;
      const auto& holder = *holders[static_cast<std::size_t>(rank.replica) % holders.size()];
      const planner::Layer& moved = model.layers[static_cast<std::size_t>(layer)];
      const std::int64_t bytes =
          planner::state_bytes(kStateFactor, moved.parameter_bytes, moved.frozen_bytes);
      const double seconds =
          planner::transfer_seconds(planner::link_between(cluster, holder.node, rank.node), bytes);
      transfer.bytes += bytes;
      sending[holder.node] += seconds;
      receiving[rank.node] += seconds;
    }
  }
  for (const auto* side : {&sending, &receiving}) {
    for (const auto& [node, seconds] : *side) {
      transfer.seconds = std::max(transfer.seconds, seconds);
    }
  }
  return transfer;
}

std::map<std::pair<int, int>, std::string> nodes_of(const schedule::Plan& plan) {
  std::map<std::pair<int, int>, std::string> nodes;
  for (const auto& rank : plan.ranks) nodes[{rank.replica, rank.stage}] = rank.node;
  return nodes;
}

template <class Visit>  // visit(key, from, to)
void each_link(const schedule::Plan& plan, Visit visit) {
  const auto nodes = nodes_of(plan);
  for (const auto& [place, node] : nodes) {
    const auto next = nodes.find({place.first, place.second + 1});
    if (next == nodes.end()) continue;
    visit(estimator::LinkKey{place.first, place.second, estimator::Direction::kForward}, node,
          next->second);
    visit(estimator::LinkKey{place.first, place.second, estimator::Direction::kBackward},
          next->second, node);
  }
}

// Rates for the links of a plan. Links that it shares with the plan in force keep their sampled
// rates; others have the cluster's rate.
estimator::RateVectors rates_for(const schedule::Plan& plan, const schedule::Plan& current,
                                 const planner::Cluster& cluster,
                                 const estimator::RateVectors& sampled) {
  std::map<std::pair<std::string, std::string>, estimator::LinkKey> known;
  each_link(current, [&](const estimator::LinkKey& key, const auto& from, const auto& to) {
    known.try_emplace({from, to}, key);
  });
  estimator::RateVectors rates;
  rates.times = sampled.times;
  each_link(plan, [&](const estimator::LinkKey& key, const auto& from, const auto& to) {
    const auto same = known.find({from, to});
    const auto vector =
        same == known.end() ? sampled.rates.end() : sampled.rates.find(same->second);
    if (vector != sampled.rates.end()) {
      rates.rates[key] = vector->second;
      const auto rtt = sampled.rtt_seconds.find(same->second);
      if (rtt != sampled.rtt_seconds.end()) rates.rtt_seconds[key] = rtt->second;
      return;
    }
    const auto link = planner::link_between(cluster, from, to);
    rates.rates[key].assign(rates.times.size(), planner::effective_rate(link, 0));
    rates.rtt_seconds[key] = kDefaultLatencyFactor * to_seconds(link.latency);
  });
  return rates;
}

// The factor by which each worker is slower than the profile, by pod, as far as it is measured. The
// entry "" is the usual factor (the lower median) for all others. A slow device is assumed to be
// slow in any stage.
std::map<std::string, double> slowness_of(const facts::Facts& facts, const planner::Model& model,
                                          const planner::Cluster& cluster) {
  std::map<std::string, double> slowness;
  std::vector<double> all;
  for (int r = 0; r < facts.plan->replica_count(); ++r) {
    const auto one = facts::of_replica(*facts.plan, r);
    const auto profiled = planner::costs_of(model, cluster, one);
    const auto measured = stage_times(facts, one, profiled);
    for (const auto& rank : one.ranks) {
      const auto s = static_cast<std::size_t>(rank.stage);
      const double promised = to_seconds(profiled.stages[s].forward + profiled.stages[s].backward);
      const double taken = to_seconds(measured[s].forward + measured[s].backward);
      if (promised <= 0 || taken <= 0) continue;
      all.push_back(slowness[rank.pod] = taken / promised);
    }
  }
  if (all.empty()) return {{"", 1}};
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::ranges::nth_element(all, middle);
  slowness[""] = *middle;
  return slowness;
}

// The cluster without slow devices; nothing if none is slow, or if no device would be left.
std::optional<planner::Cluster> without_slow_devices(const facts::Facts& facts,
                                                     const planner::Model& model,
                                                     planner::Cluster cluster) {
  const auto slowness = slowness_of(facts, model, cluster);
  const double most = kSlowDevice * slowness.at("");
  const auto slow = std::erase_if(cluster.devices, [&](const auto& device) {
    const auto own = slowness.find(device.pod);
    return own != slowness.end() && own->second > most;
  });
  if (slow == 0 || cluster.devices.empty()) return std::nullopt;
  return cluster;
}

std::vector<schedule::StageTime> scaled(std::vector<schedule::StageTime> stages,
                                        const schedule::Plan& one,
                                        const std::map<std::string, double>& slowness) {
  for (const auto& rank : one.ranks) {
    const auto own = slowness.find(rank.pod);
    const double factor = own != slowness.end() ? own->second : slowness.at("");
    auto& stage = stages[static_cast<std::size_t>(rank.stage)];
    for (const auto time :
         {&schedule::StageTime::forward, &schedule::StageTime::backward,
          &schedule::StageTime::backward_input, &schedule::StageTime::backward_weights}) {
      stage.*time = from_seconds(to_seconds(stage.*time) * factor);
    }
  }
  return stages;
}

costing::Input input_for(const facts::Facts& facts, const costing::Costing& costing,
                         const planner::Cluster& cluster, const schedule::Plan& plan) {
  const planner::Model& model = costing.model;
  const costing::Input& current = costing.input;
  const auto slowness = slowness_of(facts, model, cluster);
  costing::Input input = current;
  input.current = plan.schedule;
  input.micro_batches = facts::least_share(plan);
  input.boundary_bytes = planner::costs_of(model, cluster, plan).boundary_bytes;
  input.replicas.clear();
  for (int r = 0; r < plan.replica_count(); ++r) {
    const auto one = facts::of_replica(plan, r);
    const auto own = planner::costs_of(model, cluster, one);
    input.replicas.push_back(
        {plan.micro_batches[static_cast<std::size_t>(r)], scaled(own.stages, one, slowness)});
  }
  input.stages = costing::slowest_stages(input.replicas);
  const costing::SumLinks sampled = costing::sum_links(facts, cluster);
  input.sync_seconds = costing::changed_exposed_sync(
      current.sync_seconds,
      costing::modelled_exposed_sync(*facts.plan, model, sampled, current.stages),
      costing::modelled_exposed_sync(plan, model, sampled, input.stages));
  input.sums = costing::modelled_sums(plan, model, sampled, input.stages);
  input.cap_max.clear();
  input.rooms.clear();
  input.other_sizes.clear();
  input.rates = rates_for(plan, *facts.plan, cluster, current.rates);
  return input;
}

std::string name_of(const schedule::Plan& plan) {
  std::string text;
  for (const auto& rank : plan.ranks) {
    const auto& range = plan.stages[static_cast<std::size_t>(rank.stage)];
    text += (text.empty() ? "" : " ") + rank.pod + ":" + std::to_string(rank.replica) + "/" +
            std::to_string(range.first) + "-" + std::to_string(range.last);
  }
  return text;
}

}  // namespace

std::string difference(const schedule::Plan& from, const schedule::Plan& to) {
  std::string text;
  if (from.stage_count() != to.stage_count()) {
    text = std::to_string(from.stage_count()) + "->" + std::to_string(to.stage_count()) + " stages";
  } else {
    text = from.stages != to.stages ? "another layer cut" : "another rank map";
  }
  std::set<std::string> used;
  for (const auto& rank : to.ranks) used.insert(rank.node);
  std::set<std::string> left;
  for (const auto& rank : from.ranks) {
    if (!used.contains(rank.node)) left.insert(rank.node);
  }
  for (const auto& node : left) text += ", node " + node + " idle";
  return text;
}

bool same_ranks(const schedule::Plan& a, const schedule::Plan& b) {
  return a.stages == b.stages && places_of(a) == places_of(b);
}

std::optional<Candidate> costed(const facts::Facts& facts, const costing::Costing& costing,
                                const planner::Cluster& cluster, double pause_seconds,
                                schedule::Plan plan) {
  Candidate candidate;
  candidate.plan = std::move(plan);
  limit_caps(facts, candidate.plan);
  candidate.plan.sync = facts.plan->sync;
  if (schedule::averages(candidate.plan)) {  // the previous cut may have been used with Exact
    auto& shares = candidate.plan.micro_batches;
    shares = facts::even_shares(std::accumulate(shares.begin(), shares.end(), 0),
                                candidate.plan.replica_count());
  }
  const schedule::Plan& to = candidate.plan;
  if (same_ranks(to, *facts.plan)) return std::nullopt;  // only the order differs: retune's case
  // A plan without a link measures nothing, so the job could never return from it.
  if (to.stage_count() == 1) return std::nullopt;
  const auto seconds =
      costing::predicted_step(input_for(facts, costing, cluster, to), costing.state);
  if (!seconds) return std::nullopt;
  const Transfer transfer = transfer_of(*facts.plan, to, costing.model, cluster);
  candidate.moved_bytes = transfer.bytes;
  candidate.move_seconds = transfer.seconds;
  candidate.what = difference(*facts.plan, to);
  candidate.offer = {
      .name = name_of(to),
      .now_seconds = costing.current_seconds,
      .then_seconds = *seconds,
      .cost_seconds = transfer.seconds + (pause_seconds < 0 ? kAssumedPause : pause_seconds)};
  candidate.plan.predicted_step_seconds = *seconds;
  return candidate;
}

void search(const facts::Facts& facts, const costing::Costing& costing, bool news, Memory& memory) {
  if (!news && memory.candidate && memory.candidate_revision == facts.plan->revision) return;
  ++memory.searches;
  memory.candidate_revision = facts.plan->revision;
  memory.candidate.reset();
  auto clusters = on_known_links(facts.history->links, cluster_of(facts));
  if (auto some = without_slow_devices(facts, costing.model, clusters.front())) {
    clusters.push_back(*std::move(some));
  }
  auto& best = memory.candidate;
  for (const auto& some : clusters) {
    auto report = plan_for_members(facts, costing.model, some, static_cast<int>(clusters.size()));
    if (!report) continue;
    auto other =
        costed(facts, costing, clusters.front(), memory.pause_seconds, std::move(report->plan));
    if (other && (!best || other->offer.then_seconds < best->offer.then_seconds)) {
      best = std::move(other);
    }
  }
}

Answer propose(const facts::Facts& facts, const costing::Costing& costing,
               const gate::Moment& moment, bool asked, Memory& memory) {
  if (!memory.candidate) {
    gate::nothing_offered(memory.record);
    return {};
  }
  Candidate& candidate = *memory.candidate;
  candidate.offer.now_seconds = costing.current_seconds;
  const auto weighed =
      gate::weigh(candidate.offer, moment,
                  gate::costly_rules(facts.spec.adaptation.regroup.min_gain_percent,
                                     facts.spec.adaptation.regroup.cooldown_seconds, asked),
                  memory.clock, memory.record);
  memory.record = weighed.record;
  if (!weighed.act) return {std::nullopt, weighed.enough, weighed.gain, weighed.answer};
  gate::Proposal proposal{.kind = gate::Kind::kRepartition,
                          .trigger = schedule::Trigger::kRegroup,
                          .offer = candidate.offer,
                          .what = candidate.what,
                          .text = candidate.what + ", moves " + megabytes(candidate.moved_bytes) +
                                  " in about " + number(candidate.move_seconds, 1) +
                                  " s, predicted +" + percent(weighed.gain) +
                                  " %: " + weighed.reason,
                          .gain = weighed.gain,
                          .move_seconds = candidate.move_seconds,
                          .change = candidate.plan};
  std::get<schedule::Plan>(proposal.change).state = schedule::StateMove::kMove;
  return {std::move(proposal), true, weighed.gain, weighed.answer};
}

void nothing_wrong(Memory& memory) {
  gate::nothing_offered(memory.record);
  memory.candidate.reset();
}

}  // namespace weir::repartition
