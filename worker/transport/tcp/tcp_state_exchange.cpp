// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/tcp_state_exchange.h"

#include <utility>

#include "worker/base/bounded_queue.h"
#include "worker/base/digest.h"
#include "worker/transport/tcp/place.h"
#include "worker/transport/tcp/state_fetch.h"
#include "worker/wire/little_endian.h"

namespace weir::transport::tcp {
namespace {

// Distinguishes requests of two ranks that wait at the same peer. A HELLO has 20 bits for it.
std::uint32_t number_of_asker() {
  const std::string bytes = random_bytes(sizeof(std::uint32_t));
  return wire::load<std::uint32_t>(std::as_bytes(std::span(bytes)), 0) & 0xFFFFF;
}

}  // namespace

TcpStateExchange::~TcpStateExchange() {
  io_->call([this] {
    moves_->close();
    copies_->close();
    return true;
  });
}

void TcpStateExchange::offer(const StateKey& key, std::vector<LayerMemory> layers) {
  io_->call([&] {
    (key.copy ? copies_ : moves_)->offer(key, std::move(layers));
    return true;
  });
}

void TcpStateExchange::withdraw() {
  io_->call([this] {
    moves_->withdraw();
    return true;
  });
}

void TcpStateExchange::withdraw_copy() {
  io_->call([this] {
    copies_->withdraw();
    return true;
  });
}

Result<std::int64_t> TcpStateExchange::fetch(const StateKey& key,
                                             std::vector<StateRequest> requests,
                                             std::chrono::steady_clock::time_point deadline,
                                             std::stop_token stop) {
  const std::size_t count = requests.size();
  // Answers may come after this call has given up, so they share the queue.
  const auto answers = std::make_shared<BoundedQueue<Result<std::int64_t>>>(count + 1);
  std::vector<std::shared_ptr<StateFetch>> fetches;
  const std::uint32_t asker = number_of_asker();
  io_->call([&] {
    for (std::size_t i = 0; i < count; ++i) {
      wire::Dialer::Target target{
          .host = requests[i].from.ip,
          .port = requests[i].from.data_port,
          .hello = {.job_uid = key.job_uid,
                    .purpose = key.copy ? wire::Purpose::kCopy : wire::Purpose::kState,
                    .body = encode_place(
                        {.generation = {key.revision, key.incarnation},
                         .replica = asker,
                         .from_stage = static_cast<std::uint32_t>(i),
                         .to_stage = static_cast<std::uint32_t>(requests[i].layers.front().layer)}),
                    .nonce = {}},
          .key = key.job_key,
          .socket = socket_options_of(options_, false)};
      tell_silence(target, requests[i].from, options_);
      fetches.push_back(std::make_shared<StateFetch>(
          io_->context(), std::move(requests[i]), key, options_, order_, round_trips_,
          [answers](Result<std::int64_t> answer) { answers->try_push(std::move(answer)); }));
      fetches.back()->start(std::move(target));
    }
    return true;
  });

  Result<std::int64_t> outcome = std::int64_t{0};
  for (std::size_t i = 0; i < count && outcome; ++i) {
    const auto answer = answers->pop(deadline, stop);
    if (answer && *answer) {
      *outcome += **answer;
    } else if (answer) {
      outcome = answer->error();
    } else if (stop.stop_requested()) {
      outcome = Error{Code::kCancelled, "stopped while state moved"};
    } else {
      outcome = Error{Code::kTimeout, ""};
    }
  }
  // After this call no thread writes into the memory.
  return io_->call([&]() -> Result<std::int64_t> {
    std::string waiting;
    for (const auto& fetch : fetches) {
      if (outcome) break;
      waiting += (waiting.empty() ? "" : "; ") + fetch->problem();
    }
    for (const auto& fetch : fetches) fetch->cancel();
    if (!outcome && outcome.error().code == Code::kTimeout && outcome.error().message.empty()) {
      return Error{Code::kTimeout, "state did not come in time: " + waiting};
    }
    return outcome;
  });
}

}  // namespace weir::transport::tcp
