// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/group_introduction.h"

#include <algorithm>
#include <limits>
#include <span>
#include <thread>
#include <utility>

#include "worker/transport/nccl/first_exchange.h"
#include "worker/transport/nccl/start_checks.h"

namespace weir::transport::nccl {
namespace {

using std::chrono::steady_clock;

// Differs from all steps of training.
constexpr std::uint64_t kStep = std::numeric_limits<std::uint64_t>::max();
constexpr std::chrono::milliseconds kGroupPoll{1};

}  // namespace

GroupIntroduction::GroupIntroduction(NcclApi& api, device::Device& device,
                                     const ReplicaGroupGeneration& generation,
                                     std::unique_ptr<Collective> tcp)
    : api_(api), device_(device), generation_(generation) {
  up_.tcp = std::move(tcp);
  up_.replicas.push_back(generation.replica);
  for (const auto& other : generation.others) up_.replicas.push_back(other.replica);
  std::ranges::sort(up_.replicas);
  const auto own = std::ranges::find(up_.replicas, generation.replica);
  up_.rank = static_cast<std::size_t>(own - up_.replicas.begin());
  up_.stage = generation.stage;
  up_.name = generation.job_uid + "/" + std::to_string(generation.revision) + "." +
             std::to_string(generation.incarnation) + "/";
}

Result<GroupUp> GroupIntroduction::run(Time deadline, const std::stop_token& stop) {
  deadline_ = deadline;
  stop_ = stop;
  const auto all = [this]() -> Status {
    WEIR_TRY(const UniqueId id, agree());
    WEIR_OK(open(id));
    WEIR_OK(warm());
    WEIR_TRY([[maybe_unused]] const auto ready, gather({}, "its communicator"));
    return Unit{};
  };
  const Status done = all();
  if (done) return std::move(up_);
  if (up_.comm) {
    NcclComm* const comm = up_.comm->comm.get();
    api_.abort({&comm, 1});
  }
  up_.tcp->abort(done.error().message);
  return done.error();
}

std::string GroupIntroduction::name_of_rank(std::size_t rank) const {
  const int replica = up_.replicas[rank];
  const auto other =
      std::ranges::find(generation_.others, replica, &ReplicaGroupGeneration::Other::replica);
  const std::string name = "replica " + std::to_string(replica);
  if (other == generation_.others.end()) return name;
  return name + " at " + other->ip + ":" + std::to_string(other->data_port);
}

Result<std::vector<std::vector<std::byte>>> GroupIntroduction::gather(std::vector<std::byte> own,
                                                                      const char* awaited) {
  auto blocks = std::make_shared<std::vector<std::vector<std::byte>>>();
  std::vector<std::size_t> sizes(up_.replicas.size(), own.size());
  up_.tcp->all_gather({.tag = {.step = kStep, .part = gathers_++},
                       .members = up_.replicas,
                       .own = std::move(own),
                       .sizes = std::move(sizes),
                       .blocks = blocks,
                       .counted = false});
  WEIR_TRY(const bool complete, up_.tcp->wait(deadline_, stop_));
  if (complete) return std::move(*blocks);
  if (stop_.stop_requested()) return Error{Code::kCancelled, "stopped while replicas met by NCCL"};
  WEIR_TRY(const int missing, up_.tcp->abandon(kStep));
  const auto rank =
      static_cast<std::size_t>(std::ranges::find(up_.replicas, missing) - up_.replicas.begin());
  return Error{Code::kTimeout, (rank < up_.replicas.size() ? name_of_rank(rank) : "a replica") +
                                   ": " + awaited + " did not come in time"};
}

// Rank 0 makes the id.
Result<UniqueId> GroupIntroduction::agree() {
  const Facts facts = api_.facts();
  Hello own{.facts = {.nccl = facts.nccl, .gpu = facts.gpu}};
  if (up_.rank == 0) {
    WEIR_TRY(own.id, api_.make_id());
  }
  const RecordText text = encode_record(encode_hello(own, Channel::kForward));
  WEIR_TRY(const auto blocks, gather({text.begin(), text.end()}, "a hello"));
  UniqueId id = own.id;
  for (std::size_t r = 0; r < blocks.size(); ++r) {
    if (r == up_.rank) continue;
    const auto record =
        decode_record(std::span<const std::byte, kRecordBytes>(blocks[r].data(), kRecordBytes));
    if (!record) return record.error().with(name_of_rank(r));
    const Result<Hello> hello = decode_hello(*record);
    if (!hello) return hello.error().with(name_of_rank(r));
    const Status fits = check_peer(facts, hello->facts);
    if (!fits) return fits.error().with(name_of_rank(r));
    if (r == 0) id = hello->id;
  }
  return id;
}

Status GroupIntroduction::open(const UniqueId& id) {
  const std::string stage = std::to_string(generation_.stage);
  const std::string ranks = std::to_string(up_.replicas.size());
  auto opened = api_.open({.id = id,
                           .rank = static_cast<int>(up_.rank),
                           .ranks = static_cast<int>(up_.replicas.size()),
                           .most_blocks = kGroupBlocks,
                           .name = up_.name + "sums-" + stage});
  const std::string name = "sums of stage " + stage + " over " + ranks + " replicas";
  if (!opened) return opened.error().with(name);
  up_.comm = std::make_unique<Watched>(name, *std::move(opened));
  return until([this] { return up_.comm->comm->ready(); }, "the communicator");
}

Status GroupIntroduction::warm() {
  const std::size_t ranks = up_.replicas.size();
  memory_ = device_.allocate(first_exchange_bytes(ranks));
  if (!memory_) return Error{Code::kInternal, "no device memory for the first message"};
  const Status begun = begin_first_exchange(*up_.comm->comm, up_.rank, ranks, memory_.data());
  if (!begun) return up_.comm->broken(begun.error());
  const auto finished = [this]() -> Result<bool> {
    WEIR_TRY(const std::optional<Timing> timing, up_.comm->comm->take_finished());
    return timing.has_value();
  };
  return until(finished, "the first message");
}

Status GroupIntroduction::until(const std::function<Result<bool>()>& done,
                                const char* awaited) const {
  for (;;) {
    const Result<bool> now_done = done();
    if (!now_done) return up_.comm->broken(now_done.error());
    if (*now_done) return Unit{};
    if (const auto trouble = up_.tcp->trouble()) return *trouble;
    if (stop_.stop_requested()) {
      return Error{Code::kCancelled, "stopped while replicas met by NCCL"};
    }
    if (steady_clock::now() >= deadline_) {
      return Error{Code::kTimeout, up_.comm->name + ": " + awaited + " did not come in time"};
    }
    std::this_thread::sleep_for(kGroupPoll);
  }
}

}  // namespace weir::transport::nccl
