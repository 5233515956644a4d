// SPDX-License-Identifier: Apache-2.0
// A plan without the replicas that lack a rank, whose micro-batches the others compute meanwhile
// (worker/coordinator/README.md "Covered replicas"). Pure.
#pragma once

#include <chrono>
#include <set>
#include <vector>

#include "worker/coordinator/members.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

// The same sum without the lost replicas, which get 0. Their micro-batches go to the others in
// proportion to the shares, which stand for their speed; what is left over goes to the largest
// remainders, of equal ones to the lowest replica. No share of the others falls. At least one
// replica is not lost.
std::vector<int> redistributed_shares(const std::vector<int>& shares, const std::set<int>& lost);

// The others keep their order and are numbered from 0. Layers, caps and the batch stay.
schedule::Plan without_replicas(schedule::Plan plan, const std::set<int>& lost);

// The number in the whole plan of a replica of without_replicas(plan, lost).
int number_in_whole(int replica, const std::set<int>& lost);

// Replicas of which a rank is not connected, or is about to go. leaves_only: set to whether all of
// these ranks have said LEAVE, so that their processes do not come back.
std::set<int> replicas_that_lack_ranks(const schedule::Plan& plan, const Members& members,
                                       bool& leaves_only);

// How long to wait for the return of lost processes before the others go on without them. step: of
// the plan with all replicas, 0 = unknown.
std::chrono::nanoseconds wait_before_cover(std::chrono::nanoseconds step, int living, int lost);

}  // namespace weir::coordinator
