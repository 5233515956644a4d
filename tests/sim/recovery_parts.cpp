// SPDX-License-Identifier: Apache-2.0
// Sessions of port 7070 and the agents of workers.
#include "tests/sim/recovery_parts.h"

#include <algorithm>
#include <utility>

#include "worker/app/role.h"

namespace weir::sim {
namespace {

constexpr double kRetry = 0.1;       // s, of what waits for a path
constexpr double kReconnect = 0.25;  // s
constexpr double kUnconnected = 4;   // s without a connection, until an agent asks
constexpr double kSilent = 5;        // s, on an open one (recovery.lostAfterSeconds)
constexpr double kDead = 30;         // s, until an agent connects again
constexpr double kAskEvery = 1, kAskLater = 10, kAskOften = 60;  // s
constexpr double kLeaves = 0.3;  // s, from SIGTERM to its LEAVE at least

}  // namespace

const std::string kProfile = [] {
  std::string nodes;
  for (int i = 0; i < 4; ++i) {
    nodes +=
        std::string(i == 0 ? "" : ",") + R"({"id":"l)" + std::to_string(i) +
        R"(","parameterBytes":1000,"outputBytesPerSample":30720,"times":{"A":[{"samples":4,"forward":0.02,"backward":0.04}]}})";
  }
  return R"({"apiVersion":"weir.dev/profile/v1","model":"m","digest":"sha256:0","nodes":[)" +
         nodes + "]}";
}();

// ---- sessions ----

RecoveryWorld::Server::~Server() {
  owner_.server = nullptr;
  for (const auto& [id, session] : world_.sessions_) {
    if (session->server == owner_.uid) session->server_gone = true;
  }
}

void RecoveryWorld::Server::send(control::SessionId session, const protocol::Message& message) {
  const auto found = world_.sessions_.find(session);
  if (found != world_.sessions_.end()) world_.push(*found->second, false, message);
}

void RecoveryWorld::Server::close(control::SessionId session, const std::string&) {
  const auto found = world_.sessions_.find(session);
  if (found != world_.sessions_.end()) found->second->server_gone = true;
}

void RecoveryWorld::Server::wake_at(std::chrono::steady_clock::time_point time) {
  world_.agenda_.at(
      world_.clock_->seconds(time), [&world = world_, uid = owner_.uid, life = owner_.life] {
        Worker* const same = world.find(uid);
        const bool there = same != nullptr && same->life == life && awake(*same) && same->server;
        if (there) same->server->tick();
      });
}

void RecoveryWorld::push(Session& session, bool to_server, const protocol::Message& message) {
  auto& queue = to_server ? session.to_server : session.to_rank;
  const double due = std::max(agenda_.now() + soon(), queue.empty() ? 0 : queue.back().due);
  queue.push_back({due, message});
  if (queue.size() == 1)
    agenda_.at(due, [this, id = session.id, to_server] { pump(id, to_server); });
}

void RecoveryWorld::pump(std::uint64_t id, bool to_server) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  Worker *const server = find(session.server), *const rank = find(session.rank);
  if (server == nullptr || rank == nullptr) return;
  if (to_server ? session.server_gone : session.rank_gone) return;
  auto& queue = to_server ? session.to_server : session.to_rank;
  // What its sender has sent before it ended still comes.
  Worker& receiver = to_server ? *server : *rank;
  const bool open = awake(receiver) && (server == rank || (!server->cut && !rank->cut));
  if (!open) return agenda_.after(kRetry, [this, id, to_server] { pump(id, to_server); });
  const protocol::Message message = std::move(queue.front().message);
  queue.pop_front();
  if (!queue.empty()) {
    agenda_.at(queue.front().due, [this, id, to_server] { pump(id, to_server); });
  }
  if (to_server && receiver.server != nullptr) {
    session.heard = agenda_.now();
    receiver.server->on_message(id, *rank, message);
  } else if (!to_server && receiver.session == id) {
    give_to_rank(receiver, message);
  }
}

// The agent answers what is its own, and gives the rest to the rank.
void RecoveryWorld::give_to_rank(Worker& worker, const protocol::Message& message) {
  worker.heard = agenda_.now();
  if (std::holds_alternative<protocol::Probe>(message)) return;
  if (const auto* refused = std::get_if<protocol::Refused>(&message)) {
    return fail(worker.pod + " is refused: " + refused->reason);
  }
  worker.rank->mailbox().put(message);
  worker.rank->beat();
}

// Who is silent, or has closed, as the server of that worker notices.
void RecoveryWorld::look_after_sessions(Worker& worker) {
  std::vector<std::uint64_t> ended;
  std::vector<std::pair<std::uint64_t, std::string>> closed;
  for (const auto& [id, session] : sessions_) {
    const Worker* const rank = find(session->rank);
    if (session->server_gone && (session->rank_gone || rank == nullptr || rank->session != id)) {
      ended.push_back(id);
      continue;
    }
    if (session->server != worker.uid || session->server_gone) continue;
    const bool cut = worker.cut || rank == nullptr || rank->cut;
    const bool open = rank == &worker || !cut;
    if (session->rank_gone) {
      if (open || rank == nullptr) closed.emplace_back(id, "closed by the peer");
    } else if (open && awake(*rank)) {
      session->heard = agenda_.now();
    }
    if (agenda_.now() - session->heard >= worker.server->dead_after() &&
        (closed.empty() || closed.back().first != id)) {
      closed.emplace_back(id, "silent");
    }
  }
  for (const std::uint64_t id : ended) sessions_.erase(id);
  for (const auto& [id, why] : closed) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || worker.server == nullptr) continue;
    found->second->server_gone = true;
    worker.server->on_closed(id, why, agenda_.now() - found->second->heard);
  }
}

// ---- agents ----

void RecoveryWorld::wake(Worker& worker) {
  worker.heard = agenda_.now();
  if (worker.session == 0) worker.unconnected_since = agenda_.now();
  for (const auto& [id, session] : sessions_) {
    if (session->server == worker.uid) session->heard = agenda_.now();
  }
}

void RecoveryWorld::tick(Worker& worker) {
  if (!awake(worker)) return;
  const std::string uid = worker.uid;
  const int life = worker.life;
  follow(worker);
  if (worker.server != nullptr) look_after_sessions(worker);
  if (worker.server != nullptr) worker.server->tick();
  if (worker.source != nullptr) worker.source->tick();
  worker.rank->beat();
  worker.rank->train();
  if (find(uid) != &worker || worker.life != life || !worker.told_to_end) return;
  if (!worker.leaves_since) {
    worker.leaves_since = agenda_.now();
    worker.rank->leave();
    tell(*worker.rank, protocol::Leave{.reason = "SIGTERM", .validation = std::nullopt});
  }
  const bool over = agenda_.now() >= worker.grace_ends;
  if (!over && (agenda_.now() < *worker.leaves_since + kLeaves || !worker.rank->has_left())) return;
  note(worker.pod + " has left");
  end_process(worker);
  agenda_.after(0.2, [this, uid] { remove_pod(uid); });
}

RecoveryWorld::Worker* RecoveryWorld::place_of_coordinator(const Worker& worker) {
  if (worker.place && worker.place->term > protocol::kFirstTerm) {
    return find(worker.place->pod_uid);
  }
  // The name of the first one, which outlives its pod.
  Worker* newest = nullptr;
  for (const auto& [uid, other] : workers_) {
    if (other->index == 0 && (newest == nullptr || other->pod > newest->pod)) newest = other.get();
  }
  return newest;
}

void RecoveryWorld::follow(Worker& worker) {
  if (!worker.joined) return ask(worker);
  if (worker.session != 0) {
    const auto found = sessions_.find(worker.session);
    const Worker* const server = found == sessions_.end() ? nullptr : find(found->second->server);
    const bool open = server == &worker || (server != nullptr && !server->cut && !worker.cut);
    const bool ended = found == sessions_.end() || found->second->server_gone;
    if (server != nullptr && !ended && open && awake(*server)) worker.heard = agenda_.now();
    const bool silent = agenda_.now() - worker.heard >= kDead;
    if ((ended && (open || server == nullptr)) || silent) {
      if (found != sessions_.end()) found->second->rank_gone = true;
      worker.session = 0;
      worker.unconnected_since = agenda_.now();
      worker.rank->mailbox().session_lost();
    }
  } else if (Worker* const server = place_of_coordinator(worker);
             server != nullptr && !worker.connecting && reach(worker, *server) &&
             server->server != nullptr) {
    worker.connecting = true;
    agenda_.after(soon() + kReconnect * random_.uniform(),
                  [this, uid = worker.uid, life = worker.life, to = server->uid] {
                    Worker* const same = find(uid);
                    if (same == nullptr || same->life != life) return;
                    same->connecting = false;
                    Worker* const there = find(to);
                    const bool opens = there != nullptr && there->server != nullptr &&
                                       reach(*same, *there) && same->session == 0;
                    if (opens) connect(*same, *there);
                  });
  }
  const bool unheard = worker.session != 0
                           ? agenda_.now() - worker.heard >= kSilent
                           : agenda_.now() - worker.unconnected_since >= kUnconnected;
  if (!unheard && !worker.doubts) {
    worker.asks_since = agenda_.now();
    return;
  }
  ask(worker);
}

void RecoveryWorld::connect(Worker& worker, const Worker& server) {
  auto session = std::make_unique<Session>();
  session->id = ++last_session_;
  session->server = server.uid;
  session->rank = worker.uid;
  session->heard = worker.heard = agenda_.now();
  worker.session = session->id;
  protocol::Member member{.pod = worker.pod,
                          .pod_uid = worker.uid,
                          .worker_index = worker.index,
                          .ips = {worker.ip},
                          .node = worker.node,
                          .ranks = {{.device = "A", .memory_bytes = 0}}};
  member.plan_version = protocol::kNewestPlanVersion;
  protocol::Hello hello = worker.rank->mailbox().hello(member);
  hello.features = {protocol::kSumsFeature};
  hello.leaving = worker.leaves_since.has_value();
  Session& made = *(sessions_[session->id] = std::move(session));
  push(made, true, hello);
}

void RecoveryWorld::ask(Worker& worker) {
  if (agenda_.now() < worker.ask_at) return;
  const bool often = agenda_.now() - worker.asks_since < kAskOften;
  worker.ask_at = agenda_.now() + (often ? kAskEvery : kAskLater);
  call(worker, [this](Worker& same) {
    const auto lost = same.joined ? std::optional(same.term) : std::nullopt;
    const auto place = take_join(same, lost);
    if (place || same.joined) answered(same, place);
  });
}

// worker/app/coordination.cpp, find_coordinator.
void RecoveryWorld::answered(Worker& worker,
                             const std::optional<protocol::CoordinatorPlace>& place) {
  worker.doubts = false;
  if (!worker.joined) {
    worker.joined = true;
    worker.unconnected_since = agenda_.now();
    worker.place = place;
    worker.term = place->term;
    if (app::coordinates_first(worker.uid, worker.index, place)) coordinate(worker, "");
    return;
  }
  const app::RoleChange change = app::change_of(
      {.pod_uid = worker.uid, .term = worker.term, .coordinates = worker.coordinator != nullptr},
      place);
  if (change.follows == app::RoleChange::Follows::kAsBefore) return;
  worker.term = place->term;
  worker.place = place;
  if (change.stops) {
    note(worker.pod + " gives up its role");
    worker.coordinator.reset();
  }
  if (change.begins) coordinate(worker, place->lost_pod_uid);
  const auto found = sessions_.find(worker.session);
  if (found == sessions_.end() || found->second->server == place->pod_uid) return;
  found->second->rank_gone = true;
  worker.session = 0;
  worker.unconnected_since = agenda_.now();
  worker.rank->mailbox().session_lost();
}

void RecoveryWorld::coordinate(Worker& worker, const std::string& lost_pod_uid) {
  note(worker.pod + " coordinates in term " + std::to_string(worker.term));
  const int life = worker.life;
  coordinator::Options options{
      .job_uid = world_.job.meta.uid,
      .workers = case_.stages * case_.replicas,
      .model = {.name = "m", .layers = 4, .digest = "sha256:0", .engine = "", .note = ""},
      .settings = {},
      .total_steps = std::int64_t{1} << 40,
      .measure = true,
      .snapshots = {.every_steps = 4, .deadline = std::chrono::seconds(60), .for_leaving = true},
      .dead_after = std::chrono::seconds(static_cast<int>(kSilent)),
      .term = worker.term,
      .lost_pod_uid = lost_pod_uid,
      .on_moved = [this, uid = worker.uid, life](std::int64_t term) {
        Worker* const same = find(uid);
        if (same != nullptr && same->life == life && term > same->term) same->doubts = true;
      }};
  auto started = coordinator::start_coordinator(
      options, "key", std::make_unique<Source>(*this, worker), [](const std::string&) {},
      {.clock = *clock_,
       .make_server = [this, &worker](const auto& server,
                                      auto events) -> Result<std::unique_ptr<control::RankServer>> {
         return std::unique_ptr<control::RankServer>(
             std::make_unique<Server>(*this, worker, server, std::move(events)));
       }});
  worker.coordinator = *std::move(started);
}

}  // namespace weir::sim
