// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/stage_links.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "worker/base/check.h"

namespace weir::engine {

using timeline::EventKind;
using transport::Channel;
using transport::Completion;
using transport::Transfer;

namespace {

std::int64_t nanos_of(std::chrono::steady_clock::time_point time) {
  return time.time_since_epoch().count();
}
std::int64_t nanos_now() {
  return nanos_of(std::chrono::steady_clock::now());
}
std::uint8_t detail_of(Channel channel) {
  return static_cast<std::uint8_t>(channel == Channel::kForward ? timeline::Direction::kForward
                                                                : timeline::Direction::kBackward);
}

}  // namespace

StageLinks::StageLinks(transport::Communicator* communicator, device::Device& device, int stage,
                       int stages, FlightRecorder* flight)
    : communicator_(communicator),
      device_(device),
      stage_(stage),
      stages_(stages),
      flight_(flight) {
  WEIR_CHECK(stage >= 0 && stage < stages, "the stage exists");
  WEIR_CHECK(communicator != nullptr || stages == 1, "several stages need links");
  activations_.end = {.peer_stage = stage - 1, .channel = Channel::kForward, .sending = false};
  activations_.exists = !first();
  gradients_.end = {.peer_stage = stage + 1, .channel = Channel::kBackward, .sending = false};
  gradients_.exists = !last();
  forward_.end = {.peer_stage = stage + 1, .channel = Channel::kForward, .sending = true};
  forward_.exists = !last();
  backward_.end = {.peer_stage = stage - 1, .channel = Channel::kBackward, .sending = true};
  backward_.exists = !first();
}

StageLinks::Inbox& StageLinks::inbox(Channel channel) {
  return channel == Channel::kForward ? activations_ : gradients_;
}
const StageLinks::Inbox& StageLinks::inbox(Channel channel) const {
  return channel == Channel::kForward ? activations_ : gradients_;
}
StageLinks::Outbox& StageLinks::outbox(Channel channel) {
  return channel == Channel::kForward ? forward_ : backward_;
}
const StageLinks::Outbox& StageLinks::outbox(Channel channel) const {
  return channel == Channel::kForward ? forward_ : backward_;
}

Status StageLinks::post(Inbox& box, Inbox::Content content, std::size_t bytes) {
  // A new buffer each time, because the stage may still keep the last one for its backward.
  const bool stays = content == Inbox::Content::kTensor && communicator_->carries_device_memory();
  device::Buffer buffer = stays ? device_.allocate(bytes) : device_.allocate_staging(bytes);
  if (!buffer && bytes > 0) {
    return Error{Code::kInternal,
                 "no memory for a receive slot of " + std::to_string(bytes) + " bytes"};
  }
  box.posted.push_back({.content = content, .buffer = buffer});
  communicator_->receive(box.end, std::move(buffer), bytes);
  return Unit{};
}

bool StageLinks::header_slot_due(const Inbox& box) const {
  const auto is_header = [](const Inbox::Slot& slot) {
    return slot.content == Inbox::Content::kHeader;
  };
  return box.end.channel == Channel::kForward && !box.header &&
         std::ranges::none_of(box.posted, is_header);
}

Status StageLinks::expect_header() {
  WEIR_CHECK(!first(), "the first stage makes the header");
  if (!header_slot_due(activations_)) return Unit{};
  return post(activations_, Inbox::Content::kHeader, kStepHeaderBytes);
}

std::optional<StepHeaderBytes> StageLinks::take_header() {
  return std::exchange(activations_.header, std::nullopt);
}

void StageLinks::send_header(const StepHeaderBytes& header) {
  WEIR_CHECK(!last(), "the last stage has nobody to tell");
  device::Buffer buffer = device_.allocate_staging(kStepHeaderBytes);
  WEIR_CHECK(static_cast<bool>(buffer), "32 bytes of memory");
  std::memcpy(buffer.data(), header.data(), kStepHeaderBytes);
  forward_.unacknowledged.push_back({.tensor = false});
  communicator_->send(forward_.end, std::move(buffer), kStepHeaderBytes);
}

Status StageLinks::grant(Inbox& box) {
  if (!box.exists) return Unit{};
  if (box.granted < traffic_.micro_batches) {
    ++box.granted;
    WEIR_OK(post(box, Inbox::Content::kTensor, static_cast<std::size_t>(box.bytes)));
  }
  if (box.granted < traffic_.micro_batches) return Unit{};
  if (box.note_bytes > 0) {
    WEIR_OK(post(box, Inbox::Content::kNote, std::exchange(box.note_bytes, 0)));
  }
  if (traffic_.header_follows && header_slot_due(box)) {
    return post(box, Inbox::Content::kHeader, kStepHeaderBytes);
  }
  return Unit{};
}

Status StageLinks::begin_step(const StepTraffic& traffic) {
  WEIR_CHECK(activations_.arrived.empty() && gradients_.arrived.empty(),
             "a step consumes all of its messages");
  traffic_ = traffic;
  activations_.bytes = traffic.forward_in_bytes;
  forward_.bytes = traffic.forward_out_bytes;
  gradients_.bytes = traffic.backward_in_bytes;
  backward_.bytes = traffic.backward_out_bytes;
  activations_.granted = gradients_.granted = 0;
  activations_.received = gradients_.received = forward_.sent = backward_.sent = 0;
  activations_.note_bytes = traffic.forward_note_bytes;
  gradients_.note_bytes = traffic.backward_note_bytes;
  forward_.window = backward_.window = traffic.credits.send_window;

  const int forward_slots = std::min(traffic.credits.receive_forward, traffic.micro_batches);
  const int backward_slots =
      traffic.forward_only ? 0 : std::min(traffic.credits.receive_backward, traffic.micro_batches);
  for (int i = 0; i < forward_slots; ++i) WEIR_OK(grant(activations_));
  for (int i = 0; i < backward_slots; ++i) WEIR_OK(grant(gradients_));
  if (traffic.micro_batches > 0) return Unit{};
  WEIR_OK(grant(activations_));  // only what follows the tensors
  WEIR_OK(grant(gradients_));
  return Unit{};
}

std::optional<transport::Transfer> StageLinks::input_transfer(Channel channel) const {
  const Inbox& box = inbox(channel);
  return box.arrived.empty() ? std::nullopt : box.arrived.front().transfer;
}

std::optional<transport::Transfer> StageLinks::opening_transfer(Channel channel) const {
  return outbox(channel).opening;
}

bool StageLinks::has_input(Channel channel) const {
  return !inbox(channel).arrived.empty();
}

Result<device::Buffer> StageLinks::take_input(Channel channel) {
  Inbox& box = inbox(channel);
  WEIR_CHECK(!box.arrived.empty(), "an op starts only with its input");
  device::Buffer tensor = std::move(box.arrived.front().buffer);
  box.arrived.pop_front();
  if (communicator_->carries_device_memory()) return tensor;
  return device_.upload(std::move(tensor));
}

Status StageLinks::free_slot(Channel channel) {
  return grant(inbox(channel));
}

bool StageLinks::peer_left(Channel channel) const {
  const Inbox& box = inbox(channel);
  return box.exists && communicator_->peer_left(box.end);
}

bool StageLinks::may_send(Channel channel) const {
  const Outbox& box = outbox(channel);
  return !box.exists || box.tensors < box.window;
}

Status StageLinks::send(Channel channel, device::Buffer tensor) {
  Outbox& box = outbox(channel);
  if (!box.exists) return Unit{};
  const auto bytes = static_cast<std::size_t>(box.bytes);
  WEIR_CHECK(tensor.size() >= bytes, "the stage returns whole tensors");
  if (!communicator_->carries_device_memory()) {
    WEIR_TRY(tensor, device_.download(std::move(tensor)));
  }
  box.unacknowledged.push_back(
      {.tensor = true, .micro_batch = static_cast<std::uint16_t>(box.sent++)});
  if (records()) {
    box.unacknowledged.back().step = flight_->step();
    box.unacknowledged.back().handed_over = nanos_now();
  }
  ++box.tensors;
  communicator_->send(box.end, std::move(tensor), bytes);
  return Unit{};
}

std::optional<std::vector<std::byte>> StageLinks::take_note(Channel channel) {
  return std::exchange(inbox(channel).note, std::nullopt);
}

Status StageLinks::send_note(Channel channel, std::span<const std::byte> note) {
  Outbox& box = outbox(channel);
  WEIR_CHECK(box.exists, "a note has a receiver");
  device::Buffer buffer = device_.allocate_staging(note.size());
  if (!buffer) return Error{Code::kInternal, "no memory for a note to a neighbour"};
  std::memcpy(buffer.data(), note.data(), note.size());
  box.unacknowledged.push_back({.tensor = false});
  communicator_->send(box.end, std::move(buffer), note.size());
  return Unit{};
}

bool StageLinks::drained() const {
  return forward_.unacknowledged.empty() && backward_.unacknowledged.empty();
}

bool StageLinks::tensors_received() const {
  return forward_.tensors == 0 && backward_.tensors == 0;
}

void StageLinks::file(const Completion& completion) {
  if (completion.kind == Completion::Kind::kSent) {
    Outbox& box = outbox(completion.end.channel);
    WEIR_CHECK(!box.unacknowledged.empty(), "an acknowledgement belongs to a send");
    if (box.unacknowledged.front().tensor) {
      record_sent(box, completion.transfer);
      if (box.tensors >= box.window) box.opening = completion.transfer;
      --box.tensors;
    }
    box.unacknowledged.pop_front();
    return;
  }
  Inbox& box = inbox(completion.end.channel);
  WEIR_CHECK(!box.posted.empty(), "a message fills a posted slot");
  Inbox::Slot slot = std::move(box.posted.front());
  box.posted.pop_front();
  switch (slot.content) {
    case Inbox::Content::kTensor:
      record_received(box, completion.transfer);
      box.arrived.push_back({std::move(slot.buffer), completion.transfer});
      return;
    case Inbox::Content::kNote:
      box.note.emplace(slot.buffer.data(), slot.buffer.data() + slot.buffer.size());
      return;
    case Inbox::Content::kHeader: {
      StepHeaderBytes header;
      std::memcpy(header.data(), slot.buffer.data(), kStepHeaderBytes);
      box.header = header;
      header_transfer_ = completion.transfer;
      return;
    }
  }
}

// Where the transport does not tell when, it is now.
void StageLinks::record_sent(const Outbox& box, const std::optional<Transfer>& transfer) {
  const Outbox::Sent& sent = box.unacknowledged.front();
  if (flight_ == nullptr || sent.handed_over == 0) return;
  const std::int64_t end =
      std::max(sent.handed_over, transfer ? nanos_of(transfer->end) : nanos_now());
  const std::int64_t started = transfer ? nanos_of(transfer->begin) : sent.handed_over;
  flight_->add(
      {.begin = sent.handed_over,
       .end = end,
       .extra = std::clamp<std::int64_t>(started - sent.handed_over, 0, end - sent.handed_over),
       .step = sent.step,
       .micro_batch = sent.micro_batch,
       .kind = EventKind::kSent,
       .detail = detail_of(box.end.channel)});
}

void StageLinks::record_received(Inbox& box, const std::optional<Transfer>& transfer) {
  const auto micro_batch = static_cast<std::uint16_t>(box.received++);
  if (!records()) return;
  const std::int64_t end = transfer ? nanos_of(transfer->end) : nanos_now();
  flight_->add({.begin = transfer ? std::min(nanos_of(transfer->begin), end) : end,
                .end = end,
                .step = flight_->step(),
                .micro_batch = micro_batch,
                .kind = EventKind::kReceived,
                .detail = detail_of(box.end.channel)});
}

Result<bool> StageLinks::pump(std::chrono::steady_clock::time_point deadline,
                              std::stop_token stop) {
  WEIR_CHECK(communicator_ != nullptr, "a single stage waits for nobody");
  const std::optional<Completion> completion = communicator_->wait(deadline, stop);
  if (!completion) {
    if (stop.stop_requested()) return Error{Code::kCancelled, "stopped"};
    return false;
  }
  if (completion->kind == Completion::Kind::kFailed) {
    return Error{Code::kUnavailable, completion->reason};
  }
  file(*completion);
  return true;
}

Status StageLinks::poll(std::stop_token stop) {
  if (communicator_ == nullptr) return Unit{};
  for (;;) {
    WEIR_TRY(const bool came, pump(std::chrono::steady_clock::time_point{}, stop));
    if (!came) return Unit{};
  }
}

}  // namespace weir::engine
