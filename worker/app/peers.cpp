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
#include "worker/app/coordination.h"
#include "worker/app/network.h"
#include "worker/app/operator_calls.h"
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
constexpr auto kProbeLimit = std::chrono::milliseconds(900);  // the coordinator waits 1 s
// From this worker's last step to the last step of all.
constexpr auto kOthersFinish = std::chrono::seconds(60);

// Without an operator the key is given by hand, or it is not secret. The ports are then on the
// loopback unless --listen is given.
Result<protocol::JoinAnswer> join_or_go_alone(const State& state) {
  const Options& o = state.options;
  if (!o.standalone()) return join(state, state.shutdown.token());
  if (o.job_key.empty()) {
    return protocol::JoinAnswer{.job_key = hmac_sha256("weir standalone", o.job_uid)};
  }
  const auto key = from_hex(o.job_key);
  if (!key || key->empty()) return invalid("WEIR_JOB_KEY: must be hexadecimal");
  return protocol::JoinAnswer{.job_key = *key};
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
      .hello =
          [&state, &mailbox](const protocol::Member& member) {
            protocol::Hello hello = mailbox.hello(member);
            hello.leaving = state.shutdown.requested();
            return hello;
          }};
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
    if (auto again = join(state, waits->get_token())) key = std::move(again->job_key);
    return key;
  };
  if (!state.options.standalone()) {
    callbacks.doubts = [&state] { return state.doubts.load(); };
    callbacks.find_coordinator = [&state, waits] {
      return find_coordinator(state, waits->get_token());
    };
  }
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
  auto answer = join_or_go_alone(state);
  if (answer) {
    state.job_key = std::move(answer->job_key);
    state.named = std::move(answer->coordinator);
    return std::nullopt;
  }
  if (state.shutdown.requested() || answer.error().code == Code::kGone) {
    return Failure{Exit::kTerminated, answer.error().message};
  }
  return Failure{Exit::kConfiguration, answer.error().message};
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

Outcome connect_to_coordinator(State& state) {
  const Options& o = state.options;
  if (!o.needs_peers()) return std::nullopt;
  Result<std::vector<std::string>> ips = own_addresses(o.interface, o.pod_ips, o.listen_ip());
  if (!ips) return Failure{Exit::kConfiguration, ips.error().message};
  state.agent = control::start_agent(
      {.coordinator = coordinator_address(state),
       .job_uid = o.job_uid,
       .member = member_of(state, *std::move(ips)),
       .settings = settings_of_job(o, *state.model, *state.dataset, state.validation.get()),
       .features = features_of(o),
       .dead_after = o.dead_after,
       .silent_after = o.silence()},
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
  state.coordinator.with([](coordinator::Coordinator& coordinator) {
    coordinator.finish(steady_clock::now() + kOthersFinish);
  });
}

void disconnect(State& state) {
  if (state.checkpoints) state.checkpoints->tell({});
  if (state.snapshots) state.snapshots->tell({});
  if (state.agent) state.agent->flush(steady_clock::now() + kGoodbye);
  state.line = nullptr;
  state.agent.reset();
}

}  // namespace weir::app
