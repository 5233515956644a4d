// SPDX-License-Identifier: Apache-2.0
#include "worker/app/coordination.h"

#include <cerrno>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "worker/app/agreement.h"
#include "worker/app/checkpoints.h"
#include "worker/app/network.h"
#include "worker/app/operator_calls.h"
#include "worker/app/own_plan.h"
#include "worker/app/role.h"
#include "worker/base/file_error.h"
#include "worker/base/log.h"
#include "worker/protocol/codec.h"
#include "worker/schedule/validate.h"
#include "worker/stage/layer.h"
#include "worker/stage/learning_rate.h"

namespace weir::app {
namespace {

using Outcome = std::optional<Failure>;

constexpr auto kLastLines = std::chrono::seconds(3);  // of the training log

// A wrong plan at the start ends the worker. Later ones are refused while training continues.
Status check_plan_file(const std::string& path, int layers) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) return unreadable(path).with("--plan");
  Result<schedule::Plan> plan = protocol::decode_plan(text.str());
  if (!plan) return plan.error().with("--plan: " + path);
  if (plan->ranks.empty()) {  // stage s runs on worker s
    for (int r = 0; r < plan->replica_count(); ++r) {
      for (int s = 0; s < plan->stage_count(); ++s) {
        plan->ranks.push_back({.replica = r, .stage = s});
      }
    }
  }
  const std::vector<std::string> broken = schedule::broken_rules(*plan, layers);
  if (!broken.empty()) return invalid("--plan: " + path + ": " + broken.front());
  return Unit{};
}

// The plan source of a single worker.
class OwnPlan final : public coordinator::PlanSource {
 public:
  OwnPlan(schedule::Plan plan, std::function<void(std::string reason)> refused)
      : plan_(std::move(plan)), refused_(std::move(refused)) {}
  void start(Callbacks callbacks) override { callbacks.on_plan(plan_); }
  void register_members(protocol::Register) override {}
  void report(protocol::Report report) override {
    const bool refused =
        report.last_switch && report.last_switch->outcome == protocol::Outcome::kRefused;
    if (refused) refused_("the worker's own plan was refused: " + report.last_switch->reason);
  }
  void have(std::uint32_t) override {}

 private:
  const schedule::Plan plan_;
  const std::function<void(std::string reason)> refused_;
};

std::unique_ptr<coordinator::PlanSource> plan_source(State& state) {
  const Options& o = state.options;
  if (!o.standalone()) {
    return coordinator::make_operator_source(line_options(o), transport_factory(o), state.clock);
  }
  if (!o.plans_itself()) return coordinator::make_file_source(o.plan_file);
  return std::make_unique<OwnPlan>(
      own_plan(o.job_uid, o.pod, o.pod_uid, static_cast<int>(state.model->layers.size()),
               o.own_micro_batches, o.own_micro_batch_size),
      [&state](const std::string& reason) { end_with(state, Exit::kConfiguration, reason); });
}

coordinator::CheckpointPolicy checkpoint_policy(State& state) {
  const Options& o = state.options;
  return {.on = o.saves(),
          .found = state.found_checkpoints,
          .interval_steps = o.checkpoint_interval,
          .period = o.checkpoint_period,
          .keep = o.checkpoint_keep,
          .deadline = o.progress_deadline,
          .commit =
              [&state](const coordinator::CheckpointOrder& order,
                       std::function<void(coordinator::SaveResult)> done) {
                state.checkpoints->commit(order, std::move(done));
              },
          .remove =
              [&state](const coordinator::CheckpointRemoval& removal, std::function<void()> done) {
                state.checkpoints->remove(removal, std::move(done));
              },
          .unusable =
              [&state](const std::string& reason) {
                end_with(state, Exit::kCheckpoint, "training cannot go on: " + reason);
              }};
}

// Curves of training, which the worker that coordinates writes.
void open_training_log(State& state) {
  const Options& o = state.options;
  if (const std::string folder = o.log_folder(); !folder.empty()) {
    state.training_log = std::make_unique<eventlog::TrainingLog>(
        eventlog::LogOptions{.folder = folder, .pod = o.pod, .every = o.log_every},
        state.log_dropped);
    state.flight_files = std::make_unique<eventlog::FlightFiles>(folder);
    return;
  }
  log_info(kComponent, "no training log is written: --log-dir is not set, and nothing is saved");
}

eventlog::Entry entry_of(const coordinator::StepTotal& total, const State& state) {
  const stage::ModelOptions& model = state.model->options;
  return {.step = total.step,
          .time = state.clock.system_now(),
          .loss = total.loss,
          .learning_rate = stage::learning_rate(model, total.step - 1),
          .seconds = total.seconds,
          .samples = total.samples,
          .tokens = total.samples * model.sequence,
          .k = total.k,
          .revision = total.revision};
}

// lost_pod_uid: coordinator::Options.
Outcome begin(State& state, const std::string& lost_pod_uid) {
  const Options& o = state.options;
  if (o.saves()) {
    if (Outcome failure = find_checkpoints(state)) return failure;
    state.checkpoints->guard([lock = std::weak_ptr(state.folder_lock)]() -> Status {
      const auto held = lock.lock();
      return held ? held->check() : Error{Code::kConflict, "this worker coordinates no more"};
    });
  }
  if (o.standalone() && !o.plans_itself()) {
    const Status readable =
        check_plan_file(o.plan_file, static_cast<int>(state.model->layers.size()));
    if (!readable) return Failure{Exit::kConfiguration, readable.error().message};
  }
  const stage::LayerSource* const source = state.model->source.get();
  coordinator::Options options{
      .listen_ip = o.listen_ip(),
      .port = o.control_port.value_or(o.plans_itself() ? 0 : protocol::kControlPort),
      .job_uid = o.job_uid,
      .workers = o.workers,
      .model = {.name = state.model->options.name,
                .layers = static_cast<int>(state.model->layers.size()),
                .digest = state.model->digest,
                .parameters = state.model->parameters,
                .engine = source ? source->engine() : "",
                .note = source ? source->note() : ""},
      .settings = settings_of_job(o, *state.model, *state.dataset, state.validation.get()),
      .total_steps = o.steps,
      .measure = o.measures(),
      .measure_rounds = o.profile_rounds,
      .progress_deadline = o.progress_deadline,
      .probe = o.probe_links && !o.standalone(),
      .checkpoints = checkpoint_policy(state),
      .snapshots = {.every_steps = o.recovery_dir.empty() ? 0 : o.recovery_every,
                    .deadline = o.progress_deadline,
                    .copies = o.recovery_copies,
                    .for_leaving = !o.saves()},
      .dead_after = o.silence(),
      .term = state.term,
      .lost_pod_uid = lost_pod_uid,
      .on_moved = [&state](std::int64_t term) {
        if (term > state.term) state.doubts = true;
      }};
  open_training_log(state);
  if (state.training_log) {
    options.on_step = [&state](const coordinator::StepTotal& total) {
      state.training_log->put(entry_of(total, state));
    };
    options.on_validation = [&state](const protocol::Validation& validation) {
      state.training_log->put({.step = validation.step,
                               .time = state.clock.system_now(),
                               .validation_loss = validation.loss});
    };
  }
  if (state.flight_files) {
    options.on_dump = [&state](std::int64_t step, const std::string& octets) {
      if (!state.flight_files->put(step, octets)) {
        log_warn(kComponent, "a dump of the flight recorders is dropped: the disk is too slow");
      }
    };
  }
  auto started = coordinator::start_coordinator(options, state.job_key, plan_source(state),
                                                [&state](const std::string& reason) {
                                                  log_warn(kComponent, "the job is gone",
                                                           {{"reason", reason}});
                                                  state.end_at_once = true;
                                                  state.shutdown.request();
                                                },
                                                {state.clock});
  if (!started) return Failure{Exit::kConfiguration, started.error().message};
  const int port = (*started)->port();
  state.coordinator.set(*std::move(started));
  log_info(kComponent, "control port", {{"control_port", port}, {"term", state.term.load()}});
  return std::nullopt;
}

// The address of this worker's own coordinator.
std::string own_address(const State& state) {
  const std::string own = state.options.listen_ip();
  const bool v6 = own.find(':') != std::string::npos;
  const std::string host = own.empty() ? "127.0.0.1" : v6 ? "[" + own + "]" : own;
  std::string address;
  state.coordinator.with([&](coordinator::Coordinator& coordinator) {
    address = host + ":" + std::to_string(coordinator.port());
  });
  return address;
}

}  // namespace

void end_with(State& state, Exit exit, std::string reason) {
  state.end.give(static_cast<int>(exit), std::move(reason));
  state.end_at_once = true;
  state.shutdown.request();
}

Outcome run_coordinator(State& state) {
  if (!state.options.needs_peers()) return std::nullopt;
  if (state.named) state.term = state.named->term;
  const Options& o = state.options;
  const bool first = coordinates_first(o.pod_uid, o.worker_index, state.named);
  return first ? begin(state, "") : std::nullopt;
}

std::string coordinator_address(const State& state) {
  if (std::string own = own_address(state); !own.empty()) return own;
  return state.named ? address_of(*state.named, state.options.coordinator)
                     : state.options.coordinator;
}

std::string find_coordinator(State& state, std::stop_token stop) {
  const auto answer = claim(state, state.term, std::move(stop));
  if (!answer) {
    log_debug(kComponent, "the operator does not say who coordinates",
              {{"reason", answer.error().message}});
    return "";
  }
  state.doubts = false;
  const auto& place = answer->coordinator;
  const RoleChange change = change_of({.pod_uid = state.options.pod_uid,
                                       .term = state.term,
                                       .coordinates = state.coordinator.runs()},
                                      place);
  if (change.follows == RoleChange::Follows::kAsBefore) return "";
  if (change.rises) {
    log_warn(kComponent, "another coordinator is named",
             {{"pod", place->pod}, {"term", place->term}});
    state.term = place->term;
  }
  if (change.stops) stop_coordinator(state);
  if (change.keeps && state.folder_lock) {
    const Status owned = state.folder_lock->check();
    if (!owned) end_with(state, Exit::kCheckpoint, owned.error().message);
  }
  if (change.begins) {
    if (const Outcome failure = begin(state, place->lost_pod_uid)) {
      // The others claim again, and another one is named.
      log_error(kComponent, "cannot coordinate", {{"reason", failure->message}});
      return "";
    }
  }
  return change.follows == RoleChange::Follows::kItself
             ? own_address(state)
             : address_of(*place, state.options.coordinator);
}

void stop_coordinator(State& state) {
  state.coordinator.end();
  // A disk that hangs would delay the end, so the log's thread is left behind.
  if (state.training_log && !state.training_log->finish(kLastLines)) {
    static_cast<void>(state.training_log.release());
  }
  state.training_log.reset();
  if (state.flight_files && !state.flight_files->finish(kLastLines)) {
    static_cast<void>(state.flight_files.release());
  }
  state.flight_files.reset();
  // So is the lock; it then shows no life.
  if (state.checkpoints && state.checkpoints->writing()) {
    static auto& kept = *new std::shared_ptr<checkpoint::FolderLock>;
    kept = state.folder_lock;
  }
  state.folder_lock.reset();
}

}  // namespace weir::app
