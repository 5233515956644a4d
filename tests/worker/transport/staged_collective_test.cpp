// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/staged_collective.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/device_around.h"
#include "tests/support/strict_device.h"

namespace weir::transport {
namespace staged_collective_test {

using device::Buffer;
using std::chrono::steady_clock;
using testing::ElementsAre;
using weir::test::StrictDevice;

constexpr std::chrono::seconds kPatience{30};
constexpr std::size_t kCount = 5;

struct Journal {
  std::mutex mutex;  // guards all below
  std::vector<std::uint32_t> parts;
  std::vector<double> first;  // of each input
  std::string aborted;
  bool over = false;
};

// One rank alone; its operations are complete at once, but for steps from `endless` on.
class Alone final : public Collective {
 public:
  Alone(std::shared_ptr<Journal> journal, std::uint64_t endless)
      : journal_(std::move(journal)), endless_(endless) {}
  ~Alone() override {
    const std::lock_guard lock(journal_->mutex);
    journal_->over = true;
  }

  void all_reduce(AllReduce operation) override {
    const std::lock_guard lock(journal_->mutex);
    journal_->parts.push_back(operation.tag.part);
    double first = 0;
    if (operation.count > 0) std::memcpy(&first, operation.in.data(), sizeof first);
    journal_->first.push_back(first);
    if (operation.tag.step >= endless_) {
      waits_ = true;
      return;
    }
    const std::byte* const input = operation.in.data();
    operation.combine({&input, 1}, operation.count, operation.out.data());
  }
  void all_gather(AllGather operation) override {
    const std::lock_guard lock(journal_->mutex);
    journal_->parts.push_back(operation.tag.part);
    *operation.blocks = {operation.own};
  }
  Result<bool> wait(steady_clock::time_point, std::stop_token) override { return !waits_; }
  Result<int> abandon(std::uint64_t) override {
    waits_ = false;
    return 1;
  }
  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(journal_->mutex);
    journal_->aborted = reason;
  }
  CollectiveCounters counters() const override { return {.operations = 7}; }
  std::optional<Error> trouble() const override { return std::nullopt; }
  std::optional<Absence> absent(std::span<const int>, std::uint64_t) const override {
    return std::nullopt;
  }

 private:
  const std::shared_ptr<Journal> journal_;
  const std::uint64_t endless_;
  std::atomic<bool> waits_ = false;
};

class Staging : public testing::Test {
 protected:
  static constexpr std::uint64_t kEndless = 100;

  // Sums that an op of the device makes: `value` in each place.
  void make_sums(double value) {
    device_.enqueue([to = sums_.as<double>(), value] { std::fill_n(to, kCount, value); });
  }
  AllReduce sum(std::uint32_t part, std::uint64_t step = 1) const {
    return {.tag = {.step = step, .part = part},
            .members = {0},
            .count = kCount,
            .in = {sums_.data(), sums_.size()},
            .out = {gradient_.data(), gradient_.size()},
            .combine = sum_doubles_to_floats(),
            .on_device = true};
  }
  std::vector<float> gradient() {
    std::vector<float> values(kCount);
    EXPECT_TRUE(device_.read(values.data(), gradient_.data(), gradient_.size()));
    return values;
  }
  Result<bool> wait() { return staged_.wait(steady_clock::now() + kPatience, {}); }

  StrictDevice device_;
  const Buffer sums_ = device_.allocate(kCount * sizeof(double));
  const Buffer gradient_ = device_.allocate(kCount * sizeof(float));
  const std::shared_ptr<Journal> journal_ = std::make_shared<Journal>();
  StagedCollective staged_{device_, std::make_unique<Alone>(journal_, kEndless)};
};

TEST_F(Staging, BringsWhatTheOpsMakeAndTakesTheResultBack) {
  make_sums(0.75);
  staged_.all_reduce(sum(0));

  const Result<bool> done = wait();

  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(*done);
  EXPECT_EQ(gradient(), std::vector<float>(kCount, 0.75F));
  EXPECT_THAT(journal_->first, ElementsAre(0.75)) << "not before the ops had made it";
  EXPECT_EQ(staged_.counters().operations, 7);
}

TEST_F(Staging, KeepsTheOrderOfAllCallsAndPassesHostMemoryThrough) {
  auto blocks = std::make_shared<std::vector<std::vector<std::byte>>>();
  const std::vector<double> input(kCount, 2.5);
  std::vector<float> output(kCount);
  AllReduce on_host = sum(1);
  on_host.on_device = false;
  on_host.in = std::as_bytes(std::span(input));
  on_host.out = std::as_writable_bytes(std::span(output));

  make_sums(1);
  staged_.all_reduce(sum(0));
  staged_.all_reduce(std::move(on_host));
  staged_.all_gather({.tag = {.step = 1, .part = 2},
                      .members = {0},
                      .own = {std::byte{9}},
                      .sizes = {1},
                      .blocks = blocks});
  ASSERT_TRUE(wait());

  EXPECT_THAT(journal_->parts, ElementsAre(0, 1, 2));
  EXPECT_EQ(output, std::vector<float>(kCount, 2.5F));
  EXPECT_THAT(*blocks, ElementsAre(std::vector{std::byte{9}}));
}

// As the layers of a backward: each is called behind its ops, the next ops are enqueued meanwhile.
TEST_F(Staging, HandsOverWhileLaterOpsAreEnqueued) {
  const Buffer later = device_.allocate(kCount * sizeof(double));
  make_sums(3);
  staged_.all_reduce(sum(0));
  const std::size_t behind = device_.enqueued();
  std::atomic<bool> ran = false;
  device_.enqueue([&ran] { ran = true; });

  const auto until = steady_clock::now() + kPatience;
  const auto handed = [&] {
    const std::lock_guard lock(journal_->mutex);
    return journal_->parts.size() == 1;
  };
  while (!handed() && steady_clock::now() < until) std::this_thread::yield();

  EXPECT_TRUE(handed()) << "nobody has waited for the device";
  EXPECT_EQ(device_.done(), behind);
  EXPECT_FALSE(ran);
  ASSERT_TRUE(wait());
}

TEST_F(Staging, TakesNoResultsOfAStepThatIsGivenUp) {
  make_sums(1);
  staged_.all_reduce(sum(0));
  ASSERT_TRUE(wait());
  make_sums(2);
  staged_.all_reduce(sum(0, kEndless));
  const Result<bool> waited = staged_.wait(steady_clock::now() + kPatience, {});
  ASSERT_TRUE(waited);
  EXPECT_FALSE(*waited);

  const Result<int> missing = staged_.abandon(kEndless);

  ASSERT_TRUE(missing);
  EXPECT_EQ(*missing, 1);
  ASSERT_TRUE(wait());
  EXPECT_EQ(gradient(), std::vector<float>(kCount, 1)) << "of the step before";
}

TEST_F(Staging, DoesNotWaitForADeviceBeyondTheDeadline) {
  std::atomic<bool> go = false;
  device_.enqueue([&go] {
    while (!go) std::this_thread::yield();
  });
  staged_.all_reduce(sum(0));

  const Result<bool> early = staged_.wait(steady_clock::now() + std::chrono::milliseconds(20), {});

  ASSERT_TRUE(early);
  EXPECT_FALSE(*early);
  go = true;
  const Result<bool> done = wait();
  ASSERT_TRUE(done);
  EXPECT_TRUE(*done);
}

TEST(StagedCollective, EndsItsCopiesAndTheHostsOperationsBeforeItsMemory) {
  StrictDevice device;
  const auto journal = std::make_shared<Journal>();
  const Buffer sums = device.allocate(kCount * sizeof(double));
  const Buffer out = device.allocate(kCount * sizeof(float));
  {
    StagedCollective staged(device, std::make_unique<Alone>(journal, 0));
    for (std::uint32_t part = 0; part < 4; ++part) {
      staged.all_reduce({.tag = {.step = 1, .part = part},
                         .members = {0},
                         .count = kCount,
                         .in = {sums.data(), sums.size()},
                         .out = {out.data(), out.size()},
                         .combine = sum_doubles_to_floats(),
                         .on_device = true});
    }
  }
  EXPECT_TRUE(journal->over);
}

// Whose copies fail, or whose staging memory is used up.
class BrokenDevice final : public test::DeviceAround {
 public:
  explicit BrokenDevice(bool has_memory) : DeviceAround("broken"), has_memory_(has_memory) {}
  bool is_host() const override { return false; }
  Buffer allocate_staging(std::size_t bytes) override {
    return has_memory_ ? allocate(bytes) : Buffer();
  }
  Result<std::unique_ptr<device::PendingCopy>> read_beside(void*, const void*,
                                                           std::size_t) override {
    class Failed final : public device::PendingCopy {
      Status wait() override { return Error{Code::kInternal, "the device fell off the bus"}; }
    };
    return std::unique_ptr<device::PendingCopy>(std::make_unique<Failed>());
  }

 private:
  const bool has_memory_;
};

TEST(StagedCollective, EndsWhenTheDeviceFailsAndTellsTheOthers) {
  for (const bool has_memory : {true, false}) {
    BrokenDevice device(has_memory);
    const auto journal = std::make_shared<Journal>();
    StagedCollective staged(device, std::make_unique<Alone>(journal, 100));
    const Buffer in = device.allocate(sizeof(double)), out = device.allocate(sizeof(float));
    staged.all_reduce({.tag = {.step = 1},
                       .members = {0},
                       .count = 1,
                       .in = {in.data(), in.size()},
                       .out = {out.data(), out.size()},
                       .combine = sum_doubles_to_floats(),
                       .on_device = true});

    const Result<bool> done = staged.wait(steady_clock::now() + kPatience, {});

    const std::string expected = has_memory ? "fell off the bus" : "no staging memory left";
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::kInternal);
    EXPECT_THAT(done.error().message, testing::HasSubstr(expected));
    ASSERT_TRUE(staged.trouble());
    EXPECT_FALSE(staged.abandon(1)) << "for ever";
    const std::lock_guard lock(journal->mutex);
    EXPECT_THAT(journal->aborted, testing::HasSubstr(expected));
    EXPECT_TRUE(journal->parts.empty());
  }
}

TEST(StagedCollective, IsNotInTheWayOfTheHost) {
  const auto host = device::make_host_device();
  auto alone = std::make_unique<Alone>(std::make_shared<Journal>(), 100);
  const Collective* const itself = alone.get();
  EXPECT_EQ(staged(*host, std::move(alone)).get(), itself);
}

}  // namespace staged_collective_test
}  // namespace weir::transport
