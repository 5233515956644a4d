// SPDX-License-Identifier: Apache-2.0
// Averages of parameters among some of the replicas by NCCL, on a communicator of just these. All
// operations of a step (CollectiveTag::step) have the same members and are a round. Driver thread
// only.
//
// A round: each member tells the others over TCP that its first operation is computed, and which
// communicator of theirs it holds. If all hold the same one it is used; else all drop theirs, the
// first member makes a unique id, tells it over TCP, and all make a new one. Then each operation is
// launched when all members have said that theirs is computed. So members may forget communicators
// as they like, at any time.
//
// A member that dies, gives the step up or is not there in time fails the round, not the object:
// after drop() the next round finds its way.
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

// Each operation of the callers is up to so many over TCP, with rising parts.
enum class TcpPart : unsigned char { kItself, kId, kEnd };
CollectiveTag tcp_tag(const CollectiveTag& tag, TcpPart part);
// Nothing from everybody: complete when all have come so far. tag: of TCP.
AllGather word_of(const std::vector<int>& members, const CollectiveTag& tag);

class MeanRounds {
 public:
  using Time = Watched::Time;
  struct Place {
    int replica = 0;
    int stage = 0;
    std::string name;  // "job/3.0/", of communicators
  };

  // References outlive the object; wake: any thread, tells the driver to call progress().
  MeanRounds(NcclApi& api, Watchdog& dog, Collective& tcp, const Limits& limits,
             SumCounters& counters, Place place, std::function<void()> wake);
  ~MeanRounds();
  MeanRounds(const MeanRounds&) = delete;
  MeanRounds& operator=(const MeanRounds&) = delete;

  // Device memory that a mean needs.
  static std::size_t scratch_bytes(const AllReduce& mean, int replica);

  // Whether it may be posted: nothing of another round is under way.
  bool takes(const AllReduce& mean) const { return idle() || of_round(mean); }
  // Its tensor is computed, and nothing else uses `scratch` any more. The first of a round is told
  // to the others at once.
  void post(AllReduce mean, device::Buffer scratch);
  // Tells the others the same and does no more: this rank is about to give the round up.
  void say_and_forget(const AllReduce& mean);
  // Does what can be done now. True: the GPU is to be asked again. kConflict: the members' calls
  // differ. Other errors: this round can never be complete, drop() it.
  Result<bool> progress(Time now);
  bool idle() const { return queue_.empty() && announced_.empty() && running_ == 0; }
  std::size_t finished() const { return finished_; }  // operations so far

  // Forgets all operations; how many. kInternal: the GPU still works on one, and cannot be made to
  // end.
  Result<std::size_t> drop();
  // Why the last progress() failed, if a member is the reason.
  std::optional<Absence> absence() const { return absence_; }

 private:
  struct Operation {
    AllReduce mean;
    device::Buffer scratch;
  };
  // Everybody's block, once it is there.
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
    // Of its communicator, in this order; a hit goes from the first to the last.
    enum class Phase : unsigned char { kAgreeing, kId, kOpening, kConnecting, kUsable };
    Phase phase = Phase::kAgreeing;
    Gather id;
    Subgroup* group = nullptr;
    Time opened{};  // when its making began
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
  std::size_t found_ = 0, made_ = 0;  // rounds whose communicator was there, or was not
  std::chrono::nanoseconds making_{0};
};

}  // namespace weir::transport::nccl
