// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/figures.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "worker/base/text.h"
#include "worker/base/time_text.h"

namespace weir::cli {

std::string counted(std::int64_t count, const char* one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string state_of(const JobView& job) {
  const api::Condition* ready = condition(job, "Ready");
  return ready == nullptr || ready->reason.empty() ? "Unseen" : ready->reason;
}

bool runs(const JobView& job) {
  const api::Condition* ready = condition(job, "Ready");
  return ready != nullptr && ready->status == "True" && ready->reason == "Running";
}

std::optional<double> step_seconds(const JobView& job) {
  const double rate = std::strtod(job.report.samples_per_second.c_str(), nullptr);
  if (!std::isfinite(rate) || rate <= 0 || job.global_batch <= 0) return std::nullopt;
  return job.global_batch / rate;
}

std::string step_text(const JobView& job) {
  if (!job.report.has_progress) return "-";
  const std::string step = std::to_string(job.report.step);
  return job.report.total_steps > 0 ? step + "/" + std::to_string(job.report.total_steps) : step;
}

std::string time_text(double seconds) {
  if (seconds >= 10) return number(seconds, 1) + " s";
  return number(seconds * 1000, seconds < 0.01 ? 2 : 0) + " ms";
}

std::string age_text(std::chrono::system_clock::duration age) {
  using std::chrono::duration_cast;
  using std::chrono::seconds;
  const auto whole = std::max<std::int64_t>(0, duration_cast<seconds>(age).count());
  constexpr std::int64_t kMinute = 60, kHour = 3600, kDay = 86400;
  if (whole < 2 * kMinute) return std::to_string(whole) + " s";
  if (whole < 2 * kHour) return std::to_string(whole / kMinute) + " min";
  if (whole < 2 * kDay) return std::to_string(whole / kHour) + " h";
  return std::to_string(whole / kDay) + " d";
}

std::string data_age(const JobView& job, api::Time now) {
  return job.report.last_report_time ? age_text(now - *job.report.last_report_time) : "-";
}

std::string clock_text(api::Time time, api::Time now) {
  const std::string text = to_rfc3339(time);  // 2026-01-02T03:04:05Z
  constexpr std::size_t kDate = 10, kYear = 5, kMinutes = 5;
  if (text.substr(0, kDate) == to_rfc3339(now).substr(0, kDate)) return text.substr(kDate + 1, 8);
  return text.substr(kYear, kDate - kYear) + " " + text.substr(kDate + 1, kMinutes);
}

std::string plan_text(const JobView& job) {
  const api::PlanStatus& plan = job.status.plan;
  std::string text = "k=" + std::to_string(plan.k) + ", " + std::to_string(plan.micro_batches) +
                     (plan.micro_batches == 1 ? " micro-batch" : " micro-batches") + " of " +
                     std::to_string(plan.micro_batch_size) + ", " +
                     counted(plan.stage_count, "stage");
  if (job.status.data_parallel > 1) text += ", " + counted(job.status.data_parallel, "replica");
  return text;
}

}  // namespace weir::cli
