// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/named_job.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"

namespace weir::bench {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto kPatience = 90s, kScrape = 1s;
constexpr auto kPoll = 20ms;
constexpr std::size_t kWindow = 5;  // scrapes, over which a rate is told
constexpr double kNotPacked = 1;

}  // namespace

NamedJob::NamedJob(int replicas, const Namespaces& spaces)
    : replicas_(replicas), spaces_(spaces), operator_(spaces.outside()) {
  world_.job.meta.name = "gpt";
  world_.job.meta.namespace_name = "demo";
  world_.job.meta.uid = "u";
  auto& spec = world_.job.spec;
  spec.worker_groups[0].count = kStages;
  spec.stages = kStages;
  spec.data_parallel = replicas;
  spec.micro_batch_size = kSamples;
  spec.global_batch = replicas * kMicroBatches * kSamples;
  spec.adaptation.mode = "Observe";
}

std::unique_ptr<NamedJob> NamedJob::start(int replicas, const Namespaces& spaces,
                                          const std::map<int, std::vector<std::string>>& words) {
  std::unique_ptr<NamedJob> made(new NamedJob(replicas, spaces));
  const int workers = replicas * kStages;
  for (int from = 0; from < workers; ++from) {
    for (int to = 0; to < workers; ++to) {
      if (from != to && !made->limit(from, to, kRate)) return nullptr;
    }
  }
  reconcile::test::World& world = made->world_;
  world.settle();
  world.settle();
  const auto hosts = spaces.hosts();
  std::ranges::sort(world.pods, {}, [](const auto& pod) {
    return std::stoi(pod.meta.labels.at("weir.dev/worker-index"));
  });
  world.kubelets_run();
  for (int i = 0; i < std::ssize(world.pods); ++i) {
    auto& pod = world.pods[static_cast<std::size_t>(i)];
    const auto& host = hosts[static_cast<std::size_t>(i)];
    pod.node = node(i);
    pod.ips = {host.address};
    made->pods_.push_back(
        {.name = pod.meta.name, .uid = pod.meta.uid, .host = host, .words = {"--node=" + node(i)}});
    const auto more = words.find(i);
    if (more == words.end()) continue;
    auto& own = made->pods_.back().words;
    own.insert(own.end(), more->second.begin(), more->second.end());
  }
  world.settle();
  if (std::ssize(made->pods_) != workers) {
    std::fprintf(stderr, "%zu pods, not %d\n", made->pods_.size(), workers);
    return nullptr;
  }
  const test::SlowReplica emulation(replicas, kStages, 1, kForward + kBackward);
  std::vector<std::string> common = emulation.common(test::kNoEnd);
  common.insert(common.end(), {"--seq=64", "--emulate-device=x1", "--threads=1"});
  std::erase(common, "--seq=4");
  made->job_ = std::make_unique<test::OperatedJob>(made->operator_, made->pods_, common);
  for (int i = 0; i < workers; ++i) {
    made->metrics_ports_.push_back(made->process(i).logged("metrics_port").value_or(0));
  }
  if (!made->plan()) {
    std::fprintf(stderr, "the job does not begin: %s\n", made->job_->errors().c_str());
    return nullptr;
  }
  return made;
}

bool NamedJob::plan() {
  const std::size_t all = pods_.size();
  const auto complete = [&] {
    const auto told = operator_.registered();
    return told.members.size() == all && !told.profile_json.empty();
  };
  if (!test::eventually(complete, kPatience, kPoll)) return false;
  auto told = operator_.registered();
  told.links.clear();  // the probes of equal links differ a little: then so would places
  world_.members = reconcile::MembersView{told, world_.now};
  world_.settle();
  if (world_.plan() == nullptr) return false;
  const schedule::Plan& plan = *world_.plan();
  for (const schedule::RankPlace& rank : plan.ranks) {
    const auto at = static_cast<std::size_t>(worker(rank.replica, rank.stage));
    if (at >= pods_.size() || rank.pod != pods_[at].name) {
      std::fprintf(stderr, "stage %d of replica %d is on %s\n", rank.stage, rank.replica,
                   rank.pod.c_str());
      return false;
    }
  }
  operator_.use(plan);
  return true;
}

// The counters of sums over replicas, as Prometheus and the estimator have them; usual is the 95 %
// quantile of what was seen.
void NamedJob::scrape() {
  if (replicas_ == 1) return;
  Counted now;
  double packed = 0, payload = 0;
  for (int i = 0; i < std::ssize(pods_); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::string page = test::scrape(metrics_ports_[at], pods_[at].host.address);
    packed += test::metric(page, {"weir_sync_bytes_total{", "packed"}).value_or(0);
    payload += test::metric(page, {"weir_sync_payload_bytes_total{", "packed"}).value_or(0);
    const int replica = i / kStages, stage = i % kStages;
    for (int other = 0; other < replicas_; ++other) {
      const std::string link = "link=\"s" + std::to_string(stage) + ":r" + std::to_string(other) +
                               "-r" + std::to_string(replica) + "\"";
      const auto bytes = test::metric(page, {"weir_link_bytes_total{", link});
      const auto busy = test::metric(page, {"weir_link_busy_seconds_total{", link});
      if (bytes && busy) {
        now[{replica, stage, estimator::Direction::kSync, other}] = {*bytes, *busy};
      }
    }
  }
  counted_.push_back(std::move(now));
  if (counted_.size() > kWindow + 1) counted_.pop_front();
  estimator::Scrape scrape{world_.now, {}};
  for (const auto& [key, counters] : counted_.back()) {
    const std::array before = counted_.front()[key];
    if (counters[1] <= before[1] || counters[0] <= before[0]) continue;
    const double rate = (counters[0] - before[0]) / (counters[1] - before[1]);
    scrape.links.push_back({key, node(worker(key.sender, key.boundary)),
                            node(worker(key.replica, key.boundary)), rate, 0});
    auto& seen = rates_[key];
    seen.insert(std::ranges::upper_bound(seen, rate), rate);
    sums_.baseline[key] = seen[(seen.size() - 1) * 95 / 100];
  }
  estimator::add_scrapes(sums_, {scrape});
  world_.estimates = {};
  world_.estimates.packed_part = payload > 0 ? packed / payload : kNotPacked;
  estimator::add_sync_links(world_.estimates, sums_, estimator::Freshness::kFresh, world_.now, 60s);
}

bool NamedJob::hear(int reports) {
  auto last = steady_clock::now(), scraped = last;
  for (int i = 0; i < reports; ++i) {
    std::optional<protocol::Report> report;
    const auto told = [&] {
      const auto now = steady_clock::now();
      world_.now += std::chrono::duration_cast<reconcile::Time::duration>(now - last);
      last = now;
      if (now >= scraped + kScrape) {
        scraped = now;
        scrape();
      }
      report = operator_.report(heard_ + 1);
      return report.has_value();
    };
    if (!test::eventually(told, kPatience, kPoll)) return false;
    heard_ = report->sequence;
    world_.report = reconcile::ReportView{*report, world_.now};
    world_.carry_out(world_.pass());
  }
  return true;
}

NamedJob::StepEnd NamedJob::next_end() const {
  const auto ended = [&] { return test::logged_steps(job_->loss_log(0)).size(); };
  const std::size_t before = ended();
  std::size_t now = before;
  test::eventually([&] { return (now = ended()) > before; }, kPatience, kPoll);
  return {steady_clock::now(), static_cast<double>(now)};
}

int NamedJob::late_p99() const {
  std::vector<int> late;
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    for (const test::LoggedStep& step : test::logged_steps(job_->loss_log(i))) {
      late.insert(late.end(), step.lateness_us.begin(), step.lateness_us.end());
    }
  }
  if (late.empty()) return 0;
  std::ranges::sort(late);
  return late[late.size() * 99 / 100];
}

}  // namespace weir::bench
