// SPDX-License-Identifier: Apache-2.0
// The moments of a plan switch of real processes at which a test lets something happen, and what
// must hold of the steps around it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/multiproc/workers.h"

namespace weir::test {

enum class Moment : unsigned char { kPrepare, kReady, kCommit, kAdopted, kAnyTime };
constexpr Moment kMoments[] = {Moment::kPrepare, Moment::kReady, Moment::kCommit, Moment::kAdopted,
                               Moment::kAnyTime};

// Eight layers whose ops take some milliseconds, so that a step lasts as long as what a test does
// in it. For --emulate-profile.
std::string slow_profile();

// Writes the plan and returns at the moment. PREPARE and READY are held there by worker `held`,
// which stands still and answers nothing until it gets SIGCONT. Returns whether it stands.
bool switch_until(Moment moment, const PlanText& next, Workers& workers, int held,
                  std::uint64_t seed);

// What these logs of workers say of each step before plan `restart` must be one plan, and no log
// may go back to an older one.
void expect_one_plan_a_step(const std::string& which,
                            const std::vector<std::vector<LoggedStep>>& logs,
                            std::uint32_t restart);

}  // namespace weir::test
