// SPDX-License-Identifier: Apache-2.0
#include "operator/control/hub.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "operator/api/names.h"
#include "operator/control/coordinator.h"
#include "worker/http/text.h"
#include "worker/protocol/profile.h"

namespace weir::control_server {
namespace {

http::Response plan_answer(std::uint32_t revision, const std::string& plan_json) {
  return {200,
          {{"Content-Type", "application/json"}, {"ETag", "\"" + std::to_string(revision) + "\""}},
          plan_json};
}

http::Response unchanged(std::uint32_t have) {
  return {304, {{"ETag", "\"" + std::to_string(have) + "\""}}, ""};
}

// Whether the new report differs in something that decisions depend on, that is, in more than
// counters.
bool matters(const protocol::Report& before, const protocol::Report& now) {
  const auto ready = [](const protocol::Report& report) {
    return std::ranges::count_if(report.members, [](const auto& member) { return member.ready; });
  };
  const auto silent = [](const protocol::Report& report) {
    return std::ranges::count_if(report.members,
                                 [](const auto& member) { return member.silent_seconds > 0; });
  };
  const auto done = [](const protocol::Report& report) {
    return report.total_steps > 0 && report.step >= report.total_steps;
  };
  const auto outcome = [](const protocol::Report& report) {
    return report.last_switch ? std::pair(report.last_switch->revision,
                                          static_cast<int>(report.last_switch->outcome))
                              : std::pair(0U, -1);
  };
  return before.plan_revision != now.plan_revision || before.incarnation != now.incarnation ||
         outcome(before) != outcome(now) || ready(before) != ready(now) ||
         silent(before) != silent(now) || done(before) != done(now) ||
         before.members.size() != now.members.size();
}

// The times of classes of the members of which `body` has none and `before` has some.
std::string joined_profile(const protocol::Register& body, const std::string& before) {
  if (body.profile_json.empty()) return before;
  if (before.empty() || body.profile_json == before) return body.profile_json;
  auto profile = protocol::decode_profile(body.profile_json);
  if (!profile || profile->layers.empty()) return body.profile_json;
  std::set<std::string> missing;
  for (const protocol::Member& member : body.members) {
    for (const auto& rank : member.ranks) missing.insert(rank.device);
  }
  for (const auto& [device, times] : profile->layers.front().times) missing.erase(device);
  if (missing.empty()) return body.profile_json;
  auto known = protocol::decode_profile(before);
  if (!known) return body.profile_json;
  bool adds = false;
  for (protocol::ProfileLayer& layer : known->layers) {
    std::erase_if(layer.times, [&](const auto& entry) { return !missing.contains(entry.first); });
    adds = adds || !layer.times.empty();
  }
  if (!adds || !protocol::merge(*profile, *known)) return body.profile_json;
  return protocol::encode_profile(*profile);
}

// A new coordinator asks no rank that trains to measure or to time a link, so what it tells may
// lack what an earlier one of the same model has told.
void keep_measurements(protocol::Register& body, const protocol::Register& before) {
  if (before.model.digest != body.model.digest) return;
  body.profile_json = joined_profile(body, before.profile_json);
  std::set<std::string> nodes;
  for (const protocol::Member& member : body.members) nodes.insert(member.node);
  std::set<std::pair<std::string, std::string>> told;
  for (const protocol::ProbedLink& link : body.links) told.emplace(link.from_node, link.to_node);
  for (const protocol::ProbedLink& link : before.links) {
    const bool there = nodes.contains(link.from_node) && nodes.contains(link.to_node);
    if (there && !told.contains({link.from_node, link.to_node})) body.links.push_back(link);
  }
}

}  // namespace

void Hub::send(Answers answers) {
  for (auto& [respond, response] : answers) respond(std::move(response));
}

void Hub::notify_listener(const std::string& key) const {
  std::function<void(const std::string&)> listener;
  {
    const std::lock_guard lock(hub_mutex_);
    listener = listener_;
  }
  if (listener) listener(key);
}

void Hub::on_change(std::function<void(const std::string& key)> listener) {
  const std::lock_guard lock(hub_mutex_);
  listener_ = std::move(listener);
}

// Call it with the lock held. If the uid under the key is new, the old job's state is dropped.
Hub::Job& Hub::job_of(const std::string& key, const std::string& uid, Answers& answers) {
  Job& job = jobs_[key];
  if (job.uid != uid) {
    for (auto& poll : job.polls) {
      answers.emplace_back(std::move(poll.respond), http::plain_text(410, "the job was replaced"));
    }
    job = Job{};
    job.uid = uid;
  }
  return job;
}

void Hub::publish_plan(const std::string& key, const std::string& job_uid, std::uint32_t revision,
                       const std::string& plan_json) {
  Answers answers;
  {
    const std::lock_guard lock(hub_mutex_);
    Job& job = job_of(key, job_uid, answers);
    if (revision > job.revision) {
      job.revision = revision;
      job.plan_json = plan_json;
      std::erase_if(job.polls, [&](Poll& poll) {
        if (poll.have >= revision) return false;
        answers.emplace_back(std::move(poll.respond), plan_answer(revision, plan_json));
        return true;
      });
    }
  }
  send(std::move(answers));
}

void Hub::name_coordinator(const std::string& key, const std::string& job_uid,
                           const std::string& pod_uid, std::int64_t term,
                           const http::Response& refusal) {
  Answers answers;
  {
    const std::lock_guard lock(hub_mutex_);
    Job& job = job_of(key, job_uid, answers);
    if (!job.named || term >= job.named->term) {
      job.named = Named{.pod_uid = pod_uid, .term = term, .refusal = refusal};
      std::erase_if(job.polls, [&](Poll& poll) {
        if (poll.pod_uid == pod_uid) return false;
        answers.emplace_back(std::move(poll.respond), refusal);
        return true;
      });
    }
  }
  send(std::move(answers));
}

void Hub::forget(const std::string& key) {
  Answers answers;
  {
    const std::lock_guard lock(hub_mutex_);
    const SteadyTime now = clock_.now();
    std::erase_if(tombstones_,
                  [now](const auto& entry) { return now - entry.second.second > kTombstone; });
    const auto found = jobs_.find(key);
    if (found == jobs_.end()) return;
    for (auto& poll : found->second.polls) {
      answers.emplace_back(std::move(poll.respond), http::plain_text(410, "the job is deleted"));
    }
    tombstones_[key] = {found->second.uid, now};
    jobs_.erase(found);
  }
  send(std::move(answers));
}

bool Hub::gone(const std::string& key, const std::string& job_uid) const {
  const std::lock_guard lock(hub_mutex_);
  const auto found = tombstones_.find(key);
  return found != tombstones_.end() && found->second.first == job_uid &&
         clock_.now() - found->second.second <= kTombstone;
}

std::optional<ReceivedRegister> Hub::members(const std::string& key,
                                             const std::string& job_uid) const {
  const std::lock_guard lock(hub_mutex_);
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.uid != job_uid) return std::nullopt;
  return found->second.members;
}

std::optional<ReceivedReport> Hub::report(const std::string& key,
                                          const std::string& job_uid) const {
  const std::lock_guard lock(hub_mutex_);
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.uid != job_uid) return std::nullopt;
  return found->second.report;
}

std::vector<ReceivedClaim> Hub::claims(const std::string& key, const std::string& job_uid) const {
  std::vector<ReceivedClaim> claims;
  const std::lock_guard lock(hub_mutex_);
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || found->second.uid != job_uid) return claims;
  for (const auto& [pod_uid, claim] : found->second.claims)
    claims.push_back({pod_uid, claim.term, claim.received});
  return claims;
}

std::size_t Hub::open_polls() const {
  const std::lock_guard lock(hub_mutex_);
  std::size_t count = 0;
  for (const auto& [key, job] : jobs_) count += job.polls.size();
  return count;
}

int Hub::take_register(const std::string& key, protocol::Register body) {
  Answers answers;
  {
    const std::lock_guard lock(hub_mutex_);
    Job& job = job_of(key, body.job_uid, answers);
    if (job.members) keep_measurements(body, job.members->body);
    job.members = ReceivedRegister{std::move(body), clock_.system_now()};
    job.sequence = -1;  // it may be a new coordinator, which counts from 0
  }
  send(std::move(answers));
  notify_listener(key);
  return 202;
}

int Hub::take_report(const std::string& key, protocol::Report body) {
  Answers answers;
  bool important = false;
  {
    const std::lock_guard lock(hub_mutex_);
    Job& job = job_of(key, body.job_uid, answers);
    if (!job.members) return 428;  // answers is empty: a job without members has no polls
    if (body.sequence < job.sequence) return 409;
    job.sequence = body.sequence;
    important = !job.report || matters(job.report->body, body);
    job.report = ReceivedReport{std::move(body), clock_.system_now()};
  }
  send(std::move(answers));
  if (important) notify_listener(key);
  return 202;
}

void Hub::take_claim(const std::string& key, const std::string& job_uid, const std::string& pod_uid,
                     std::int64_t term) {
  Answers answers;
  bool tells = false;
  {
    const std::lock_guard lock(hub_mutex_);
    auto& claims = job_of(key, job_uid, answers).claims;
    const SystemTime received = clock_.system_now();
    const SteadyTime now = clock_.now();
    std::erase_if(claims,
                  [&](const auto& one) { return received - one.second.received > kClaimKept; });
    const auto [claim, fresh] = claims.try_emplace(pod_uid);
    tells = fresh || claim->second.term != term || now - claim->second.told >= kClaimRepeat;
    claim->second.term = term;
    claim->second.received = received;
    if (tells) claim->second.told = now;
  }
  send(std::move(answers));
  if (tells) notify_listener(key);
}

void Hub::wait_plan(const std::string& key, const std::string& job_uid, const std::string& pod_uid,
                    std::uint32_t have, std::chrono::seconds wait, http::Responder respond) {
  Answers answers;
  {
    const std::lock_guard lock(hub_mutex_);
    Job& job = job_of(key, job_uid, answers);
    if (job.named && job.named->pod_uid != pod_uid) {
      answers.emplace_back(std::move(respond), job.named->refusal);
    } else if (job.revision > have) {
      answers.emplace_back(std::move(respond), plan_answer(job.revision, job.plan_json));
    } else if (wait <= std::chrono::seconds(0)) {
      answers.emplace_back(std::move(respond), unchanged(have));
    } else {
      if (job.polls.size() >= kMaxPollsPerJob) {
        answers.emplace_back(std::move(job.polls.front().respond),
                             unchanged(job.polls.front().have));
        job.polls.erase(job.polls.begin());
      }
      job.polls.push_back({pod_uid, have, clock_.now() + wait, std::move(respond)});
    }
  }
  send(std::move(answers));
}

void Hub::expire_polls() {
  Answers answers;
  {
    const std::lock_guard lock(hub_mutex_);
    const SteadyTime now = clock_.now();
    for (auto& [key, job] : jobs_) {
      std::erase_if(job.polls, [&](Poll& poll) {
        if (poll.until > now) return false;
        answers.emplace_back(std::move(poll.respond), unchanged(poll.have));
        return true;
      });
    }
  }
  send(std::move(answers));
}

void Hub::release_polls() {
  Answers answers;
  {
    const std::lock_guard lock(hub_mutex_);
    for (auto& [key, job] : jobs_) {
      for (auto& poll : job.polls) {
        answers.emplace_back(std::move(poll.respond), http::plain_text(503, "the operator stops"));
      }
      job.polls.clear();
    }
  }
  send(std::move(answers));
}

void publish_view(Hub& hub, const std::string& key, const cache::JobView& view) {
  if (!view.job) return;
  if (const auto& named = view.job->status.coordinator) {
    hub.name_coordinator(key, view.job->meta.uid, named->pod_uid, named->term,
                         misdirected(*view.job, coordinator_of(view)));
  }
  const auto& job = view.job->meta;
  const std::string prefix = api::plan_config_maps(job.name);
  std::uint32_t newest = 0;
  const std::string* plan = nullptr;
  for (const auto& map : view.config_maps) {
    const std::string& name = map->meta.name;
    if (!name.starts_with(prefix) || map->meta.owner_uid != job.uid) continue;
    std::uint32_t revision = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, revision);
    const auto text = map->data.find("plan.json");
    if (error != std::errc() || stop != end || text == map->data.end() || revision <= newest ||
        revision > view.job->status.plan.revision) {
      continue;
    }
    newest = revision;
    plan = &text->second;
  }
  if (plan != nullptr) hub.publish_plan(key, job.uid, newest, *plan);
}

}  // namespace weir::control_server
