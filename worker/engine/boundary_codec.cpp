// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/boundary_codec.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/stage/layer.h"

namespace weir::engine {
namespace {

using schedule::Codec;
using transport::Channel;

constexpr std::size_t kSums = 4;  // of SampleCodecError

int bits_of(Codec codec) {
  switch (codec) {
    case Codec::kRaw:
      return 0;
    case Codec::kBf16:
      return 16;
    case Codec::kInt8:
      return 8;
    case Codec::kInt6:
      return 6;
  }
  return 0;
}

}  // namespace

BoundaryCodec::BoundaryCodec(device::Device& device, stage::Precision precision, MakeKernels make)
    : device_(device), precision_(precision), make_(std::move(make)) {}

BoundaryCodec::End BoundaryCodec::make_end(Codec codec, std::int64_t raw_bytes, int samples) const {
  const auto number_bytes = static_cast<int>(stage::element_bytes(precision_));
  End end{.bits = raw_bytes > 0 ? bits_of(codec) : 0, .bytes = raw_bytes, .raw_bytes = raw_bytes};
  if (end.bits == 0) return end;
  const std::int64_t count = raw_bytes / samples / number_bytes;
  end.shape = {.bits = end.bits, .samples = samples, .count = static_cast<int>(count)};
  end.bytes = samples * schedule::encoded_bytes(codec, count, number_bytes);
  WEIR_CHECK(end.bytes == samples * static_cast<std::int64_t>(encoded_sample_bytes(end.shape)),
             "plan and kernels agree on the size");
  return end;
}

Status BoundaryCodec::prepare() {
  if (!kernels_) {
    WEIR_TRY(kernels_, make_());
  }
  const std::array<double, 2 * kSums> zeros{};
  if (!sums_) sums_ = device_.allocate(sizeof zeros);
  if (!sums_) return stage::no_memory(device_, sizeof zeros);
  return device_.write(sums_.data(), zeros.data(), sizeof zeros);
}

Status BoundaryCodec::begin_step(const schedule::Plan& plan, int stage,
                                 const stage::Stage& layers) {
  const int samples = plan.schedule.micro_batch_size;
  const auto& [forward, backward] = plan.codecs;
  const auto set = [&](Channel channel, bool sending, bool next_boundary) {
    const std::int64_t bytes =
        next_boundary ? layers.output_bytes(samples) : layers.input_bytes(samples);
    const Codec codec = codec_of(channel == Channel::kForward ? forward : backward,
                                 next_boundary ? stage : stage - 1);
    ends_[index(channel, sending)] = make_end(codec, bytes, samples);
  };
  set(Channel::kForward, true, true);
  set(Channel::kForward, false, false);
  set(Channel::kBackward, true, false);
  set(Channel::kBackward, false, true);
  return codes_any() ? prepare() : Status(Unit{});
}

double* BoundaryCodec::sums_of(Channel channel) const {
  return sums_.as<double>() + (channel == Channel::kForward ? 0 : kSums);
}

int BoundaryCodec::next_sample(Channel channel, const stage::ops::CodecShape& shape) {
  const auto blocks = std::min<std::size_t>(all_codec_blocks(shape), stage::ops::kCodecSampling);
  unsigned& looks = looks_[channel == Channel::kForward ? 0 : 1];
  return static_cast<int>(looks++ % std::max<std::size_t>(blocks, 1));
}

Result<device::Buffer> BoundaryCodec::encode(Channel channel, device::Buffer tensor) {
  const End& to = end(channel, true);
  if (to.bits == 0) return tensor;
  device::Buffer message = device_.allocate(static_cast<std::size_t>(to.bytes));
  if (!message) return stage::no_memory(device_, static_cast<std::size_t>(to.bytes));
  const auto* const numbers = tensor.as<stage::ops::Element>();
  auto* const bytes = message.as<unsigned char>();
  kernels_->run(stage::ops::EncodeBlocks{to.shape, numbers, bytes});
  kernels_->run(stage::ops::SampleCodecError{to.shape, numbers, bytes, sums_of(channel),
                                             next_sample(channel, to.shape)});
  WEIR_OK(kernels_->status());
  return message;
}

Result<device::Buffer> BoundaryCodec::decode(Channel channel, device::Buffer message) {
  const End& from = end(channel, false);
  if (from.bits == 0) return message;
  device::Buffer tensor = device_.allocate(static_cast<std::size_t>(from.raw_bytes));
  if (!tensor) return stage::no_memory(device_, static_cast<std::size_t>(from.raw_bytes));
  kernels_->run(stage::ops::DecodeBlocks{from.shape, message.as<unsigned char>(),
                                         tensor.as<stage::ops::Element>()});
  WEIR_OK(kernels_->status());
  return tensor;
}

bool BoundaryCodec::codes_any() const {
  return std::ranges::any_of(ends_, [](const End& end) { return end.bits > 0; });
}

Result<SentTensors> BoundaryCodec::sent(Channel channel) const {
  const End& to = end(channel, true);
  SentTensors told;
  if (to.raw_bytes == 0) return told;
  told.rounded = to.bits > 0;
  told.bits = 8.0 * static_cast<double>(stage::element_bytes(precision_) * to.bytes) /
              static_cast<double>(to.raw_bytes);
  if (!told.rounded) return told;
  std::array<double, kSums> sums{};
  WEIR_OK(device_.read(sums.data(), sums_of(channel), sizeof sums));
  const auto [error, signal, zeroed, nonzero] = sums;
  if (signal > 0) told.error_ratio = std::sqrt(error / signal);
  if (nonzero > 0) told.zeroed_ratio = zeroed / nonzero;
  return told;
}

}  // namespace weir::engine
