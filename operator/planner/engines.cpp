// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/engines.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "worker/schedule/families.h"

namespace weir::planner {
namespace {

constexpr int kMostOwnK = 8;                // beyond it doubled values do
constexpr std::size_t kMostPairs = 65'536;  // of servers, looked at one by one
constexpr int kMostStages = 64;             // of one plan, when the user does not say

bool same_rate(const LinkRate& a, const LinkRate& b) {
  return a.bytes_per_second == b.bytes_per_second && a.latency == b.latency &&
         a.available_share == b.available_share && a.curve == b.curve;
}

// At least as fast as both for messages of any size.
LinkRate better_of(const LinkRate& a, const LinkRate& b) {
  if (same_rate(a, b)) return a;
  const auto most = [](const LinkRate& link) {
    return (link.curve ? link.curve->most_bytes_per_second : link.bytes_per_second) *
           link.available_share;
  };
  return {"", "", std::max(most(a), most(b)), std::min(a.latency, b.latency)};
}

void improve(std::optional<LinkRate>& best, const LinkRate& link) {
  best = best ? better_of(*best, link) : link;
}

std::vector<int> one_per_server(const Setting& setting, const DeviceKind& kind) {
  std::vector<int> result;
  std::set<int> seen;
  for (const int device : kind.devices) {
    if (seen.insert(setting.topology->server_of(device)).second) result.push_back(device);
  }
  return result;
}

LinkRate best_link(const Setting& setting, const DeviceKind& a, const DeviceKind& b) {
  std::optional<LinkRate> best;
  const std::vector<int> from = one_per_server(setting, a), to = one_per_server(setting, b);
  if (from.size() * to.size() > kMostPairs) {
    for (const LinkRate& link : setting.cluster->links) improve(best, link);
    improve(best, link_between(*setting.cluster, "", "-"));
    improve(best, link_between(*setting.cluster, "", ""));
    return *best;
  }
  for (const int d : from) {
    for (const int e : to) {
      const bool same_server = setting.topology->server_of(d) == setting.topology->server_of(e);
      // Two devices of one kind on one server?
      if (same_server && &a == &b) {
        const auto here = std::ranges::count_if(a.devices, [&](int other) {
          return setting.topology->server_of(other) == setting.topology->server_of(d);
        });
        if (here < 2) continue;
      }
      improve(best, setting.topology->link(d, e));
    }
  }
  return best.value_or(link_between(*setting.cluster, "", "-"));
}

Layout layout_of(const Setting& setting, const Ideals& ideals, const Candidate& candidate) {
  std::vector<int> nodes;
  Layout layout;
  layout.first = {0};
  for (std::size_t s = 0; s < candidate.stages(); ++s) {
    const std::vector<int> own = ideals.difference(candidate.ideals[s], candidate.ideals[s + 1]);
    nodes.insert(nodes.end(), own.begin(), own.end());
    layout.first.push_back(static_cast<int>(nodes.size()));
  }
  layout.line = line_of(setting.dag, std::move(nodes));
  layout.kinds = candidate.classes;
  layout.ranks = candidate.ranks;
  layout.k = candidate.k;
  layout.caps = candidate.caps;
  return layout;
}

SyncRequest sync_request(const Setting& setting, const LinkTable& table) {
  const Request& request = *setting.request;
  SyncRequest ask;
  ask.formula = request.compat == Compat::kSync0 ? SyncFormula::kSync0 : SyncFormula::kSync;
  ask.classes = setting.classes;
  ask.links = table.links;
  ask.rings = table.rings;
  ask.micro_batches = *std::ranges::min_element(setting.micro_batches);
  ask.replicas = static_cast<int>(setting.micro_batches.size());
  const std::vector<int> ks = ks_of(request, ask.micro_batches);
  ask.k_min = ks.front();
  ask.k_max = ks.back();
  ask.kfkb = request.cap_rules != CapRules::kSlack;
  ask.slack = request.cap_rules != CapRules::kKfkb;
  ask.dispatch = request.dispatch;
  for (const int cap : request.caps) ask.caps.push_back(std::clamp(cap, 1, ask.micro_batches));
  const std::vector<int> counts = stage_counts(setting);
  ask.least_stages = counts.front();
  ask.most_stages = counts.back();
  ask.most_ranks = request.most_ranks_per_stage;
  ask.use_all_devices = request.use_all_devices;
  return ask;
}

}  // namespace

LinkTable best_links(const Setting& setting) {
  LinkTable table;
  for (const DeviceKind& a : setting.kinds) {
    std::vector<LinkRate> row;
    for (const DeviceKind& b : setting.kinds) row.push_back(best_link(setting, a, b));
    table.links.push_back(std::move(row));
    table.rings.push_back(best_link(setting, a, a));
  }
  return table;
}

LinkTable achieved_links(const Setting& setting, const Layout& layout, LinkTable before) {
  std::set<std::pair<std::size_t, std::size_t>> seen;
  const auto take = [&](std::size_t a, std::size_t b, const LinkRate& link, std::int64_t bytes) {
    LinkRate& entry = before.links[a][b];
    if (!seen.insert({a, b}).second &&
        transfer_seconds(link, bytes) <= transfer_seconds(entry, bytes)) {
      return;
    }
    entry = link;
  };
  for (const auto& replica : layout.devices) {
    for (std::size_t s = 0; s + 1 < layout.stages(); ++s) {
      const auto a = static_cast<std::size_t>(layout.kinds[s]);
      const auto b = static_cast<std::size_t>(layout.kinds[s + 1]);
      const std::int64_t bytes = layout.line->cut[static_cast<std::size_t>(layout.first[s + 1])];
      for (const int d : replica[s]) {
        for (const int e : replica[s + 1]) {
          take(a, b, setting.topology->link(d, e), bytes);
          if (a != b) take(b, a, setting.topology->link(e, d), bytes);
        }
      }
    }
  }
  return before;
}

std::vector<int> stage_counts(const Setting& setting) {
  const Request& request = *setting.request;
  const int layers = setting.dag.nodes;
  int devices = 0;
  for (const SyncClass& kind : setting.classes) devices += kind.count;
  std::optional<int> fixed = request.stages;
  if (!request.caps.empty()) fixed = static_cast<int>(request.caps.size());
  const int most = std::min({layers, devices, fixed.value_or(kMostStages)});
  if (fixed && most < *fixed) return {};
  // An interval matching: the kind with the smallest last stage first.
  const auto possible = [&](int stages) {
    std::vector<int> left;
    for (const SyncClass& kind : setting.classes) left.push_back(kind.count);
    for (int s = 0; s < stages; ++s) {
      int best = -1;
      for (std::size_t k = 0; k < left.size(); ++k) {
        const SyncClass& kind = setting.classes[k];
        if (left[k] == 0 || s < kind.first_stage || s > kind.last_stage) continue;
        if (best < 0 ||
            kind.last_stage < setting.classes[static_cast<std::size_t>(best)].last_stage) {
          best = static_cast<int>(k);
        }
      }
      if (best < 0) return false;
      --left[static_cast<std::size_t>(best)];
    }
    return true;
  };
  std::vector<int> result;
  for (int stages = fixed.value_or(1); stages <= most; ++stages) {
    if (possible(stages)) result.push_back(stages);
  }
  return result;
}

std::vector<int> ks_of(const Request& request, int micro_batches) {
  const auto clipped = [&](int k) { return std::clamp(k, 1, micro_batches); };
  const schedule::FamilyRules& rules = schedule::rules_of(request.family);
  if (rules.only_k != nullptr) return {rules.only_k(micro_batches)};
  if (request.k_initial) return {clipped(*request.k_initial)};
  std::set<int> result{clipped(request.k_min)};
  const int most = clipped(std::max(request.k_max, request.k_min));
  for (int k = clipped(request.k_min); k <= most; k += k < kMostOwnK ? 1 : k) result.insert(k);
  return {result.begin(), result.end()};
}

std::vector<int> caps_of(const Request& request, CapRules rule, int stages, int micro_batches,
                         int k) {
  if (!request.caps.empty()) {
    std::vector<int> caps = request.caps;
    for (int& cap : caps) cap = std::clamp(cap, 1, micro_batches);
    return caps;
  }
  return rule == CapRules::kSlack ? schedule::slack_caps(stages, micro_batches, k)
                                  : schedule::kfkb_caps(stages, micro_batches, k);
}

Result<EngineAnswer> sync_layouts(const Setting& setting, const LinkTable& table,
                                  const Ideals& ideals, const Limits& limits, bool certify) {
  SyncRequest ask = sync_request(setting, table);
  ask.certify = certify;
  ask.stop = limits.stop;
  ask.most_steps = limits.search_steps;
  ask.proof_steps = limits.proof_steps;
  WEIR_TRY(const SyncPlans plans, plan_sync(setting.dag, ideals, ask));
  EngineAnswer answer;
  for (const Candidate& candidate : plans.candidates) {
    answer.layouts.push_back(layout_of(setting, ideals, candidate));
  }
  answer.value = plans.candidates.front().value;
  answer.lower_bound = plans.certificate.lower_bound;
  answer.complete = plans.certificate.complete;
  answer.optimal = plans.certificate.optimal;
  answer.formula = plans.certificate.formula;
  answer.search.ideals = static_cast<std::int64_t>(ideals.count()) - 1;
  answer.search.boundaries = static_cast<std::int64_t>(plans.boundaries);
  answer.search.pairs = plans.pairs;
  return answer;
}

std::optional<Layout> even_layout(const Setting& setting, int stages) {
  Layout layout;
  std::vector<int> nodes(static_cast<std::size_t>(setting.dag.nodes));
  std::iota(nodes.begin(), nodes.end(), 0);
  layout.line = line_of(setting.dag, std::move(nodes));
  std::vector<int> left;
  for (const SyncClass& kind : setting.classes) left.push_back(kind.count);
  for (int s = 0; s <= stages; ++s) {
    layout.first.push_back(static_cast<int>(std::int64_t{setting.dag.nodes} * s / stages));
    if (s == stages) break;
    std::size_t kind = 0;
    while (kind < left.size() && (left[kind] == 0 || s < setting.classes[kind].first_stage ||
                                  s > setting.classes[kind].last_stage)) {
      ++kind;
    }
    if (kind == left.size()) return std::nullopt;
    --left[kind];
    layout.kinds.push_back(static_cast<int>(kind));
    layout.ranks.push_back(1);
  }
  const int least = *std::ranges::min_element(setting.micro_batches);
  layout.k = ks_of(*setting.request, least).front();
  layout.caps = caps_of(*setting.request, CapRules::kKfkb, stages, least, layout.k);
  return layout;
}

}  // namespace weir::planner
