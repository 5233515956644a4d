// SPDX-License-Identifier: Apache-2.0
#include "tests/support/strict_device.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <utility>

#include "worker/base/check.h"

namespace weir::test {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{256} << 20U;
constexpr int kNan = 0xff;  // of floats and doubles, when all bytes are so

}  // namespace

// Address space that is never given back, behind doors.
class StrictDevice::Arena {
 public:
  Arena()
      : begin_(static_cast<std::byte*>(::mmap(
            nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    WEIR_CHECK(begin_ != MAP_FAILED, "address space for a device");
  }
  ~Arena() { ::munmap(begin_, kArenaBytes); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* take(std::size_t bytes) {
    if (kArenaBytes - taken_ < bytes) return nullptr;
    taken_ += bytes;
    return begin_ + taken_ - bytes;
  }
  void open() { protect(PROT_READ | PROT_WRITE); }
  void close() { protect(PROT_NONE); }
  bool holds(const void* memory, std::size_t bytes) const {
    const auto* at = static_cast<const std::byte*>(memory);
    return at >= begin_ && at + bytes <= begin_ + kArenaBytes;
  }

 private:
  void protect(int doors) {
    WEIR_CHECK(::mprotect(begin_, kArenaBytes, doors) == 0, "the arena's doors move");
  }
  std::byte* const begin_;
  std::size_t taken_ = 0;
};

class StrictDevice::Beside final : public device::PendingCopy {
 public:
  Beside(StrictDevice& device, std::size_t behind, Op copy)
      : device_(device), behind_(behind), copy_(std::move(copy)) {}
  ~Beside() override { static_cast<void>(wait()); }
  Status wait() override {
    if (Op copy = std::exchange(copy_, nullptr)) device_.run(behind_, copy);
    return Unit{};
  }

 private:
  StrictDevice& device_;
  const std::size_t behind_;  // so many ops
  Op copy_;
};

StrictDevice::StrictDevice(Graphs graphs)
    : graphs_(graphs),
      arena_(std::make_shared<Arena>()),
      memory_(std::make_shared<device::CachingAllocator>(device::CachingAllocator::RawMemory{
          .allocate = [arena = arena_](std::size_t bytes) { return arena->take(bytes); },
          .release = [](std::byte*) {}})) {}

std::int64_t StrictDevice::memory_bytes() const {
  return kArenaBytes;
}
std::int64_t StrictDevice::bytes_in_use() const {
  return memory_->bytes_in_use();
}
std::int64_t StrictDevice::bytes_peak() const {
  return memory_->bytes_peak();
}

device::Buffer StrictDevice::allocate(std::size_t bytes) {
  std::byte* const block = memory_->allocate(bytes);
  if (block == nullptr) return {};
  if (!makes_graphs()) enqueue([block, bytes] { std::memset(block, kNan, bytes); });
  const auto free = [memory = memory_, bytes](std::byte* own) { memory->free(own, bytes); };
  return {std::shared_ptr<std::byte>(block, free), bytes, device::Buffer::Place::kDevice};
}

device::Buffer StrictDevice::allocate_staging(std::size_t bytes) {
  std::shared_ptr<std::byte> memory(new std::byte[bytes ? bytes : 1],
                                    std::default_delete<std::byte[]>());
  std::memset(memory.get(), kNan, bytes);
  return {std::move(memory), bytes};
}

Status StrictDevice::read(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return Unit{};
  check_on_device(from, bytes);
  run_all([=] { std::memcpy(to, from, bytes); });
  return Unit{};
}

Status StrictDevice::write(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return Unit{};
  check_on_device(to, bytes);
  run_all([=] { std::memcpy(to, from, bytes); });
  return Unit{};
}

Status StrictDevice::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) enqueue([=] { std::memcpy(to, from, bytes); });
  return Unit{};
}

Result<std::unique_ptr<device::PendingCopy>> StrictDevice::read_beside(void* to, const void* from,
                                                                       std::size_t bytes) {
  check_on_device(from, bytes);
  return std::unique_ptr<device::PendingCopy>(
      std::make_unique<Beside>(*this, enqueued(), [=] { std::memcpy(to, from, bytes); }));
}

Status StrictDevice::synchronize() {
  ++waits_;
  run_all();
  return Unit{};
}

void StrictDevice::enqueue(Op op) {
  const std::lock_guard lock(mutex_);
  ops_.push_back(std::move(op));
}

std::size_t StrictDevice::enqueued() const {
  const std::lock_guard lock(mutex_);
  return done_ + ops_.size();
}

std::size_t StrictDevice::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

// So many ops of all, then another one.
void StrictDevice::run(std::size_t until, const Op& then) {
  const std::lock_guard lock(mutex_);
  arena_->open();
  for (; done_ < until; ++done_) {
    ops_.front()();
    ops_.pop_front();
  }
  if (then) then();
  arena_->close();
}

void StrictDevice::run_all(const Op& then) {
  run(enqueued(), then);
}

void StrictDevice::check_on_device(const void* memory, std::size_t bytes) const {
  WEIR_CHECK(arena_->holds(memory, bytes), "device memory is named");
}

}  // namespace weir::test
