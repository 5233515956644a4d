// SPDX-License-Identifier: Apache-2.0
// Operations among the replicas of one stage: sums of gradients, averages of parameters, small
// blocks for everybody. One Collective = one generation of connections, each replica with each
// other; a thread of its own moves the bytes and adds, so that the caller may compute meanwhile.
//
// Rules: every member of an operation calls it, with the same members, tag and sizes, and in the
// same order as the other operations that any two of them share; operations of one step follow each
// other with rising parts, and no step comes twice. A replica that is in none of them is not waited
// for. The memory that a call names must live until wait() has said that all is done, abandon() has
// returned, or the object is gone.
//
// An unequal tag or size ends all operations at all members. A lost replica fails those operations
// that need it; its peers may abandon() them and go on among themselves. Nobody hangs: whoever
// abandons a step or ends its Collective fails those of its peers that still want something.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/base/result.h"

namespace weir::transport {

// The replicas of one stage in one generation, as one of them sees it.
struct GroupGeneration {
  std::string job_uid, job_key;  // of the handshake, as in Generation
  std::uint32_t revision = 0;
  std::uint16_t incarnation = 0;
  int replica = 0, stage = 0;
  struct Other {
    int replica = 0;
    std::string ip;
    int data_port = 7071;
  };
  std::vector<Other> others;
};

// Which operation: equal at all members, or it fails with kConflict.
struct CollectiveTag {
  std::uint64_t step = 0;
  std::uint32_t part = 0;  // of the step
  bool operator==(const CollectiveTag&) const = default;
};

// out[0 .. count) from the members' inputs, in the order of the members; called once per segment,
// on the collective's thread.
using Combine = std::function<void(std::span<const std::byte* const> inputs, std::size_t count,
                                   std::byte* out)>;

struct AllReduce {
  CollectiveTag tag;
  std::vector<int> members;  // replicas in rising order, this one among them
  std::size_t count = 0;     // elements
  std::span<const std::byte> in;
  std::span<std::byte> out;  // all members get the same bits; no part of `in`
  Combine combine;
  // Both memories are of the device that the caller computes on, and combine is
  // sum_doubles_to_floats() or, with `weights`, mean_of_floats(weights): the device may do the
  // work. Else, and where the device is the host, memory of the host. Equal at all members.
  bool on_device = false;
  std::vector<double> weights = {};
  // Another operation of this step and these members is called next: this one may be complete here
  // before it is at the others. Equal at all members.
  bool more = false;

  // An all-reduce is cut into one segment per member: member i combines segment i of all. In
  // elements.
  std::size_t segment_begin(std::size_t member) const { return count * member / members.size(); }
  std::size_t segment_count(std::size_t member) const {
    return segment_begin(member + 1) - segment_begin(member);
  }
};

struct AllGather {
  CollectiveTag tag;
  std::vector<int> members;
  std::vector<std::byte> own;
  std::vector<std::size_t> sizes;                               // of each member's block
  std::shared_ptr<std::vector<std::vector<std::byte>>> blocks;  // filled, in the order of members
  // Called on the collective's thread when `blocks` are filled; short. May be empty.
  std::function<void()> done = nullptr;
  bool counted = true;  // in counters(); false: a part of another operation
};

struct CollectiveCounters {
  std::int64_t operations = 0;  // complete ones
  std::int64_t bytes_sent = 0;
  // From the moment when all members had begun an operation until it was complete: a late member
  // is not a slow network. bytes_sent / busy is the bandwidth.
  std::chrono::nanoseconds busy{0};
  // From each other replica, whole frames: by the receiver's clock, without what waited for either
  // side (train_meter.h). Those that came in one piece say nothing of the rate and do not count.
  struct Received {
    std::int64_t bytes = 0, counted_bytes = 0;
    std::chrono::nanoseconds busy{0};  // of the counted ones
  };
  std::map<int, Received> received;  // by replica; empty: the transport does not measure it
};

// Why an operation will never be complete.
struct Absence {
  int replica = -1;  // that has left or was lost; -1: it is there, but has given the step up
  Error error;
};

class Collective {
 public:
  virtual ~Collective() = default;  // ends what is under way, joins its thread

  // Neither blocks; one thread calls them and wait(). The input of an on_device operation need only
  // be enqueued on the device, by the thread that calls.
  virtual void all_reduce(AllReduce operation) = 0;
  virtual void all_gather(AllGather operation) = 0;
  // True: all operations so far are complete. False: deadline, or stop. kUnavailable "replica 1 at
  // ...: closed by the peer": those under way will never be, abandon() them. For ever after:
  // kConflict (tags or sizes differ), kUnavailable after abort().
  virtual Result<bool> wait(std::chrono::steady_clock::time_point deadline,
                            std::stop_token stop) = 0;

  // Gives up what is not complete of the operations of that step; the last one that was begun.
  // Returns the replica that was waited for in vain, -1: none in particular. Waits for a moment
  // only; that thread. Errors: those for ever of wait().
  virtual Result<int> abandon(std::uint64_t step) = 0;

  // Any thread.
  virtual void abort(const std::string& reason) noexcept = 0;
  virtual CollectiveCounters counters() const = 0;
  // Why an operation of all replicas can never be complete again: one is gone, or an error for
  // ever.
  virtual std::optional<Error> trouble() const = 0;
  // Of those members only, for operations of that step. Any thread.
  virtual std::optional<Absence> absent(std::span<const int> members, std::uint64_t step) const = 0;
};

// Element types that are reduced.
Combine sum_doubles_to_floats();                      // exact sums: rounded once
Combine mean_of_floats(std::vector<double> weights);  // sum of weights[i] x input i, in double

}  // namespace weir::transport
