// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/tcp_transport.h"

#include <algorithm>

#include "worker/base/bounded_queue.h"
#include "worker/base/log.h"
#include "worker/transport/tcp/data_socket.h"
#include "worker/transport/tcp/io_thread.h"
#include "worker/transport/tcp/listener.h"
#include "worker/transport/tcp/probe.h"
#include "worker/transport/tcp/rendezvous.h"
#include "worker/transport/tcp/replica_group.h"
#include "worker/transport/tcp/tcp_communicator.h"
#include "worker/transport/tcp/tcp_state_exchange.h"
#include "worker/transport/tcp/traffic_order.h"

namespace weir::transport {
namespace tcp {
namespace {

using Time = std::chrono::steady_clock::time_point;

Status check(const Generation& generation) {
  if (generation.job_key.empty()) return invalid("job key is empty");
  if (generation.job_uid.size() > 128) return invalid("job uid is too long");
  if (generation.previous && generation.previous->stage != generation.stage - 1) {
    return invalid("the previous peer is not the stage before");
  }
  if (generation.next && generation.next->stage != generation.stage + 1) {
    return invalid("the next peer is not the stage after");
  }
  return Unit{};
}

// Takes the socket away from Asio.
int released(boost::asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const int descriptor = socket.release(error);
  return error ? -1 : descriptor;  // -1: the first read fails
}

class Transport final : public TcpTransport {
 public:
  Transport(const TcpOptions& options, std::shared_ptr<IoThread> io,
            std::shared_ptr<Listener> listener, std::shared_ptr<StateServer> moves,
            std::shared_ptr<StateServer> copies, std::shared_ptr<TrafficOrder> order)
      : options_(options),
        io_(std::move(io)),
        listener_(std::move(listener)),
        order_(std::move(order)),
        state_(options_, io_, std::move(moves), std::move(copies), order_) {}

  ~Transport() override {
    io_->call([this] {
      listener_->close();
      return true;
    });
  }
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int data_port() const override { return listener_->port(); }
  StateExchange& state() override { return state_; }

  Result<ProbedRate> probe(const PeerAddress& peer, std::int64_t bytes, Time deadline,
                           std::stop_token stop) override {
    // The answer may come after this call has given up, so it shares the queue.
    const auto answers = std::make_shared<BoundedQueue<Result<ProbedRate>>>(1);
    const auto call = std::make_shared<ProbeCall>(
        io_->context(), bytes, pacing_of_probes(),
        [answers](Result<ProbedRate> answer) { answers->try_push(std::move(answer)); });
    io_->call([&] {
      call->start({.host = peer.ip,
                   .port = peer.data_port,
                   .hello = {.job_uid = options_.job_uid,
                             .purpose = wire::Purpose::kProbe,
                             .body = encode_place({}),
                             .nonce = {}},
                   .key = options_.job_key,
                   .socket = socket_options_of(options_, true)});
      return true;
    });
    std::optional<Result<ProbedRate>> answer = answers->pop(deadline, stop);
    return io_->call([&]() -> Result<ProbedRate> {
      const std::string problem = call->problem();
      call->cancel();
      if (answer) return *std::move(answer);
      if (stop.stop_requested()) return Error{Code::kCancelled, "stopped while probing"};
      return Error{Code::kTimeout, problem};
    });
  }

  Result<std::unique_ptr<Communicator>> connect(const Generation& generation, Time deadline,
                                                std::stop_token stop) override {
    WEIR_OK(check(generation));
    WEIR_TRY(std::vector<Joined> joined, meet(generation, {}, deadline, stop));
    return io_->call([&] { return make_communicator(generation, std::move(joined)); });
  }

  Result<std::unique_ptr<Collective>> connect_replica_group(const ReplicaGroupGeneration& group,
                                                            Time deadline,
                                                            std::stop_token stop) override {
    const Generation transposed{.job_uid = group.job_uid,
                                .job_key = group.job_key,
                                .revision = group.revision,
                                .incarnation = group.incarnation,
                                .replica = group.stage,
                                .stage = group.replica};
    WEIR_OK(check(transposed));
    std::vector<PeerAddress> others;
    for (const auto& other : group.others) {
      others.push_back({.stage = other.replica, .ip = other.ip, .data_port = other.data_port});
    }
    WEIR_TRY(std::vector<Joined> joined, meet(transposed, others, deadline, stop));
    std::vector<ReplicaGroup::Connected> connected = io_->call([&] {
      std::vector<ReplicaGroup::Connected> result;
      for (Joined& one : joined) {
        result.push_back(
            {.replica = one.peer.stage,
             .name = (group.of_ties ? "the other end of tied tables at "
                                    : "replica " + std::to_string(one.peer.stage) + " at ") +
                     one.peer.ip + ":" + std::to_string(one.peer.data_port),
             .descriptor = released(one.sockets.front()),
             .ends = [peer = one.peer, options = options_](int descriptor) {
               tell_if_dead(descriptor, peer, options);
             }});
      }
      return result;
    });
    return std::unique_ptr<Collective>(
        std::make_unique<ReplicaGroup>(group.replica, std::move(connected), options_.sum_encoding,
                                       options_.send_buffer_bytes, order_));
  }

 private:
  std::optional<Pacer> pacing_of_probes() const {
    const auto all = std::ranges::find_if(options_.pacing, [](const Pacing& pacing) {
      return pacing.boundary == -1 && pacing.channel != static_cast<int>(Channel::kBackward);
    });
    if (all == options_.pacing.end() || all->bytes_per_second <= 0) return std::nullopt;
    return Pacer(*all, start_);
  }

  // Establishes all connections of a generation, or of a group within it.
  Result<std::vector<Joined>> meet(const Generation& generation, std::vector<PeerAddress> group,
                                   Time deadline, std::stop_token stop) {
    const auto rendezvous =
        std::make_shared<Rendezvous>(io_->context(), generation, options_, std::move(group));
    WEIR_OK(io_->call([&] {
      Status status = listener_->begin(rendezvous);
      if (status) rendezvous->start();
      return status;
    }));
    const std::optional<Status> outcome = rendezvous->outcome().pop(deadline, stop);
    return io_->call([&]() -> Result<std::vector<Joined>> {
      listener_->end();
      const bool complete = rendezvous->complete();
      auto joined = rendezvous->finish();
      if (complete) return joined;
      if (outcome && !*outcome) return outcome->error();
      if (stop.stop_requested()) return Error{Code::kCancelled, "stopped while connecting"};
      return Error{Code::kTimeout, rendezvous->missing()};
    });
  }

  Result<std::unique_ptr<Communicator>> make_communicator(const Generation& generation,
                                                          std::vector<Joined> joined) {
    auto links = std::make_shared<Links>(io_->context(), generation, options_, start_, order_);
    links->start(std::move(joined));
    return std::unique_ptr<Communicator>(std::make_unique<TcpCommunicator>(io_, std::move(links)));
  }

  const TcpOptions options_;
  const Time start_ = std::chrono::steady_clock::now();
  std::shared_ptr<IoThread> io_;
  std::shared_ptr<Listener> listener_;
  const std::shared_ptr<TrafficOrder> order_;
  TcpStateExchange state_;
};

}  // namespace
}  // namespace tcp

wire::SocketOptions socket_options_of(const TcpOptions& options, bool boundary) {
  return {.send_buffer_bytes = options.send_buffer_bytes,
          .dead_after = options.dead_after,
          .congestion_control = options.congestion_control,
          .dscp = boundary ? options.boundary_dscp : options.bulk_dscp};
}

void tell_silence(wire::Dialer::Target& target, const PeerAddress& peer,
                  const TcpOptions& options) {
  if (!options.on_silent) return;
  target.silent = [peer, tell = options.on_silent] { tell(peer); };
  target.silent_after = options.dead_after;
}

void tell_if_dead(int descriptor, const PeerAddress& peer, const TcpOptions& options) {
  constexpr auto kLeast = std::chrono::seconds(2);
  if (!options.on_silent) return;
  const auto limit = std::max<std::chrono::nanoseconds>(options.dead_after / 2, kLeast);
  if (tcp::unanswered_for(descriptor) >= limit) options.on_silent(peer);
}

Result<std::unique_ptr<TcpTransport>> make_tcp_transport(const TcpOptions& options) {
  auto io = std::make_shared<tcp::IoThread>();
  auto order = options.order_traffic ? std::make_shared<tcp::TrafficOrder>() : nullptr;
  const auto server = [&] {
    return std::make_shared<tcp::StateServer>(socket_options_of(options, false), order);
  };
  auto moves = server(), copies = server();
  auto probes = std::make_shared<tcp::ProbeServer>(options.job_uid, options.job_key);
  auto listener = std::make_shared<tcp::Listener>(io->context(), moves, copies, std::move(probes),
                                                  options.job_uid, options.job_key);
  const Status opened =
      io->call([&] { return listener->open(options.listen_ip, options.data_port); });
  if (!opened) return opened.error();
  return std::unique_ptr<TcpTransport>(
      std::make_unique<tcp::Transport>(options, std::move(io), std::move(listener),
                                       std::move(moves), std::move(copies), std::move(order)));
}

}  // namespace weir::transport
