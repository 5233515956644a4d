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

#include <nlohmann/json.hpp>

#include "operator/api/names.h"
#include "operator/cli/text.h"
#include "worker/base/digest.h"
#include "worker/base/file_error.h"
#include "worker/base/numbers.h"
#include "worker/base/time_text.h"
#include "worker/protocol/messages.h"
#include "worker/timeline/chrome_trace.h"
#include "worker/timeline/codec.h"

namespace weir::cli {
namespace {

using nlohmann::json;
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

// First and last step, counted from 0; nothing: there is none.
std::optional<std::pair<std::uint32_t, std::uint32_t>> steps_of(
    const std::vector<RankRecord>& records) {
  std::uint32_t first = std::numeric_limits<std::uint32_t>::max(), last = 0;
  for (const RankRecord& record : records) {
    for (const timeline::Event& event : record.events) {
      first = std::min(first, event.step);
      last = std::max(last, event.step);
    }
  }
  return first > last ? std::nullopt : std::optional(std::pair(first, last));
}

std::string summary(const std::vector<RankRecord>& records, const Options& options) {
  const RankRecord& one = records.front();
  const int replicas = options.replica ? 1 : one.replicas;
  const auto steps = steps_of(records);
  std::string text = one.job + ": ";
  if (!steps) {
    text += "no steps";
  } else if (steps->first == steps->second) {
    text += "step " + std::to_string(steps->first + 1);
  } else {
    text +=
        "steps " + std::to_string(steps->first + 1) + " to " + std::to_string(steps->second + 1);
  }
  return text + " of " + std::to_string(records.size()) + " of " +
         std::to_string(replicas * one.stages) + " ranks";
}

// Why there are fewer steps than a user has asked for; empty: there are not.
std::string why_fewer(const std::vector<RankRecord>& records, const Options& options) {
  const auto steps = steps_of(records);
  if (!steps || steps->second - steps->first + 1 >= static_cast<std::uint32_t>(options.steps)) {
    return "";
  }
  return std::to_string(options.steps) +
         " steps were asked for: older ones are not kept, or do not fit into 3.6 MB" +
         (options.replica || records.front().replicas == 1 ? "" : " (--replica N: of one replica)");
}

Status write(const std::vector<RankRecord>& records, const Options& options, std::ostream& out) {
  WEIR_OK(timeline::belong_together(records));
  errno = 0;
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << timeline::chrome_trace(records);
  if (!file.flush()) return unwritable(options.output);
  out << printable(summary(records, options)) << "\n"
      << printable(options.output) << ": open it in https://ui.perfetto.dev\n";
  return Unit{};
}

Status convert(const Options& options, std::ostream& out) {
  std::vector<RankRecord> records;
  for (const std::string& path : options.from) WEIR_OK(add_file(path, records));
  if (records.empty()) return invalid("--from: names no file");
  return write(records, options, out);
}

}  // namespace

Result<TracePart> read_trace_part(std::string_view text) {
  const json map = json::parse(text, nullptr, false);
  const auto text_at = [&map](const char* path) {
    const json::json_pointer pointer(path);
    const bool there = map.is_object() && map.contains(pointer) && map[pointer].is_string();
    return there ? map[pointer].get<std::string>() : std::string();
  };
  const auto annotation = [&](std::string name) {
    name.replace(name.find('/'), 1, "~1");
    return text_at(("/metadata/annotations/" + name).c_str());
  };
  const std::string place = annotation(api::kTracePart);
  const std::size_t slash = place.find('/');
  const auto part = parse_whole(place.substr(0, slash), 1, protocol::kMaxTraceParts);
  const auto parts = parse_whole(slash == std::string::npos ? "" : place.substr(slash + 1), 1,
                                 protocol::kMaxTraceParts);
  auto octets = from_base64(text_at((std::string("/binaryData/") + api::kTraceKey).c_str()));
  if (!part || !parts || !octets) return invalid("it holds no part of a trace");
  return TracePart{
      .id = annotation(api::kTrace),
      .part = static_cast<int>(*part),
      .parts = static_cast<int>(*parts),
      .octets = *std::move(octets),
      .owner_uid = text_at("/metadata/ownerReferences/0/uid"),
      .why = text_at((std::string("/data/") + api::kFlightWhyKey).c_str()),
      .time = parse_rfc3339(text_at((std::string("/data/") + api::kFlightTimeKey).c_str()))};
}

Status write_job_trace(std::string_view octets, const Options& options, std::ostream& out) {
  if (octets.empty()) {
    return invalid(
        options.job +
        ": its ranks keep no events (--flight-events=0, or workers of an older release)");
  }
  WEIR_TRY(const std::vector<RankRecord> records, timeline::decode(octets));
  WEIR_OK(write(records, options, out));
  const std::string fewer = options.flight ? "" : why_fewer(records, options);
  if (!fewer.empty()) out << fewer << "\n";
  return Unit{};
}

int convert_trace(const Options& options, std::ostream& out, std::ostream& err) {
  const Status done = convert(options, out);
  if (done) return 0;
  err << "kubectl weir: " << printable(done.error().message) << "\n";
  return 1;
}

}  // namespace weir::cli
