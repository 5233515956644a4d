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

namespace weir::transport::tcp {
namespace {

using std::chrono::steady_clock;

// Enough that the network is busy while a segment is combined. What others send for an operation
// takes memory only while it is active.
constexpr std::size_t kMostActive = 4;
constexpr int kPollMilliseconds = 1000;  // nothing depends on it: all that matters wakes the thread

// A peer whose machine is gone sends nothing, and nothing may be due to it: TCP itself must ask.
// Then TCP_USER_TIMEOUT, which the socket has, decides.
void keep_alive(int descriptor) {
  const auto set = [descriptor](int level, int option, int value) {
    static_cast<void>(::setsockopt(descriptor, level, option, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
}

}  // namespace

struct ReplicaGroup::Operation {
  CollectiveTag tag;
  std::vector<int> members;
  std::size_t self = 0;  // index of this replica in members
  std::optional<AllReduce> reduce;
  std::optional<AllGather> gather;

  std::vector<std::uint32_t> sequence;         // by member
  std::vector<std::vector<std::byte>> inputs;  // by member: its part of the segment of this one
  std::vector<int> frames_due;                 // by member
  std::size_t contributions_due = 0, results_due = 0, unwritten = 0;
  std::size_t members_begun = 0;  // others whose first frame has come
  std::optional<Time> all_begun;
  Time begun;

  std::size_t first_of(std::size_t member) const {  // element of a segment's begin
    return reduce->count * member / members.size();
  }
  std::size_t count_of(std::size_t member) const { return first_of(member + 1) - first_of(member); }
  std::span<const std::byte> in(std::size_t member) const {
    if (reduce->count == 0) return {};
    const std::size_t size = reduce->in.size() / reduce->count;
    return reduce->in.subspan(first_of(member) * size, count_of(member) * size);
  }
  std::span<std::byte> out(std::size_t member) const {
    if (reduce->count == 0) return {};
    const std::size_t size = reduce->out.size() / reduce->count;
    return reduce->out.subspan(first_of(member) * size, count_of(member) * size);
  }
  std::size_t index_of(int replica) const {
    return static_cast<std::size_t>(std::ranges::find(members, replica) - members.begin());
  }
  bool has(int replica) const { return index_of(replica) < members.size(); }
  bool complete() const { return contributions_due == 0 && results_due == 0 && unwritten == 0; }
};

ReplicaGroup::ReplicaGroup(int replica, std::vector<Connected> others)
    : replica_(replica), event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  WEIR_CHECK(event_ >= 0, "an event descriptor");
  for (Connected& one : others) {
    keep_alive(one.descriptor);
    peers_.push_back(std::make_unique<GroupPeer>(one.replica, std::move(one.name), one.descriptor));
  }
  begun_with_.assign(peers_.size(), 0);
  events_.assign(peers_.size(), 0);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

ReplicaGroup::~ReplicaGroup() {
  thread_.request_stop();
  wake();
  thread_.join();
  for (const auto& peer : peers_) peer->shut();
  ::close(event_);
}

void ReplicaGroup::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter wakes as well.
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
                      [this] { return error_ || complete_ == calls_; });
  if (error_) return *error_;
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

void ReplicaGroup::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  changed_.notify_all();
}

// Until the end of this object, or a failure. Then nothing of the callers' memory is touched any
// more, and the peers see the connections end.
void ReplicaGroup::run(const std::stop_token& stop) {
  while (!stop.stop_requested() && take_posted()) {
    if (finish_complete()) continue;
    Status state = none_missing();
    if (state) {
      await_events();
      state = serve();
    }
    if (!state) {
      fail(state.error());
      break;
    }
  }
  for (const auto& peer : peers_) peer->shut();
}

void ReplicaGroup::await_events() {
  std::vector<pollfd> polled = {{.fd = event_, .events = POLLIN, .revents = 0}};
  int limit = kPollMilliseconds;
  for (const auto& peer : peers_) {
    const int asked = (peer->wants_to_read() ? POLLIN : 0) | (peer->wants_to_write() ? POLLOUT : 0);
    if (peer->has_news()) limit = 0;
    polled.push_back({.fd = asked != 0 ? peer->descriptor() : -1,  // poll() passes over -1
                      .events = static_cast<short>(asked),
                      .revents = 0});
  }
  const bool any = ::poll(polled.data(), polled.size(), limit) > 0;
  std::uint64_t count = 0;
  if (any && polled[0].revents != 0) static_cast<void>(!::read(event_, &count, sizeof count));
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    events_[i] = any ? polled[i + 1].revents : short{0};
  }
}

Status ReplicaGroup::serve() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    GroupPeer& peer = *peers_[i];
    const GroupPeer::Hooks hooks{
        .begin = [this, i](const GroupFrame& frame) { return place_of(i, frame); },
        .complete = [this, i](const GroupFrame& frame) { arrived(i, frame); }};
    const bool readable = (events_[i] & ~POLLOUT) != 0 || peer.has_news();
    if (readable && peer.wants_to_read()) {
      const Status read = peer.read(hooks);
      if (!read) return read.error().with(peer.name());
    }
    if (!peer.wants_to_write()) continue;
    const Status written = peer.write();
    if (!written) return written.error().with(peer.name());
  }
  return Unit{};
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

void ReplicaGroup::begin(const Pointer& operation) {
  active_.push_back(operation);
  operation->begun = steady_clock::now();
  operation->sequence.assign(operation->members.size(), 0);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!operation->has(peers_[i]->replica())) continue;
    operation->sequence[operation->index_of(peers_[i]->replica())] = begun_with_[i]++;
    peers_[i]->retry();
  }
  const std::size_t others = operation->members.size() - 1;
  operation->contributions_due = others;
  operation->frames_due.assign(operation->members.size(), operation->reduce ? 2 : 1);
  operation->frames_due[operation->self] = 0;
  if (others == 0) operation->all_begun = operation->begun;
  if (operation->reduce) begin_reduce(operation);
  if (operation->gather) begin_gather(operation);
}

void ReplicaGroup::begin_reduce(const Pointer& operation) {
  Operation& op = *operation;
  op.results_due = op.members.size() - 1;
  op.inputs.resize(op.members.size());
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    if (m == op.self) continue;
    op.inputs[m].resize(op.in(op.self).size());
    send(operation, m, GroupPhase::kContribution, op.in(m));
  }
  if (op.contributions_due == 0) combine(operation);
}

void ReplicaGroup::begin_gather(const Pointer& operation) {
  Operation& op = *operation;
  op.gather->blocks->assign(op.members.size(), {});
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    (*op.gather->blocks)[m].resize(op.gather->sizes[m]);
    if (m != op.self) send(operation, m, GroupPhase::kContribution, op.gather->own);
  }
  (*op.gather->blocks)[op.self] = op.gather->own;
}

void ReplicaGroup::send(const Pointer& operation, std::size_t member, GroupPhase phase,
                        std::span<const std::byte> bytes) {
  GroupPeer* const peer = peer_of(operation->members[member]);
  WEIR_CHECK(peer != nullptr, "a member of an operation is a replica of this group");
  ++operation->unwritten;
  peer->push({.phase = phase,
              .sequence = operation->sequence[member],
              .tag = operation->tag,
              .length = bytes.size()},
             bytes, [operation] { --operation->unwritten; });
  const std::lock_guard lock(mutex_);
  counters_.bytes_sent += static_cast<std::int64_t>(bytes.size());
}

GroupPeer* ReplicaGroup::peer_of(int replica) {
  for (const auto& peer : peers_) {
    if (peer->replica() == replica) return peer.get();
  }
  return nullptr;
}

ReplicaGroup::Pointer ReplicaGroup::active_with(int replica, std::uint32_t sequence) const {
  for (const Pointer& operation : active_) {
    const std::size_t member = operation->index_of(replica);
    if (member < operation->members.size() && operation->sequence[member] == sequence) {
      return operation;
    }
  }
  return nullptr;
}

Result<std::optional<std::span<std::byte>>> ReplicaGroup::place_of(std::size_t peer,
                                                                   const GroupFrame& frame) {
  const int replica = peers_[peer]->replica();
  const Pointer operation = active_with(replica, frame.sequence);
  if (!operation) {
    if (frame.sequence >= begun_with_[peer]) return std::optional<std::span<std::byte>>();
    return Error{Code::kInvalid, "a frame of an operation that is over"};
  }
  if (frame.tag != operation->tag) {
    const auto text = [](const CollectiveTag& tag) {
      return "step " + std::to_string(tag.step) + " part " + std::to_string(tag.part);
    };
    return Error{Code::kConflict,
                 "is at " + text(frame.tag) + ", this rank at " + text(operation->tag)};
  }
  const std::size_t member = operation->index_of(replica);
  if (frame.phase == GroupPhase::kResult) {
    if (!operation->reduce) return Error{Code::kInvalid, "a result where a block is due"};
    return std::optional(operation->out(member));
  }
  if (++operation->members_begun + 1 == operation->members.size()) {
    operation->all_begun = steady_clock::now();
  }
  if (operation->gather) return std::optional(std::span((*operation->gather->blocks)[member]));
  return std::optional(std::span(operation->inputs[member]));
}

void ReplicaGroup::arrived(std::size_t peer, const GroupFrame& frame) {
  const int replica = peers_[peer]->replica();
  const Pointer operation = active_with(replica, frame.sequence);
  WEIR_CHECK(operation != nullptr, "an operation lasts until its frames are there");
  --operation->frames_due[operation->index_of(replica)];
  if (frame.phase == GroupPhase::kResult) {
    --operation->results_due;
    return;
  }
  if (--operation->contributions_due == 0 && operation->reduce) combine(operation);
}

void ReplicaGroup::combine(const Pointer& operation) {
  Operation& op = *operation;
  std::vector<const std::byte*> inputs;
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    inputs.push_back(m == op.self ? op.in(m).data() : op.inputs[m].data());
  }
  const auto out = op.out(op.self);
  if (!out.empty()) op.reduce->combine(inputs, op.count_of(op.self), out.data());
  op.inputs.clear();
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    if (m != op.self) send(operation, m, GroupPhase::kResult, out);
  }
}

bool ReplicaGroup::finish_complete() {
  std::size_t finished = 0;
  for (; !active_.empty() && active_.front()->complete(); ++finished) {
    const Pointer operation = std::move(active_.front());
    active_.pop_front();
    const Time now = steady_clock::now();
    const Time since = std::max(operation->all_begun.value_or(now), last_end_);
    last_end_ = now;
    const std::lock_guard lock(mutex_);
    ++counters_.operations;
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

Status ReplicaGroup::none_missing() const {
  for (const auto& peer : peers_) {
    if (!peer->closed()) continue;
    for (const Pointer& operation : active_) {
      const std::size_t member = operation->index_of(peer->replica());
      if (member < operation->members.size() && operation->frames_due[member] > 0) {
        return Error{Code::kUnavailable, peer->name() + ": closed by the peer"};
      }
    }
  }
  return Unit{};
}

}  // namespace weir::transport::tcp
