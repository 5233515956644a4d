// SPDX-License-Identifier: Apache-2.0
#include "worker/app/peers.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <stop_token>
#include <utility>

#include "worker/app/agreement.h"
#include "worker/app/checkpoints.h"
#include "worker/app/network.h"
#include "worker/app/own_plan.h"
#include "worker/app/profile.h"
#include "worker/app/recorded_steps.h"
#include "worker/app/snapshots.h"
#include "worker/base/digest.h"
#include "worker/base/file_error.h"
#include "worker/base/log.h"
#include "worker/base/units.h"
#include "worker/coordinator/operator_line.h"
#include "worker/http/beast_transport.h"
#include "worker/protocol/codec.h"
#include "worker/schedule/validate.h"
#include "worker/stage/layer.h"
#include "worker/stage/learning_rate.h"

namespace weir::app {
namespace {

using Outcome = std::optional<Failure>;
using std::chrono::steady_clock;

constexpr auto kGoodbye = std::chrono::seconds(5);            // for LEAVE to be sent
constexpr auto kLastLines = std::chrono::seconds(3);          // of the training log
constexpr auto kProbeLimit = std::chrono::milliseconds(900);  // the coordinator waits 1 s
// From this worker's last step to the last step of all.
constexpr auto kOthersFinish = std::chrono::seconds(60);

coordinator::LineOptions line_options(const Options& o) {
  return {.url = o.control_url,
          .url_file = o.control_dir + "/url",
          .token_file = o.control_dir + "/token",
          .ca_file = o.control_dir + "/ca.crt",
          .job_namespace = o.job_namespace,
          .job_name = o.job_name,
          .job_uid = o.job_uid};
}

// A redirect names a pod by its IP, but the certificate is that of the Service.
coordinator::TransportFactory transport_factory(const Options& o) {
  return [ca = o.control_dir + "/ca.crt"](
             const std::string& base_url,
             const std::string& service_url) -> Result<std::unique_ptr<http::Transport>> {
    const bool tls = base_url.starts_with("https://");
    return http::make_beast_transport({.base_url = base_url,
                                       .ca_file = tls ? ca : "",
                                       .tls_name = tls ? host_of(service_url) : ""});
  };
}

Result<std::string> ask_for_key(const State& state, std::stop_token stop) {
  const Options& o = state.options;
  SystemClock clock;
  WEIR_TRY(protocol::JoinAnswer answer,
           coordinator::join(line_options(o), transport_factory(o), clock,
                             {.job_uid = o.job_uid,
                              .pod = o.pod,
                              .pod_uid = o.pod_uid,
                              .worker_index = o.worker_index,
                              .attempt = o.attempt},
                             std::move(stop)));
  return answer.job_key;
}

// Without an operator the key is given by hand, or it is not secret. The ports are then on the
// loopback unless --listen is given.
Result<std::string> standalone_key(const Options& o) {
  if (o.job_key.empty()) return hmac_sha256("weir standalone", o.job_uid);
  const auto key = from_hex(o.job_key);
  if (!key || key->empty()) return invalid("WEIR_JOB_KEY: must be hexadecimal");
  return *key;
}

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

protocol::Member member_of(const State& state, std::vector<std::string> ips) {
  const Options& o = state.options;
  return {.pod = o.pod,
          .pod_uid = o.pod_uid,
          .worker_index = o.worker_index,
          .ips = std::move(ips),
          .node = o.node,
          .data_port = state.transport->data_port(),
          .ranks = {{.device = state.device->name(), .memory_bytes = state.device->memory_bytes()}},
          .fallback = state.fallback};
}

std::vector<std::string> features_of(const Options& o) {
  std::vector<std::string> features = {protocol::kSumsFeature};
  if (o.flight_events > 0) features.emplace_back(protocol::kStepsFeature);
  return features;
}

void end_with(State& state, Exit exit, std::string reason) {
  state.end.give(static_cast<int>(exit), std::move(reason));
  state.end_at_once = true;
  state.shutdown.request();
}

control::AgentCallbacks agent_callbacks(State& state) {
  engine::Mailbox& mailbox = state.engine->mailbox();
  control::AgentCallbacks callbacks{
      .put =
          [&state, &mailbox, names = record_names(state.options)](protocol::Message message) {
            const auto* const wanted = std::get_if<protocol::StepsWanted>(&message);
            if (wanted == nullptr) return mailbox.put(std::move(message));
            mailbox.tell(answer(*wanted, *state.engine, state.clock, names));
            return true;
          },
      .session_lost = [&mailbox] { mailbox.session_lost(); },
      .hello = [&mailbox](const protocol::Member& member) { return mailbox.hello(member); }};
  // Waits in the callbacks end when the agent ends.
  auto waits = std::make_shared<std::stop_source>();
  callbacks.stopping = [waits] { waits->request_stop(); };
  // A refused key is asked for again. If the operator is unreachable, the known key is used.
  auto refused = std::make_shared<std::atomic<bool>>(false);
  callbacks.on_connection = [refused](bool connected, const std::string& why) {
    if (!connected && why.find("key") != std::string::npos) *refused = true;
  };
  callbacks.job_key = [&state, refused, waits, key = state.job_key]() mutable {
    if (state.options.standalone() || !refused->exchange(false)) return key;
    Result<std::string> again = ask_for_key(state, waits->get_token());
    if (again) key = *std::move(again);
    return key;
  };
  callbacks.on_refused = [&state](const std::string& reason) {
    end_with(state, Exit::kConfiguration, reason);
  };
  callbacks.probe = [&state, waits](const protocol::Probe& request) -> protocol::Probed {
    const auto rate = state.transport->probe(
        {.stage = -1, .ip = request.ip, .data_port = request.data_port, .node = ""}, request.bytes,
        steady_clock::now() + kProbeLimit, waits->get_token());
    if (!rate) {
      log_info(kComponent, "the link to a neighbour could not be timed",
               {{"peer", request.ip}, {"reason", rate.error().message}});
      return {};
    }
    log_info(kComponent, "link to a neighbour",
             {{"peer", request.ip},
              {"bytes_per_second", rate->bytes_per_second},
              {"rtt_seconds", rate->rtt_seconds}});
    return {.bytes_per_second = rate->bytes_per_second, .rtt_seconds = rate->rtt_seconds};
  };
  return callbacks;
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

// Curves of training, which worker 0 writes.
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

}  // namespace

Outcome join_job(State& state) {
  Options& o = state.options;
  const bool open_to_others = o.needs_peers() && !is_loopback(o.listen_ip());
  if (o.standalone() && open_to_others && o.job_key.empty()) {
    log_warn(kComponent,
             "without WEIR_JOB_KEY any process that reaches these ports can join the job",
             {{"listen", o.listen_ip()}});
  }
  if (o.pod.empty()) o.pod = "worker-" + std::to_string(o.worker_index);
  if (o.pod_uid.empty()) o.pod_uid = to_hex(random_bytes(8));  // a new process counts as a new pod
  if (!o.needs_peers()) return std::nullopt;
  const Result<std::string> key =
      o.standalone() ? standalone_key(o) : ask_for_key(state, state.shutdown.token());
  if (key) {
    state.job_key = *key;
    return std::nullopt;
  }
  if (state.shutdown.requested() || key.error().code == Code::kGone) {
    return Failure{Exit::kTerminated, key.error().message};
  }
  return Failure{Exit::kConfiguration, key.error().message};
}

Outcome open_transport(State& state) {
  const Options& o = state.options;
  if (!o.needs_peers()) return std::nullopt;
  transport::TcpOptions tcp{
      .listen_ip = o.listen_ip(),
      .data_port = o.data_port.value_or(o.plans_itself() ? 0 : protocol::kDataPort),
      .connections = o.transport == "NCCL" ? 1 : o.connections,  // small records only
      .congestion_control = o.congestion_control,
      .boundary_dscp = o.boundary_dscp,
      .bulk_dscp = o.bulk_dscp,
      .dead_after = o.dead_after,
      .pacing = {},
      .sum_encoding = o.sum_encoding,
      .order_traffic = o.traffic_order,
      // Ranks meet only when there is an engine.
      .on_silent =
          [&state](const transport::PeerAddress& peer) {
            log_warn(kComponent, "a peer does not answer",
                     {{"peer", peer.ip}, {"data_port", peer.data_port}});
            state.engine->mailbox().tell(
                protocol::Unanswered{.ip = peer.ip, .data_port = peer.data_port});
          },
      .job_uid = o.job_uid,
      .job_key = state.job_key};
  if (o.emulation.pace_bytes_per_second > 0) {
    transport::Pacing pacing{.bytes_per_second = o.emulation.pace_bytes_per_second,
                             .boundary = o.emulation.pace_boundary,
                             .channel = o.emulation.pace_channel};
    if (!o.emulation.pace_trace.empty()) {
      auto trace = transport::read_pace_trace(o.emulation.pace_trace);
      if (!trace) return Failure{Exit::kConfiguration, "--pace-trace: " + trace.error().message};
      pacing.trace = *std::move(trace);
    }
    tcp.pacing.push_back(std::move(pacing));  // the first match counts
    if (o.emulation.pace_other_bytes_per_second > 0) {
      tcp.pacing.push_back(
          {.bytes_per_second = o.emulation.pace_other_bytes_per_second, .trace = {}});
    }
  }
  if (!tcp.congestion_control.empty()) {
    const auto control = wire::try_congestion_control(tcp.congestion_control);
    if (!control) log_warn(kComponent, "--congestion-control: " + control.error().message);
    if (control && !control->allowed) {
      state.fallback = protocol::TransportFallback{
          .wanted = tcp.congestion_control, .allowed = control->names, .in_use = control->in_use};
      log_warn(kComponent, text_of(*state.fallback, o.node));
    }
    if (!control || !control->allowed) tcp.congestion_control.clear();
  }
  auto made = transport::make_tcp_transport(tcp);
  if (!made) return Failure{Exit::kConfiguration, made.error().message};
  state.transport = *std::move(made);
  log_info(kComponent, "data port", {{"data_port", state.transport->data_port()}});
  return std::nullopt;
}

Outcome run_coordinator(State& state) {
  const Options& o = state.options;
  if (!o.needs_peers() || o.worker_index != 0) return std::nullopt;

  if (o.saves()) {
    if (Outcome failure = find_checkpoints(state)) return failure;
    state.checkpoints->guard([&state] { return state.folder_lock->check(); });
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
      .dead_after = o.lost_after.count() > 0 ? o.lost_after : o.dead_after};
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
  auto started = coordinator::start_coordinator(
      options, state.job_key, plan_source(state), [&state](const std::string& reason) {
        log_warn(kComponent, "the job is gone", {{"reason", reason}});
        state.end_at_once = true;
        state.shutdown.request();
      });
  if (!started) return Failure{Exit::kConfiguration, started.error().message};
  state.coordinator = *std::move(started);
  log_info(kComponent, "control port", {{"control_port", state.coordinator->port()}});
  return std::nullopt;
}

Outcome connect_to_coordinator(State& state) {
  const Options& o = state.options;
  if (!o.needs_peers()) return std::nullopt;
  std::string address = o.coordinator;
  if (state.coordinator) {
    const std::string own = o.listen_ip();
    const bool v6 = own.find(':') != std::string::npos;
    const std::string host = own.empty() ? "127.0.0.1" : v6 ? "[" + own + "]" : own;
    address = host + ":" + std::to_string(state.coordinator->port());
  }
  Result<std::vector<std::string>> ips = own_addresses(o.interface, o.pod_ips, o.listen_ip());
  if (!ips) return Failure{Exit::kConfiguration, ips.error().message};
  state.agent = control::start_agent(
      {.coordinator = address,
       .job_uid = o.job_uid,
       .member = member_of(state, *std::move(ips)),
       .settings = settings_of_job(o, *state.model, *state.dataset, state.validation.get()),
       .features = features_of(o),
       .dead_after = o.dead_after},
      agent_callbacks(state));
  state.line = state.agent.get();
  const auto send = [&state](const protocol::Message& message) { state.agent->send(message); };
  if (state.checkpoints) state.checkpoints->tell(send);
  if (state.snapshots) state.snapshots->tell(send);
  return std::nullopt;
}

void say_finished(State& state) {
  if (state.agent) {
    state.agent->send(protocol::Leave{"finished", state.validated});
    state.agent->flush(steady_clock::now() + kGoodbye);
  }
  if (state.coordinator) state.coordinator->finish(steady_clock::now() + kOthersFinish);
}

void disconnect(State& state) {
  if (state.checkpoints) state.checkpoints->tell({});
  if (state.snapshots) state.snapshots->tell({});
  if (state.agent) state.agent->flush(steady_clock::now() + kGoodbye);
  state.line = nullptr;
  state.agent.reset();
}

void stop_coordinator(State& state) {
  state.coordinator.reset();
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
    static_cast<void>(state.folder_lock.release());
  }
  state.folder_lock.reset();
}

}  // namespace weir::app
