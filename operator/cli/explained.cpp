// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/explained.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "operator/cli/figures.h"
#include "worker/base/text.h"

namespace weir::cli {
namespace {

constexpr double kNothing = 0.005;  // of a step, that is not worth a figure

double value_of(const std::string& text) {
  return std::strtod(text.c_str(), nullptr);
}

double step_of(const JobView& job) {
  return value_of(job.report.performance.step_milliseconds) / 1000;
}

std::string text_of_line(const std::string& line, const api::Performance& performance) {
  constexpr std::size_t kNode = 40;  // columns
  const std::map<std::string, std::string> texts{
      {"Compute",
       "compute of the slowest stage (" + std::to_string(performance.slowest_stage) +
           (performance.slowest_node.empty() ? ""
                                             : ", on " + cut(performance.slowest_node, kNode)) +
           ")"},
      {"Data", "loading its data"},
      {"FillAndDrain", "filling and draining the pipeline"},
      {"UsualLinks", "links at their usual rates"},
      {"SlowLinks", "links slower than usual"},
      {"Order", "what this order does not hide"},
      {"Update", "sums, clipping and optimizer"},
      {"Interruptions", "saves, validation, switches"},
      {"NotExplained", "not explained"}};
  const auto known = texts.find(line);
  return known != texts.end() ? known->second : line;
}

}  // namespace

Lines waterfall_lines(const JobView& job) {
  const api::Performance& performance = job.report.performance;
  const double step = value_of(performance.step_milliseconds);
  if (!(step > 0) || performance.lines.empty()) return {};
  Lines lines;
  std::vector<std::array<std::string, 3>> rows{
      {"Where a step goes (mean of " + std::to_string(performance.steps) + " steps)", "ms", "%"}};
  for (const api::PerformanceLine& one : performance.lines) {
    const double part = value_of(one.milliseconds);
    rows.push_back({"  " + text_of_line(one.line, performance), one.milliseconds,
                    format("%.1f", 100 * part / step)});
  }
  rows.push_back({"  a step", performance.step_milliseconds, "100.0"});
  std::array<std::size_t, 3> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  for (const auto& [name, milliseconds, percent] : rows) {
    lines.push_back(name + std::string(widths[0] - width_of(name), ' ') +
                    std::string(2 + widths[1] - width_of(milliseconds), ' ') + milliseconds +
                    std::string(2 + widths[2] - width_of(percent), ' ') + percent);
  }
  return lines;
}

Lines cause_lines(const JobView& job) {
  const api::Performance& performance = job.report.performance;
  const double step = step_of(job);
  if (!(step > 0)) return {};
  if (performance.cause.empty()) {
    return paragraph("Main cause    ", "none is certain: nothing that costs 2 % of a step is seen");
  }
  const double costs = value_of(performance.cause_seconds);
  Lines lines =
      paragraph("Main cause    ", performance.cause_text + ". It costs " + time_text(costs) +
                                      " a step (" + percent(costs / step) + " %).");
  const char* head = "Also seen     ";
  for (const api::PerformanceCause& cause : performance.also_seen) {
    const double alone = value_of(cause.seconds);
    const std::string text =
        cause.text + (alone < kNothing * step ? ": hidden, costs nothing now"
                                              : ": costs " + time_text(alone) + " a step alone");
    for (const std::string& line : paragraph(head, text)) lines.push_back(line);
    head = "              ";
  }
  return lines;
}

Lines remedy_lines(const JobView& job) {
  const api::Performance& performance = job.report.performance;
  if (performance.remedies.empty()) return {};
  std::vector<Row> rows{{"What would help", "a step would take", "saves", ""}};
  for (const api::PerformanceRemedy& remedy : performance.remedies) {
    rows.push_back({"  " + printable(remedy.text), time_text(value_of(remedy.step_seconds)),
                    time_text(value_of(remedy.saves_seconds)), printable(remedy.answer)});
  }
  return table(rows, {0, 3});
}

}  // namespace weir::cli
