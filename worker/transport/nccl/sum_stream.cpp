// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/sum_stream.h"

#include <utility>
#include <vector>

namespace weir::transport::nccl {

std::size_t SumStream::scratch_bytes(const AllReduce& sum, std::size_t rank) {
  return (sum.members.size() - 1) * sum.segment_count(rank) * input_bytes(sum);
}

void SumStream::post(AllReduce sum, device::Buffer scratch) {
  sums_.push_back({.order = std::move(sum), .scratch = std::move(scratch)});
}

Result<bool> SumStream::progress(Time now) {
  WEIR_TRY(const bool launching, launch());
  if (!sums_.empty() && group_.due == 0) {
    group_.begin_message(now, sums_.front().order.in.size(), limits_);
  }
  WEIR_OK(take_finished(now));
  return launching || !sums_.empty();
}

// Launches in order. Returns true if the communicator is still busy with the last launch.
Result<bool> SumStream::launch() {
  for (Sum& sum : sums_) {
    while (sum.phase != Phase::kLaunched) {
      const Result<bool> ready = group_.comm->ready();
      if (!ready) return group_.broken(ready.error());
      if (!*ready) return true;
      const bool first = sum.phase == Phase::kContributions;
      const Status launched = first ? contribute(sum) : combine(sum);
      if (!launched) return group_.broken(launched.error());
      sum.phase = first ? Phase::kResults : Phase::kLaunched;
    }
  }
  return false;
}

const std::byte* SumStream::input(const Sum& sum, std::size_t rank) const {
  const std::size_t size = input_bytes(sum.order);
  if (rank == rank_) return sum.order.in.data() + sum.order.segment_begin(rank_) * size;
  const std::size_t place = rank < rank_ ? rank : rank - 1;
  return sum.scratch.data() + place * own_count(sum) * size;
}

Status SumStream::contribute(const Sum& sum) {
  const std::size_t size = input_bytes(sum.order), own = own_count(sum) * size;
  std::vector<Transfer> transfers;
  std::size_t sent = 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const int rank = static_cast<int>(r);
    const std::size_t theirs = sum.order.segment_count(r) * size;
    if (theirs > 0) {
      transfers.push_back({.rank = rank,
                           .from = sum.order.in.data() + sum.order.segment_begin(r) * size,
                           .bytes = theirs});
    }
    if (own > 0) {
      transfers.push_back(
          {.rank = rank, .to = const_cast<std::byte*>(input(sum, r)), .bytes = own});
    }
    sent += theirs;
  }
  counters_.change([&](auto& all) { all.bytes_sent += static_cast<std::int64_t>(sent); });
  return group_.comm->exchange(transfers);
}

Status SumStream::combine(const Sum& sum) {
  const std::size_t own = own_count(sum);
  std::byte* const result = sum.order.out.data() + sum.order.segment_begin(rank_) * sizeof(float);
  std::vector<Transfer> transfers;
  std::size_t sent = 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    const int rank = static_cast<int>(r);
    const std::size_t theirs = sum.order.segment_count(r) * sizeof(float);
    if (own > 0) {
      transfers.push_back({.rank = rank, .from = result, .bytes = own * sizeof(float)});
      sent += own * sizeof(float);
    }
    if (theirs > 0) {
      transfers.push_back({.rank = rank,
                           .to = sum.order.out.data() + sum.order.segment_begin(r) * sizeof(float),
                           .bytes = theirs});
    }
  }
  counters_.change([&](auto& all) { all.bytes_sent += static_cast<std::int64_t>(sent); });
  if (own > 0) WEIR_OK(reduce(sum, result));
  return group_.comm->exchange(transfers);
}

Status SumStream::reduce(const Sum& sum, std::byte* out) {
  auto* const values = reinterpret_cast<float*>(out);
  const std::size_t count = own_count(sum);
  if (sum.order.weights.empty()) {
    std::vector<const double*> inputs;
    for (std::size_t r = 0; r < ranks_; ++r) {
      inputs.push_back(reinterpret_cast<const double*>(input(sum, r)));
    }
    return group_.comm->sum({.inputs = inputs, .count = count, .out = values});
  }
  std::vector<const float*> inputs;
  for (std::size_t r = 0; r < ranks_; ++r) {
    inputs.push_back(reinterpret_cast<const float*>(input(sum, r)));
  }
  return group_.comm->mean(
      {.inputs = inputs, .weights = sum.order.weights, .count = count, .out = values});
}

// Only the end of an exchange is known, at which the data from each rank have arrived.
void SumStream::note_moved(const Sum& sum, std::chrono::nanoseconds took) {
  const bool results = sum.operations_done > 0;
  counters_.change([&](CollectiveCounters& all) {
    all.busy += took;
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      const std::size_t bytes = results ? sum.order.segment_count(r) * sizeof(float)
                                        : own_count(sum) * input_bytes(sum.order);
      CollectiveCounters::Received& received = all.received[sum.order.members[r]];
      received.bytes += static_cast<std::int64_t>(bytes);
      received.counted_bytes += static_cast<std::int64_t>(bytes);
      received.busy += took;
    }
  });
}

Status SumStream::take_finished(Time now) {
  while (!sums_.empty() && sums_.front().phase != Phase::kContributions) {
    Sum& sum = sums_.front();
    const bool adds = own_count(sum) > 0;
    const std::size_t operations = sum.phase == Phase::kResults ? 1 : adds ? 3 : 2;
    if (sum.operations_done == operations) return Unit{};  // all launched operations are done
    const Result<std::optional<Timing>> timing = group_.comm->take_finished();
    if (!timing) return group_.broken(timing.error());
    if (!timing->has_value()) return Unit{};
    const bool moved = !(adds && sum.operations_done == 1);
    if (moved) note_moved(sum, (*timing)->duration);
    ++sum.operations_done;
    if (sum.phase != Phase::kLaunched || sum.operations_done < operations) continue;
    counters_.change([](CollectiveCounters& all) { ++all.operations; });
    ++finished_;
    sums_.pop_front();
    if (sums_.empty()) {
      group_.end_message();
    } else {
      group_.begin_message(now, sums_.front().order.in.size(), limits_);
    }
  }
  return Unit{};
}

}  // namespace weir::transport::nccl
