// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/tcp_transport.h"

#include "worker/base/log.h"
#include "worker/transport/tcp/io_thread.h"
#include "worker/transport/tcp/listener.h"
#include "worker/transport/tcp/rendezvous.h"
#include "worker/transport/tcp/tcp_communicator.h"

namespace weir::transport {
namespace tcp {
namespace {

using Time = std::chrono::steady_clock::time_point;

Status check(const Generation& generation) {
  if (generation.job_key.empty()) return Error{Code::kInvalid, "job key is empty"};
  if (generation.job_uid.size() > 128) return Error{Code::kInvalid, "job uid is too long"};
  if (generation.previous && generation.previous->stage != generation.stage - 1) {
    return Error{Code::kInvalid, "the previous peer is not the stage before"};
  }
  if (generation.next && generation.next->stage != generation.stage + 1) {
    return Error{Code::kInvalid, "the next peer is not the stage after"};
  }
  return Unit{};
}

class Transport final : public TcpTransport {
 public:
  Transport(const TcpOptions& options, std::shared_ptr<IoThread> io,
            std::shared_ptr<Listener> listener)
      : options_(options), io_(std::move(io)), listener_(std::move(listener)) {}

  ~Transport() override {
    io_->call([this] {
      listener_->close();
      return true;
    });
  }
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int data_port() const override { return listener_->port(); }

  Result<std::unique_ptr<Communicator>> connect(const Generation& generation, Time deadline,
                                                std::stop_token stop) override {
    WEIR_TRY([[maybe_unused]] const Unit valid, check(generation));
    const auto rendezvous = std::make_shared<Rendezvous>(io_->context(), generation, options_);
    WEIR_TRY([[maybe_unused]] const Unit begun, io_->call([&] {
      Status status = listener_->begin(rendezvous);
      if (status) rendezvous->start();
      return status;
    }));
    const std::optional<Status> outcome = rendezvous->outcome().pop(deadline, stop);
    return io_->call([&]() -> Result<std::unique_ptr<Communicator>> {
      listener_->end();
      const bool complete = rendezvous->complete();
      auto joined = rendezvous->finish();
      if (complete) return make_communicator(generation, std::move(joined));
      if (outcome && !*outcome) return outcome->error();
      if (stop.stop_requested()) return Error{Code::kCancelled, "stopped while connecting"};
      return Error{Code::kTimeout, rendezvous->missing()};
    });
  }

 private:
  Result<std::unique_ptr<Communicator>> make_communicator(const Generation& generation,
                                                          std::vector<Joined> joined) {
    auto links = std::make_shared<Links>(io_->context(), generation, options_, start_);
    links->start(std::move(joined));
    return std::unique_ptr<Communicator>(std::make_unique<TcpCommunicator>(io_, std::move(links)));
  }

  const TcpOptions options_;
  const Time start_ = std::chrono::steady_clock::now();
  std::shared_ptr<IoThread> io_;
  std::shared_ptr<Listener> listener_;
};

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<TcpTransport>> make_tcp_transport(const TcpOptions& options) {
  auto io = std::make_shared<tcp::IoThread>();
  auto listener = std::make_shared<tcp::Listener>(io->context());
  const Status opened =
      io->call([&] { return listener->open(options.listen_ip, options.data_port); });
  if (!opened) return opened.error();
  return std::unique_ptr<TcpTransport>(
      std::make_unique<tcp::Transport>(options, std::move(io), std::move(listener)));
}

}  // namespace weir::transport
