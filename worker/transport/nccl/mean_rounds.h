// SPDX-License-Identifier: Apache-2.0
// Averages of parameters among some of the replicas by NCCL, on a communicator of these replicas
// only. All operations of a step (CollectiveTag::step) have the same members and form a round.
// Driver thread only.
//
// In a round, each member tells the others over TCP that its first operation is computed, and which
// communicator of the group it holds. If all hold the same one, it is used. Otherwise all drop
// theirs, the first member makes a unique id and sends it over TCP, and all make a new
// communicator. Each operation is launched when all members have said that theirs is computed.
// Members may thus drop communicators at any time.
//
// A member that dies, abandons the step or is late fails the round but not this object: after
// drop() the next round can start.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/transport/nccl/subgroups.h"

namespace weir::transport::nccl {

// TCP operations per operation of the caller, with rising parts.
enum class TcpPart : unsigned char { kItself, kId, kEnd };
CollectiveTag tcp_tag(const CollectiveTag& tag, TcpPart part);
// A gather of empty blocks: it is complete when all members have come this far. tag: of TCP.
AllGather word_of(const std::vector<int>& members, const CollectiveTag& tag);

class MeanRounds {
 public:
  using Time = Watched::Time;
  struct Place {
    int replica = 0;
    int stage = 0;
    std::string name;  // prefix of communicator names, e.g. "job/3.0/"
  };

  // The references outlive the object. wake: called on any thread; tells the driver to call
  // progress().
  MeanRounds(NcclApi& api, Watchdog& dog, Collective& tcp, const Limits& limits,
             SumCounters& counters, Place place, std::function<void()> wake);
  ~MeanRounds();
  MeanRounds(const MeanRounds&) = delete;
  MeanRounds& operator=(const MeanRounds&) = delete;

  // Device memory that a mean needs.
  static std::size_t scratch_bytes(const AllReduce& mean, int replica);

  // True if `mean` may be posted: no operation of another round is under way.
  bool takes(const AllReduce& mean) const { return idle() || of_round(mean); }
  // The tensor is computed, and nothing else uses `scratch` any longer. The first operation of a
  // round is announced to the others at once.
  void post(AllReduce mean, device::Buffer scratch);
  // Announces the operation but does nothing else, because this rank is about to abandon the round.
  void say_and_forget(const AllReduce& mean);
  // Does everything that is possible now. Returns true if the GPU must be polled again. kConflict:
  // the members' calls differ. Other errors: the round can never be complete; call drop().
  Result<bool> progress(Time now);
  bool idle() const { return queue_.empty() && announced_.empty() && running_ == 0; }
  std::size_t finished() const { return finished_; }  // operations so far

  // Drops all operations and returns their number. kInternal: the GPU still works on one and cannot
  // be stopped.
  Result<std::size_t> drop();
  // Why the last progress() failed, if a member is the reason.
  std::optional<Absence> absence() const { return absence_; }

 private:
  struct Operation {
    AllReduce mean;
    device::Buffer scratch;
  };
  // The blocks of all members, once they are there.
  struct Gather {
    std::shared_ptr<std::vector<std::vector<std::byte>>> blocks;
    std::shared_ptr<std::atomic<bool>> done;
  };
  struct Announced {
    Operation operation;
    Gather said;
  };
  struct Round {
    std::uint64_t step = 0;
    std::vector<int> members;
    // Phase of its communicator, in this order. If the communicator exists, the phase goes from the
    // first to the last.
    enum class Phase : unsigned char { kAgreeing, kId, kOpening, kConnecting, kUsable };
    Phase phase = Phase::kAgreeing;
    Gather id;
    Subgroup* group = nullptr;
    Time opened{};  // start of the making of its communicator
  };

  bool of_round(const AllReduce& mean) const {
    return round_ && round_->step == mean.tag.step && round_->members == mean.members;
  }
  Gather gather(const CollectiveTag& tag, const std::vector<int>& members,
                std::vector<std::byte> own);
  Gather say(const AllReduce& mean, const UniqueId& held);
  Status look_for_absent();
  void announce(Operation operation);
  void announce_more();
  Result<bool> agree();
  Status make_id(const Announced& first);
  Status open(Time now);
  Result<bool> make_usable(Time now);
  Result<bool> launch(Time now);
  std::size_t rank_in(const std::vector<int>& members) const;

  NcclApi& api_;
  Collective& tcp_;
  const Limits& limits_;
  SumCounters& counters_;
  const Place place_;
  const std::function<void()> wake_;

  Subgroups groups_;
  std::optional<Round> round_;
  std::deque<Operation> queue_;      // not announced
  std::deque<Announced> announced_;  // not launched
  std::size_t running_ = 0, finished_ = 0;
  std::optional<Absence> absence_;
  std::size_t found_ = 0, made_ = 0;  // rounds that found their communicator, or made it
  std::chrono::nanoseconds making_{0};
};

}  // namespace weir::transport::nccl
