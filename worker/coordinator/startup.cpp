// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/startup.h"

#include <algorithm>
#include <set>
#include <utility>

namespace weir::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr auto kSettled = 1s;         // since the last change of members
constexpr auto kOperatorPlans = 30s;  // from a register to the start of ranks, at most
constexpr auto kMeasureTime = 900s;   // the default of startupTimeoutSeconds
constexpr auto kProbeTime = 1s;       // of each round of PROBE
// 34 ms at 1 Gbit/s, long enough to leave slow start.
constexpr std::int64_t kProbeBytes = 4 * 1024 * 1024;
// Even pairs, then odd pairs, so that no rank takes part in two probes at a time; then the other
// way, since a port may be slow in one direction only.
constexpr int kPairs = 2, kProbeRounds = 2 * kPairs;
// On a busy machine a fast link may look slow once. One that did is timed again, and the better
// figure counts.
constexpr double kDoubtful = 0.5;  // of the median

std::string device_class(const protocol::Member& member) {
  return member.ranks.empty() ? "" : member.ranks.front().device;
}

// One that has been part of a generation without a stage is idle.
bool may_train(const MemberState& state) {
  const protocol::Inventory& told = state.inventory;
  const bool idle = told.history > 0 && !told.running &&
                    std::ranges::all_of(told.held, [](const auto& one) { return one.snapshot; });
  return state.revision != 0 && !idle;
}

std::set<std::string> classes_that_have_trained(const Members& members) {
  std::set<std::string> classes;
  for (const auto& [index, state] : members.all()) {
    if (state.revision != 0) classes.insert(device_class(state.member));
  }
  return classes;
}

}  // namespace

Startup::Step Startup::advance(const Members& members, SteadyTime now) {
  Step step;
  step.warnings = std::exchange(warnings_, {});
  const bool told = members.version() == registered_version_;
  const bool stays_idle = registered_at_ && now - *registered_at_ >= kOperatorPlans;
  const bool measured = members.version() == measured_version_ && (measured_all_ || !stays_idle);
  if (members.all().empty() || (told && !learned_ && measured)) return step;
  if (!members.complete(options_.workers) && now - members.last_change() < kSettled) return step;
  const bool trained = !classes_that_have_trained(members).empty();
  const bool first = !trained && options_.term == protocol::kFirstTerm;
  if (first || trained || stays_idle) {
    const bool all = first || stays_idle;
    if (take_measurements(members, now, all, step)) {
      measured_version_ = members.version();
      measured_all_ = all;
    } else if (first) {
      return step;
    }
  }
  const bool busy = !measuring_.empty() || !probing_.empty();
  if (told && (!learned_ || busy)) return step;
  registered_version_ = members.version();
  registered_at_ = now;
  learned_ = false;
  step.register_now = body(members, step);
  return step;
}

bool Startup::take_measurements(const Members& members, SteadyTime now, bool all, Step& step) {
  if (options_.measure && !measure_classes(members, now, all, step)) return false;
  return !options_.probe || !members.complete(options_.workers) ||
         probe_neighbours(members, now, step);
}

bool Startup::measure_classes(const Members& members, SteadyTime now, bool all, Step& step) {
  std::erase_if(measuring_, [&](const auto& entry) {
    if (now < entry.second.deadline) return false;
    profiles_[entry.first] = "";
    learned_ = true;
    step.warnings.push_back("no answer to MEASURE from worker " +
                            std::to_string(entry.second.index));
    return true;
  });
  const auto known = classes_that_have_trained(members);
  bool done = true;
  for (const auto& [index, state] : members.all()) {
    const std::string device = device_class(state.member);
    // A rank that trains needs its cores. Those of its class are asked if the operator makes no use
    // of them: as a new leader it may have forgotten the profile.
    if (profiles_.contains(device) || may_train(state) || refused_.contains(index) ||
        (!all && known.contains(device)))
      continue;
    done = false;
    if (measuring_.contains(device)) continue;
    // Waits for another rank of the class, or for this one to return.
    if (!state.connected()) continue;
    measuring_[device] = {
        .index = index, .deadline = now + kMeasureTime, .others_train = known.contains(device)};
    step.send.emplace_back(index, protocol::Measure{.samples = options_.measure_samples,
                                                    .rounds = options_.measure_rounds});
  }
  return done;
}

void Startup::measured(int index, const protocol::Measured& answer) {
  const auto found =
      std::ranges::find_if(measuring_, [&](const auto& m) { return m.second.index == index; });
  if (found == measuring_.end()) return;
  if (!answer.error.empty() && found->second.others_train) {
    refused_.insert(index);
    measuring_.erase(found);
    return;
  }
  if (!answer.error.empty()) {
    warnings_.push_back("worker " + std::to_string(index) + " could not measure: " + answer.error);
  }
  profiles_[found->first] = answer.error.empty() ? answer.profile_json : "";
  learned_ = true;
  measuring_.erase(found);
}

bool Startup::probe_neighbours(const Members& members, SteadyTime now, Step& step) {
  for (const auto& [index, answer] : std::exchange(probe_answers_, {})) {
    const auto pair = std::ranges::find(probing_, index, &Probing::from);
    if (pair == probing_.end()) continue;
    const auto *from = members.find(pair->from), *to = members.find(pair->to);
    if (answer.bytes_per_second > 0 && from != nullptr && to != nullptr) {
      learned_ = true;
      protocol::ProbedLink& link = links_[{pair->from, pair->to}];
      link.from_node = from->member.node;
      link.to_node = to->member.node;
      if (answer.bytes_per_second > link.bytes_per_second) {
        link.bytes_per_second = answer.bytes_per_second;
        link.rtt_seconds = answer.rtt_seconds;
      }
    }
    probing_.erase(pair);
  }
  std::erase_if(probing_, [&](const Probing& pair) { return now >= pair.deadline; });
  while (probing_.empty() && probe_round_ < 2 * kProbeRounds) {
    const int round = probe_round_++ % kProbeRounds;
    const bool back = round >= kPairs, again = probe_round_ > kProbeRounds;
    const double doubtful = again ? kDoubtful * median_rate() : 0;
    for (const auto& [index, state] : members.all()) {
      const int other = back ? index - 1 : index + 1, first = std::min(index, other);
      const auto* peer = members.find(other);
      if (first % kPairs != round % kPairs || peer == nullptr) continue;
      const auto known = links_.find({index, other});
      if (again && known != links_.end() && known->second.bytes_per_second >= doubtful) continue;
      if (!state.connected() || peer->member.ips.empty()) continue;
      // A rank that trains needs its links, and Prometheus knows their rates.
      if (state.revision != 0 || peer->revision != 0) continue;
      probing_.push_back({.from = index, .to = other, .deadline = now + kProbeTime});
      step.send.emplace_back(index, protocol::Probe{.ip = peer->member.ips.front(),
                                                    .data_port = peer->member.data_port,
                                                    .bytes = kProbeBytes});
    }
  }
  return probing_.empty();
}

double Startup::median_rate() const {
  std::vector<double> rates;
  for (const auto& [pair, link] : links_) rates.push_back(link.bytes_per_second);
  if (rates.empty()) return 0;
  const auto middle = rates.begin() + std::ssize(rates) / 2;
  std::ranges::nth_element(rates, middle);
  return *middle;
}

void Startup::probed(int index, const protocol::Probed& answer) {
  probe_answers_.emplace_back(index, answer);
}

void Startup::lost(int index) {
  refused_.erase(index);
  std::erase_if(measuring_, [&](const auto& m) { return m.second.index == index; });
  std::erase_if(probing_, [&](const Probing& pair) { return pair.from == index; });
}

// Where others train, newcomers of another class are told of when that is measured: a plan that has
// a rank for one ends its measuring.
protocol::Register Startup::body(const Members& members, Step& step) const {
  protocol::Register result{.job_uid = options_.job_uid, .model = options_.model};
  for (const auto& [pair, link] : links_) result.links.push_back(link);
  std::set<std::string> classes;
  const auto known = classes_that_have_trained(members);
  for (const auto& [index, state] : members.all()) {
    const std::string device = device_class(state.member);
    if (!known.empty() && measuring_.contains(device) && !known.contains(device)) continue;
    result.members.push_back(state.member);
    classes.insert(device);
  }
  std::vector<std::string> parts;
  for (const auto& device : classes) {
    const auto found = profiles_.find(device);
    if (found != profiles_.end() && !found->second.empty()) parts.push_back(found->second);
  }
  if (parts.empty()) return result;
  auto merged = merge_profiles(parts);
  if (merged) {
    result.profile_json = *std::move(merged);
  } else {
    step.warnings.push_back(merged.error().message);
  }
  return result;
}

}  // namespace weir::coordinator
