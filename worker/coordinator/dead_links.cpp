// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/dead_links.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

namespace weir::coordinator {
namespace {

constexpr auto kProbeEach = std::chrono::seconds(10);
constexpr std::int64_t kProbeBytes = 1;  // only the round trip counts

std::optional<int> replica_of(const schedule::Plan& plan, const Members& members, int index) {
  const MemberState* const member = members.find(index);
  if (member == nullptr || !member->connected()) return std::nullopt;
  const auto rank = std::ranges::find(plan.ranks, member->member.pod, &schedule::RankPlace::pod);
  return rank == plan.ranks.end() ? std::nullopt : std::optional(rank->replica);
}

}  // namespace

bool DeadLinks::add(int from, const protocol::Unanswered& unanswered, const Members& members,
                    SteadyTime now) {
  const MemberState* const asker = members.find(from);
  const auto silent = std::ranges::find_if(members.all(), [&](const auto& entry) {
    const protocol::Member& member = entry.second.member;
    return entry.first != from && entry.second.connected() &&
           member.data_port == unanswered.data_port &&
           std::ranges::find(member.ips, unanswered.ip) != member.ips.end();
  });
  if (asker == nullptr || silent == members.all().end()) return false;
  const int to = silent->first;
  const bool known = std::ranges::any_of(links_, [&](const Link& link) {
    return std::minmax(link.from, link.to) == std::minmax(from, to);
  });
  if (known) return true;
  links_.push_back({.from = from,
                    .to = to,
                    .from_uid = asker->member.pod_uid,
                    .to_uid = silent->second.member.pod_uid,
                    .address = unanswered.ip + ":" + std::to_string(unanswered.data_port),
                    .since = now,
                    .probed = now});
  return true;
}

void DeadLinks::probed(int from, const protocol::Probed& answer) {
  const auto asked = std::ranges::find_if(
      links_, [&](const Link& link) { return link.asked && link.from == from; });
  if (asked == links_.end()) return;
  asked->asked = false;
  if (answer.rtt_seconds > 0) links_.erase(asked);
}

void DeadLinks::met(const schedule::Plan& plan, const Members& members) {
  std::erase_if(links_, [&](const Link& link) {
    return replica_of(plan, members, link.from) && replica_of(plan, members, link.to);
  });
}

void DeadLinks::follow(const Members& members) {
  const auto is_other = [&](int index, const std::string& uid) {
    const MemberState* const member = members.find(index);
    return member == nullptr || member->member.pod_uid != uid;
  };
  std::erase_if(links_, [&](const Link& link) {
    return is_other(link.from, link.from_uid) || is_other(link.to, link.to_uid);
  });
}

std::vector<DeadLinks::Ends> DeadLinks::ends_in(const schedule::Plan& plan,
                                                const Members& members) const {
  std::vector<Ends> result;
  for (const Link& link : links_) {
    const auto from = replica_of(plan, members, link.from), to = replica_of(plan, members, link.to);
    if (from && to) result.push_back({*from, *to});
  }
  return result;
}

bool DeadLinks::settled(SteadyTime now) const {
  return std::ranges::all_of(links_,
                             [&](const Link& link) { return now >= link.since + kOthersFind; });
}

bool DeadLinks::within(const schedule::Plan& plan, const Members& members) const {
  return !ends_in(plan, members).empty();
}

void DeadLinks::leave_out(std::set<int>& without, const schedule::Plan& plan,
                          const Members& members) const {
  std::vector<Ends> left = ends_in(plan, members);
  for (;;) {
    std::erase_if(left, [&](const Ends& link) {
      return without.contains(link.from) || without.contains(link.to);
    });
    std::map<int, int> links;  // of each replica
    for (const Ends& link : left) {
      ++links[link.from];
      if (link.to != link.from) ++links[link.to];
    }
    const auto most = std::ranges::max_element(
        links, {}, [](const auto& one) { return std::pair(one.second, one.first); });
    if (most == links.end()) return;
    without.insert(most->first);
  }
}

Outgoing DeadLinks::probes(const schedule::Plan& plan, const Members& members, SteadyTime now) {
  Outgoing result;
  std::set<int> busy;  // a worker makes one probe at a time
  for (const Link& link : links_) {
    if (link.asked && now < link.probed + kProbeEach) busy.insert(link.from);
  }
  for (Link& link : links_) {
    const bool within = replica_of(plan, members, link.from) && replica_of(plan, members, link.to);
    if (!within || now < link.probed + kProbeEach || !busy.insert(link.from).second) continue;
    const protocol::Member& to = members.find(link.to)->member;
    link.probed = now;
    link.asked = true;
    result.emplace_back(
        link.from,
        protocol::Probe{.ip = to.ips.front(), .data_port = to.data_port, .bytes = kProbeBytes});
  }
  return result;
}

std::vector<protocol::DeadLink> DeadLinks::told(const Members& members, SteadyTime now) const {
  std::vector<protocol::DeadLink> result;
  for (const Link& link : links_) {
    if (result.size() == protocol::kMostDeadLinks) break;
    const MemberState *const from = members.find(link.from), *const to = members.find(link.to);
    if (from == nullptr || to == nullptr || !from->connected() || !to->connected()) continue;
    result.push_back({.from = from->member.pod,
                      .to = to->member.pod,
                      .seconds = std::chrono::duration<double>(now - link.since).count()});
  }
  return result;
}

std::string DeadLinks::text(const Members& members) const {
  if (links_.empty()) return "";
  const Link& first = links_.front();
  const auto name = [&](int index) {
    const MemberState* const member = members.find(index);
    return "pod " + (member != nullptr ? member->member.pod : "?");
  };
  std::string text =
      name(first.from) + " gets no answer from " + name(first.to) + " at " + first.address;
  if (links_.size() == 2) text += ", and another link is dead";
  if (links_.size() > 2) {
    text += ", and " + std::to_string(links_.size() - 1) + " other links are dead";
  }
  return text;
}

}  // namespace weir::coordinator
