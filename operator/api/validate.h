// SPDX-License-Identifier: Apache-2.0
// What admission cannot check: contradictions and features that are not built. Pure.
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
// First reason not to run this job, in the order of the fields. A value that differs from its
// default and is not built: NotImplemented. Gang providers: operator/gang.
std::optional<Refusal> refuse(const JobSpec& spec, int scrape_interval_seconds);

// Condition list by type: updates status, reason, message; `since` moves only when status changes.
void set_condition(std::vector<Condition>& conditions, Condition condition);
const Condition* find_condition(const std::vector<Condition>& conditions, const std::string& type);

}  // namespace weir::api
