// SPDX-License-Identifier: Apache-2.0
// How long the operator decides about a job of many ranks, by its own metric weir_planner_seconds:
// the controller on an API server in memory, with members and link rates as workers and Prometheus
// give them. First plan; all planned again after links changed and a worker was replaced; k alone
// after all links slowed down; another cut looked for when no order hides a link. Every kind of
// decision on its own: median and worst.
//   replan_bench [--rounds=N] [--ranks=N] [--replicas=N] [--stages=N] [--micro-batches=N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/decode.h"
#include "operator/app/exposition.h"
#include "operator/cache/object_cache.h"
#include "operator/controller/controller.h"
#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/moved_clock.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/http/beast_transport.h"
#include "worker/protocol/codec.h"

namespace weir::bench {
namespace {

using namespace std::chrono_literals;
using estimator::Direction;
using nlohmann::json;

constexpr auto kJob = "/apis/weir.dev/v1alpha1/namespaces/a/pipelinejobs/j";
constexpr auto kPods = "/api/v1/namespaces/a/pods/";
constexpr auto kPlans = "/api/v1/namespaces/a/configmaps/j-plan-";
constexpr int kLayers = 96, kRanksPerServer = 4;
constexpr int kNever = 100'000'000;     // seconds: all pods seem to be as old as the server
constexpr double kBoundaryBytes = 3e6;  // mean, of a micro-batch
constexpr double kUsual = 1.25e9, kLocal = 12e9;     // bytes per second between servers, inside one
constexpr double kMostOfAll = 0.2, kMostOfK = 0.01;  // seconds: reconcile waits for it

constexpr std::pair<const char*, double> kClasses[] = {{"fast", 1}, {"slow", 2}};
constexpr double kBusy = 3;  // forward and backward of a layer, over forward

// Forward of a micro-batch on a fast device, of layers of unlike cost; seconds.
std::vector<double> layer_seconds() {
  Random random(7);
  std::vector<double> seconds;
  for (int i = 0; i < kLayers; ++i) seconds.push_back(0.001 + 0.003 * random.uniform());
  return seconds;
}

// One class of devices is twice as slow.
std::string profile_json() {
  Random random(8);
  json nodes = json::array();
  const std::vector<double> seconds = layer_seconds();
  for (int i = 0; i < kLayers; ++i) {
    const double forward = seconds[static_cast<std::size_t>(i)];
    json times;
    for (const auto& [name, factor] : kClasses) {
      times[name] = json::array({{{"samples", 2},
                                  {"forward", factor * forward},
                                  {"backward", (kBusy - 1) * factor * forward},
                                  {"update", 0.0002 * factor}}});
    }
    nodes.push_back({{"id", "layer" + std::to_string(i)},
                     {"parameterBytes", 20'000'000 + random.below(40'000'000)},
                     {"outputBytesPerSample", 1'000'000 + random.below(1'000'000)},
                     {"stashBytesPerSample", 50'000'000},
                     {"times", times}});
  }
  return json{{"apiVersion", "weir.dev/profile/v1"},
              {"model", "m"},
              {"digest", "sha256:0"},
              {"nodes", nodes}}
      .dump();
}

struct Options {
  int rounds = 20, ranks = 64, replicas = 1, stages = 0;
  int micro_batches = 0;  // of a replica; 0: 64 of one, 32 of several
};

int batch_of(const Options& options) {
  const int usual = options.replicas == 1 ? 64 : 32;
  return 2 * options.replicas * (options.micro_batches > 0 ? options.micro_batches : usual);
}

json spec_of(const Options& options) {
  const int in_a = options.ranks / options.replicas / 2;
  const json groups = {{{"name", "a"}, {"count", in_a}},
                       {{"name", "b"}, {"count", options.ranks / options.replicas - in_a}}};
  json parallelism = {{"dataParallel", options.replicas}};
  if (options.stages > 0) parallelism["stages"] = options.stages;
  const json adaptation = {{"evaluationIntervalSeconds", 5}, {"retune", {{"cooldownSeconds", 0}}}};
  return {{"worker", {{"image", "w:1"}}},
          {"workerGroups", groups},
          {"parallelism", parallelism},
          {"batch", {{"globalBatchSize", batch_of(options)}, {"microBatchSize", 2}}},
          {"failurePolicy", {{"maxRestarts", 1000}}},
          {"scheduling", {{"timeoutSeconds", kNever}}},
          {"startupTimeoutSeconds", kNever},
          {"progressDeadlineSeconds", kNever},
          {"adaptation", adaptation}};
}

struct Sum {
  double seconds = 0, count = 0;
};
class Job {
 public:
  explicit Job(const Options& options)
      : batch_(batch_of(options)),
        servers_((options.ranks + kRanksPerServer - 1) / kRanksPerServer) {
    cache_.on_change([this](const std::string& key, bool) { controller_.queue().add(key); });
    share_.assign(static_cast<std::size_t>(servers_), 1.0);
    server_.put(kJob, json{{"spec", spec_of(options)}}.dump());
  }

  // Until the workers run the newest plan, over restart back-offs.
  bool train() {
    for (int i = 0; i < 40; ++i) {
      report_.received = clock_.system_now();
      settle();
      const bool started = kubelets_run();
      register_workers();
      settle();
      apply_plan();
      settle();
      if (!started && applied()) return true;
      clock_.move(10s);
    }
    std::fprintf(stderr, "the job does not train: %s\n",
                 json::parse(server_.get(kJob))["status"].dump(1).c_str());
    return false;
  }
  // One of the plan: without an idle one the plan would stay.
  void lose_worker(Random& random) {
    server_.remove(kPods + plan_.ranks[random.below(plan_.ranks.size())].pod);
    members_.reset();
    wanted_ = revision() + 1;
  }

  // Every server keeps `least` or more of its usual rate.
  void change_links(Random& random, double least) {
    for (double& share : share_) share = least + (1 - least) * random.uniform();
    slow_ = {};
    slow_rate_ = 0;
    measure_links(random);
  }

  // Every link of the plan takes this part of the slowest stage's time for a micro-batch. Below 0.9
  // more in flight hides that.
  void slow_links(Random& random, double part) {
    free_links(random);
    slow_rate_ = kBoundaryBytes / (part * slowest_stage());
    measure_links(random);
  }
  // Only one does, between servers: above 0.9 no order hides it, another cut may.
  void slow_link(Random& random, double part) {
    free_links(random);
    for (const auto& rank : plan_.ranks) {
      for (const auto& next : plan_.ranks) {
        if (next.replica != rank.replica || next.stage != rank.stage + 1) continue;
        if (next.node != rank.node) slow_ = {rank.node, next.node};
      }
    }
    slow_rate_ = kBoundaryBytes / (part * slowest_stage());
    measure_links(random);
  }
  void free_links(Random& random) {
    share_.assign(share_.size(), 1.0);
    slow_ = {};
    slow_rate_ = 0;
    measure_links(random);
  }

  // Steps go on, new samples come, the tick is due.
  void tick(Random& random) {
    clock_.move(30s);
    measure_links(random);
    report_.body.step += 16;
    report_.body.samples_per_second = batch_ / plan_.predicted_step_seconds;  // as promised
    report_.received = clock_.system_now();
    controller_.queue().add("a/j");
    settle();
    apply_plan();
    settle();
  }

  std::string page() const {
    const auto transport = http::make_beast_transport(
        {.base_url = "http://127.0.0.1:" + std::to_string(metrics_->port())});
    const auto answer =
        (*transport)->send({http::Method::kGet, "/metrics", {}, ""}, SystemClock().now() + 10s, {});
    return answer ? answer->body : "";
  }
  Sum sum(const std::string& kind) const {
    const std::string text = page();
    const auto value = [&](const std::string& series) {
      const auto at = text.find(series);
      return at == std::string::npos ? 0 : std::atof(text.c_str() + at + series.size());
    };
    const std::string labels = "{kind=\"" + kind + "\"} ";
    return {value("weir_planner_seconds_sum" + labels),
            value("weir_planner_seconds_count" + labels)};
  }
  int stages() const { return plan_.stage_count(); }
  int k() const { return plan_.schedule.k; }

 private:
  void relist() {
    const auto fill = [this](const kube::Sink& sink, const kube::Resource& resource) {
      const auto page = api::decode_list(*client_->list(resource, "", ""));
      sink.replace(page->items, page->resource_version);
    };
    fill(cache_.jobs(""), kube::pipeline_jobs());
    fill(cache_.pods(""), kube::pods());
    fill(cache_.services(""), kube::services());
    fill(cache_.config_maps(""), kube::config_maps());
  }
  void settle() {
    for (int i = 0; i < 100; ++i) {
      relist();
      const auto key = controller_.queue().try_get();
      if (!key) return;
      controller_.reconcile_key(*key);
      controller_.queue().done(*key);
    }
  }
  std::vector<std::string> pod_paths() const {
    std::vector<std::string> paths;
    for (const std::string& path : server_.paths()) {
      if (path.starts_with(kPods)) paths.push_back(path);
    }
    return paths;
  }
  static int index_of(const json& pod) {
    return std::stoi(pod["metadata"]["labels"]["weir.dev/worker-index"].get<std::string>());
  }
  static std::string server_name(int index) { return "server" + std::to_string(index); }

  // True if a pod was waiting.
  bool kubelets_run() {
    bool started = false;
    for (const std::string& path : pod_paths()) {
      json pod = json::parse(server_.get(path));
      if (pod["spec"].contains("nodeName")) continue;
      started = true;
      const int index = index_of(pod);
      pod["spec"]["nodeName"] = server_name(index / kRanksPerServer);
      pod["status"] = {
          {"phase", "Running"},
          {"podIPs", json::array({{{"ip", "10.0.0." + std::to_string(index + 1)}}})},
          {"conditions", json::array({{{"type", "Ready"}, {"status", "True"}}})},
          {"containerStatuses",
           json::array({{{"name", "trainer"}, {"state", {{"running", json::object()}}}}})}};
      server_.put(path, pod.dump());
    }
    return started;
  }
  void register_workers() {
    reconcile::MembersView view;
    view.received = clock_.system_now();
    view.body.model = {"m", kLayers, "sha256:0"};
    view.body.profile_json = profile_;
    for (const std::string& path : pod_paths()) {
      const json pod = json::parse(server_.get(path));
      if (!pod["spec"].contains("nodeName")) return;
      protocol::Member member;
      member.pod = pod["metadata"]["name"].get<std::string>();
      member.pod_uid = pod["metadata"]["uid"].get<std::string>();
      member.worker_index = index_of(pod);
      member.ips = {pod["status"]["podIPs"][0]["ip"].get<std::string>()};
      member.node = pod["spec"]["nodeName"].get<std::string>();
      member.ranks = {{member.worker_index % 8 < 4 ? "fast" : "slow", std::int64_t{40} << 30}};
      view.body.members.push_back(std::move(member));
    }
    for (int n = 0; n + 1 < servers_; ++n) {  // the workers' own probe
      view.body.links.push_back({server_name(n), server_name(n + 1), kUsual, 1e-4});
      view.body.links.push_back({server_name(n + 1), server_name(n), kUsual, 1e-4});
    }
    members_ = std::move(view);
  }
  std::int64_t revision() const {
    const json status = json::parse(server_.get(kJob)).value("status", json::object());
    return status.value("plan", json::object()).value("revision", std::int64_t{0});
  }
  bool applied() const {
    const json status = json::parse(server_.get(kJob)).value("status", json::object());
    const json plan = status.value("plan", json::object());
    return revision() >= wanted_ && plan.value("appliedRevision", std::int64_t{0}) == revision();
  }
  void apply_plan() {
    const std::string map = server_.get(kPlans + std::to_string(revision()));
    if (map.empty()) return;
    const auto plan =
        protocol::decode_plan(json::parse(map)["data"]["plan.json"].get<std::string>());
    if (!plan || plan->revision == plan_.revision) return;
    plan_ = *plan;
    report_.received = clock_.system_now();
    report_.body.plan_revision = plan_.revision;
    report_.body.total_steps = 1'000'000;
    report_.body.last_switch =
        protocol::LastSwitch{plan_.revision, protocol::Outcome::kApplied, report_.body.step, 0, ""};
    controller_.queue().add("a/j");
  }

  // Of a micro-batch.
  double stage_seconds(const schedule::RankPlace& rank) const {
    const schedule::LayerRange& range = plan_.stages[static_cast<std::size_t>(rank.stage)];
    double sum = 0;
    for (int i = range.first; i <= range.last; ++i) sum += layers_[static_cast<std::size_t>(i)];
    const auto member = std::ranges::find(members_->body.members, rank.pod, &protocol::Member::pod);
    const bool fast = member->ranks.front().device == kClasses[0].first;
    return kBusy * sum * kClasses[fast ? 0 : 1].second;
  }

  double slowest_stage() const {
    double slowest = 0;
    for (const auto& rank : plan_.ranks) slowest = std::max(slowest, stage_seconds(rank));
    return slowest;
  }

  double rate(const std::string& from, const std::string& to) const {
    const bool slow =
        slow_.first.empty() || slow_ == std::pair(from, to) || slow_ == std::pair(to, from);
    if (slow_rate_ > 0 && slow) return slow_rate_;
    if (from == to) return kLocal;
    const auto share = [&](const std::string& name) {
      return share_[static_cast<std::size_t>(std::stoi(name.substr(6)))];
    };
    return kUsual * std::min(share(from), share(to));
  }
  // 16 scrapes of every link of the plan.
  void measure_links(Random& random) {
    estimates_ = {};
    estimates_.freshness = estimator::Freshness::kFresh;
    estimates_.last_sample = clock_.system_now();
    for (int i = 0; i < 16; ++i) {
      estimates_.rates.times.push_back(clock_.system_now() - std::chrono::seconds(5 * (15 - i)));
    }
    const auto add = [&](estimator::LinkKey key, const std::string& from, const std::string& to) {
      const double now = rate(from, to), usual = from == to ? kLocal : kUsual;
      estimates_.links.push_back({key, from, to, now, usual, now < 0.8 * usual, std::nullopt});
      std::vector<double>& samples = estimates_.rates.rates[key];
      for (int i = 0; i < 16; ++i) samples.push_back(now * (0.99 + 0.02 * random.uniform()));
    };
    for (const auto& rank : plan_.ranks) {
      for (const auto& next : plan_.ranks) {
        if (next.replica != rank.replica || next.stage != rank.stage + 1) continue;
        add({rank.replica, rank.stage, Direction::kForward}, rank.node, next.node);
        add({rank.replica, rank.stage, Direction::kBackward}, next.node, rank.node);
      }
    }
  }

  const int batch_, servers_;
  const std::vector<double> layers_ = layer_seconds();
  const std::string profile_ = profile_json();
  test::MovedClock clock_;
  test::FakeTransport server_;
  kube::TokenSource token_{"", "", clock_};
  std::unique_ptr<kube::Client> client_ = kube::make_client(server_, token_, clock_, {});
  cache::ObjectCache cache_{clock_, {""}, false};
  kube::EventSender events_{*client_, clock_, "op"};
  std::unique_ptr<telemetry::Endpoint> metrics_ = *telemetry::make_endpoint(0);
  std::optional<reconcile::MembersView> members_;
  reconcile::ReportView report_;
  schedule::Plan plan_;
  std::int64_t wanted_ = 1;  // revision
  estimator::Estimates estimates_;
  std::vector<double> share_;                 // by server
  std::pair<std::string, std::string> slow_;  // the link that has slow_rate_; empty: all
  double slow_rate_ = 0;                      // bytes per second; 0: none has
  controller::Controller controller_{
      {*client_, cache_, events_, clock_, [] { return true; },
       [] { return std::string("https://op:8443"); }, [] { return std::string("CA"); }},
      {.control =
           [this](const std::string&, const std::string&) {
             controller::ControlView view;
             view.members = members_;
             if (plan_.revision > 0) view.report = report_;
             return view;
           },
       .estimates = [this](const std::string&, const std::string&) { return estimates_; },
       .leading_since = [] { return std::optional<SystemTime>(SystemTime{}); },
       .planned = operator_app::planner_observer(*metrics_),
       .applied = operator_app::apply_observer(*metrics_)}};
};

// What a kind of decision took, one by one where the metric allows.
class Watch {
 public:
  Watch(const Job& job, std::string kind) : job_(job), kind_(std::move(kind)) { look(); }
  // True: there was one since the last look.
  bool look() {
    const Sum now = job_.sum(kind_);
    const bool news = now.count > before_.count;
    if (news) seconds_.push_back((now.seconds - before_.seconds) / (now.count - before_.count));
    before_ = now;
    return news;
  }
  bool print(const char* what, double most) {
    std::sort(seconds_.begin(), seconds_.end());
    const bool none = seconds_.empty();
    const bool good = !none && seconds_.back() <= most;
    std::printf("%-34s kind=%-9s %4zu decisions, median %8.5f s, worst %8.5f s, target %g s: %s\n",
                what, kind_.c_str(), seconds_.size(), none ? 0 : seconds_[seconds_.size() / 2],
                none ? 0 : seconds_.back(), most, good ? "met" : "missed");
    return good;
  }

 private:
  const Job& job_;
  const std::string kind_;
  Sum before_;
  std::vector<double> seconds_;
};

int run(const Options& options) {
  Job job(options);
  Random random(1);
  if (!job.train()) return 1;
  std::printf("%d ranks, %d layers, two classes, servers of %d; first plan: %.5f s, %d stages\n",
              options.ranks, kLayers, kRanksPerServer, job.sum("initial").seconds, job.stages());
  constexpr int kTicks = 6;  // two evaluations decide
  Watch all(job, "restart"), kept(job, "evaluate"), retuned(job, "retune"), cut(job, "regroup");
  const auto ticks = [&](Watch& until) {
    for (int t = 0; t < kTicks; ++t) {
      job.tick(random);
      bool there = false;
      for (Watch* watch : {&kept, &retuned, &cut}) there |= watch->look() && watch == &until;
      if (there) return;
    }
  };
  for (int i = 0; i < options.rounds; ++i) {
    job.change_links(random, 0.1);
    job.lose_worker(random);
    if (!job.train()) return 1;
    all.look();
    // Planned for free links: few micro-batches in flight. Then a link slows down.
    job.free_links(random);
    job.lose_worker(random);
    if (!job.train()) return 1;
    all.look();
    const int k = job.k();
    job.slow_links(random, 0.85);
    ticks(retuned);
    std::printf("round %d: k %d -> %d\n", i, k, job.k());
    job.slow_link(random, 2);
    ticks(cut);
  }
  bool good = all.print("links changed, a worker replaced", kMostOfAll);
  good = retuned.print("tick, k or caps change", kMostOfK) && good;
  good = kept.print("tick, the plan is kept", kMostOfK) && good;
  good = cut.print("tick, another cut is looked for", kMostOfAll) && good;
  const std::string page = job.page();
  for (std::size_t at = 0; (at = page.find("weir_planner_seconds_bucket", at)) != page.npos;) {
    const std::size_t end = page.find('\n', at);
    const std::string line = page.substr(at, end - at);
    if (!line.ends_with(" 0")) std::printf("%s\n", line.c_str());
    at = end;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::set_log(weir::LogLevel::kError, weir::LogFormat::kText);
  weir::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const int value = std::atoi(word.c_str() + word.find('=') + 1);
    if (word.starts_with("--rounds=")) options.rounds = std::max(1, value);
    if (word.starts_with("--ranks=")) options.ranks = std::max(2, value);
    if (word.starts_with("--replicas=")) options.replicas = std::max(1, value);
    if (word.starts_with("--stages=")) options.stages = value;
    if (word.starts_with("--micro-batches=")) options.micro_batches = std::max(1, value);
  }
  return weir::bench::run(options);
}
