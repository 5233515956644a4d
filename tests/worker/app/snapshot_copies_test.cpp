// SPDX-License-Identifier: Apache-2.0
// A neighbor's copy of a snapshot, over the data port: what it holds, and all that may go wrong.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/app/snapshots.h"
#include "worker/base/bounded_queue.h"
#include "worker/base/random.h"
#include "worker/device/device.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::app::test {
namespace snapshot_copies_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr schedule::LayerRange kFirst{0, 3}, kSecond{4, 7};

// A worker with a data port. All hold one stage of the same model.
struct Worker {
  Worker(const weir::test::TempDir& folder, const std::string& name, schedule::LayerRange range,
         std::int64_t start = 0)
      : layers(range),
        model(*stage::describe_model({.name = "mlp", .sequence = 8, .vocabulary = 32})),
        device(device::make_host_device()),
        stage(*stage::make_stage(model, range.first, range.last, *device)),
        transport(*transport::make_tcp_transport({.listen_ip = "127.0.0.1", .data_port = 0})),
        kept(std::make_unique<Snapshots>(
            folder.path().string() + "/" + name, "uid/" + name, model, Settings{{"lr", "0.1"}},
            Snapshots::Wire{&transport->state(), "uid", "a key of this job"})) {
    kept->begin(1, start);
    kept->tell([this](const protocol::Message& message) {
      said.try_push(std::get<protocol::Saved>(message));
    });
  }

  protocol::Saved answer() {
    return said.pop(SystemClock().now() + std::chrono::seconds(20), {})
        .value_or(protocol::Saved{.error = "no answer"});
  }
  protocol::Saved take(std::int64_t step) {
    Random random(static_cast<std::uint64_t>(step));
    for (const stage::Parameter& one : stage->parameters()) {
      for (const std::span<float> part : one.state()) {
        for (float& x : part) x = static_cast<float>(random.uniform());
      }
    }
    kept->take(*stage, layers, step, step / 5);
    return answer();
  }
  // Orders a copy of what `of` has told.
  void order(const Worker& of, const protocol::Saved& told) {
    kept->copy({.step = told.step,
                .snapshot = true,
                .copy = protocol::CopySource{.ip = "127.0.0.1",
                                             .data_port = of.transport->data_port(),
                                             .first_layer = of.layers.first,
                                             .files = told.files}},
               false);
  }
  std::vector<std::int64_t> copies() const {
    std::vector<std::int64_t> steps;
    for (const protocol::Held& one : kept->inventory().held) {
      if (!one.copy) continue;
      EXPECT_TRUE(one.snapshot);
      EXPECT_EQ(one.first, kFirst.first);
      EXPECT_EQ(one.last, kFirst.last);
      steps.push_back(one.step);
    }
    return steps;
  }

  const schedule::LayerRange layers;
  stage::Model model;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<stage::Stage> stage;
  std::unique_ptr<transport::TcpTransport> transport;
  BoundedQueue<protocol::Saved> said{8};
  std::unique_ptr<Snapshots> kept;
};

// As a stage holds it for a move.
std::string bytes_of(stage::Stage& stage) {
  std::string all;
  for (const stage::Parameter& one : stage.parameters()) {
    for (const std::span<float> part : one.state()) {
      all.append(reinterpret_cast<const char*>(part.data()), part.size_bytes());
    }
  }
  return all;
}
std::string bytes_of(const engine::StoredLayers& stored) {
  std::string all;
  for (const transport::LayerMemory& layer : stored.memory) {
    for (const std::span<std::byte> part : layer.parts) {
      all.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
  }
  return all;
}

TEST(SnapshotCopies, HoldTheStateAsAStageHoldsIt) {
  const weir::test::TempDir folder;
  Worker of(folder, "a", kFirst);
  auto keeper = std::make_unique<Worker>(folder, "b", kSecond);
  const protocol::Saved told = of.take(10);
  ASSERT_EQ(told.error, "");
  EXPECT_EQ(told.files.size(), 4U);
  keeper->order(of, told);
  const protocol::Saved copied = keeper->answer();
  EXPECT_EQ(copied.error, "");
  EXPECT_TRUE(copied.copy);
  EXPECT_THAT(keeper->copies(), ElementsAre(10));
  EXPECT_EQ(keeper->kept->copy_step(), 10);
  std::int64_t bytes = 0;
  for (const protocol::SavedFile& file : told.files) bytes += file.bytes;
  EXPECT_EQ(keeper->kept->copied_bytes(), bytes);
  EXPECT_EQ(keeper->kept->host_bytes(), bytes);
  EXPECT_EQ(of.kept->host_bytes(), bytes);
  EXPECT_GT(of.kept->waited_seconds(), 0);
  EXPECT_EQ(keeper->kept->waited_seconds(), 0) << "it took no snapshot";
  const auto stored = keeper->kept->copied(kFirst, 10);
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_EQ(bytes_of(*stored), bytes_of(*of.stage));

  keeper.reset();  // its successor finds the copy
  Worker again(folder, "b", kSecond, 10);
  EXPECT_EQ(again.kept->host_bytes(), bytes);
  EXPECT_EQ(bytes_of(*again.kept->copied(kFirst, 10)), bytes_of(*of.stage));
}

TEST(SnapshotCopies, GoWithTheirSets) {
  const weir::test::TempDir folder;
  Worker of(folder, "a", kFirst), keeper(folder, "b", kSecond);
  for (const std::int64_t step : {10, 20}) {
    const protocol::Saved told = of.take(step);
    ASSERT_EQ(keeper.take(step).error, "") << "all ranks have theirs before copies are made";
    keeper.order(of, told);
    ASSERT_EQ(keeper.answer().error, "");
  }
  for (const protocol::Held& one : keeper.kept->inventory().held) {
    EXPECT_EQ(one.compressed_steps, one.step / 5);
  }
  EXPECT_THAT(keeper.copies(), ElementsAre(10, 20)) << "until all have copies of step 20";
  keeper.kept->taken_by_all(20, true);
  EXPECT_THAT(keeper.copies(), ElementsAre(20));
  keeper.order(of, of.take(30));
  ASSERT_EQ(keeper.answer().error, "");
  keeper.kept->taken_by_all(30, false);
  EXPECT_THAT(keeper.copies(), ElementsAre(20));
  keeper.kept->begin(2, 15);
  EXPECT_THAT(keeper.copies(), IsEmpty()) << "training goes on below it";
}

// Where several ranks leave together.
TEST(SnapshotCopies, OfSeveralRanksLieBesideEachOther) {
  const weir::test::TempDir folder;
  Worker of(folder, "a", kFirst), other(folder, "c", kSecond);
  auto keeper = std::make_unique<Worker>(folder, "b", kSecond);
  for (Worker* const one : {&of, &other, &of}) {  // the last one again
    keeper->order(*one, one->take(10));
    ASSERT_EQ(keeper->answer().error, "");
  }
  keeper.reset();
  Worker again(folder, "b", kSecond, 10);
  EXPECT_EQ(again.kept->inventory().held.size(), 2U);
  EXPECT_EQ(bytes_of(*again.kept->copied(kFirst, 10)), bytes_of(*of.stage));
  EXPECT_EQ(bytes_of(*again.kept->copied(kSecond, 10)), bytes_of(*other.stage));
  again.order(of, of.take(20));
  ASSERT_EQ(again.answer().error, "");
  again.kept->taken_by_all(20, true);
  EXPECT_THAT(again.copies(), ElementsAre(20)) << "those of the older set go from all shelves";
}

TEST(SnapshotCopies, ThatCannotBeFetchedSayWhy) {
  const weir::test::TempDir folder;
  Worker of(folder, "a", kFirst), keeper(folder, "b", kSecond);
  protocol::Saved told = of.take(10);
  protocol::Saved other = told;
  other.files.front().sha256 = std::string(64, '0');
  keeper.order(of, other);
  EXPECT_THAT(keeper.answer().error, HasSubstr("came damaged"));
  other = told;
  other.step = 20;
  keeper.order(of, other);
  EXPECT_THAT(keeper.answer().error, HasSubstr("it holds step 10, wanted is 20"));
  other = told;
  other.files.front().bytes = std::int64_t{1} << 50;
  keeper.order(of, other);
  const protocol::Saved full = keeper.answer();
  EXPECT_THAT(full.error, HasSubstr("a copy needs"));
  EXPECT_EQ(full.trouble, protocol::SaveTrouble::kFull);
  EXPECT_THAT(keeper.copies(), IsEmpty());
  keeper.order(of, told);
  EXPECT_EQ(keeper.answer().error, "") << "nothing is left behind that hinders the next one";
}

TEST(SnapshotCopies, EndWithTheirRound) {
  const weir::test::TempDir folder;
  Worker of(folder, "a", kFirst), keeper(folder, "b", kSecond);
  const protocol::Saved told = of.take(10);
  of.kept->taken_by_all(10, false);  // withdrawn
  of.take(20);
  of.kept->taken_by_all(20, false);
  keeper.order(of, told);  // waits for somebody who offers nothing
  keeper.kept->taken_by_all(10, false);
  EXPECT_NE(keeper.answer().error, "");
  EXPECT_THAT(keeper.copies(), IsEmpty());
}

TEST(SnapshotCopies, ThatAreDamagedAreNotServed) {
  const weir::test::TempDir folder;
  Worker of(folder, "a", kFirst), keeper(folder, "b", kSecond);
  const protocol::Saved told = of.take(10);
  keeper.order(of, told);
  ASSERT_EQ(keeper.answer().error, "");
  const auto file = folder.path() / "b" / "copies" / "step-0000000010" / told.files.front().name;
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-5, std::ios::end)
      << '!';
  EXPECT_EQ(keeper.kept->copied(kFirst, 10).error().code, Code::kInvalid);
  EXPECT_THAT(keeper.copies(), IsEmpty());
}

}  // namespace snapshot_copies_test
}  // namespace weir::app::test
