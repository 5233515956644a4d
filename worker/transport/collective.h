// SPDX-License-Identifier: Apache-2.0
// Operations among the replicas of one stage: sums of gradients, averages of parameters, and small
// blocks that all members get. A Collective is one generation of connections, from each replica to
// each other one. A thread of its own moves the bytes and adds, so the caller can compute
// meanwhile.
//
// Rules: every member of an operation calls it with the same members, tag and sizes, and in the
// same order as the other operations that two of them share. Operations of one step follow each
// other with rising parts, and no step comes twice. An operation does not wait for replicas that
// are no members. The memory named in a call must stay valid until wait() has reported completion,
// abandon() has returned, or the object is destroyed.
//
// A different tag or size ends all operations at all members. A lost replica fails the operations
// that need it; its peers may abandon() them and continue without it. No member hangs: one that
// abandons a step or ends its Collective fails the operations of peers that still need it.
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

// The replicas of one stage in one generation, as seen by one of them.
struct ReplicaGroupGeneration {
  std::string job_uid, job_key;  // for the handshake, as in Generation
  std::uint32_t revision = 0;
  std::uint16_t incarnation = 0;
  int replica = 0, stage = 0;
  // Instead of the replicas of a stage, the first and the last stage of one replica, for tables
  // that they share: members 0 and 1 of a stage with a number above all others. On the host alone.
  bool of_ties = false;
  struct Other {
    int replica = 0;
    std::string ip;
    int data_port = 7071;
  };
  std::vector<Other> others;
};

// Identifies an operation. If the tags of members differ, the operation fails with kConflict.
struct CollectiveTag {
  std::uint64_t step = 0;
  std::uint32_t part = 0;  // of the step
  bool operator==(const CollectiveTag&) const = default;
};

// Computes out[0 .. count) from the members' inputs, in the order of the members. Called once per
// segment, on the thread of the collective.
using Combine = std::function<void(std::span<const std::byte* const> inputs, std::size_t count,
                                   std::byte* out)>;

struct AllReduce {
  CollectiveTag tag;
  std::vector<int> members;  // replicas in rising order, including this one
  std::size_t count = 0;     // elements
  std::span<const std::byte> in;
  std::span<std::byte> out;  // all members get the same bits; must not overlap `in`
  Combine combine;
  // The inputs are sums as stage/ops/exact_sum.h makes them, so a transport may send them in fewer
  // bytes. Equal at all members.
  bool exact_sums = false;
  // Both memories are on the device on which the caller computes, and `combine` is
  // sum_doubles_to_floats() or, with `weights`, mean_of_floats(weights), so the device may do the
  // work. If false, or if the device is the host, both are host memory. Equal at all members.
  bool on_device = false;
  std::vector<double> weights = {};
  // It runs beside steps, which wait neither for it nor for the network that it uses.
  bool background = false;
  // The next call is another operation of this step with the same members, so this one may be
  // complete here before it is complete at the others. Equal at all members.
  bool more = false;

  // An all-reduce is cut into one segment per member, in elements. Member i combines segment i of
  // all members.
  std::size_t segment_begin(std::size_t member) const { return count * member / members.size(); }
  std::size_t segment_count(std::size_t member) const {
    return segment_begin(member + 1) - segment_begin(member);
  }
};

struct AllGather {
  CollectiveTag tag;
  std::vector<int> members;
  std::vector<std::byte> own;
  std::vector<std::size_t> sizes;  // size of each member's block
  // Filled in the order of the members.
  std::shared_ptr<std::vector<std::vector<std::byte>>> blocks;
  // Called on the collective's thread when `blocks` are filled. Must be short; may be empty.
  std::function<void()> done = nullptr;
  bool counted = true;  // counts in counters(); false if it is part of another operation
};

struct CollectiveCounters {
  std::int64_t operations = 0;      // completed operations
  std::int64_t bytes_sent = 0;      // packed ones as they are on the wire
  std::int64_t packed_bytes = 0;    // of these: contributions in the form of tcp/packed_sums.h
  std::int64_t packed_payload = 0;  // bytes of the doubles that these stand for
  // It had something to send, or to read, and waited for tensors between stages on the same port.
  std::chrono::nanoseconds waited_to_send{0}, waited_to_read{0};
  // Time from the moment when all members had begun an operation until it was complete, so that a
  // late member does not look like a slow network. bytes_sent / busy is the bandwidth.
  std::chrono::nanoseconds busy{0};
  // Complete frames from each other replica, timed by the receiver's clock without waiting times of
  // either side (train_meter.h). Frames that came at once tell nothing about the rate and are not
  // counted.
  struct Received {
    std::int64_t bytes = 0, counted_bytes = 0;
    std::chrono::nanoseconds busy{0};  // of the counted bytes
  };
  std::map<int, Received> received;  // by replica; empty if the transport does not measure it
};

// Why an operation can never be complete.
struct Absence {
  // The replica that has left or was lost; -1: it is there, but has abandoned the step.
  int replica = -1;
  Error error;
};

class Collective {
 public:
  virtual ~Collective() = default;  // ends running operations and joins the thread

  // Do not block. One thread makes these calls and calls wait(). The input of an on_device
  // operation need only be enqueued on the device, by the calling thread.
  virtual void all_reduce(AllReduce operation) = 0;
  virtual void all_gather(AllGather operation) = 0;
  // Returns true if all operations so far are complete, false at the deadline or after a stop
  // request. kUnavailable, e.g. "replica 1 at ...: closed by the peer": the running operations can
  // never be complete, so abandon() them. Final errors: kConflict (tags or sizes differ),
  // kUnavailable after abort().
  virtual Result<bool> wait(std::chrono::steady_clock::time_point deadline,
                            std::stop_token stop) = 0;

  // Abandons the incomplete operations of that step, which must be the last one that was begun.
  // Returns the replica that did not come, or -1 if there is no particular one. Blocks only for a
  // moment; call it on the same thread. Errors: the final ones of wait().
  virtual Result<int> abandon(std::uint64_t step) = 0;

  // Any thread.
  virtual void abort(const std::string& reason) noexcept = 0;
  virtual CollectiveCounters counters() const = 0;
  // Why no operation of all replicas can ever be complete again: one replica is gone, or there was
  // a final error.
  virtual std::optional<Error> trouble() const = 0;
  // The same for operations of these members in that step. Any thread.
  virtual std::optional<Absence> absent(std::span<const int> members, std::uint64_t step) const = 0;
};

// Reductions by element type.
Combine sum_doubles_to_floats();  // exact sums, rounded once
Combine sum_doubles();            // on the host alone
// Sum of weights[i] x input i, computed in double.
Combine mean_of_floats(std::vector<double> weights);

}  // namespace weir::transport
