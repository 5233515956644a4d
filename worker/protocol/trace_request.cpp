// SPDX-License-Identifier: Apache-2.0
#include "worker/protocol/trace_request.h"

#include <algorithm>

#include "worker/base/numbers.h"

namespace weir::protocol {
namespace {

constexpr std::size_t kLongestId = 40;
constexpr int kMostReplicas = 4096;
constexpr std::string_view kSteps = " steps=", kReplica = " replica=";

}  // namespace

bool is_trace_id(std::string_view text) {
  return !text.empty() && text.size() <= kLongestId && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string trace_request(const TraceWanted& wanted) {
  std::string text = wanted.id + std::string(kSteps) + std::to_string(wanted.steps);
  if (wanted.replica >= 0) text += std::string(kReplica) + std::to_string(wanted.replica);
  return text;
}

Result<TraceWanted> read_trace_request(std::string_view text) {
  const auto expected = [] {
    return invalid("expected \"<id> steps=1.." + std::to_string(kMostTraceSteps) +
                   "\", and behind it \" replica=N\" for one of them");
  };
  const std::size_t steps_at = text.find(kSteps), replica_at = text.find(kReplica);
  if (steps_at == std::string_view::npos || replica_at < steps_at) return expected();
  const std::size_t steps_begin = steps_at + kSteps.size();
  const auto steps = parse_whole(
      text.substr(steps_begin,
                  replica_at == std::string_view::npos ? replica_at : replica_at - steps_begin),
      1, kMostTraceSteps);
  TraceWanted wanted{.id = std::string(text.substr(0, steps_at))};
  if (!is_trace_id(wanted.id) || !steps) return expected();
  wanted.steps = static_cast<int>(*steps);
  if (replica_at == std::string_view::npos) return wanted;
  const auto replica = parse_whole(text.substr(replica_at + kReplica.size()), 0, kMostReplicas);
  if (!replica) return expected();
  wanted.replica = static_cast<int>(*replica);
  return wanted;
}

}  // namespace weir::protocol
