// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/trace.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "operator/cli/text.h"
#include "worker/base/file_error.h"
#include "worker/timeline/chrome_trace.h"
#include "worker/timeline/codec.h"

namespace weir::cli {
namespace {

using timeline::RankRecord;

Status add_file(const std::string& path, std::vector<RankRecord>& records) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  const std::string octets{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) return unreadable(path);
  auto found = timeline::decode(octets);
  if (!found) return found.error().with(path);
  std::ranges::move(*found, std::back_inserter(records));
  return Unit{};
}

std::string summary(const std::vector<RankRecord>& records) {
  std::uint32_t first = std::numeric_limits<std::uint32_t>::max(), last = 0;
  for (const RankRecord& record : records) {
    for (const timeline::Event& event : record.events) {
      first = std::min(first, event.step);
      last = std::max(last, event.step);
    }
  }
  const RankRecord& one = records.front();
  const auto ranks = static_cast<std::size_t>(one.replicas) * static_cast<std::size_t>(one.stages);
  std::string text = one.job + ": ";
  if (first > last) {
    text += "no steps";
  } else if (first == last) {
    text += "step " + std::to_string(first + 1);
  } else {
    text += "steps " + std::to_string(first + 1) + " to " + std::to_string(last + 1);
  }
  return text + " of " + std::to_string(records.size()) + " of " + std::to_string(ranks) + " ranks";
}

Status convert(const Options& options, std::ostream& out) {
  std::vector<RankRecord> records;
  for (const std::string& path : options.from) WEIR_OK(add_file(path, records));
  if (records.empty()) return invalid("--from: names no file");
  WEIR_OK(timeline::belong_together(records));
  errno = 0;
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << timeline::chrome_trace(records);
  if (!file.flush()) return unwritable(options.output);
  out << printable(summary(records)) << "\n"
      << printable(options.output) << ": open it in https://ui.perfetto.dev\n";
  return Unit{};
}

}  // namespace

int convert_trace(const Options& options, std::ostream& out, std::ostream& err) {
  const Status done = convert(options, out);
  if (done) return 0;
  err << "kubectl weir: " << printable(done.error().message) << "\n";
  return 1;
}

}  // namespace weir::cli
