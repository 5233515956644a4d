// SPDX-License-Identifier: Apache-2.0
// Both directions of a real connection under an order in which a tensor is on its way, or not.
#include "worker/transport/tcp/state_stream.h"

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

namespace weir::transport::tcp {
namespace state_stream_test {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::size_t kBytes = std::size_t{3} << 20U;

std::vector<std::byte> pattern() {
  std::vector<std::byte> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 8U);
  return bytes;
}

// A stream on one end of a connection, and a thread on the other end that is always ready.
class Connected {
 public:
  Connected(std::shared_ptr<TrafficOrder> order, TrafficDirection direction)
      : direction_(direction) {
    tcp::acceptor acceptor(context_, {asio::ip::make_address("127.0.0.1"), 0});
    own_.connect(acceptor.local_endpoint());
    acceptor.accept(other_);
    stream_ = StateStream::make(own_, std::move(order), direction, 1 << 20, 0ns);
    io_ = std::jthread([this] { context_.run(); });
    peer_ = std::jthread([this] {
      ErrorCode ignored;
      if (direction_ == TrafficDirection::kIn) {
        asio::write(other_, asio::buffer(sent_), ignored);
      } else {
        asio::read(other_, asio::buffer(came_), ignored);
      }
    });
  }
  ~Connected() {
    run([this] {
      stream_->close();
      own_.close();
    });
    peer_.join();
    stream_.reset();
    work_.reset();
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  // The outcome; broken if the stream dropped it.
  std::future<ErrorCode> move() {
    auto promise = std::make_shared<std::promise<ErrorCode>>();
    auto outcome = promise->get_future();
    run([this, promise = std::move(promise)]() mutable {
      const auto done = [promise = std::move(promise)](ErrorCode error) {
        promise->set_value(error);
      };
      if (direction_ == TrafficDirection::kOut) {
        stream_->write(sent_, done);
      } else {
        stream_->read(came_, [this] { ++slices_; }, done);
      }
    });
    return outcome;
  }
  void close() {
    run([this] { stream_->close(); });
  }
  bool came() const { return came_ == sent_; }
  std::size_t slices() const { return slices_; }  // of what came

 private:
  void run(std::function<void()> f) {
    std::promise<void> done;
    asio::post(context_, [&] {
      f();
      done.set_value();
    });
    done.get_future().wait();
  }

  const TrafficDirection direction_;
  const std::vector<std::byte> sent_ = pattern();
  std::vector<std::byte> came_ = std::vector<std::byte>(kBytes);
  std::atomic<std::size_t> slices_ = 0;
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  tcp::socket own_{context_}, other_{context_};
  std::shared_ptr<StateStream> stream_;
  std::jthread io_, peer_;
};

class Direction : public testing::TestWithParam<TrafficDirection> {
 protected:
  const std::shared_ptr<TrafficOrder> order_ = std::make_shared<TrafficOrder>();
};

TEST_P(Direction, MovesEveryByteWithAnOrderAndWithout) {
  for (const auto& order : {std::shared_ptr<TrafficOrder>(), order_}) {
    Connected connected(order, GetParam());
    EXPECT_FALSE(connected.move().get());
    if (GetParam() == TrafficDirection::kIn) {
      EXPECT_TRUE(connected.came());
      EXPECT_GE(connected.slices(), kBytes / (256 << 10)) << "each slice is told";
    }
  }
}

TEST_P(Direction, WaitsWhileATensorIsOnItsWayAndGoesOnAtItsEnd) {
  order_->begin(TrafficClass::kBoundary, GetParam());
  Connected connected(order_, GetParam());
  auto outcome = connected.move();
  EXPECT_EQ(outcome.wait_for(200ms), std::future_status::timeout)
      << "at the least rate it takes 48 s";
  order_->end(TrafficClass::kBoundary, GetParam());
  ASSERT_EQ(outcome.wait_for(20s), std::future_status::ready);
  EXPECT_FALSE(outcome.get());
}

TEST_P(Direction, NoWakeIsLostHoweverWaitsAndEndsMeet) {
  order_->begin(TrafficClass::kBoundary, GetParam());
  Connected connected(order_, GetParam());
  auto outcome = connected.move();
  for (int i = 0; i < 200; ++i) {
    order_->end(TrafficClass::kBoundary, GetParam());
    order_->begin(TrafficClass::kBoundary, GetParam());
  }
  order_->end(TrafficClass::kBoundary, GetParam());
  ASSERT_EQ(outcome.wait_for(20s), std::future_status::ready);
  EXPECT_FALSE(outcome.get());
}

TEST_P(Direction, DoesNotWaitForAnotherDirection) {
  const bool out = GetParam() == TrafficDirection::kOut;
  order_->begin(TrafficClass::kBoundary, out ? TrafficDirection::kIn : TrafficDirection::kOut);
  Connected connected(order_, GetParam());
  EXPECT_FALSE(connected.move().get());
}

TEST_P(Direction, TellsNothingAfterAClose) {
  order_->begin(TrafficClass::kBoundary, GetParam());
  Connected connected(order_, GetParam());
  auto outcome = connected.move();
  connected.close();
  EXPECT_THROW(outcome.get(), std::future_error) << "dropped, not called";
  order_->end(TrafficClass::kBoundary, GetParam());
}

TEST(StateStream, KeepsTheOwnerOfItsSocketUntilNoOperationUsesIt) {
  struct Owner {
    explicit Owner(asio::io_context& context) : socket(context) {}
    tcp::socket socket;
    std::shared_ptr<StateStream> stream;
  };
  asio::io_context context;
  tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), 0});
  tcp::socket peer(context);
  auto owner = std::make_shared<Owner>(context);
  owner->socket.connect(acceptor.local_endpoint());
  acceptor.accept(peer);
  owner->stream = StateStream::make(owner->socket, nullptr, TrafficDirection::kOut, 1 << 20, 0ns);
  const std::vector<std::byte> bytes = pattern();
  owner->stream->write(bytes, [owner](ErrorCode) { ADD_FAILURE() << "it was closed"; });

  owner->stream->close();
  owner->socket.close();
  const std::weak_ptr<Owner> used = owner;
  owner.reset();
  EXPECT_FALSE(used.expired());
  context.run();
  EXPECT_TRUE(used.expired());
}

INSTANTIATE_TEST_SUITE_P(Directions, Direction,
                         testing::Values(TrafficDirection::kOut, TrafficDirection::kIn),
                         [](const auto& tested) {
                           return tested.param == TrafficDirection::kOut ? "Out" : "In";
                         });

}  // namespace state_stream_test
}  // namespace weir::transport::tcp
