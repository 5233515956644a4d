// SPDX-License-Identifier: Apache-2.0
// The limits that the CRD states for status, in one place: a status that does not keep them is
// refused as a whole, and then nothing of it is told. A test compares with the CRD. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "operator/api/job_status.h"

namespace weir::api {

constexpr std::size_t kMostReplanRequest = 253;  // status.adaptation.lastReplanRequest

// Cuts text to at most `limit` bytes, never inside a UTF-8 character.
std::string cut(const std::string& text, std::size_t limit);

// Texts are cut, lists shortened, numbers clamped. What fits stays as it is.
void fit(JobStatus& status);
void fit(ReportStatus& status);

}  // namespace weir::api
