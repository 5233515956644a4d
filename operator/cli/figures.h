// SPDX-License-Identifier: Apache-2.0
// Figures of a job as texts, "-" where they are unknown. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "operator/cli/job_view.h"

namespace weir::cli {

// Reason of the condition Ready, e.g. "Running"; "Unseen" if no operator has written it.
std::string state_of(const JobView& job);
bool runs(const JobView& job);  // steps are made

// Seconds of a step: the batch over the samples a second of the last report.
std::optional<double> step_seconds(const JobView& job);

std::string counted(std::int64_t count, const char* one);       // "1 step", "3 steps"
std::string step_text(const JobView& job);                      // "151/300"
std::string time_text(double seconds);                          // "1511 ms", "12.3 s"
std::string age_text(std::chrono::system_clock::duration age);  // "8 s", "4 min", "3 h", "2 d"
// The age of the last report, e.g. "8 s".
std::string data_age(const JobView& job, api::Time now);
// "09:24:31" on the day of `now`, else "11-25 09:24". UTC.
std::string clock_text(api::Time time, api::Time now);
// "k=2, 16 micro-batches of 4, 4 stages".
std::string plan_text(const JobView& job);
std::string or_dash(const std::string& text);

}  // namespace weir::cli
