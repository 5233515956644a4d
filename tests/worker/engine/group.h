// SPDX-License-Identifier: Apache-2.0
// Whole pipelines in one process: one engine thread per rank, real links over the loopback, the
// test as coordinator.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/strict_device.h"
#include "tests/worker/stage/stage_testing.h"
#include "worker/engine/engine.h"
#include "worker/engine/verdict.h"
#include "worker/schedule/caps.h"
#include "worker/transport/staged_collective.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::engine::test {

using weir::test::eventually;
using weir::test::kPatience;

// name: of a model, or "gpt-tiny in bf16".
inline stage::ModelOptions tiny_model(const std::string& name) {
  const std::size_t model = name.find(" in bf16");
  return {
      .name = name.substr(0, model),
      .sequence = 8,
      .vocabulary = 32,
      .precision = model == std::string::npos ? stage::Precision::kFp32 : stage::Precision::kBf16,
      .learning_rate = 1e-2};
}

inline stage::Model tiny(const std::string& name) {
  const stage::ModelOptions options = tiny_model(name);
  return *stage::describe_model(options, weir::test::source_of(options));
}

// Layers spread evenly over `stages`.
inline schedule::Plan plan_of(int stages, int layers, int micro_batches, schedule::Family family,
                              int k, schedule::Dispatch dispatch) {
  schedule::Plan plan;
  plan.job_uid = "job";
  plan.revision = 1;
  plan.micro_batches = {micro_batches};
  const int width = family == schedule::Family::kGpipe ? micro_batches : k;
  plan.schedule = {.family = family,
                   .k = width,
                   .micro_batch_size = 2,
                   .caps = schedule::kfkb_caps(stages, micro_batches, width)};
  if (family == schedule::Family::kGpipe) {
    plan.schedule.caps.assign(static_cast<std::size_t>(stages), micro_batches);
  }
  plan.schedule.dispatch = schedule::dispatch_in_force(plan.schedule.caps, dispatch);
  for (int s = 0; s < stages; ++s) {
    plan.stages.push_back({layers * s / stages, layers * (s + 1) / stages - 1});
  }
  return plan;
}

// Checkpoints in memory: which rank copied what, and what loading gives. Thread-safe.
class Saves {
 public:
  using State = std::map<std::pair<int, std::string>, std::vector<float>>;  // by layer and name

  void copy(stage::Stage& stage, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    for (const stage::Parameter& p : stage.parameters()) {
      std::vector<float> kept;
      for (const auto part : p.state()) {
        const std::size_t before = kept.size();
        kept.resize(before + part.size());
        const Status read =
            stage.device().read(kept.data() + before, part.data(), part.size_bytes());
        if (!read) ++unequal_[step];
      }
      std::vector<float>& known = states_[step][{p.layer, p.name}];
      if (!known.empty() && known != kept) ++unequal_[step];
      known = std::move(kept);
    }
    ++copies_[step];
  }
  Status load(stage::Stage& stage, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    if (failure) return *failure;
    for (const stage::Parameter& p : stage.parameters()) {
      const float* from = states_.at(step).at({p.layer, p.name}).data();
      for (const auto part : p.state()) {
        WEIR_OK(stage.device().write(part.data(), from, part.size_bytes()));
        from += part.size();
      }
    }
    return Unit{};
  }
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(text);
  }
  State state(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    return states_[step];
  }
  int copies(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    return copies_[step];
  }
  int unequal(std::int64_t step) {  // parameters that another rank holds with other values
    const std::lock_guard lock(mutex_);
    return unequal_[step];
  }
  std::vector<std::string> notes() {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

  std::optional<Error> failure;  // of every load; set before use

 private:
  std::mutex mutex_;  // guards all below
  std::map<std::int64_t, State> states_;
  std::map<std::int64_t, int> copies_, unequal_;
  std::vector<std::string> notes_;
};

// The real clock, which knows what a thread has read of it last: a record of a step is told behind
// the last lap of that step, and on a busy machine much later.
class RememberingClock final : public Clock {
 public:
  SteadyTime now() const override { return last_ = clock_.now(); }
  SystemTime system_now() const override { return clock_.system_now(); }
  bool sleep_until(SteadyTime deadline, std::stop_token stop) override {
    return clock_.sleep_until(deadline, std::move(stop));
  }
  static SteadyTime last_of_this_thread() { return last_; }

 private:
  SystemClock clock_;
  inline static thread_local SteadyTime last_;
};

// Links that the test may break while the engine drops them.
class SharedLinks final : public transport::Communicator {
 public:
  SharedLinks(std::shared_ptr<transport::Communicator> inner, std::atomic<bool>& loses_verdict)
      : inner_(std::move(inner)), loses_verdict_(loses_verdict) {}
  void send(const transport::LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    const bool verdict = end.channel == transport::Channel::kForward && bytes == kVerdictBytes;
    if (verdict && loses_verdict_.exchange(false)) return abort("broken by the test");
    inner_->send(end, std::move(buffer), bytes);
  }
  void receive(const transport::LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    inner_->receive(end, std::move(buffer), bytes);
  }
  std::optional<transport::Completion> wait(std::chrono::steady_clock::time_point deadline,
                                            std::stop_token stop) override {
    return inner_->wait(deadline, std::move(stop));
  }
  bool carries_device_memory() const override { return inner_->carries_device_memory(); }
  bool peer_left(const transport::LinkEnd& end) const override { return inner_->peer_left(end); }
  std::vector<transport::LinkReport> reports() const override { return inner_->reports(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  const std::shared_ptr<transport::Communicator> inner_;
  std::atomic<bool>& loses_verdict_;
};

class Group {
 public:
  // on_ready: of replicas that average in groups; any engine's thread.
  using OnReady = std::function<void(int replica, std::int64_t step)>;
  // over: what a rank's sums go by instead of its TCP collective.
  using Collective = std::unique_ptr<transport::Collective>;
  using Over = std::function<Result<Collective>(int rank, const transport::ReplicaGroupGeneration&,
                                                Collective tcp, SteadyTime deadline,
                                                const std::stop_token& stop)>;
  enum class On : unsigned char { kHost, kStrictDevice };
  // around: put around each stage that is made, for one that misbehaves.
  using Around =
      std::function<std::unique_ptr<stage::Stage>(std::unique_ptr<stage::Stage>, int first_layer)>;
  Group(const std::string& model_name, int workers, std::int64_t total_steps, double grad_clip = 0,
        Saves* saves = nullptr, OnReady on_ready = nullptr, Over over = nullptr, On on = On::kHost,
        Validation validation = {}, Around around = nullptr, std::uint64_t data_seed = 7)
      : on_(on),
        validation_(validation),
        around_(std::move(around)),
        grad_clip_(grad_clip),
        saves_(saves),
        on_ready_(std::move(on_ready)),
        over_(std::move(over)),
        model_(tiny(model_name)),
        dataset_(
            data::make_synthetic(model_.options.vocabulary, model_.options.sequence, data_seed)),
        held_out_(data::make_synthetic(model_.options.vocabulary, model_.options.sequence,
                                       data_seed, data::Part::kValidation)) {
    for (int i = 0; i < workers; ++i) {
      ranks_.push_back(std::make_unique<Rank>(*this, i, total_steps));
    }
  }

  // Engines that still run may call callbacks of the test, which reach any rank.
  ~Group() {
    for (const auto& rank : ranks_) rank->thread.request_stop();
    for (const auto& rank : ranks_) {
      if (rank->thread.joinable()) rank->thread.join();
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int layers() const { return static_cast<int>(model_.layers.size()); }
  Engine& engine(int rank) { return *at(rank).engine; }

  static int ranks_of(const schedule::Plan& plan) {
    return plan.stage_count() * plan.replica_count();
  }
  // Rank r S + s runs stage s of replica r. Returns the first reason against it.
  std::string prepare(schedule::Plan plan, int incarnation = 0) {
    for (int i = 0; i < ranks_of(plan); ++i) {
      plan.ranks.push_back({.pod = "w" + std::to_string(i),
                            .ip = "127.0.0.1",
                            .replica = i / plan.stage_count(),
                            .stage = i % plan.stage_count(),
                            .data_port = at(i).transport->data_port()});
    }
    return ask(ranks_of(plan), protocol::Prepare{plan, incarnation});
  }
  std::string commit(int ranks, std::uint32_t revision, std::int64_t at_step) {
    return ask(ranks, protocol::Commit{revision, at_step});
  }
  // A whole new generation; returns the first reason against it.
  std::string start(const schedule::Plan& plan, std::int64_t at_step = 0, int incarnation = 0) {
    std::string reason = prepare(plan, incarnation);
    if (reason.empty()) reason = commit(ranks_of(plan), plan.revision, at_step);
    if (!reason.empty()) return reason;
    for (int i = 0; i < ranks_of(plan); ++i) {
      at(i).engine->mailbox().put(protocol::Go{plan.revision});
    }
    return "";
  }
  // In band: COMMIT to stage 0 alone, of each replica one after the other. Ends when all ranks run
  // the plan.
  std::string switch_to(const schedule::Plan& plan, std::int64_t at_step = 0) {
    std::string reason = prepare(plan);
    if (!reason.empty()) return reason;
    std::vector<int> ranks;
    for (int r = 0; r < plan.replica_count(); ++r) ranks.push_back(r * plan.stage_count());
    reason = ask(ranks, protocol::Commit{plan.revision, at_step});
    for (int i = 0; i < ranks_of(plan) && reason.empty(); ++i) {
      const bool runs =
          eventually([&] { return engine(i).mailbox().hello({}).revision == plan.revision; },
                     kPatience, std::chrono::milliseconds(1));
      if (!runs) reason = "not all ranks run the plan";
    }
    return reason;
  }

  // The answer of one rank to a PREPARE or COMMIT; an empty reason means success.
  std::future<std::string> ask_rank(int rank, protocol::Message message) {
    std::future<std::string> answer;
    {
      const std::lock_guard lock(at(rank).mutex);
      answer = at(rank).asked.emplace().get_future();
    }
    engine(rank).mailbox().put(std::move(message));
    return answer;
  }
  // The first reason of these ranks.
  std::string ask(const std::vector<int>& ranks, const protocol::Message& message) {
    std::vector<std::future<std::string>> answers;
    for (const int rank : ranks) answers.push_back(ask_rank(rank, message));
    std::string first;
    for (auto& answer : answers) {
      const bool came = answer.wait_for(kPatience) == std::future_status::ready;
      const std::string reason = came ? answer.get() : "no answer";
      if (first.empty()) first = reason;
    }
    return first;
  }
  std::string ask(int ranks, const protocol::Message& message) {
    std::vector<int> first(static_cast<std::size_t>(ranks));
    std::iota(first.begin(), first.end(), 0);
    return ask(first, message);
  }

  std::vector<Exit> finish() {
    std::vector<Exit> endings;
    for (auto& rank : ranks_) {
      rank->thread.join();
      endings.push_back(rank->ending.exit);
    }
    return endings;
  }
  std::vector<StepRecord> records(int rank) {
    const std::lock_guard lock(at(rank).mutex);
    return at(rank).records;
  }
  // What the engine had read of its clock last when each of them was told.
  std::vector<SteadyTime> told_at(int rank) {
    const std::lock_guard lock(at(rank).mutex);
    return at(rank).told_at;
  }
  // Completed steps and the loss that was found after them.
  std::vector<std::pair<std::int64_t, double>> validations(int rank) {
    const std::lock_guard lock(at(rank).mutex);
    return at(rank).validations;
  }
  std::vector<std::string> lost(int rank) {
    const std::lock_guard lock(at(rank).mutex);
    return at(rank).lost;
  }
  int data_port(int rank) { return at(rank).transport->data_port(); }
  // What make_stage and the connections of all ranks have called, in any order among ranks.
  void note(const std::string& call) {
    const std::lock_guard lock(calls_mutex_);
    calls_.push_back(call);
  }
  std::vector<std::string> calls() {
    const std::lock_guard lock(calls_mutex_);
    return calls_;
  }
  std::int64_t moved_bytes(int rank) { return at(rank).moved; }
  void break_links(int rank) {
    std::shared_ptr<transport::Communicator> links;
    {
      const std::lock_guard lock(at(rank).mutex);
      links = at(rank).links.lock();
    }
    if (links) links->abort("broken by the test");
  }
  protocol::Inventory inventory(int rank) { return engine(rank).mailbox().hello({}).inventory; }
  // Its next verdict does not leave: the rank ends its step, the next stage does not.
  void lose_verdict(int rank) { at(rank).loses_verdict = true; }
  bool reports_loss(int rank) {
    return eventually([&] { return !lost(rank).empty(); });
  }
  bool reaches(int rank, std::int64_t steps) {
    return eventually([&] { return engine(rank).statistics().step >= steps; }, kPatience,
                      std::chrono::milliseconds(1));
  }

 private:
  struct Rank {
    Rank(Group& group, int index, std::int64_t total_steps)
        : device(group.on_ == On::kHost ? device::make_host_device()
                                        : std::make_unique<weir::test::StrictDevice>()),
          transport(*transport::make_tcp_transport({.listen_ip = "127.0.0.1", .data_port = 0})) {
      Options options{.job_uid = "job",
                      .job_key = "key",
                      .identity = {.pod = "w" + std::to_string(index)},
                      .total_steps = total_steps,
                      .startup_timeout = kPatience,
                      .connect_timeout = kPatience,
                      .progress_deadline = kPatience,
                      .rejoin_timeout = kPatience,
                      .grad_clip = group.grad_clip_,
                      .validation = group.validation_,
                      .saves = group.saves_ != nullptr};
      Parts parts{
          .model = group.model_,
          .device = *device,
          .dataset = *group.dataset_,
          .clock = clock,
          .connect = [this, &group](
                         const transport::Generation& generation, auto deadline,
                         std::stop_token stop) -> Result<std::unique_ptr<transport::Communicator>> {
            group.note("connect");
            WEIR_TRY(auto made, transport->connect(generation, deadline, std::move(stop)));
            const std::lock_guard lock(mutex);
            if (!made) return std::unique_ptr<transport::Communicator>();  // one stage
            const std::shared_ptr<transport::Communicator> shared = std::move(made);
            links = shared;
            return std::unique_ptr<transport::Communicator>(
                std::make_unique<SharedLinks>(shared, loses_verdict));
          },
          .make_stage = [&group, this](int first, int last, stage::Initial initial)
              -> Result<std::unique_ptr<stage::Stage>> {
            if (auto* strict = dynamic_cast<weir::test::StrictDevice*>(device.get())) {
              return weir::test::make_strict_stage(group.model_, first, last, *strict);
            }
            auto made = stage::make_stage(group.model_, first, last, *device, stage::GraphUse::kOff,
                                          initial);
            if (made && group.around_) return group.around_(*std::move(made), first);
            return made;
          },
          .connect_replica_group = [&group, index, this](
                                       const transport::ReplicaGroupGeneration& generation,
                                       auto deadline, std::stop_token stop) -> Result<Collective> {
            WEIR_TRY(Collective tcp, transport->connect_replica_group(generation, deadline, stop));
            if (!group.over_) return transport::staged(*device, std::move(tcp));
            return group.over_(index, generation, std::move(tcp), deadline, stop);
          },
          .validation = group.held_out_.get(),
          .make_kernels = [&group, this]() -> Result<std::unique_ptr<stage::ops::Kernels>> {
            const stage::Precision precision = group.model_.options.precision;
            if (auto* strict = dynamic_cast<weir::test::StrictDevice*>(device.get())) {
              return weir::test::make_strict_kernels(*strict, precision);
            }
            return stage::ops::make_host_kernels(precision);
          },
          .state = &transport->state(),
          // With 0 rounds it does not end by itself.
          .measure =
              [this](const protocol::Measure& request, const std::stop_token& stop) {
                while (request.rounds == 0 && !stop.stop_requested()) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                const bool own = std::this_thread::get_id() == thread.get_id();
                return protocol::Measured{.profile_json = own ? "engine's thread" : "another one"};
              }};
      Callbacks callbacks{
          .step_done =
              [this](const StepRecord& record) {
                {
                  const std::lock_guard lock(mutex);
                  told_at.push_back(RememberingClock::last_of_this_thread());
                  records.push_back(record);
                }
                engine->mailbox().tell(
                    protocol::StageStatus{.epoch = record.epoch, .step = record.next_step});
              },
          .validated =
              [this](int, std::int64_t step, double loss) {
                const std::lock_guard lock(mutex);
                validations.emplace_back(step, loss);
              },
          .send = [this, &group](const protocol::Message& message) { on_message(message, group); }};
      if (Saves* const saves = group.saves_) {
        parts.save = [saves](stage::Stage& stage, std::int64_t step, const auto&) {
          saves->copy(stage, step);
        };
        parts.load = [saves](stage::Stage& stage, std::int64_t step) {
          return saves->load(stage, step);
        };
      }
      engine = std::make_unique<Engine>(options, std::move(parts), std::move(callbacks));
      thread = std::jthread([this](std::stop_token stop) { ending = engine->run(stop); });
    }

    void on_message(const protocol::Message& message, const Group& group) {
      if (std::holds_alternative<protocol::Ready>(message) ||
          std::holds_alternative<protocol::Applied>(message)) {
        answered("");
      } else if (const auto* reject = std::get_if<protocol::Reject>(&message)) {
        answered(reject->reason);
      } else if (const auto* built = std::get_if<protocol::ReadyState>(&message)) {
        answered(built->error);
      } else if (const auto* measured = std::get_if<protocol::Measured>(&message)) {
        answered(measured->error + measured->profile_json);
      } else if (const auto* lost_peer = std::get_if<protocol::PeerLost>(&message)) {
        const std::lock_guard lock(mutex);
        lost.push_back(lost_peer->reason);
      } else if (const auto* ready = std::get_if<protocol::SyncReady>(&message)) {
        group.on_ready_(ready->replica, ready->step);
      } else if (const auto* from_others = std::get_if<protocol::Moved>(&message)) {
        moved += from_others->bytes;
      } else if (const auto* save = std::get_if<protocol::Saved>(&message)) {
        group.saves_->note("late " + std::to_string(save->step) +
                           (save->at > save->step ? ", beyond" : ""));
      } else if (const auto* bad = std::get_if<protocol::BadCheckpoint>(&message)) {
        group.saves_->note("bad " + std::to_string(bad->step) + ": " + bad->reason);
      }
    }

    void answered(const std::string& reason) {
      const std::lock_guard lock(mutex);
      if (asked) asked->set_value(reason);
      asked.reset();
    }

    RememberingClock clock;
    const std::unique_ptr<device::Device> device;
    std::unique_ptr<transport::TcpTransport> transport;
    std::atomic<std::int64_t> moved{0};
    std::atomic<bool> loses_verdict{false};
    std::mutex mutex;  // guards the six below
    std::vector<StepRecord> records;
    std::vector<SteadyTime> told_at;
    std::vector<std::pair<std::int64_t, double>> validations;
    std::vector<std::string> lost;
    std::optional<std::promise<std::string>> asked;
    std::weak_ptr<transport::Communicator> links;  // the latest
    std::unique_ptr<Engine> engine;
    Ending ending;
    std::jthread thread;
  };

  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  const On on_;
  const Validation validation_;
  const Around around_;
  std::mutex calls_mutex_;  // guards the next
  std::vector<std::string> calls_;
  const double grad_clip_;
  Saves* const saves_;
  const OnReady on_ready_;
  const Over over_;
  const stage::Model model_;
  const std::unique_ptr<data::Dataset> dataset_, held_out_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Losses of a run of one stage: what every schedule must give, bit for bit.
inline std::vector<double> losses_of(std::vector<StepRecord> records) {
  std::vector<double> losses;
  for (const StepRecord& record : records) losses.push_back(record.loss);
  return losses;
}

inline std::vector<double> reference_losses(const std::string& model, int micro_batches,
                                            std::int64_t steps, double grad_clip = 0) {
  Group alone(model, 1, steps, grad_clip);
  const auto plan = plan_of(1, alone.layers(), micro_batches, schedule::Family::kOneFOneB, 1,
                            schedule::Dispatch::kStrict);
  if (!alone.start(plan).empty()) return {};
  alone.finish();
  return losses_of(alone.records(0));
}

}  // namespace weir::engine::test
