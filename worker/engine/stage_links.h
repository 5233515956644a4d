// SPDX-License-Identifier: Apache-2.0
// The channel ends of one rank in one generation: receive slots (= credits of the peer), arrived
// tensors and send windows. Engine thread only. Knows messages and counts, but no ops or plans.
//
// Slots are posted for messages of the current step only: the tensors, then the note if there is
// one. The last slot posted in a step is that of the next step's header. A plan may thus change
// sizes between two steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/engine/flight_recorder.h"
#include "worker/engine/step_header.h"
#include "worker/schedule/caps.h"
#include "worker/transport/communicator.h"

namespace weir::engine {

struct StepTraffic {
  schedule::Credits credits;
  int micro_batches = 0;
  // Bytes of one micro-batch on the wire: activations, and their gradients.
  std::int64_t forward_in_bytes = 0, forward_out_bytes = 0;
  std::int64_t backward_in_bytes = 0, backward_out_bytes = 0;
  bool header_follows = true;  // the next message after these is the next step's header
  bool forward_only = false;   // no gradients are sent or received
  // Notes are small messages after the tensors of a step (verdict.h); 0 = no note on this
  // channel.
  std::size_t forward_note_bytes = 0;   // from the previous stage
  std::size_t backward_note_bytes = 0;  // from the next stage
};

class StageLinks {
 public:
  // `communicator` may be null if stages == 1; `flight`, which gets the times of tensors in steps
  // that train, may be null, too.
  StageLinks(transport::Communicator* communicator, device::Device& device, int stage, int stages,
             FlightRecorder* flight = nullptr);

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages_; }

  // Posts the slot of the header unless it is posted already. Not on the first stage.
  Status expect_header();
  // Returns the header once, if it has arrived.
  std::optional<StepHeaderBytes> take_header();
  // The transfers of the last header, and of the input that is next; nothing where the transport
  // does not tell them.
  std::optional<transport::Transfer> header_transfer() const { return header_transfer_; }
  std::optional<transport::Transfer> input_transfer(transport::Channel channel) const;
  // The transfer of the last tensor whose acknowledgement made room in a full send window.
  std::optional<transport::Transfer> opening_transfer(transport::Channel channel) const;
  void send_header(const StepHeaderBytes& header);  // not on the last stage

  // Grants the first slots of a step. kInternal: no device memory.
  Status begin_step(const StepTraffic& traffic);
  bool has_input(transport::Channel channel) const;  // an input has arrived and has not been taken
  // Input of the next micro-batch in order, in device memory. kInternal: no device memory.
  Result<device::Buffer> take_input(transport::Channel channel);
  // Call this at the end of the op that consumed an input, before its result is sent.
  Status free_slot(transport::Channel channel);
  // The peer that sends on this channel has left: messages that have not arrived never will.
  bool peer_left(transport::Channel channel) const;
  bool may_send(transport::Channel channel) const;  // I3: the send window has room
  // `tensor` is in device memory. kInternal: no memory to send it from.
  Status send(transport::Channel channel, device::Buffer tensor);
  // Returns the note of this step once, if it has arrived. It comes after all tensors of the
  // channel.
  std::optional<std::vector<std::byte>> take_note(transport::Channel channel);
  Status send_note(transport::Channel channel, std::span<const std::byte> note);
  Status synchronize() { return device_.synchronize(); }  // all ops so far are done
  device::Device& device() { return device_; }
  bool drained() const;           // the peers have all bytes that were sent
  bool tensors_received() const;  // they have all tensors
  // True if the device moves messages itself, beside its other work.
  bool on_device() const {
    return communicator_ != nullptr && communicator_->carries_device_memory();
  }

  // Waits for one completion and files it. Returns true if one came, false at the deadline.
  // kUnavailable: the generation is broken. kCancelled: stop was requested.
  Result<bool> pump(std::chrono::steady_clock::time_point deadline, std::stop_token stop);
  // Files all completions that have come; does not wait.
  Status poll(std::stop_token stop);

 private:
  struct Inbox {
    transport::LinkEnd end;
    bool exists = false;
    enum class Content : unsigned char { kTensor, kNote, kHeader };
    struct Slot {
      Content content = Content::kTensor;
      device::Buffer buffer;
    };
    std::deque<Slot> posted;
    struct Input {
      device::Buffer buffer;
      std::optional<transport::Transfer> transfer;
    };
    std::deque<Input> arrived;
    std::optional<StepHeaderBytes> header;
    std::optional<std::vector<std::byte>> note;
    std::size_t note_bytes = 0;  // of this step; 0 = no note, or its slot is posted
    int granted = 0;             // slots granted for tensors of this step
    int received = 0;            // tensors of this step, in the order of micro-batches
    std::int64_t bytes = 0;
  };
  struct Outbox {
    transport::LinkEnd end;
    bool exists = false;
    struct Sent {
      bool tensor = false;  // else a header or a note
      std::uint16_t micro_batch = 0;
      std::uint32_t step = 0;
      std::int64_t handed_over = 0;  // nanoseconds of the steady clock
    };
    std::deque<Sent> unacknowledged;
    int sent = 0;     // tensors of this step
    int tensors = 0;  // number of tensors in it
    int window = 0;
    std::int64_t bytes = 0;
    std::optional<transport::Transfer> opening;
  };

  Inbox& inbox(transport::Channel channel);
  const Inbox& inbox(transport::Channel channel) const;
  Outbox& outbox(transport::Channel channel);
  const Outbox& outbox(transport::Channel channel) const;
  Status post(Inbox& box, Inbox::Content content, std::size_t bytes);
  Status grant(Inbox& box);  // grants one more slot if the step has messages left
  bool header_slot_due(const Inbox& box) const;
  void file(const transport::Completion& completion);
  bool records() const { return flight_ != nullptr && !traffic_.forward_only; }
  void record_sent(const Outbox& box, const std::optional<transport::Transfer>& transfer);
  void record_received(Inbox& box, const std::optional<transport::Transfer>& transfer);

  transport::Communicator* communicator_;
  device::Device& device_;
  int stage_, stages_;
  FlightRecorder* flight_;
  StepTraffic traffic_;
  Inbox activations_, gradients_;
  std::optional<transport::Transfer> header_transfer_;
  Outbox forward_, backward_;
};

}  // namespace weir::engine
