// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/replica_group.h"

#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/base/check.h"
#include "worker/transport/tcp/replica_group_operation.h"

namespace weir::transport::tcp {
namespace {

using std::chrono::steady_clock;

// Keeps the network busy while a segment is combined. Frames of others take memory only while their
// operation is active.
constexpr std::size_t kMostActive = 4;
constexpr int kPollMilliseconds = 1000;  // upper bound; all relevant events wake the thread

int milliseconds_until(steady_clock::time_point time, steady_clock::time_point now) {
  constexpr auto kMost = std::chrono::milliseconds(kPollMilliseconds);
  if (time - now >= kMost) return kPollMilliseconds;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time - now).count());
}

// A peer whose machine is gone sends nothing, and nothing may be sent to it, so TCP itself must
// probe. TCP_USER_TIMEOUT of the socket then ends the connection.
void keep_alive(int descriptor) {
  const auto set = [descriptor](int level, int option, int value) {
    static_cast<void>(::setsockopt(descriptor, level, option, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
}

}  // namespace

ReplicaGroup::ReplicaGroup(int replica, std::vector<Connected> others, SumEncoding encoding,
                           int send_buffer_bytes, std::shared_ptr<TrafficOrder> order)
    : replica_(replica),
      event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      packing_(encoding),
      traffic_(std::move(order), send_buffer_bytes, [this] { wake(); }) {
  WEIR_CHECK(event_ >= 0, "an event descriptor");
  for (Connected& one : others) {
    keep_alive(one.descriptor);
    peers_.push_back({.link = std::make_unique<ReplicaGroupPeer>(one.replica, std::move(one.name),
                                                                 one.descriptor),
                      .ends = std::move(one.ends),
                      .sessions = {},
                      .given_up = {},
                      .lost = {}});
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

ReplicaGroup::~ReplicaGroup() {
  thread_.request_stop();
  wake();
  thread_.join();
  for (Peer& peer : peers_) {
    tell_end(peer);
    peer.link->shut();
  }
  ::close(event_);
}

void ReplicaGroup::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter wakes the thread as well.
  static_cast<void>(!::write(event_, &one, sizeof one));
}

void ReplicaGroup::all_reduce(AllReduce operation) {
  WEIR_CHECK(operation.combine != nullptr, "an all-reduce combines");
  const std::size_t count = std::max<std::size_t>(1, operation.count);
  WEIR_CHECK(operation.in.size() % count == 0 && operation.out.size() % count == 0,
             "whole elements");
  auto made = std::make_shared<Operation>();
  made->tag = operation.tag;
  made->members = operation.members;
  made->background = operation.background;
  made->reduce = std::move(operation);
  post(std::move(made));
}

void ReplicaGroup::all_gather(AllGather operation) {
  WEIR_CHECK(operation.blocks != nullptr && operation.sizes.size() == operation.members.size(),
             "a size for each member");
  auto made = std::make_shared<Operation>();
  made->tag = operation.tag;
  made->members = operation.members;
  made->gather = std::move(operation);
  post(std::move(made));
}

void ReplicaGroup::post(Pointer operation) {
  WEIR_CHECK(std::ranges::is_sorted(operation->members) && operation->has(replica_),
             "members in rising order, this one among them");
  operation->self = operation->index_of(replica_);
  {
    const std::lock_guard lock(mutex_);
    ++calls_;
    posted_.push_back(std::move(operation));
  }
  wake();
}

Result<bool> ReplicaGroup::wait(Time deadline, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, std::move(stop), deadline,
                      [this] { return error_ || missing_ || complete_ == calls_; });
  if (error_) return *error_;
  if (missing_) return *missing_;
  return complete_ == calls_;
}

void ReplicaGroup::abort(const std::string& reason) noexcept {
  fail({Code::kUnavailable, reason});
  wake();
}

CollectiveCounters ReplicaGroup::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::optional<Error> ReplicaGroup::trouble() const {
  const std::lock_guard lock(mutex_);
  return error_ ? error_ : missing_ ? missing_ : gone_;
}

void ReplicaGroup::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  changed_.notify_all();
}

// Runs until the end of this object, or until a failure that abandon() cannot handle. Afterwards
// the callers' memory is not used any longer, and the peers see the connections end.
void ReplicaGroup::run(const std::stop_token& stop) {
  traffic_.look(sockets());
  while (!stop.stop_requested() && take_posted()) {
    drop_abandoned();
    if (finish_complete()) continue;
    look_for_missing();
    await_events();
    const Status state = serve();
    if (!state) {
      fail(state.error());
      break;
    }
  }
  traffic_.stop();
  for (const Peer& peer : peers_) peer.link->shut();
}

void ReplicaGroup::await_events() {
  std::vector<pollfd> polled = {{.fd = event_, .events = POLLIN, .revents = 0}};
  const Time now = steady_clock::now();
  tell_traffic(now);
  const bool reads = traffic_.may_read(now) > 0, writes = traffic_.may_write(now) > 0;
  int limit = milliseconds_until(traffic_.again(now), now);
  for (const Peer& peer : peers_) {
    const ReplicaGroupPeer& link = *peer.link;
    int asked = (reads && link.wants_to_read() ? POLLIN : 0) |
                (writes && link.wants_to_write() ? POLLOUT : 0);
    if (peer.lost) asked = 0;
    if ((asked & POLLIN) != 0 && link.has_news()) limit = 0;
    polled.push_back({.fd = asked != 0 ? link.descriptor() : -1,  // poll() ignores -1
                      .events = static_cast<short>(asked),
                      .revents = 0});
  }
  const bool any = ::poll(polled.data(), polled.size(), limit) > 0;
  std::uint64_t count = 0;
  if (any && polled[0].revents != 0) static_cast<void>(!::read(event_, &count, sizeof count));
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].events = any ? polled[i + 1].revents : short{0};
  }
}

void ReplicaGroup::tell_traffic(Time now) {
  bool sums = false, background = false;
  for (const Pointer& operation : active_) (operation->background ? background : sums) = true;
  traffic_.going_on(sums, background);
  traffic_.wants_to_write(
      std::ranges::any_of(
          peers_, [](const Peer& peer) { return !peer.lost && peer.link->wants_to_write(); }),
      now);
}

// Moves what the sockets and the order of the process's traffic allow.
Status ReplicaGroup::serve(Peer& peer) {
  ReplicaGroupPeer& link = *peer.link;
  const ReplicaGroupPeer::Callbacks callbacks{
      .begin = [this, &peer](const ReplicaGroupFrame& frame) { return place_of(peer, frame); },
      .complete = [this, &peer](const ReplicaGroupFrame& frame,
                                const Arrival& arrival) { return arrived(peer, frame, arrival); }};
  const Time now = steady_clock::now();
  // The end of a connection is looked at in any case.
  const bool ended = (peer.events & (POLLHUP | POLLERR)) != 0;
  const std::size_t reads = ended ? BulkTraffic::kAll : traffic_.may_read(now);
  const bool readable = (peer.events & ~POLLOUT) != 0 || link.has_news();
  if (readable && reads > 0 && link.wants_to_read()) {
    WEIR_TRY(const std::size_t bytes, link.read(callbacks, reads));
    traffic_.read(bytes, now);
  }
  if (!link.wants_to_write()) return Unit{};
  tell_traffic(now);  // a read may have brought something to write
  if (const std::size_t writes = traffic_.may_write(now); writes > 0) {
    WEIR_TRY(const std::size_t bytes, link.write(writes));
    traffic_.wrote(bytes, now);
  }
  return Unit{};
}

Status ReplicaGroup::serve() {
  for (Peer& peer : peers_) {
    if (peer.lost) continue;
    ReplicaGroupPeer& link = *peer.link;
    const Status state = serve(peer);
    if (link.closed()) {
      peer.ends = nullptr;
      note_gone(link.replica(), {Code::kUnavailable, link.name() + ": closed by the peer"});
    }
    if (state) continue;
    const Error error = state.error().with(link.name());
    if (error.code != Code::kUnavailable) return error;
    peer.lost = error;
    tell_end(peer);
    note_gone(link.replica(), error);
    link.shut();
  }
  return Unit{};
}

void ReplicaGroup::tell_end(Peer& peer) {
  if (const auto ends = std::exchange(peer.ends, nullptr)) ends(peer.link->socket().descriptor());
}

void ReplicaGroup::note_gone(int replica, const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!gone_) gone_ = error;
  gone_ones_.emplace(replica, error);
}

bool ReplicaGroup::take_posted() {
  std::vector<Pointer> taken;
  {
    const std::lock_guard lock(mutex_);
    if (error_) return false;
    while (!posted_.empty() && active_.size() + taken.size() < kMostActive) {
      taken.push_back(std::move(posted_.front()));
      posted_.pop_front();
    }
  }
  for (const Pointer& operation : taken) begin(operation);
  return true;
}

void ReplicaGroup::send(const Pointer& operation, std::size_t member, ReplicaGroupPhase phase,
                        std::span<const std::byte> bytes) {
  Peer* const peer = peer_of(operation->members[member]);
  WEIR_CHECK(peer != nullptr, "a member of an operation is a replica of this group");
  ++operation->unwritten;
  peer->link->push({.phase = phase,
                    .session = operation->session[member],
                    .tag = operation->tag,
                    .length = bytes.size()},
                   bytes, [operation] { --operation->unwritten; });
  if (operation->gather && !operation->gather->counted) return;
  const auto count = static_cast<std::int64_t>(bytes.size());
  operation->bytes_sent += count;
  const std::lock_guard lock(mutex_);
  counters_.bytes_sent += count;
  if (phase == ReplicaGroupPhase::kPackedContribution) counters_.packed_bytes += count;
}

ReplicaGroup::Peer* ReplicaGroup::peer_of(int replica) {
  const auto found =
      std::ranges::find(peers_, replica, [](const Peer& peer) { return peer.link->replica(); });
  return found == peers_.end() ? nullptr : &*found;
}

ReplicaGroup::Pointer ReplicaGroup::active_with(int replica, const ReplicaGroupFrame& frame) const {
  for (const Pointer& operation : active_) {
    const std::size_t member = operation->index_of(replica);
    if (member < operation->members.size() && operation->session[member] == frame.session &&
        operation->tag.part == frame.tag.part) {
      return operation;
    }
  }
  return nullptr;
}

Result<std::optional<ReplicaGroupPeer::Place>> ReplicaGroup::place_of(
    Peer& peer, const ReplicaGroupFrame& frame) {
  constexpr auto kNotYet = std::optional<ReplicaGroupPeer::Place>();
  const ReplicaGroupPeer::Place nowhere{.to = {}, .nowhere = true};
  const bool gives_up = frame.phase == ReplicaGroupPhase::kGivenUp;
  const auto fate = peer.sessions.fate(frame.session, gives_up ? 0 : frame.tag.part);
  if (fate == ReplicaGroupSessions::Fate::kLater) return kNotYet;
  if (gives_up) {
    peer.given_up = frame.session;
    const std::lock_guard lock(mutex_);
    given_up_[peer.link->replica()] = frame.tag.step;
  }
  if (gives_up || fate == ReplicaGroupSessions::Fate::kDropped) return std::optional(nowhere);
  const int replica = peer.link->replica();
  const Pointer operation = active_with(replica, frame);
  if (!operation) return invalid("a frame of an operation that is over");
  if (frame.tag != operation->tag) {
    const auto text = [](const CollectiveTag& tag) {
      return "step " + std::to_string(tag.step) + " part " + std::to_string(tag.part);
    };
    return Error{Code::kConflict,
                 "is at " + text(frame.tag) + ", this rank at " + text(operation->tag)};
  }
  const std::size_t member = operation->index_of(replica);
  if (frame.phase == ReplicaGroupPhase::kResult) {
    if (!operation->reduce) return invalid("a result where a block is due");
    return std::optional(ReplicaGroupPeer::Place{.to = operation->out(member)});
  }
  if (++operation->members_begun + 1 == operation->members.size()) {
    operation->all_begun = steady_clock::now();
  }
  if (frame.phase == ReplicaGroupPhase::kPackedContribution) {
    const std::size_t most = operation->reduce ? operation->inputs[member].size() : 0;
    const bool expected = most > 0 && operation->reduce->exact_sums;
    if (!expected || frame.length >= most) return invalid("packed sums where none are due");
    operation->packed_in[member] = take_room(frame.length);
    return std::optional(
        ReplicaGroupPeer::Place{.to = std::span(operation->packed_in[member]).first(frame.length)});
  }
  auto& block =
      operation->gather ? (*operation->gather->blocks)[member] : operation->inputs[member];
  return std::optional(ReplicaGroupPeer::Place{.to = block});
}

std::vector<DataSocket*> ReplicaGroup::sockets() {
  std::vector<DataSocket*> result;
  for (const Peer& peer : peers_) {
    if (!peer.lost) result.push_back(&peer.link->socket());
  }
  return result;
}

bool ReplicaGroup::finish_complete() {
  std::size_t finished = 0;
  for (; !active_.empty() && active_.front()->complete(); ++finished) {
    const Pointer operation = std::move(active_.front());
    active_.pop_front();
    const Time now = steady_clock::now();
    const Time since = std::max(operation->all_begun.value_or(now), last_end_);
    last_end_ = now;
    if (operation->gather && operation->gather->done) operation->gather->done();
    for (auto& room : operation->packed_out) {
      if (!room.empty()) rooms_.push_back(std::move(room));
    }
    if (operation->gather && !operation->gather->counted) continue;
    packing_.measured(operation->bytes_sent, now - since);
    traffic_.carried(operation->bytes_sent, now - since, sockets(), now);
    const std::lock_guard lock(mutex_);
    ++counters_.operations;
    counters_.waited_to_send = traffic_.waited_to_write();
    counters_.waited_to_read = traffic_.waited_to_read();
    counters_.busy += now - since;
  }
  if (finished == 0) return false;
  {
    const std::lock_guard lock(mutex_);
    complete_ += finished;
  }
  changed_.notify_all();
  return true;
}

}  // namespace weir::transport::tcp
