// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/introduction.h"

#include <algorithm>
#include <utility>

namespace weir::transport::nccl {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{1};
constexpr std::size_t kWarmBytes = 4;
constexpr int kSender = 0, kReceiver = 1;  // ranks of a link's communicator
// A network link is fast enough with few blocks, and compute keeps the others.
constexpr int kMostBlocks = 4;

}  // namespace

Introduction::Introduction(NcclApi& api, device::Device& device, const Generation& generation,
                           std::unique_ptr<Communicator> tcp)
    : api_(api), device_(device), generation_(generation), facts_(api.facts()) {
  up_.side = std::make_unique<SideChannel>(std::move(tcp));
  plan(generation.next, Channel::kForward, true);
  plan(generation.previous, Channel::kBackward, true);
  plan(generation.previous, Channel::kForward, false);
  plan(generation.next, Channel::kBackward, false);
}

void Introduction::plan(const std::optional<PeerAddress>& peer, Channel channel, bool sending) {
  if (!peer) return;
  const LinkEnd end{.peer_stage = peer->stage, .channel = channel, .sending = sending};
  planned_.push_back({.end = end, .peer = *peer, .name = name_of(*peer) + ", " + name_of(end)});
}

Result<LinksUp> Introduction::run(Time deadline, const std::stop_token& stop) {
  deadline_ = deadline;
  stop_ = stop;
  const auto all = [this]() -> Status {
    WEIR_OK(say_hello());
    WEIR_OK(until(&Introduction::all_heard, "a hello"));
    WEIR_OK(open());
    WEIR_OK(until(&Introduction::all_ready, "the communicator"));
    WEIR_OK(warm());
    return until(&Introduction::all_warm, "the first message");
  };
  const Status done = all();
  if (done) return std::move(up_);
  std::vector<NcclComm*> comms;
  for (const auto& link : up_.links) comms.push_back(link->comm.get());
  api_.abort(comms);
  up_.side->abort(done.error().message);
  return done.error();
}

Status Introduction::say_hello() {
  for (Planned& link : planned_) {
    if (!link.end.sending) {
      up_.side->listen(link.end);
      continue;
    }
    Result<UniqueId> id = api_.make_id();
    if (!id) return id.error().with(link.name);
    link.id = *id;
    link.known = true;
    const Hello hello{.facts = {.nccl = facts_.nccl, .gpu = facts_.gpu}, .id = *id};
    up_.side->send(link.end, encode_hello(hello, link.end.channel));
  }
  finished_.assign(planned_.size(), false);
  return Unit{};
}

// A peer that has finished its introduction may be ahead; its further records are for the
// communicator.
Status Introduction::hear(const SideChannel::Arrived& arrived) {
  const auto link = std::ranges::find(planned_, arrived.end, &Planned::end);
  if (link == planned_.end() || link->known) {
    up_.early.push_back(arrived);
    return Unit{};
  }
  const Result<Hello> hello = decode_hello(arrived.record);
  if (!hello) return hello.error().with(link->name);
  const Status fits = check_peer(facts_, hello->facts);
  if (!fits) return fits.error().with(name_of(link->peer));
  link->id = hello->id;
  link->known = true;
  return Unit{};
}

Result<bool> Introduction::all_heard() {
  bool all = true;
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    finished_[i] = planned_[i].known;
    all = all && planned_[i].known;
  }
  return all;
}

Status Introduction::open() {
  for (const Planned& link : planned_) {
    const int boundary = std::min(link.peer.stage, generation_.stage);
    const std::string tag = generation_.job_uid + "/" + std::to_string(generation_.revision) + "." +
                            std::to_string(generation_.incarnation) + "/" +
                            std::to_string(boundary) + "-" + std::to_string(boundary + 1) +
                            (link.end.channel == Channel::kForward ? "f" : "b");
    auto opened = api_.open({.id = link.id,
                             .rank = link.end.sending ? kSender : kReceiver,
                             .most_blocks = kMostBlocks,
                             .name = tag});
    if (!opened) return opened.error().with(link.name);
    up_.links.push_back(std::make_unique<WatchedLink>(link.end, link.name, *std::move(opened)));
  }
  finished_.assign(planned_.size(), false);
  return Unit{};
}

Result<bool> Introduction::all_ready() {
  for (std::size_t i = 0; i < up_.links.size(); ++i) {
    if (finished_[i]) continue;
    const Result<bool> ready = up_.links[i]->comm->ready();
    if (!ready) return up_.links[i]->broken(ready.error());
    finished_[i] = *ready;
  }
  return std::ranges::find(finished_, false) == finished_.end();
}

Status Introduction::warm() {
  for (const auto& link : up_.links) {
    const device::Buffer memory = device_.allocate(kWarmBytes);
    if (!memory) return Error{Code::kInternal, "no device memory for the first message"};
    warm_memory_.push_back(memory);
    const Status begun = link->end.sending ? link->comm->send(memory.data(), kWarmBytes)
                                           : link->comm->receive(memory.data(), kWarmBytes);
    if (!begun) return link->broken(begun.error());
  }
  finished_.assign(planned_.size(), false);
  return Unit{};
}

Result<bool> Introduction::all_warm() {
  for (std::size_t i = 0; i < up_.links.size(); ++i) {
    if (finished_[i]) continue;
    const Result<std::optional<Timing>> finished = up_.links[i]->comm->take_finished();
    if (!finished) return up_.links[i]->broken(finished.error());
    finished_[i] = finished->has_value();
  }
  return std::ranges::find(finished_, false) == finished_.end();
}

Status Introduction::until(Result<bool> (Introduction::*done)(), const char* awaited) {
  for (;;) {
    WEIR_TRY(const bool all, (this->*done)());
    if (all) return Unit{};
    const auto now = steady_clock::now();
    if (stop_.stop_requested()) return Error{Code::kCancelled, "stopped while links were made"};
    if (now >= deadline_) {
      return Error{Code::kTimeout, first_missing() + ": " + awaited + " did not come in time"};
    }
    WEIR_TRY(const std::optional<SideChannel::Arrived> arrived,
             up_.side->wait(std::min(deadline_, now + kPoll), stop_));
    if (!arrived) continue;
    WEIR_OK(hear(*arrived));
  }
}

std::string Introduction::first_missing() const {
  const auto index = std::ranges::find(finished_, false) - finished_.begin();
  return planned_[static_cast<std::size_t>(index)].name;
}

}  // namespace weir::transport::nccl
