// SPDX-License-Identifier: Apache-2.0
// A device whose memory the host cannot reach: messages pass through staging memory.
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/device_around.h"
#include "tests/worker/engine/fakes.h"
#include "worker/engine/stage_links.h"

namespace weir::engine {
namespace stage_links_device_test {

using transport::Channel;
using transport::LinkEnd;

// Host memory that plays the device's; knows which buffers are staging. Copies flip every bit, so
// that a byte that was not copied shows.
class ApartDevice final : public weir::test::DeviceAround {
 public:
  ApartDevice() : DeviceAround("apart") {}
  bool is_host() const override { return false; }
  device::Buffer allocate_staging(std::size_t bytes) override {
    device::Buffer buffer = allocate(bytes);
    staging.insert(buffer.data());
    return buffer;
  }
  Result<device::Buffer> upload(device::Buffer staged) override {
    EXPECT_TRUE(staging.contains(staged.data()));
    return flipped(staged, allocate(staged.size()));
  }
  Result<device::Buffer> download(device::Buffer tensor) override {
    EXPECT_FALSE(staging.contains(tensor.data()));
    return flipped(tensor, allocate_staging(tensor.size()));
  }

  std::set<const std::byte*> staging;

 private:
  static device::Buffer flipped(const device::Buffer& from, device::Buffer to) {
    for (std::size_t i = 0; i < from.size(); ++i) to.data()[i] = ~from.data()[i];
    return to;
  }
  std::unique_ptr<device::Device> host_ = device::make_host_device();
};

constexpr int kStage = 1, kStages = 3;
constexpr std::size_t kBytes = 64;

class StageLinksOnADevice : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(links_.begin_step(
        {.credits = {.send_window = 2, .receive_forward = 1, .receive_backward = 1},
         .micro_batches = 1,
         .forward_in_bytes = kBytes,
         .forward_out_bytes = kBytes,
         .backward_in_bytes = kBytes,
         .backward_out_bytes = kBytes,
         .header_follows = false}));
  }
  ApartDevice device_;
  test::ScriptedCommunicator peers_{nullptr, std::make_shared<test::Journal>()};
  StageLinks links_{&peers_, device_, kStage, kStages};
};

TEST_F(StageLinksOnADevice, ReceiveIntoStagingAndGiveTheStageDeviceMemory) {
  for (const auto& [end, buffer] : peers_.posted) {
    EXPECT_TRUE(device_.staging.contains(buffer.data()));
  }
  ASSERT_TRUE(peers_.deliver({.peer_stage = 0, .channel = Channel::kForward, .sending = false},
                             std::string(kBytes, '\x0f')));
  ASSERT_TRUE(links_.poll({}));

  const Result<device::Buffer> input = links_.take_input(Channel::kForward);

  ASSERT_TRUE(input);
  EXPECT_EQ(input->as<char>()[kBytes - 1], '\xf0');
}

TEST_F(StageLinksOnADevice, SendFromStagingWhatTheStageReturned) {
  device::Buffer tensor = device_.allocate(kBytes);
  std::memset(tensor.data(), 0x55, kBytes);

  ASSERT_TRUE(links_.send(Channel::kBackward, tensor));

  ASSERT_EQ(peers_.sent.size(), 1U);
  EXPECT_EQ(peers_.sent[0], std::string(kBytes, '\xaa'));
}

// As NCCL: tensors never leave the device, but headers and notes are the host's.
TEST(StageLinksOfADeviceTransport, LeaveTensorsWhereTheyAreAndKeepNotesInStagingMemory) {
  ApartDevice device;
  test::ScriptedCommunicator peers{nullptr, std::make_shared<test::Journal>()};
  peers.device_memory = true;
  StageLinks links{&peers, device, kStage, kStages};
  ASSERT_TRUE(
      links.begin_step({.credits = {.send_window = 2, .receive_forward = 1, .receive_backward = 1},
                        .micro_batches = 1,
                        .forward_in_bytes = kBytes,
                        .forward_out_bytes = kBytes,
                        .backward_in_bytes = kBytes,
                        .backward_out_bytes = kBytes,
                        .header_follows = true,
                        .forward_note_bytes = 8}));
  const LinkEnd activations{.peer_stage = 0, .channel = Channel::kForward, .sending = false};
  std::vector<bool> staged;
  for (const auto& [end, buffer] : peers.posted) {
    if (end == activations) staged.push_back(device.staging.contains(buffer.data()));
  }
  EXPECT_EQ(staged, (std::vector<bool>{false, true, true})) << "tensor, note, header";
  ASSERT_TRUE(peers.deliver(activations, std::string(kBytes, '\x0f')));
  ASSERT_TRUE(links.poll({}));

  const Result<device::Buffer> input = links.take_input(Channel::kForward);
  ASSERT_TRUE(input);
  ASSERT_TRUE(links.send(Channel::kForward, *input));

  EXPECT_EQ(input->as<char>()[0], '\x0f') << "no copy";
  EXPECT_EQ(peers.sent.back(), std::string(kBytes, '\x0f'));
}

}  // namespace stage_links_device_test
}  // namespace weir::engine
