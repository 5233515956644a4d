// SPDX-License-Identifier: Apache-2.0
#include "tests/operator/controller/reconcile/world.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "operator/api/validate.h"

namespace weir::reconcile::test {
namespace {

// Four equal layers: 20 ms forward and 40 ms backward of 4 samples, 120 kB at each boundary.
// splits: half of a backward is weight gradients.
std::string profile_json(bool splits) {
  const std::string parts = splits ? R"(,"split":{"input":0.02,"weights":0.02})" : "";
  std::string nodes;
  for (int i = 0; i < 4; ++i) {
    nodes +=
        std::string(i == 0 ? "" : ",") + R"({"id":"l)" + std::to_string(i) +
        R"(","parameterBytes":1000,"outputBytesPerSample":30720,"times":{"A":[{"samples":4,"forward":0.02,"backward":0.04)" +
        parts + "}]}}";
  }
  return R"({"apiVersion":"weir.dev/profile/v1","model":"m","digest":"sha256:0","nodes":[)" +
         nodes + "]}";
}

void cut(Time& time) {
  time = std::chrono::floor<std::chrono::seconds>(time);
}
void cut(std::optional<Time>& time) {
  if (time) cut(*time);
}

// Times in objects have whole seconds.
api::JobStatus as_stored(api::JobStatus status) {
  for (auto& condition : status.conditions) cut(condition.since);
  for (auto* time : {&status.start_time, &status.completion_time, &status.last_restart_time,
                     &status.scheduling_retry, &status.plan.time, &status.retune_last_change,
                     &status.compress_last_change, &status.recovery.last_container_end,
                     &status.recovery.recoverable_until})
    cut(*time);
  if (status.recovery.last) cut(status.recovery.last->time);
  for (auto& avoided : status.avoided_nodes) cut(avoided.until);
  return status;
}

}  // namespace

World::World() {
  job.meta.name = "job";
  job.meta.namespace_name = "team";
  job.meta.uid = "job-uid";
  job.meta.generation = 1;
  job.spec.worker.image = "worker:1";
  api::WorkerGroup group;
  group.name = "gpu";
  group.count = 4;
  job.spec.worker_groups.push_back(group);
  job.spec.global_batch = 64;
  job.spec.micro_batch_size = 4;
  job.spec.stages = 4;
  job.spec.schedule.k_initial = 1;
  job.spec.adaptation.evaluation_interval_seconds = 5;
  job.spec.adaptation.retune.cooldown_seconds = 0;
}

Snapshot World::snapshot() const {
  Snapshot s;
  s.job = std::make_shared<const api::PipelineJob>(job);
  s.pods_confirmed = pods_confirmed;
  for (const auto& p : cached_pods ? *cached_pods : pods)
    s.pods.push_back(std::make_shared<const api::Pod>(p));
  auto table = std::make_shared<api::NodeTable>();
  for (const auto& n : nodes) (*table)[n.meta.name] = std::make_shared<const api::Node>(n);
  s.nodes = std::move(table);
  s.plans = plans;
  s.leftovers = leftovers;
  s.taken_names = taken_names;
  s.pod_warnings = pod_warnings;
  s.service_exists = service;
  s.service_owner_uid = service ? job.meta.uid : "";
  s.control_ca = control_ca;
  s.written_url = written_url;
  s.ca_bundle = "ca";
  s.control_url = control_url;
  s.members = members;
  s.report = report;
  s.claims = claims;
  s.adaptation = adaptation;
  s.template_check = template_check;
  s.gang = gang;
  s.refused = refused;
  forget_old(s.refused, now);
  s.profile = profile;
  s.memo = memo.get();
  s.status_written = status_written;
  s.jobs = jobs;
  s.now = now;
  s.leading_since = leading_since.value_or(now - 1h);
  return s;
}

Outcome World::decide(const Snapshot& snapshot) const {
  Outcome outcome = reconcile(snapshot, estimates, tunables);
  if (decided) decided(*this, outcome);
  return outcome;
}

void World::apply(const Request& request) {
  struct Visitor {
    World& world;
    void operator()(const PatchStatus& a) const {
      world.job.status = as_stored(a.status);
      if (world.throttles) world.status_written = world.now;
    }
    void operator()(const PatchReport& a) const { world.job.report = a.status; }
    void operator()(const DryRunPods& a) const {
      world.template_check =
          TemplateCheck{a.hash, world.template_ok, world.template_ok ? "" : "InvalidTemplate",
                        world.template_ok ? "" : "spec.containers[0].imag: unknown field"};
    }
    void operator()(const ReadProfile&) const {
      world.profile = ProfileView{"", "ConfigMap p not found"};
    }
    void operator()(const ReadPodWarning& a) const {
      world.pod_warnings[a.uid] = {world.warning, world.now};
    }
    void operator()(const ConfirmPods&) const {
      world.pods_confirmed = world.now;
      world.behind = world.cached_pods.has_value();
      ++world.pod_lists;
    }
    void operator()(const CreateService&) const { world.service = true; }
    void operator()(const ApplyControlConfigMap&) const {
      world.control_ca = "ca";
      world.written_url = world.control_url;
    }
    void operator()(const ApplyGangObject& a) const { world.gang = {true, a.object}; }
    void operator()(const DeleteGangObject&) const { world.gang = {true, ""}; }
    void operator()(const CreatePods& a) const {
      world.last_created = a.pods;
      for (const auto& input : a.pods) {
        api::Pod pod;
        pod.meta.name =
            api::pod_name(world.job.meta.name, input.group, input.index_in_group, input.attempt);
        const bool exists = std::any_of(world.pods.begin(), world.pods.end(), [&](const auto& p) {
          return p.meta.name == pod.meta.name;
        });
        ASSERT_FALSE(exists) << "pod created twice: " << pod.meta.name;
        pod.meta.uid = "uid-" + std::to_string(++world.pods_created);
        pod.meta.owner_uid = world.job.meta.uid;
        pod.meta.created = world.now;
        cut(pod.meta.created);
        pod.meta.annotations = {{api::kPodGeneration, std::to_string(input.generation)},
                                {api::kTemplateHash, api::template_hash(world.job)}};
        pod.meta.labels = input.labels;
        pod.meta.labels["weir.dev/worker-index"] = std::to_string(input.worker_index);
        pod.meta.labels["weir.dev/attempt"] = std::to_string(input.attempt);
        pod.phase = "Pending";
        pod.gates = input.gates;
        if (!input.final_exit_codes.empty()) pod.final_exit_codes = input.final_exit_codes;
        if (!pod.gates.empty()) {
          pod.conditions.push_back(
              {"PodScheduled", "False", "SchedulingGated", "gated", std::nullopt});
        }
        world.pods.push_back(pod);
      }
    }
    void operator()(const ClosePodGroup& a) const {
      world.pod(a.pod).meta.annotations["kueue.x-k8s.io/retriable-in-group"] = "false";
    }
    void operator()(const OpenGate& a) const {
      auto& pod = world.pod(a.pod);
      pod.gates = a.gates_left;
      std::erase_if(pod.conditions, [](const auto& c) { return c.reason == "SchedulingGated"; });
      world.pinned[a.pod] = a.hostname;
    }
    void operator()(const DeletePod& a) const {
      ++world.pods_deleted;
      if (world.graceful) {
        auto& pod = world.pod(a.name);
        pod.meta.deletion_grace_seconds = 120;
        pod.meta.deleting = world.now + 120s;
        return;
      }
      std::erase_if(world.pods, [&](const auto& p) { return p.meta.uid == a.uid; });
    }
    void operator()(const CreatePlan& a) const { world.plans.push_back(a.plan); }
    void operator()(const DeletePlan& a) const {
      std::erase_if(world.plans, [&](const auto& p) { return p.revision == a.revision; });
    }
    void operator()(const DeleteJob&) const { world.job_deleted = true; }
  };
  std::visit(Visitor{*this}, request);
}

void World::apply(const Outcome& outcome) {
  for (const Request& request : outcome.requests) apply(request);
  if (outcome.status) apply(*outcome.status);
  events.insert(events.end(), outcome.events.begin(), outcome.events.end());
  if (outcome.report) apply(*outcome.report);
  if (outcome.memory) adaptation = *outcome.memory;
}

Answer World::ask(const Request& request) {
  if (const std::string why = refuses ? refuses(request) : ""; !why.empty())
    return {Answer::Kind::kRefused, why};
  if (const auto* create = std::get_if<CreatePods>(&request); create != nullptr && quota) {
    CreatePods some;
    const auto room = static_cast<std::size_t>(std::max(0, quota()));
    for (const auto& input : create->pods) {
      if (some.pods.size() < room) some.pods.push_back(input);
    }
    apply(Request(some));
    if (some.pods.size() == create->pods.size()) return {};
    return {
        Answer::Kind::kRefused,
        "pods is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"};
  }
  apply(request);
  return {};
}

bool World::carry_out(const Outcome& outcome) {
  bool changed = false;
  forget_old(refused, now);
  const Hands hands = {.ask =
                           [&](const Request& request) {
                             Answer answer = ask(request);
                             changed = changed || answer.kind == Answer::Kind::kDone;
                             return answer;
                           },
                       .emit =
                           [&](const api::Event& event) {
                             events.push_back(event);
                             changed = true;
                           },
                       .keep = [&](const AdaptationState& state) { adaptation = state; }};
  const auto carried = reconcile::carry_out(outcome, job, now, refused, hands);
  return changed || carried.news;
}

int World::settle(int most) {
  for (int i = 1; i <= most; ++i) {
    behind = behind && cached_pods;
    if (behind) return i;
    if (!carry_out(pass())) return i;
  }
  return 0;
}

void World::kubelets_run() {
  int i = 0;
  for (auto& pod : pods) {
    ++i;
    if (pod.phase != "Pending" || !pod.gates.empty()) continue;
    pod.phase = "Running";
    pod.node = "n" + std::to_string(i);
    while (std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
      return !node.ready && node.meta.name == pod.node;
    })) {
      pod.node += "b";
    }
    pod.ips = {"10.0.0." + std::to_string(i)};
    pod.ready = pod.started = true;
  }
}

void World::kubelets_end() {
  std::erase_if(pods, [](const auto& pod) { return pod.meta.deleting.has_value(); });
}

void World::workers_register() {
  MembersView view;
  view.received = now;
  view.body.job_uid = job.meta.uid;
  view.body.model = {"m", 4, "sha256:0"};
  view.body.profile_json = profile_json(splits);
  view.body.last_checkpoint_step = last_checkpoint;
  for (const auto& pod : pods) {
    if (pod.phase != "Running" || pod.exit_code) continue;
    protocol::Member member;
    member.pod = pod.meta.name;
    member.pod_uid = pod.meta.uid;
    member.worker_index = std::stoi(pod.meta.labels.at("weir.dev/worker-index"));
    member.ips = pod.ips;
    member.node = pod.node;
    member.ranks = {{device, device_bytes}};
    member.plan_version = plan_version;
    view.body.members.push_back(member);
  }
  members = view;
}

void World::coordinator_applies() {
  if (plans.empty()) return;
  if (!report) report = ReportView{};
  report->received = now;
  report->body.total_steps = 1000;
  const auto& plan = plans.back();
  std::int64_t begins = report->body.step;
  const bool reported =
      report->body.last_switch && report->body.last_switch->revision == plan.revision;
  using schedule::StateMove;
  protocol::LastSwitch now_in_force{.revision = plan.revision,
                                    .outcome = protocol::Outcome::kApplied};
  const bool recovers = plan.state == StateMove::kRecover;
  if (!reported && plan.trigger != schedule::Trigger::kInitial &&
      (plan.state == StateMove::kCheckpoint || (recovers && !layer_without_holder().empty()))) {
    if (recovers) now_in_force.reason = layer_without_holder();
    now_in_force.state = StateMove::kCheckpoint;
    now_in_force.repeated_steps = begins;
    begins = std::max<std::int64_t>(last_checkpoint, 0);
    now_in_force.repeated_steps = std::max<std::int64_t>(now_in_force.repeated_steps - begins, 0);
    report->body.step = begins + 1;  // Applied is said after the first step with a plan
  }
  report->body.plan_revision = plan.revision;
  now_in_force.step = begins;
  report->body.last_switch = now_in_force;
}

std::string World::layer_without_holder() const {
  const auto before =
      std::ranges::find(plans, report->body.plan_revision, &schedule::Plan::revision);
  if (before == plans.end()) return "no worker holds layer 0";
  for (int stage = 0; stage < before->stage_count(); ++stage) {
    const bool held = std::ranges::any_of(before->ranks, [&](const auto& rank) {
      return rank.stage == stage && std::ranges::any_of(pods, [&](const api::Pod& pod) {
               return pod.meta.uid == rank.pod_uid && pod.phase == "Running" && !pod.exit_code;
             });
    });
    const auto layer = before->stages[static_cast<std::size_t>(stage)].first;
    if (!held) return "no worker holds layer " + std::to_string(layer);
  }
  return "";
}

void World::run() {
  for (int i = 0; i < 4; ++i) {
    settle();
    kubelets_run();
    settle();
    workers_register();
    settle();
    coordinator_applies();
    settle();
  }
}

void World::reaches(std::int64_t step) {
  report->body.step = step;
  now += 60s;
  report->received = now;
  settle();
}

void World::steps(std::int64_t count, double seconds_each, double mean_seconds) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::chrono::nanoseconds step(static_cast<std::int64_t>(seconds_each * 1e9));
    now += std::chrono::duration_cast<Time::duration>(step);
    for (Time& scraped : estimates.rates.times) {  // scrapes go on
      scraped += std::chrono::duration_cast<Time::duration>(step);
    }
    report->body.step += 1;
    report->received = now;
    report->body.samples_per_second =
        job.spec.global_batch / (mean_seconds > 0 ? mean_seconds : seconds_each);
    settle();
  }
}

api::Pod& World::pod(const std::string& name) {
  const auto found =
      std::find_if(pods.begin(), pods.end(), [&](const auto& p) { return p.meta.name == name; });
  EXPECT_NE(found, pods.end()) << name;
  return *found;
}

void World::fail(const std::string& name, int exit_code) {
  end_trainer(name, exit_code);
  pod(name).phase = exit_code == 0 ? "Succeeded" : "Failed";
}

void World::end_trainer(const std::string& name, int exit_code) {
  auto& p = pod(name);
  p.exit_code = exit_code;
  p.ended = now;
  p.ready = false;
}

void World::lose_node(const std::string& node) {
  std::erase_if(nodes, [&](const auto& each) { return each.meta.name == node; });
  for (const char* other : {"healthy-1", "healthy-2", "healthy-3", "healthy-4"}) {
    const bool known = std::any_of(nodes.begin(), nodes.end(),
                                   [&](const auto& each) { return each.meta.name == other; });
    if (known) continue;
    nodes.emplace_back();
    nodes.back().meta.name = other;
  }
  nodes.emplace_back();
  nodes.back().meta.name = node;
  nodes.back().ready = false;
  nodes.back().not_ready_since = now;
}

const schedule::Plan* World::plan() const {
  for (const auto& p : plans) {
    if (p.revision == job.status.plan.revision) return &p;
  }
  return nullptr;
}

int World::event_count(const std::string& reason) const {
  return static_cast<int>(std::count_if(events.begin(), events.end(),
                                        [&](const auto& e) { return e.reason == reason; }));
}

std::string World::last_note(const std::string& reason) const {
  for (auto it = events.rbegin(); it != events.rend(); ++it) {
    if (it->reason == reason) return it->note;
  }
  return "";
}

const api::Condition& World::condition(const std::string& type) const {
  const auto* found = api::find_condition(job.status.conditions, type);
  static const api::Condition kNone;
  return found == nullptr ? kNone : *found;
}

void World::scrape_afresh() {
  estimates.freshness = estimator::Freshness::kFresh;
  estimates.last_sample = now;
  estimates.links.clear();
  estimates.rates = {};
  for (int i = 0; i < 16; ++i) estimates.rates.times.push_back(now - std::chrono::seconds(16 - i));
}

void World::links(double fast, double slow) {
  scrape_afresh();
  for (int boundary = 0; boundary < 3; ++boundary) {
    for (const auto direction : {estimator::Direction::kForward, estimator::Direction::kBackward}) {
      const double rate = boundary == 1 ? slow : fast;
      const estimator::LinkKey key{0, boundary, direction};
      estimates.rates.rates[key].assign(16, rate);
      estimator::LinkEstimate link;
      link.link = key;
      const int to = direction == estimator::Direction::kForward ? boundary + 2 : boundary + 1;
      link.from_node =
          "n" +
          std::to_string(direction == estimator::Direction::kForward ? boundary + 1 : boundary + 2);
      link.to_node = "n" + std::to_string(to);
      link.now = rate;
      link.baseline = fast;
      link.preempted = rate < 0.8 * fast;
      if (link.preempted) link.since = now - 10s;
      estimates.links.push_back(link);
    }
  }
}

void World::replica_links(const std::vector<double>& rates) {
  scrape_afresh();
  for (const auto& rank : plan()->ranks) {
    const auto rate = rates[static_cast<std::size_t>(rank.replica)];
    for (const auto& next : plan()->ranks) {
      if (next.replica != rank.replica || next.stage != rank.stage + 1) continue;
      const estimator::LinkKey there{rank.replica, rank.stage, estimator::Direction::kForward};
      const estimator::LinkKey back{rank.replica, rank.stage, estimator::Direction::kBackward};
      estimates.links.push_back({there, rank.node, next.node, rate, rate, false, std::nullopt});
      estimates.links.push_back({back, next.node, rank.node, rate, rate, false, std::nullopt});
      estimates.rates.rates[there].assign(16, rate);
      estimates.rates.rates[back].assign(16, rate);
    }
  }
}

void World::replica_seconds(const std::vector<double>& seconds, int steps_done) {
  if (estimates.replicas_revision != job.status.plan.applied_revision) {  // as the metrics loop
    estimates.replicas_revision = job.status.plan.applied_revision;
    replica_state_ = {};
  }
  for (std::size_t r = 0; r < seconds.size(); ++r) {
    auto& counter = counters_[static_cast<int>(r)];
    counter.steps += steps_done;
    counter.seconds += seconds[r] * steps_done;
  }
  estimator::add_replica_scrapes(replica_state_, {{now, counters_}});
  estimates.replicas = estimator::replica_estimates_of(replica_state_, now, 1h);
}

World training(const std::function<void(api::JobSpec&)>& edit) {
  World world;
  if (edit) edit(world.job.spec);
  world.run();
  world.steps(3, 1.2);
  return world;
}

World two_stages(int replicas) {
  World world;
  world.job.spec.worker_groups[0].count = 2;
  world.job.spec.stages = 2;
  world.job.spec.data_parallel = replicas;
  return world;
}

void disrupt(api::Pod& pod, Time when) {
  pod.conditions.push_back({"DisruptionTarget", "True", "EvictionByEvictionAPI", "", when});
}

}  // namespace weir::reconcile::test
