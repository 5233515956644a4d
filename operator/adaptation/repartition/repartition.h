// SPDX-License-Identifier: Apache-2.0
// Tier regroup: another rank map or layer cut. Weights move between live workers
// (operator/adaptation/repartition/README.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/adaptation/costing/cost.h"
#include "operator/adaptation/gate/proposal.h"
#include "operator/facts/facts.h"

namespace weir::repartition {

constexpr int kFailedRetrySteps = 4;  // steps after which a retry that is much slower ends

// A new rank map or cut that could be made.
struct Candidate {
  schedule::Plan plan;
  gate::Offer offer;
  std::int64_t moved_bytes = 0;
  double move_seconds = 0;  // predicted time of the transfer
  std::string what;         // e.g. "4->3 stages, node n2 idle"
};

// The plan from which a repartition has led to the one in force (retry_previous.cpp).
struct PreviousCut {
  schedule::Plan plan;
  std::vector<facts::RememberedLink>
      links;                        // links between its nodes; only their usual rates count
  double slower_seconds = 0;        // per step, against the new plan when it began; < 0 = unknown
  double lost_seconds = 0;          // after that or the last retry, if its links are free
  double retry_budget_seconds = 0;  // a retry begins when lost_seconds reaches it
  std::int64_t step = 0;            // lost_seconds is summed up to this step
  bool in_force = true;             // false: it was planned for free links and never in force
};

struct Memory {
  gate::Clock clock;
  gate::Record record;
  std::optional<Candidate> candidate;    // costed last
  std::uint32_t candidate_revision = 0;  // of the plan in force then
  std::int64_t searches = 0;             // number of searches for a candidate
  double pause_seconds = -1;  // of the last move, without its transfer; < 0 = none was measured
  std::optional<PreviousCut> previous_cut;
  std::optional<facts::Time>
      sought_previous_cut;  // when one was last looked for, with these members
};

// Searches the best repartition with all that is known of links. A search is expensive, so it is
// repeated only if there is news, or another plan is in force.
void search(const facts::Facts& facts, const costing::Costing& costing, bool news, Memory& memory);
// An answer without a proposal may still have found a change that gains enough but must wait.
struct Answer {
  std::optional<gate::Proposal> proposal;
  bool enough = false;
  double gain = 0;     // of the candidate
  std::string answer;  // of the gate; "" = there is no candidate
};
// Weighs the candidate. The caller starts the clock.
Answer propose(const facts::Facts& facts, const costing::Costing& costing,
               const gate::Moment& moment, bool asked, Memory& memory);
// Call it when there is nothing that another rank map could solve.
void nothing_wrong(Memory& memory);

// Call the first before a repartition is made, and the second at each evaluation. It proposes a
// retry of the previous cut, which needs no gate.
void remember_previous_cut(const facts::Facts& facts, const gate::Offer& taken, Memory& memory);
std::optional<gate::Proposal> retry_previous(const facts::Facts& facts,
                                             const costing::Costing& costing,
                                             const gate::Moment& moment, Memory& memory);

bool same_ranks(const schedule::Plan& a, const schedule::Plan& b);             // and the same cut
std::string difference(const schedule::Plan& from, const schedule::Plan& to);  // text for messages
// The plan with its costs and step time on these links. Nothing if its ranks and cut are those of
// the plan in force, or if a link is unknown.
std::optional<Candidate> costed(const facts::Facts& facts, const costing::Costing& costing,
                                const planner::Cluster& cluster, double pause_seconds,
                                schedule::Plan plan);

}  // namespace weir::repartition
