// SPDX-License-Identifier: Apache-2.0
// The limits of the CRD for status. The API server refuses a status as a whole if one field is
// beyond its limit. A test compares these limits with the CRD. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "operator/api/job_status.h"

namespace weir::api {

constexpr std::size_t kMostReplanRequest = 253;  // status.adaptation.lastReplanRequest

// Cuts text to at most `limit` bytes, never inside a UTF-8 character.
std::string cut(const std::string& text, std::size_t limit);

// Cuts texts, shortens lists and clamps numbers that are beyond their limits.
void fit(JobStatus& status);
void fit(ModelStatus& model);
void fit(ReportStatus& status);

}  // namespace weir::api
