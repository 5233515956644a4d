// SPDX-License-Identifier: Apache-2.0
// The channel ends of one rank in one generation: receive slots (= credits of the peer), arrived
// tensors, send windows. Engine thread only. Knows messages and counts, not ops or plans.
//
// A slot is posted for a message of the current step only: tensors, then the note if there is one;
// the last thing posted in a step is the slot of the next step's header. So a plan may change sizes
// between two steps.
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
#include "worker/engine/step_header.h"
#include "worker/schedule/caps.h"
#include "worker/transport/communicator.h"

namespace weir::engine {

struct StepTraffic {
  schedule::Credits credits;
  int micro_batches = 0;
  std::int64_t input_bytes = 0;   // of one micro-batch: activations in, their gradients out
  std::int64_t output_bytes = 0;  // of one micro-batch: activations out, their gradients in
  bool header_follows = true;     // the next message after these is the next step's header
  bool forward_only = false;      // no gradients come or go
  // Notes: small messages after the tensors of a step (grad_clip.h); 0 = none on this channel.
  std::size_t forward_note_bytes = 0;   // from the stage before
  std::size_t backward_note_bytes = 0;  // from the next stage
};

class Ports {
 public:
  // communicator may be null when stages == 1.
  Ports(transport::Communicator* communicator, device::Device& device, int stage, int stages);

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages_; }

  // Posts the header's slot unless it is posted already. Not on the first stage.
  Status expect_header();
  // The header that has arrived, once.
  std::optional<StepHeaderBytes> take_header();
  void send_header(const StepHeaderBytes& header);  // not on the last stage

  // Grants the first slots of a step. kInternal: no device memory.
  Status begin_step(const StepTraffic& traffic);
  bool has_input(transport::Channel channel) const;  // arrived, not taken
  // Of the next micro-batch in order, in device memory. kInternal: no device memory.
  Result<device::Buffer> take_input(transport::Channel channel);
  // At the end of the op that consumed an input, before its result is sent.
  Status free_slot(transport::Channel channel);
  // The peer that sends on this channel has left: what has not come by now never does.
  bool peer_left(transport::Channel channel) const;
  bool may_send(transport::Channel channel) const;  // I3: the window has room
  // A tensor in device memory. kInternal: no memory to send it from.
  Status send(transport::Channel channel, device::Buffer tensor);
  // The note of this step that has arrived, once; it comes after all tensors of the channel.
  std::optional<std::vector<std::byte>> take_note(transport::Channel channel);
  Status send_note(transport::Channel channel, std::span<const std::byte> note);
  Status synchronize() { return device_.synchronize(); }  // all ops so far are done
  device::Device& device() { return device_; }
  bool drained() const;  // peers have every byte that was sent
  // Messages are moved by the device, beside its other work.
  bool on_device() const {
    return communicator_ != nullptr && communicator_->carries_device_memory();
  }

  // Waits for one completion and files it. True: something came; false: deadline. kUnavailable: the
  // generation is broken; kCancelled: stop.
  Result<bool> pump(std::chrono::steady_clock::time_point deadline, std::stop_token stop);
  // Files all that has come already; never waits.
  Status poll(std::stop_token stop);

 private:
  struct Inbox {
    transport::Port port;
    bool exists = false;
    enum class Content : unsigned char { kTensor, kNote, kHeader };
    struct Slot {
      Content content = Content::kTensor;
      device::Buffer buffer;
    };
    std::deque<Slot> posted;
    std::deque<device::Buffer> arrived;
    std::optional<StepHeaderBytes> header;
    std::optional<std::vector<std::byte>> note;
    std::size_t note_bytes = 0;  // of this step; 0 = none, or its slot is posted
    int granted = 0;             // tensors of this step
    std::int64_t bytes = 0;
  };
  struct Outbox {
    transport::Port port;
    bool exists = false;
    std::deque<bool> unacknowledged;  // true: a tensor, false: a header or a note
    int tensors = 0;                  // of them
    int window = 0;
    std::int64_t bytes = 0;
  };

  Inbox& inbox(transport::Channel channel);
  const Inbox& inbox(transport::Channel channel) const;
  Outbox& outbox(transport::Channel channel);
  const Outbox& outbox(transport::Channel channel) const;
  Status post(Inbox& box, Inbox::Content content, std::size_t bytes);
  Status grant(Inbox& box);  // one slot more, if the step has messages left
  bool header_slot_due(const Inbox& box) const;
  void file(const transport::Completion& completion);

  transport::Communicator* communicator_;
  device::Device& device_;
  int stage_, stages_;
  StepTraffic traffic_;
  Inbox activations_, gradients_;
  Outbox forward_, backward_;
};

}  // namespace weir::engine
