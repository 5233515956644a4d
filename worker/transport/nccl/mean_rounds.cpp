// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/mean_rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/log.h"
#include "worker/base/text.h"
#include "worker/base/units.h"
#include "worker/transport/nccl/first_exchange.h"

namespace weir::transport::nccl {
namespace {

constexpr std::uint32_t kTcpParts = 3;
constexpr UniqueId kNone{};

// The block that a member sends when its part of an operation is computed.
struct Word {
  std::uint64_t count = 0;  // elements
  UniqueId held = kNone;    // the communicator of this group that the member holds
};

std::vector<std::byte> encoded(const Word& word) {
  std::vector<std::byte> bytes(sizeof word);
  std::memcpy(bytes.data(), &word, sizeof word);
  return bytes;
}
Word decoded(const std::vector<std::byte>& bytes) {
  Word word;
  std::memcpy(&word, bytes.data(), sizeof word);  // the gather has checked the size
  return word;
}

}  // namespace

CollectiveTag tcp_tag(const CollectiveTag& tag, TcpPart part) {
  return {.step = tag.step, .part = kTcpParts * tag.part + static_cast<std::uint32_t>(part)};
}

AllGather word_of(const std::vector<int>& members, const CollectiveTag& tag) {
  return {.tag = tag,
          .members = members,
          .own = {},
          .sizes = std::vector<std::size_t>(members.size(), 0),
          .blocks = std::make_shared<std::vector<std::vector<std::byte>>>(),
          .counted = false};
}

MeanRounds::MeanRounds(NcclApi& api, Watchdog& dog, Collective& tcp, const Limits& limits,
                       SumCounters& counters, Place place, std::function<void()> wake)
    : api_(api),
      tcp_(tcp),
      limits_(limits),
      counters_(counters),
      place_(std::move(place)),
      wake_(std::move(wake)),
      groups_(api, dog) {}

MeanRounds::~MeanRounds() {
  if (found_ + made_ == 0) return;
  log_info("transport", "NCCL communicators of averages",
           {{"stage", place_.stage},
            {"rounds_found", found_},
            {"rounds_made", made_},
            {"making_seconds", to_seconds(making_)}});
}

std::size_t MeanRounds::scratch_bytes(const AllReduce& mean, int replica) {
  const auto own = std::ranges::find(mean.members, replica);
  const auto rank = static_cast<std::size_t>(own - mean.members.begin());
  return std::max(SumStream::scratch_bytes(mean, rank), first_exchange_bytes(mean.members.size()));
}

std::size_t MeanRounds::rank_in(const std::vector<int>& members) const {
  return static_cast<std::size_t>(std::ranges::find(members, place_.replica) - members.begin());
}

void MeanRounds::post(AllReduce mean, device::Buffer scratch) {
  WEIR_CHECK(takes(mean), "one round at a time");
  if (!of_round(mean)) round_ = Round{.step = mean.tag.step, .members = mean.members};
  queue_.push_back({.mean = std::move(mean), .scratch = std::move(scratch)});
  announce_more();
}

Result<bool> MeanRounds::progress(Time now) {
  if (idle()) return false;
  bool busy = false;
  WEIR_TRY(const bool usable, make_usable(now));
  if (usable) {
    announce_more();
    WEIR_TRY(busy, launch(now));
  } else {
    busy = round_->phase >= Round::Phase::kOpening;
  }
  WEIR_OK(look_for_absent());
  return busy;
}

// Checked last, because finished operations need no other member.
Status MeanRounds::look_for_absent() {
  if (idle()) return Unit{};
  if (auto absence = tcp_.absent(round_->members, round_->step)) return absence->error;
  return Unit{};
}

MeanRounds::Gather MeanRounds::gather(const CollectiveTag& tag, const std::vector<int>& members,
                                      std::vector<std::byte> own) {
  Gather made{.blocks = std::make_shared<std::vector<std::vector<std::byte>>>(),
              .done = std::make_shared<std::atomic<bool>>(false)};
  const std::size_t size = own.size();
  tcp_.all_gather({.tag = tag,
                   .members = members,
                   .own = std::move(own),
                   .sizes = std::vector<std::size_t>(members.size(), size),
                   .blocks = made.blocks,
                   .done =
                       [done = made.done, wake = wake_] {
                         *done = true;
                         wake();
                       },
                   .counted = false});
  return made;
}

// Until the communicator of the round is known, only the first operation is announced, because an
// id may have to be sent next.
void MeanRounds::announce_more() {
  const auto waits = [this] {
    return round_->phase != Round::Phase::kUsable && !announced_.empty();
  };
  while (!queue_.empty() && !waits()) {
    Operation operation = std::move(queue_.front());
    queue_.pop_front();
    announce(std::move(operation));
  }
}

// Nothing is launched before all have announced: a kernel of NCCL that waits for a late rank would
// occupy a part of the GPU.
void MeanRounds::announce(Operation operation) {
  if (round_->phase == Round::Phase::kAgreeing) {
    round_->group = groups_.find(round_->members);
    if (round_->group != nullptr && !round_->group->comm->comm->ready()) {  // has failed since
      groups_.drop(round_->members);
      round_->group = nullptr;
    }
  }
  Gather said = say(operation.mean, round_->group != nullptr ? round_->group->id : kNone);
  announced_.push_back({.operation = std::move(operation), .said = std::move(said)});
}

MeanRounds::Gather MeanRounds::say(const AllReduce& mean, const UniqueId& held) {
  return gather(tcp_tag(mean.tag, TcpPart::kItself), mean.members,
                encoded({.count = mean.count, .held = held}));
}

void MeanRounds::say_and_forget(const AllReduce& mean) {
  say(mean, kNone);
}

// Returns true if operations of this round may be launched.
Result<bool> MeanRounds::make_usable(Time now) {
  using Phase = Round::Phase;
  switch (round_->phase) {
    case Phase::kAgreeing:
      return agree();
    case Phase::kId:
      if (*round_->id.done) WEIR_OK(open(now));
      return false;
    case Phase::kOpening:
    case Phase::kConnecting:
      break;
    case Phase::kUsable:
      return true;
  }
  Watched& comm = *round_->group->comm;
  if (comm.overdue(now)) {
    return Error{Code::kTimeout, comm.name + ": the communicator did not come in time"};
  }
  const Result<bool> ready = comm.comm->ready();
  if (!ready) return comm.broken(ready.error());
  if (round_->phase == Phase::kOpening) {
    if (!*ready) return false;
    const Status begun =
        begin_first_exchange(*comm.comm, round_->group->rank, round_->members.size(),
                             announced_.front().operation.scratch.data());
    if (!begun) return comm.broken(begun.error());
    round_->phase = Phase::kConnecting;
  }
  const Result<std::optional<Timing>> connected = comm.comm->take_finished();
  if (!connected) return comm.broken(connected.error());
  if (!connected->has_value()) return false;
  comm.end_message();
  ++made_;
  making_ += now - round_->opened;
  round_->phase = Phase::kUsable;
  return true;
}

// Checks whether all members hold the same communicator.
Result<bool> MeanRounds::agree() {
  const Announced& first = announced_.front();
  if (!*first.said.done) return false;
  const UniqueId own = round_->group != nullptr ? round_->group->id : kNone;
  const bool all = std::ranges::all_of(*first.said.blocks, [&](const std::vector<std::byte>& said) {
    return own != kNone && decoded(said).held == own;
  });
  if (all) {
    ++found_;
    round_->phase = Round::Phase::kUsable;
    return true;
  }
  WEIR_OK(make_id(first));
  return false;
}

// The first member makes the id.
Status MeanRounds::make_id(const Announced& first) {
  round_->group = nullptr;
  groups_.drop(round_->members);  // idle: a member that still used it would have dropped it, too
  UniqueId id = kNone;
  if (rank_in(round_->members) == 0) {
    WEIR_TRY(id, api_.make_id());
  }
  round_->id = gather(tcp_tag(first.operation.mean.tag, TcpPart::kId), round_->members,
                      {id.begin(), id.end()});
  round_->phase = Round::Phase::kId;
  return Unit{};
}

Status MeanRounds::open(Time now) {
  Subgroup group{.members = round_->members, .rank = rank_in(round_->members)};
  std::ranges::copy(round_->id.blocks->front(), group.id.begin());
  const std::string text = joined(group.members, ",");
  auto opened =
      api_.open({.id = group.id,
                 .rank = static_cast<int>(group.rank),
                 .ranks = static_cast<int>(group.members.size()),
                 .most_blocks = kGroupBlocks,
                 .name = place_.name + "means-" + std::to_string(place_.stage) + "-" + text});
  const std::string name =
      "averages of stage " + std::to_string(place_.stage) + " between replicas " + text;
  if (!opened) return opened.error().with(name);
  group.comm = std::make_unique<Watched>(name, *std::move(opened));
  group.comm->begin_message(now, 0, limits_);
  group.sums = std::make_unique<SumStream>(*group.comm, group.rank, group.members.size(), limits_,
                                           counters_);
  round_->group = &groups_.add(std::move(group));
  round_->phase = Round::Phase::kOpening;
  round_->opened = now;
  return Unit{};
}

Result<bool> MeanRounds::launch(Time now) {
  for (; !announced_.empty() && *announced_.front().said.done; announced_.pop_front()) {
    Announced& next = announced_.front();
    for (std::size_t r = 0; r < round_->members.size(); ++r) {
      const std::uint64_t theirs = decoded((*next.said.blocks)[r]).count;
      if (theirs == next.operation.mean.count) continue;
      return Error{Code::kConflict, "replica " + std::to_string(round_->members[r]) + " averages " +
                                        std::to_string(theirs) +
                                        " values where this rank averages " +
                                        std::to_string(next.operation.mean.count)};
    }
    round_->group->sums->post(std::move(next.operation.mean), std::move(next.operation.scratch));
    ++running_;
  }
  Subgroup& group = *round_->group;
  const Result<bool> alive = group.comm->comm->ready();
  if (!alive) return group.comm->broken(alive.error());
  const std::size_t before = group.sums->finished();
  WEIR_TRY(const bool busy, group.sums->progress(now));
  const std::size_t done = group.sums->finished() - before;
  running_ -= done;
  finished_ += done;
  if (group.comm->overdue(now)) {
    return Error{Code::kTimeout, group.comm->name + ": an average has not arrived in time"};
  }
  return busy;
}

Result<std::size_t> MeanRounds::drop() {
  const std::size_t dropped = queue_.size() + announced_.size() + running_;
  bool drained = true;
  absence_.reset();
  if (round_) {
    absence_ = tcp_.absent(round_->members, round_->step);
    const bool clean = running_ == 0 && (round_->phase == Round::Phase::kAgreeing ||
                                         round_->phase == Round::Phase::kUsable);
    if (!clean) drained = groups_.drop(round_->members);
  }
  round_.reset();
  queue_.clear();
  announced_.clear();
  running_ = 0;
  if (!drained) {
    return Error{Code::kInternal, "an average by NCCL was aborted, but the GPU goes on with it"};
  }
  return dropped;
}

}  // namespace weir::transport::nccl
