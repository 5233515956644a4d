// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/data_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

#include <linux/socket.h>

namespace weir::transport::tcp {
namespace {

// Result of a system call; 0 if the call should be repeated later.
Result<std::size_t> outcome(ssize_t count) {
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::size_t{0};
  return Error{Code::kUnavailable, std::generic_category().message(errno)};
}

// The tcp_info of the C library may end before the field that <linux/tcp.h> names tcpi_min_rtt, and
// no file can include both. Its place is part of the kernel's interface.
constexpr std::size_t kLeastRoundTripAt = 148;

struct Info {
  tcp_info first{};
  std::uint32_t least_round_trip = 0;  // in microseconds
};
std::optional<Info> info_of(int descriptor) {
  std::array<std::byte, 256> bytes{};
  socklen_t size = bytes.size();
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, bytes.data(), &size) != 0) {
    return std::nullopt;
  }
  Info info;
  std::memcpy(&info.first, bytes.data(), std::min(sizeof info.first, bytes.size()));
  std::memcpy(&info.least_round_trip, bytes.data() + kLeastRoundTripAt,
              sizeof info.least_round_trip);
  return info;
}

}  // namespace

Result<std::size_t> DataSocket::read(std::span<std::byte> to, std::span<std::byte> more) {
  std::array<iovec, 2> parts{{{to.data(), to.size()}, {more.data(), more.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = more.empty() ? 1 : 2;
  const ssize_t count = ::recvmsg(descriptor_, &message, MSG_DONTWAIT);
  if (count == 0) return Error{Code::kUnavailable, "closed by the peer"};
  return outcome(count);
}

Result<std::size_t> DataSocket::write(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return outcome(::sendmsg(descriptor_, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void set_send_buffer(int descriptor, int bytes) {
  constexpr int kUnsent = 128 * 1024;
  ::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  int given = 0;  // twice what was asked for, for the kernel's own records
  socklen_t size = sizeof given;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &given, &size) != 0) return;
  if (given / 2 >= bytes) return;
  const int unlocked = 0;
  ::setsockopt(descriptor, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof unlocked);  // Linux 5.14
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsent, sizeof kUnsent);
}

bool DataSocket::await_room(std::chrono::microseconds limit) const {
  pollfd one{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  const timespec time{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(limit).count()};
  return ::ppoll(&one, 1, &time, nullptr) > 0;
}

std::size_t DataSocket::unread() const {
  int bytes = 0;
  return ::ioctl(descriptor_, FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes)
                                                                  : 0;
}

void set_receive_buffer(int descriptor, int bytes) {
  if (bytes > 0) ::setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  if (bytes > 0) return;
  int locked = 0;
  socklen_t size = sizeof locked;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_BUF_LOCK, &locked, &size) != 0) return;
  locked &= ~SOCK_RCVBUF_LOCK;
  ::setsockopt(descriptor, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof locked);
}

int segment_of(int descriptor) {
  const auto info = info_of(descriptor);
  return info ? static_cast<int>(info->first.tcpi_snd_mss) : 0;
}

std::optional<std::chrono::nanoseconds> round_trip_of(int descriptor) {
  const auto info = info_of(descriptor);
  // The shortest is -1 until the kernel knows it, and 0 where it does not tell.
  if (!info || info->least_round_trip == 0 || info->first.tcpi_rtt == 0) return std::nullopt;
  return std::chrono::microseconds(std::min(info->least_round_trip, info->first.tcpi_rtt));
}

std::chrono::nanoseconds present_round_trip_of(int descriptor) {
  const auto info = info_of(descriptor);
  return std::chrono::microseconds(info ? info->first.tcpi_rtt : 0);
}

std::chrono::nanoseconds unanswered_for(int descriptor) {
  const auto info = info_of(descriptor);
  return std::chrono::milliseconds(info ? info->first.tcpi_last_ack_recv : 0);
}

void DataSocket::shut() {
  ::shutdown(descriptor_, SHUT_RDWR);
}

DataSocket::~DataSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace weir::transport::tcp
