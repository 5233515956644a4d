// SPDX-License-Identifier: Apache-2.0
// The tensors between stages in the forms that the plan names (worker/schedule/codecs.h). Raw ones
// pass as they are. The device encodes before a tensor leaves it and decodes what has arrived on
// it, so copies between host and device are of encoded tensors, too. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/engine/statistics.h"
#include "worker/schedule/plan.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"
#include "worker/transport/communicator.h"

namespace weir::engine {

class BoundaryCodec {
 public:
  using MakeKernels = std::function<Result<std::unique_ptr<stage::ops::Kernels>>()>;
  // make: for memory of `device`; called with the first codec. precision: of the tensors.
  BoundaryCodec(device::Device& device, stage::Precision precision, MakeKernels make);

  // Takes the codecs of a step from the plan. kInternal: the device has no kernels or no memory.
  Status begin_step(const schedule::Plan& plan, int stage, const stage::Stage& layers);
  // Bytes of a micro-batch that this stage sends, or receives, on a channel of the step.
  std::int64_t sent_bytes(transport::Channel channel) const { return end(channel, true).bytes; }
  std::int64_t received_bytes(transport::Channel channel) const {
    return end(channel, false).bytes;
  }
  bool codes(transport::Channel channel, bool sending) const {
    return end(channel, sending).bits > 0;
  }

  // The message that carries a tensor of this stage, and the tensor of a message that has come.
  // kInternal: no device memory, or the kernels failed.
  Result<device::Buffer> encode(transport::Channel channel, device::Buffer tensor);
  Result<device::Buffer> decode(transport::Channel channel, device::Buffer message);

  bool codes_any() const;
  // The tensors sent on a channel since begin_step(). Waits for the device if they are encoded.
  Result<SentTensors> sent(transport::Channel channel) const;

 private:
  struct End {
    int bits = 0;                // of a code; 0 = raw
    std::int64_t bytes = 0;      // of one micro-batch on the wire
    std::int64_t raw_bytes = 0;  // of one micro-batch
    stage::ops::CodecShape shape{};
  };
  static constexpr std::size_t index(transport::Channel channel, bool sending) {
    return (channel == transport::Channel::kForward ? 0U : 1U) + (sending ? 0U : 2U);
  }
  const End& end(transport::Channel channel, bool sending) const {
    return ends_[index(channel, sending)];
  }
  End make_end(schedule::Codec codec, std::int64_t raw_bytes, int samples) const;
  Status prepare();
  double* sums_of(transport::Channel channel) const;
  // The first block of the next message that is looked at: each in turn, so a message of few blocks
  // does not tell of the same numbers each time.
  int next_sample(transport::Channel channel, const stage::ops::CodecShape& shape);

  device::Device& device_;
  const stage::Precision precision_;
  const MakeKernels make_;
  std::unique_ptr<stage::ops::Kernels> kernels_;
  device::Buffer sums_;              // of SampleCodecError, by channel
  std::array<unsigned, 2> looks_{};  // at messages, by channel
  std::array<End, 4> ends_{};
};

}  // namespace weir::engine
