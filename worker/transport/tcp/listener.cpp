// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/listener.h"

#include <utility>

namespace weir::transport::tcp {
namespace {

// All ranks of a large job may come at once to fetch state; each has an address of its own.
constexpr std::size_t kMaxStrangers = 512;
constexpr std::size_t kMaxStrangersOfOneAddress = 64;

}  // namespace

Listener::Listener(boost::asio::io_context& context, std::shared_ptr<StateServer> moves,
                   std::shared_ptr<StateServer> copies, std::shared_ptr<ProbeServer> probes,
                   std::string job_uid, std::string job_key)
    : context_(context),
      moves_(std::move(moves)),
      copies_(std::move(copies)),
      probes_(std::move(probes)),
      own_job_uid_(std::move(job_uid)),
      job_key_(std::move(job_key)) {}

Status Listener::open(const std::string& ip, int port) {
  door_ = std::make_shared<wire::Door>(
      context_,
      wire::DoorOptions{.name = "data port",
                        .job_uid = own_job_uid_,
                        .job_key = job_key_,
                        .most_strangers = kMaxStrangers,
                        .most_of_one_address = kMaxStrangersOfOneAddress},
      [weak = weak_from_this()](const std::shared_ptr<wire::Acceptor>& acceptor) {
        const auto self = weak.lock();
        self ? self->route(acceptor) : acceptor->close();
      });
  WEIR_TRY([[maybe_unused]] const Unit opened, door_->open(ip, port));
  door_->start();
  return Unit{};
}

void Listener::route(const std::shared_ptr<wire::Acceptor>& acceptor) {
  const wire::Hello& hello = acceptor->hello();
  const Result<Place> place = decode_place(hello.body);
  if (!place) return acceptor->refuse(place.error());
  if (hello.purpose == wire::Purpose::kState) return moves_->admit(acceptor, *place);
  if (hello.purpose == wire::Purpose::kCopy) return copies_->admit(acceptor, *place);
  if (hello.purpose == wire::Purpose::kProbe) return probes_->admit(acceptor);
  if (!newest_) return pending_.add(acceptor);
  if (hello.job_uid != job_uid_) {
    return acceptor->refuse({Code::kForbidden, "this worker belongs to another job"});
  }
  if (place->generation < *newest_) {
    return acceptor->refuse({Code::kConflict, "generation " + place->generation.text() +
                                                  " is older than " + newest_->text()});
  }
  // Ranks first connect to their neighbours, then to the other replicas of their stage, then to
  // groups with higher numbers (ReplicaGroupGeneration::of_ties).
  const bool later = !rendezvous_ ||
                     (hello.purpose == wire::Purpose::kReplicaGroup) != rendezvous_->is_group() ||
                     (rendezvous_->is_group() &&
                      static_cast<int>(place->replica) > rendezvous_->generation().replica);
  if (place->generation > *newest_ || later) return pending_.add(acceptor);
  const Generation& mine = rendezvous_->generation();
  if (static_cast<int>(place->replica) != mine.replica ||
      static_cast<int>(place->to_stage) != mine.stage || !rendezvous_->admit(acceptor, *place)) {
    return acceptor->refuse({Code::kUnavailable, "this worker is stage " +
                                                     std::to_string(mine.stage) + " of replica " +
                                                     std::to_string(mine.replica)});
  }
}

Status Listener::begin(std::shared_ptr<Rendezvous> rendezvous) {
  const GenerationId id = rendezvous->id();
  if (newest_ && id < *newest_) {
    return Error{Code::kConflict, "generation " + id.text() + " is older than " + newest_->text() +
                                      ", which this worker has opened"};
  }
  newest_ = id;
  job_uid_ = rendezvous->generation().job_uid;
  rendezvous_ = std::move(rendezvous);
  for (const auto& acceptor : pending_.take()) route(acceptor);
  return Unit{};
}

void Listener::end() {
  rendezvous_.reset();
}

void Listener::close() {
  door_->close();
  pending_.close();
  probes_->close();
}

}  // namespace weir::transport::tcp
