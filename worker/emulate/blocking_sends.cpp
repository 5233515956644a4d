// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <deque>
#include <utility>

#include "worker/emulate/emulate.h"

namespace weir::emulate {
namespace {

using transport::Channel;
using transport::Communicator;
using transport::Completion;
using transport::LinkEnd;

constexpr auto kSlice = std::chrono::milliseconds(20);  // longest time until an abort is noticed

class BlockingSends final : public Communicator {
 public:
  BlockingSends(std::unique_ptr<Communicator> inner, int window)
      : inner_(std::move(inner)), window_(window) {}

  void send(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    inner_->send(end, std::move(buffer), bytes);
    int& outstanding = outstanding_[index(end.channel)];
    ++outstanding;
    bool broken = false;
    while (outstanding > window_ && !broken && !aborted_) {
      const auto until = std::chrono::steady_clock::now() + kSlice;
      if (std::optional<Completion> completion = take(until, {})) {
        broken = completion->kind == Completion::Kind::kFailed;
        kept_.push_back(*std::move(completion));
      }
    }
  }
  void receive(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    inner_->receive(end, std::move(buffer), bytes);
  }
  std::optional<Completion> wait(std::chrono::steady_clock::time_point deadline,
                                 std::stop_token stop) override {
    if (kept_.empty()) return take(deadline, std::move(stop));
    Completion first = std::move(kept_.front());
    kept_.pop_front();
    return first;
  }
  bool carries_device_memory() const override { return inner_->carries_device_memory(); }
  bool peer_left(const LinkEnd& end) const override { return inner_->peer_left(end); }
  std::vector<transport::LinkReport> reports() const override { return inner_->reports(); }
  void abort(const std::string& reason) noexcept override {
    aborted_ = true;
    inner_->abort(reason);
  }

 private:
  static std::size_t index(Channel channel) { return channel == Channel::kForward ? 0 : 1; }

  std::optional<Completion> take(std::chrono::steady_clock::time_point deadline,
                                 std::stop_token stop) {
    std::optional<Completion> completion = inner_->wait(deadline, std::move(stop));
    if (completion && completion->kind == Completion::Kind::kSent) {
      --outstanding_[index(completion->end.channel)];
    }
    return completion;
  }

  std::unique_ptr<Communicator> inner_;
  const int window_;
  std::atomic<bool> aborted_{false};
  // The fields below are used by the engine thread only.
  std::array<int, 2> outstanding_{};  // per channel: a rank sends on each channel to one peer
  std::deque<Completion> kept_;  // completions that came while send() waited; wait() returns them
};

}  // namespace

std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner, int send_window) {
  return std::make_unique<BlockingSends>(std::move(inner), send_window);
}

}  // namespace weir::emulate
