// SPDX-License-Identifier: Apache-2.0
// Records of ranks become one trace: files that workers wrote, or what a job's coordinator has
// sent.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "operator/cli/options.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"

namespace weir::cli {

// A ConfigMap with a part of the records of a job.
struct TracePart {
  std::string id;  // of the request that it answers
  int part = 1, parts = 1;
  std::string octets;
  std::string owner_uid;           // of the job
  std::string why;                 // of a dump, in one line; else empty
  std::optional<SystemTime> time;  // of a dump
};
// kInvalid: the ConfigMap holds no such part.
Result<TracePart> read_trace_part(std::string_view json);

// `trace JOB`: writes the trace and tells its steps on `out`. kInvalid: there are no records, or
// they are damaged.
Status write_job_trace(std::string_view octets, const Options& options, std::ostream& out);

// `trace --from`, which asks no cluster. Returns the exit code: 0, or 1 after a line on `err`,
// which names the file and, where it is damaged, the byte.
int convert_trace(const Options& options, std::ostream& out, std::ostream& err);

}  // namespace weir::cli
