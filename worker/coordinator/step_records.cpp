// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/step_records.h"

#include <algorithm>
#include <utility>

namespace weir::coordinator {
namespace {

// The ring of a rank has 1 MiB, and a frame of port 7070 takes 3 MiB of octets as base64.
constexpr std::size_t kMostOfARank = std::size_t{2} << 20U;

}  // namespace

std::optional<std::int64_t> complete_on_all(const schedule::Plan& plan, const Members& members,
                                            const std::set<int>& lost) {
  std::optional<std::int64_t> lowest;
  for (const auto& rank : plan.ranks) {
    if (lost.contains(rank.replica)) continue;
    const MemberState* const member = members.by_pod(rank.pod);
    if (member == nullptr || !member->status) return std::nullopt;
    lowest = std::min(lowest.value_or(member->status->step), member->status->step);
  }
  return lowest;
}

Outgoing StepRecords::ask(const Request& request, const schedule::Plan& plan,
                          const Members& members, SteadyTime now) {
  const auto meant = [&](const schedule::RankPlace& rank) {
    return request.replica < 0 || rank.replica == request.replica;
  };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(plan.ranks, meant));
  Open open{.gathered = {.id = request.id, .ranks = static_cast<int>(count)},
            .most_bytes = request.most_bytes,
            .deadline = now + kPatience};
  const std::size_t share = request.most_bytes / std::max<std::size_t>(1, count);
  const protocol::StepsWanted wanted{
      .id = request.id,
      .from = request.from,
      .to = request.to,
      .open = request.open,
      .most_bytes = static_cast<std::int64_t>(std::min(share, kMostOfARank))};
  Outgoing out;
  for (const auto& rank : plan.ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    if (!meant(rank) || member == nullptr || !member->connected() || !member->tells_steps) continue;
    if (!open.awaited.insert(member->member.worker_index).second) continue;
    out.emplace_back(member->member.worker_index, wanted);
  }
  open_[request.id] = std::move(open);
  return out;
}

void StepRecords::on_steps(int index, const protocol::Steps& steps) {
  const auto found = open_.find(steps.id);
  if (found == open_.end() || found->second.awaited.erase(index) == 0) return;
  Gathered& gathered = found->second.gathered;
  const std::size_t room = found->second.most_bytes - gathered.octets.size();
  if (steps.octets.empty() || steps.octets.size() > room) return;
  gathered.octets += steps.octets;
  ++gathered.answers;
}

std::vector<StepRecords::Gathered> StepRecords::take(const Members& members, SteadyTime now) {
  std::vector<Gathered> done;
  for (auto entry = open_.begin(); entry != open_.end();) {
    Open& open = entry->second;
    std::erase_if(open.awaited, [&](int index) {
      const MemberState* const member = members.find(index);
      return member == nullptr || !member->connected();
    });
    if (!open.awaited.empty() && now < open.deadline) {
      ++entry;
      continue;
    }
    done.push_back(std::move(open.gathered));
    entry = open_.erase(entry);
  }
  return done;
}

}  // namespace weir::coordinator
