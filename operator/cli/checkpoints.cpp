// SPDX-License-Identifier: Apache-2.0
// `checkpoints JOB`, and the answers of the shorthands that change a job.
#include "operator/cli/figures.h"
#include "operator/cli/views.h"
#include "worker/base/text.h"

namespace weir::cli {
namespace {

// Where the files are. With a claim a job has a folder of its name (crds/README.md "Checkpoints").
std::string place(const JobView& job) {
  if (job.checkpoint_claim.empty()) return job.checkpoint_path + " (a volume of the pod template)";
  const bool slash = job.checkpoint_path.ends_with('/');
  return job.checkpoint_path + (slash ? "" : "/") + job.name + " of claim " + job.checkpoint_claim;
}

}  // namespace

Lines checkpoint_lines(const JobView& job, api::Time now) {
  if (job.checkpoint_path.empty()) {
    return paragraph("",
                     job.name +
                         ": nothing is saved, as spec.checkpoint is not set: a restart begins at "
                         "step 0, and the model is lost at the end");
  }
  Lines lines = paragraph("", job.name + ": " + place(job));
  lines.push_back("saved each " + (job.checkpoint_interval_steps
                                       ? std::to_string(*job.checkpoint_interval_steps) + " steps"
                                       : std::string("10 min or so")));
  if (const auto saved = job.report.last_checkpoint_step) {
    std::string text = "newest: step " + std::to_string(*saved);
    const std::int64_t behind = job.report.step - *saved;
    if (behind > 0 && runs(job)) {
      text += "; a crash now would repeat " + std::to_string(behind) + " steps";
      if (const auto seconds = step_seconds(job)) {
        text += ", about " + age_text(std::chrono::seconds(static_cast<std::int64_t>(
                                 static_cast<double>(behind) * *seconds)));
      }
    }
    lines.push_back(text + " (as of " + data_age(job, now) + " ago)");
  } else {
    lines.emplace_back("newest: none is known");
  }
  if (!job.status.model.exported.empty()) {
    for (const std::string& line : paragraph("exported: ", job.status.model.exported)) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::string suspended_line(const JobView& job) {
  return job.name +
         (job.checkpoint_path.empty()
              ? ": suspends; it saves nothing (spec.checkpoint), so it will begin at step 0"
              : ": suspends; the workers finish the step, save and end");
}

std::string resumed_line(const JobView& job) {
  return job.name + ": resumes" +
         (job.report.last_checkpoint_step
              ? " from step " + std::to_string(*job.report.last_checkpoint_step)
              : "");
}

std::string scaled_line(const JobView& job) {
  return job.name + ": " + std::to_string(job.replicas) +
         (job.replicas == 1 ? " replica is" : " replicas are") + " asked for, " +
         std::to_string(job.status.data_parallel) + " so far";
}

}  // namespace weir::cli
