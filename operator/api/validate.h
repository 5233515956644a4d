// SPDX-License-Identifier: Apache-2.0
// Checks of a spec that admission cannot make: contradictions, and features that are not built.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/api/pipeline_job.h"

namespace weir::api {

struct Refusal {
  std::string reason;   // InvalidSpec, NotImplemented, GangProviderUnavailable
  std::string message;  // names the field, its value and what to do
};
// The first reason not to run this job, in the order of the fields. NotImplemented: the value is
// valid, but this version cannot honour it. Gang providers are checked in operator/gang.
std::optional<Refusal> refuse(const JobSpec& spec, int scrape_interval_seconds);

// Adds the condition or replaces the one of its type; `since` stays if the status stays.
void set_condition(std::vector<Condition>& conditions, Condition condition);
const Condition* find_condition(const std::vector<Condition>& conditions, const std::string& type);

}  // namespace weir::api
