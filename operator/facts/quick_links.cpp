// SPDX-License-Identifier: Apache-2.0
// Links that are too fast to be timed: what the estimates know of them is old.
#include <algorithm>

#include "operator/facts/facts.h"
#include "operator/facts/planning.h"
#include "operator/planner/model/stage_costs.h"

namespace weir::facts {
namespace {

using estimator::Direction;
using estimator::LinkKey;

constexpr std::int64_t kLeastTransfers = 40;  // as for contention
// A message of a few packets may arrive in one piece on a slow link, too.
constexpr std::int64_t kLeastBytes = 4 * 1500;

}  // namespace

std::set<LinkKey> quick_links(const Facts& facts, const planner::Model& model) {
  std::set<LinkKey> quick;
  if (facts.report == nullptr || facts.plan == nullptr) return quick;
  const auto& segment = facts.report->segment;
  const std::chrono::seconds old(facts.spec.adaptation.stale_after_seconds);
  const bool own = segment && segment->revision == facts.plan->revision;
  if (!own || facts.now - facts.reported > old) return quick;
  const auto costs = planner::costs_of(model, cluster_of(facts), *facts.plan);
  for (const protocol::SegmentLink& link : segment->links) {
    const auto boundary = static_cast<std::size_t>(link.boundary);
    if (link.boundary < 0 || boundary >= costs.boundary_bytes.size()) continue;
    if (link.transfers < kLeastTransfers || 2 * link.timed >= link.transfers) continue;
    const std::int64_t bytes = planner::wire_bytes(model, *facts.plan, link.boundary, link.forward,
                                                   costs.boundary_bytes[boundary]);
    if (bytes < kLeastBytes) continue;
    quick.insert(
        {link.replica, link.boundary, link.forward ? Direction::kForward : Direction::kBackward});
  }
  return quick;
}

bool all_quick(const Facts& facts, const std::set<LinkKey>& quick) {
  constexpr std::size_t kDirections = 2;
  const auto boundaries = static_cast<std::size_t>(facts.plan->stage_count() - 1);
  const auto replicas = static_cast<std::size_t>(facts.plan->replica_count());
  return boundaries > 0 && quick.size() == kDirections * boundaries * replicas;
}

bool network_known(const Facts& facts) {
  const estimator::Estimates& known = facts.estimates;
  if (known.freshness == estimator::Freshness::kFresh) return true;
  const bool no_rates = known.freshness == estimator::Freshness::kStale ||
                        known.freshness == estimator::Freshness::kNoSeries;
  // Without progress no worker is scraped, and that is why there are no rates.
  if (!no_rates || !known.progress || facts.plan == nullptr) return false;
  std::string why_not;
  const auto model = model_of(facts, why_not);
  return model && all_quick(facts, quick_links(facts, *model));
}

}  // namespace weir::facts
