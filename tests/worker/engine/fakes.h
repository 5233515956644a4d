// SPDX-License-Identifier: Apache-2.0
// A stage without arithmetic and a communicator that a test plays the peers of. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/manual_clock.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/engine/step.h"
#include "worker/stage/stage.h"
#include "worker/transport/communicator.h"

namespace weir::engine::test {

// What happened, in order: "F0", "B0", "post fwd", "send bwd", ...
using Journal = std::vector<std::string>;

class FakeStage : public stage::Stage {
 public:
  FakeStage(device::Device& device, std::shared_ptr<Journal> journal, bool first, bool last)
      : device_(device), journal_(std::move(journal)), first_(first), last_(last) {}

  Result<device::Buffer> forward(int micro_batch, const device::Buffer& input,
                                 const stage::Tokens& tokens) override {
    journal_->push_back("F" + std::to_string(micro_batch));
    if (static_cast<std::int64_t>(input.size()) != input_bytes(tokens.samples)) {
      return Error{Code::kInvalid, "input of a wrong size"};
    }
    return last_ ? device::Buffer() : device_.allocate(kTensorBytes);
  }
  Result<device::Buffer> backward(int micro_batch, const device::Buffer& /*gradient*/) override {
    journal_->push_back("B" + std::to_string(micro_batch));
    return first_ ? device::Buffer() : device_.allocate(kTensorBytes);
  }
  Result<device::Buffer> backward_input(int micro_batch, const device::Buffer& gradient) override {
    return backward(micro_batch, gradient);
  }
  Status backward_weights(int micro_batch) override {
    journal_->push_back("W" + std::to_string(micro_batch));
    return Unit{};
  }
  void begin_evaluation() override { journal_->push_back("V"); }
  Result<stage::Evaluated> evaluate(const device::Buffer& input,
                                    const stage::Tokens& tokens) override {
    journal_->push_back("E");
    if (static_cast<std::int64_t>(input.size()) != input_bytes(tokens.samples)) {
      return Error{Code::kInvalid, "input of a wrong size"};
    }
    return stage::Evaluated{.output = last_ ? device::Buffer() : device_.allocate(kTensorBytes),
                            .loss_sum = last_ ? 2.0 * tokens.samples : 0};
  }
  void begin_step(std::int64_t /*step*/, int /*samples*/) override {}
  void resume_step(std::int64_t /*step*/, int /*step_samples*/) override {}
  void optimizer_step() override { journal_->push_back("O"); }
  double loss() const override { return 1.5; }
  std::int64_t output_bytes(int /*samples*/) const override { return last_ ? 0 : kTensorBytes; }
  std::int64_t input_bytes(int /*samples*/) const override { return first_ ? 0 : kTensorBytes; }
  bool needs_inputs() const override { return first_; }
  std::int64_t activation_bytes() const override { return 0; }
  device::Device& device() override { return device_; }
  std::vector<stage::Parameter> parameters() override { return {}; }
  Result<std::vector<double>> gradient_squares() override { return std::vector<double>{0}; }
  void scale_gradients(float /*factor*/) override {}

  static constexpr std::int64_t kTensorBytes = 64;

 private:
  device::Device& device_;
  std::shared_ptr<Journal> journal_;
  bool first_, last_;
};

class NoData final : public data::Dataset {
 public:
  Status sample(std::int64_t /*step*/, int /*index*/, int /*global_batch*/,
                std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const override {
    for (auto& token : inputs) token = 0;
    for (auto& token : targets) token = 0;
    return Unit{};
  }
  std::string description() const override { return "none"; }
  std::string content() const override { return "none"; }
};

// The test plays the peers: it delivers messages and acknowledges sends, from on_wait too, which is
// called whenever the engine waits and nothing is there. With a manual clock each such wait lets 10
// ms pass.
class ScriptedCommunicator final : public transport::Communicator {
 public:
  ScriptedCommunicator(weir::test::ManualClock* clock, std::shared_ptr<Journal> journal)
      : clock_(clock), journal_(std::move(journal)) {}

  std::function<void()> on_wait;

  void send(const transport::LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    journal_->push_back(std::string("send ") + name(end) + (is_note(end, bytes) ? " note" : ""));
    sent.emplace_back(reinterpret_cast<const char*>(buffer.data()), bytes);
    sent_ends.push_back(end);
  }
  void receive(const transport::LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    journal_->push_back(std::string("post ") + name(end) +
                        (is_header(end, bytes) ? " header" : "") +
                        (is_note(end, bytes) ? " note" : ""));
    posted.emplace_back(end, std::move(buffer));
  }
  std::optional<transport::Completion> wait(std::chrono::steady_clock::time_point deadline,
                                            std::stop_token /*stop*/) override {
    const bool waits = deadline > std::chrono::steady_clock::time_point();
    if (completions_.empty() && waits) {
      if (clock_ != nullptr) clock_->advance(std::chrono::milliseconds(10));
      if (on_wait) on_wait();
      if (completions_.empty()) deliver_note();
    }
    if (completions_.empty()) return failure_;
    auto completion = completions_.front();
    completions_.pop_front();
    return completion;
  }
  bool carries_device_memory() const override { return device_memory; }
  bool peer_left(const transport::LinkEnd& end) const override {
    return std::find(left.begin(), left.end(), end) != left.end();
  }
  std::vector<transport::LinkReport> reports() const override { return {}; }
  void abort(const std::string& reason) noexcept override { fail(reason); }

  // False: no slot is posted for it.
  bool deliver(const transport::LinkEnd& end, const std::string& bytes = std::string(64, 'x')) {
    for (auto slot = posted.begin(); slot != posted.end(); ++slot) {
      if (!(slot->first == end)) continue;
      if (slot->second.size() != bytes.size()) return false;
      std::memcpy(slot->second.data(), bytes.data(), bytes.size());
      posted.erase(slot);
      completions_.push_back({.kind = transport::Completion::Kind::kReceived, .end = end});
      return true;
    }
    return false;
  }
  void acknowledge(const transport::LinkEnd& end,
                   std::optional<transport::Transfer> transfer = std::nullopt) {
    completions_.push_back(
        {.kind = transport::Completion::Kind::kSent, .end = end, .transfer = transfer});
  }
  void fail(const std::string& reason) {
    failure_ =
        transport::Completion{.kind = transport::Completion::Kind::kFailed, .reason = reason};
  }

  bool device_memory = false;
  std::vector<transport::LinkEnd> left;  // their peers have said goodbye
  std::vector<std::pair<transport::LinkEnd, device::Buffer>> posted;
  std::vector<std::string> sent;
  std::vector<transport::LinkEnd> sent_ends;

 private:
  static bool is_header(const transport::LinkEnd& end, std::size_t bytes) {
    return end.channel == transport::Channel::kForward && bytes == 32;
  }
  static bool is_note(const transport::LinkEnd& end, std::size_t bytes) {
    return bytes != FakeStage::kTensorBytes && !is_header(end, bytes);
  }
  // Peers tell that their gradients are 0, or that all are.
  void deliver_note() {
    for (const auto& [end, slot] : posted) {
      const std::size_t bytes = slot.size();
      if (is_note(end, bytes)) return static_cast<void>(deliver(end, std::string(bytes, '\0')));
    }
  }
  static const char* name(const transport::LinkEnd& end) {
    return end.channel == transport::Channel::kForward ? "fwd" : "bwd";
  }

  weir::test::ManualClock* clock_;
  std::shared_ptr<Journal> journal_;
  std::deque<transport::Completion> completions_;
  std::optional<transport::Completion> failure_;
};

inline BoundaryCodec host_codec(device::Device& device,
                                stage::Precision precision = stage::Precision::kFp32) {
  return {device, precision, [precision] { return stage::ops::make_host_kernels(precision); }};
}

// What a step of one rank works with: 4 tokens a sample, a second's patience.
inline StepParts scripted_parts(
    stage::Stage& stage, StageLinks& links, const data::Dataset& dataset, Recorder& recorder,
    Stopwatch& stopwatch, BoundaryCodec& codec, const Clock& clock,
    std::function<bool()> go_on = [] { return true; }) {
  return {.stage = stage,
          .links = links,
          .codec = codec,
          .dataset = dataset,
          .recorder = recorder,
          .stopwatch = stopwatch,
          .clock = clock,
          .sequence = 4,
          .progress_deadline = std::chrono::seconds(1),
          .go_on = std::move(go_on)};
}

}  // namespace weir::engine::test
