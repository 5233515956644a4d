// SPDX-License-Identifier: Apache-2.0
// Layers over the data port: all bytes, from several peers, early and late; and every way in which
// a fetch must end with a reason and without a wait.
#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/rig.h"
#include "worker/transport/tcp/state_wire.h"

namespace weir::transport::test {
namespace state_exchange_test {

using testing::HasSubstr;

StateKey key_of(std::int64_t step = 7, std::uint32_t revision = 4) {
  return {.job_uid = "job-1",
          .job_key = "a key of this job",
          .revision = revision,
          .incarnation = 0,
          .step = step};
}

// Memory of some layers, each with three tensors, one longer than a chunk.
struct Layers {
  explicit Layers(const std::vector<int>& numbers, bool filled) {
    for (const int number : numbers) {
      LayerMemory layer{.layer = number, .parts = {}};
      for (const std::size_t bytes : {std::size_t{12}, tcp::kMaxChunk + 100, std::size_t{0}}) {
        const auto seed = static_cast<std::uint64_t>(number) * 1000 + bytes;
        buffers.push_back(filled ? pattern(bytes, seed) : make_buffer(bytes));
        layer.parts.emplace_back(buffers.back().data(), bytes);
      }
      memory.push_back(std::move(layer));
    }
  }
  bool operator==(const Layers& other) const {
    return std::ranges::equal(buffers, other.buffers, equal);
  }
  std::vector<device::Buffer> buffers;
  std::vector<LayerMemory> memory;
};

Result<std::int64_t> fetch(TcpTransport& who, const StateKey& key, TcpTransport& from,
                           Layers& layers, std::chrono::nanoseconds limit = 30s) {
  return who.state().fetch(key, {{.from = address(0, from.data_port()), .layers = layers.memory}},
                           soon(limit), {});
}

TEST(StateExchange, BringsEveryByteFromSeveralPeersAtOnce) {
  const auto a = make_transport(), b = make_transport(), c = make_transport();
  Layers of_a({1, 2, 3}, true), of_b({4, 5}, true);
  a->state().offer(key_of(), of_a.memory);
  b->state().offer(key_of(), of_b.memory);

  Layers got_a({2, 3}, false), got_b({4}, false);
  const auto bytes =
      c->state().fetch(key_of(),
                       {{.from = address(0, a->data_port()), .layers = got_a.memory},
                        {.from = address(1, b->data_port()), .layers = got_b.memory}},
                       soon(), {});

  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_EQ(*bytes, 3 * static_cast<std::int64_t>(12 + tcp::kMaxChunk + 100));
  EXPECT_TRUE(got_a == Layers({2, 3}, true));
  EXPECT_TRUE(got_b == Layers({4}, true));
}

TEST(StateExchange, WaitsForAPeerThatIsNotThereYet) {
  const auto a = make_transport(), b = make_transport();
  Layers held({0}, true), older({0}, true), got({0}, false);
  a->state().offer(key_of(3, 2), older.memory);  // of an earlier move
  auto came = std::async(std::launch::async, [&] { return fetch(*b, key_of(), *a, got); });
  EXPECT_EQ(came.wait_for(50ms), std::future_status::timeout);
  a->state().offer(key_of(), held.memory);
  const auto bytes = came.get();
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_TRUE(got == held);
}

TEST(StateExchange, TellsOfAPeerWhosePortDoesNotAnswer) {
  std::stop_source told;
  const auto rank = make_transport(
      {.dead_after = 1s, .on_silent = [&](const PeerAddress&) { told.request_stop(); }});
  Layers layers({0}, false);
  const SilentPort port;
  const auto came =
      rank->state().fetch(key_of(), {{.from = address(0, port.port()), .layers = layers.memory}},
                          soon(), told.get_token());
  ASSERT_FALSE(came);
  EXPECT_EQ(came.error().code, Code::kCancelled);
}

TEST(StateExchange, TellsWhatThePeerDoesNotHold) {
  const auto a = make_transport(), b = make_transport();
  Layers held({0, 1}, true), got({1, 2}, false);
  a->state().offer(key_of(8), held.memory);
  const auto other_step = fetch(*b, key_of(7), *a, held);
  ASSERT_FALSE(other_step);
  EXPECT_EQ(other_step.error().code, Code::kConflict);
  EXPECT_THAT(other_step.error().message, HasSubstr("it holds step 8, wanted is 7"));
  const auto other_layer = fetch(*b, key_of(8), *a, got);
  ASSERT_FALSE(other_layer);
  EXPECT_THAT(other_layer.error().message, HasSubstr("it does not hold layer 2"));
  const auto old_plan = fetch(*b, key_of(8, 3), *a, got);
  ASSERT_FALSE(old_plan);
  EXPECT_EQ(old_plan.error().code, Code::kConflict);
}

TEST(StateExchange, BringsACopyBesideAMoveAndInAFifthOfTheTime) {
  const auto a = make_transport(), b = make_transport();
  Layers held({0, 1}, true), moved({2}, true), got({0, 1}, false), got_move({2}, false);
  StateKey copy = key_of(7, 1);
  copy.copy = true;
  a->state().offer(copy, held.memory);
  a->state().offer(key_of(), moved.memory);
  const auto bytes = fetch(*b, copy, *a, got);
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_TRUE(got == held);
  EXPECT_TRUE(fetch(*b, key_of(), *a, got_move));
  a->state().withdraw();
  EXPECT_TRUE(fetch(*b, copy, *a, got)) << "it is an offer of its own";
  a->state().withdraw_copy();
  EXPECT_EQ(fetch(*b, copy, *a, got, 30ms).error().code, Code::kTimeout);
}

TEST(StateExchange, RefusesWhoDoesNotHoldTheKey) {
  const auto a = make_transport(), b = make_transport();
  Layers held({0}, true), got({0}, false);
  a->state().offer(key_of(), held.memory);
  StateKey wrong = key_of();
  wrong.job_key = "another key";
  const auto bytes = fetch(*b, wrong, *a, got);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, Code::kForbidden);
}

TEST(StateExchange, EndsWhenItIsStoppedOrLate) {
  const auto a = make_transport(), b = make_transport();
  Layers got({0}, false);  // nobody offers it
  const auto late = fetch(*b, key_of(), *a, got, 30ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_THAT(late.error().message, HasSubstr("state did not come in time"));

  std::stop_source stop;
  auto came = std::async(std::launch::async, [&] {
    return b->state().fetch(key_of(), {{.from = address(0, a->data_port()), .layers = got.memory}},
                            soon(), stop.get_token());
  });
  stop.request_stop();
  const auto stopped = came.get();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST(StateExchange, EndsWhenThePeerGoesInTheMiddle) {
  const auto b = make_transport();
  auto a = make_transport();
  std::vector<int> numbers(64);
  for (int i = 0; i < 64; ++i) numbers[static_cast<std::size_t>(i)] = i;  // 67 MB
  Layers held(numbers, true), got(numbers, false);
  a->state().offer(key_of(), held.memory);
  auto came = std::async(std::launch::async, [&] { return fetch(*b, key_of(), *a, got); });
  while (!std::equal(got.buffers[1].data(), got.buffers[1].data() + 100, held.buffers[1].data())) {
    std::this_thread::yield();  // until the first chunk is there
  }
  a->state().withdraw();
  const auto bytes = came.get();
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, Code::kUnavailable);
  EXPECT_THAT(bytes.error().message, HasSubstr("broke off"));
}

TEST(StateWire, ReadsOnlyWhatIsSound) {
  const auto bytes = [](const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  };
  const std::string wish = tcp::encode_state_wish({.step = 9, .first_layer = 2, .last_layer = 3});
  EXPECT_EQ(tcp::decode_state_wish(bytes(wish))->step, 9);
  EXPECT_FALSE(tcp::decode_state_wish(bytes(wish.substr(1))));
  EXPECT_FALSE(tcp::decode_state_wish(
      bytes(tcp::encode_state_wish({.step = 9, .first_layer = 4, .last_layer = 3}))));
  const auto header = [&](std::uint32_t layer, std::uint32_t count) {
    return tcp::encode_chunk_header(
        {.layer = layer, .bytes = count, .offset = 5, .sha256 = std::string(64, 'a')});
  };
  const auto read = tcp::decode_chunk_header(bytes(header(3, 100)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->layer, 3U);
  EXPECT_EQ(read->offset, 5U);
  EXPECT_FALSE(tcp::decode_chunk_header(bytes(header(3, 0))));
  EXPECT_FALSE(tcp::decode_chunk_header(bytes(header(3, tcp::kMaxChunk + 1))));
  EXPECT_FALSE(tcp::decode_chunk_header(bytes(header(tcp::kRefusedLayer, 1000))));
  EXPECT_FALSE(tcp::decode_chunk_header(bytes(std::string(tcp::kChunkHeaderBytes, 'x'))));
}

}  // namespace state_exchange_test
}  // namespace weir::transport::test
